#include "tools/bench_serving/report.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "boost/json/parse.hpp"
#include "boost/json/serialize.hpp"
#include "boost/json/value.hpp"

namespace tandem::bench_serving {
namespace {

namespace json = boost::json;

constexpr double kBusyClient = 0.8;  // of a core; above it the client's own waiting shows in the times
constexpr int kBlockWidth = 50;

std::string Headline(absl::string_view words, char fill) {
  const size_t room = kBlockWidth - words.size();
  return absl::StrCat(std::string(room / 2, fill), words, std::string(room - room / 2, fill), "\n");
}

void Line(absl::string_view label, int64_t value, std::string* text) {
  absl::StrAppendFormat(text, "%-40s %-10d\n", label, value);
}
void Line(absl::string_view label, double value, std::string* text) {
  absl::StrAppendFormat(text, "%-40s %-10.2f\n", label, value);
}
void Line(absl::string_view label, absl::string_view value, std::string* text) {
  absl::StrAppendFormat(text, "%-40s %-10s\n", label, value);
}

void Section(absl::string_view title, absl::string_view name, const Summary& summary, std::string* text) {
  absl::StrAppend(text, Headline(title, '-'));
  Line(absl::StrCat("Mean ", name, " (ms):"), summary.mean, text);
  Line(absl::StrCat("Median ", name, " (ms):"), summary.median, text);
  Line(absl::StrCat("P90 ", name, " (ms):"), summary.p90, text);
  Line(absl::StrCat("P95 ", name, " (ms):"), summary.p95, text);
  Line(absl::StrCat("P99 ", name, " (ms):"), summary.p99, text);
}

void AddWarnings(const RunReport& run, std::string* text) {
  const BenchMetrics& metrics = run.metrics;
  for (const auto& [kind, failures] : metrics.failures) {
    absl::StrAppendFormat(text, "failed: %d x %s (first: %s)\n", failures.count, kind, failures.first);
  }
  if (run.num_unsent > 0) absl::StrAppendFormat(text, "interrupted: %d requests were never sent\n", run.num_unsent);
  if (metrics.num_other_length > 0) {
    absl::StrAppendFormat(text, "warning: %d answers have another number of tokens than asked for\n",
                          metrics.num_other_length);
  }
  if (metrics.num_uncounted > 0) {
    absl::StrAppendFormat(text, "warning: of %d answers the server did not say the tokens: chunks are counted\n",
                          metrics.num_uncounted);
  }
  if (run.client_cpu_share > kBusyClient) {
    absl::StrAppendFormat(text, "warning: this program used %.0f %% of a core: times include its own waiting\n",
                          run.client_cpu_share * 100);
  }
}

json::string Text(absl::string_view text) { return json::string(text.data(), text.size()); }

json::value RateValue(double rate) { return std::isinf(rate) ? json::value("inf") : json::value(rate); }

void AddSummary(const char* name, const Summary& summary, json::object* object) {
  const std::pair<const char*, double> figures[] = {{"mean", summary.mean}, {"median", summary.median},
                                                    {"std", summary.std},   {"p90", summary.p90},
                                                    {"p95", summary.p95},   {"p99", summary.p99}};
  for (const auto& [figure, value] : figures) (*object)[absl::StrCat(figure, "_", name, "_ms")] = value;
}

json::object GoodputObject(const Flags& flags, const BenchMetrics& metrics) {
  json::object goodput;
  const std::pair<const char*, std::optional<absl::Duration>> limits[] = {{"ttft_ms", flags.goodput.ttft},
                                                                          {"tpot_ms", flags.goodput.tpot},
                                                                          {"itl_ms", flags.goodput.itl},
                                                                          {"e2e_ms", flags.goodput.e2e}};
  for (const auto& [name, limit] : limits) {
    if (limit.has_value()) goodput[name] = absl::ToDoubleMilliseconds(*limit);
  }
  goodput["good"] = metrics.num_good;
  goodput["request_goodput"] = metrics.request_goodput;
  return goodput;
}

json::object CacheObject(const BenchMetrics& metrics) {
  json::object report;
  report["prompt_tokens"] = metrics.prompt_tokens_counted;
  report["cached_tokens"] = metrics.cached_tokens;
  report["hit_rate"] = metrics.prompt_tokens_counted == 0 ? 0.0
                                                          : static_cast<double>(metrics.cached_tokens) /
                                                                static_cast<double>(metrics.prompt_tokens_counted);
  return report;
}

void AddDetails(const std::vector<Outcome>& outcomes, json::object* object) {
  json::array input_lens, output_lens, ttfts, itls, e2es, texts, errors;
  for (const Outcome& outcome : outcomes) {
    const bool is_ok = outcome.status.ok();
    json::array gaps;
    for (const double gap : GapsMs(outcome.answer)) gaps.push_back(gap / 1000);
    input_lens.push_back(outcome.prompt_len);
    output_lens.push_back(is_ok ? OutputLen(outcome.answer) : 0);
    ttfts.push_back(is_ok ? absl::ToDoubleSeconds(outcome.answer.chunks.front().at - outcome.start) : 0.0);
    itls.push_back(std::move(gaps));
    e2es.push_back(is_ok ? absl::ToDoubleSeconds(outcome.end - outcome.start) : 0.0);
    texts.push_back(Text(outcome.answer.text));
    errors.push_back(Text(std::string(outcome.status.message())));
  }
  (*object)["input_lens"] = std::move(input_lens);
  (*object)["output_lens"] = std::move(output_lens);
  (*object)["ttfts"] = std::move(ttfts);
  (*object)["itls"] = std::move(itls);
  (*object)["e2e_latencies"] = std::move(e2es);
  (*object)["generated_texts"] = std::move(texts);
  (*object)["errors"] = std::move(errors);
}

}  // namespace

std::string ReportText(const Flags& flags, const RunReport& run) {
  const BenchMetrics& metrics = run.metrics;
  std::string text = absl::StrCat("\n", Headline(" Serving Benchmark Result ", '='));
  Line("Backend:", flags.backend_name, &text);
  Line("Traffic request rate:", std::isinf(flags.request_rate) ? "inf" : absl::StrFormat("%g", flags.request_rate),
       &text);
  Line("Max request concurrency:", flags.max_concurrency == 0 ? "not set" : absl::StrCat(flags.max_concurrency), &text);
  Line("Successful requests:", int64_t{metrics.completed}, &text);
  Line("Benchmark duration (s):", metrics.duration, &text);
  Line("Total input tokens:", metrics.total_input, &text);
  Line("Total input text tokens:", metrics.total_input, &text);
  Line("Total generated tokens:", metrics.total_output, &text);
  Line("Total generated tokens (retokenized):", metrics.total_output_retokenized, &text);
  Line("Request throughput (req/s):", metrics.request_throughput, &text);
  Line("Input token throughput (tok/s):", metrics.input_throughput, &text);
  Line("Output token throughput (tok/s):", metrics.output_throughput, &text);
  Line("Peak output token throughput (tok/s):", static_cast<double>(metrics.max_output_tokens_per_s), &text);
  Line("Peak concurrent requests:", int64_t{metrics.max_concurrent_requests}, &text);
  Line("Total token throughput (tok/s):", metrics.total_throughput, &text);
  Line("Concurrency:", metrics.concurrency, &text);
  if (run.accept_length.has_value()) Line("Accept length:", *run.accept_length, &text);
  Section("End-to-End Latency", "E2E Latency", metrics.e2e_ms, &text);
  Section("Time to First Token", "TTFT", metrics.ttft_ms, &text);
  Section("Time per Output Token (excl. 1st token)", "TPOT", metrics.tpot_ms, &text);
  Section("Inter-Token Latency", "ITL", metrics.itl_ms, &text);
  Line("Max ITL (ms):", metrics.itl_ms.max, &text);
  if (flags.goodput.any()) {
    absl::StrAppend(&text, Headline("Goodput", '-'));
    Line("Good requests:", int64_t{metrics.num_good}, &text);
    Line("Request goodput (req/s):", metrics.request_goodput, &text);
  }
  if (metrics.has_cached_tokens) {
    absl::StrAppend(&text, Headline("Cache", '-'));
    Line("Prompt tokens (server's count):", metrics.prompt_tokens_counted, &text);
    Line("Cached tokens:", metrics.cached_tokens, &text);
  }
  absl::StrAppend(&text, Headline("Load generator", '-'));
  Line("P99 lateness of starts (ms):", metrics.lateness_ms.p99, &text);
  Line("CPU of this program (cores):", run.client_cpu_share, &text);
  absl::StrAppend(&text, std::string(kBlockWidth, '='), "\n");
  AddWarnings(run, &text);
  return text;
}

std::string ReportLine(const Flags& flags, const RunReport& run, const std::vector<Outcome>& outcomes) {
  const BenchMetrics& metrics = run.metrics;
  json::object object;
  object["tag"] = flags.tag.empty() ? json::value() : json::value(Text(flags.tag));
  object["backend"] = Text(flags.backend_name);
  object["dataset_name"] = Text(flags.dataset_name);
  object["request_rate"] = RateValue(flags.request_rate);
  object["max_concurrency"] = flags.max_concurrency == 0 ? json::value() : json::value(flags.max_concurrency);
  object["sharegpt_output_len"] =
      flags.sharegpt_output_len == 0 ? json::value() : json::value(flags.sharegpt_output_len);
  object["random_input_len"] = flags.random_input_len;
  object["random_output_len"] = flags.random_output_len;
  object["random_range_ratio"] = flags.random_range_ratio;
  boost::system::error_code error;
  json::value server_info = json::parse(run.server_info, error);
  object["server_info"] = error ? json::value() : std::move(server_info);
  object["duration"] = metrics.duration;
  object["completed"] = metrics.completed;
  object["total_input_tokens"] = metrics.total_input;
  object["total_input_text_tokens"] = metrics.total_input;
  object["total_input_vision_tokens"] = 0;
  object["total_output_tokens"] = metrics.total_output;
  object["total_output_tokens_retokenized"] = metrics.total_output_retokenized;
  object["request_throughput"] = metrics.request_throughput;
  object["input_throughput"] = metrics.input_throughput;
  object["output_throughput"] = metrics.output_throughput;
  object["total_throughput"] = metrics.total_throughput;
  AddSummary("e2e_latency", metrics.e2e_ms, &object);
  AddSummary("ttft", metrics.ttft_ms, &object);
  AddSummary("tpot", metrics.tpot_ms, &object);
  AddSummary("itl", metrics.itl_ms, &object);
  object["max_itl_ms"] = metrics.itl_ms.max;
  object["concurrency"] = metrics.concurrency;
  object["accept_length"] = run.accept_length.has_value() ? json::value(*run.accept_length) : json::value();
  object["max_output_tokens_per_s"] = metrics.max_output_tokens_per_s;
  object["max_concurrent_requests"] = metrics.max_concurrent_requests;
  if (metrics.has_cached_tokens) object["cache_report"] = CacheObject(metrics);
  if (flags.goodput.any()) object["goodput"] = GoodputObject(flags, metrics);
  json::object failures;
  for (const auto& [kind, failed] : metrics.failures) failures[kind] = failed.count;
  object["failures"] = std::move(failures);
  object["num_unsent"] = run.num_unsent;
  object["num_other_length"] = metrics.num_other_length;
  object["seed"] = flags.seed;
  object["p99_start_lateness_ms"] = metrics.lateness_ms.p99;
  object["client_cpu_share"] = run.client_cpu_share;
  if (flags.output_details) AddDetails(outcomes, &object);
  return absl::StrCat(json::serialize(object), "\n");
}

std::optional<double> FindAcceptLength(absl::string_view server_info) {
  boost::system::error_code error;
  const json::value value = json::parse({server_info.data(), server_info.size()}, error);
  if (error) return std::nullopt;
  const json::value* source = &value;
  if (const json::object* const object = value.if_object()) {
    const json::value* const decode = object->if_contains("decode");
    if (decode != nullptr && decode->if_array() && !decode->if_array()->empty()) source = decode->if_array()->data();
  }
  const json::value* const length = source->find_pointer("/internal_states/0/avg_spec_accept_length", error);
  if (length == nullptr || error) return std::nullopt;
  const double number = length->to_number<double>(error);
  if (error) return std::nullopt;
  return number;
}

}  // namespace tandem::bench_serving
