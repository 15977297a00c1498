#include "tools/bench_serving/metrics.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_split.h"

namespace tandem::bench_serving {
namespace {

// Of sorted samples, as numpy.percentile does by default.
double Percentile(const std::vector<double>& sorted, double percent) {
  const double place = percent / 100 * static_cast<double>(sorted.size() - 1);
  const size_t below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (place - static_cast<double>(below));
}

AnswerTimes TimesOf(const Outcome& outcome) {
  const std::vector<Chunk>& chunks = outcome.answer.chunks;
  AnswerTimes times{.ttft = chunks.front().at - outcome.start, .e2e = outcome.end - outcome.start};
  if (const int output_len = OutputLen(outcome.answer); output_len > 1) {
    times.tpot = (times.e2e - times.ttft) / (output_len - 1);
  }
  for (const double gap : GapsMs(outcome.answer)) times.itl_max = std::max(times.itl_max, absl::Milliseconds(gap));
  return times;
}

// The most intervals that hold one moment; one that ends where another begins is over.
int PeakConcurrency(const std::vector<Outcome>& outcomes) {
  std::vector<std::pair<absl::Duration, int>> steps;
  for (const Outcome& outcome : outcomes) {
    steps.emplace_back(outcome.start, 1);
    steps.emplace_back(outcome.end, -1);
  }
  std::sort(steps.begin(), steps.end());
  int now = 0, peak = 0;
  for (const auto& [at, step] : steps) peak = std::max(peak, now += step);
  return peak;
}

int PeakTokensASecond(const std::vector<Outcome>& outcomes, absl::Duration start) {
  std::map<int64_t, int> tokens;  // by second of the run
  for (const Outcome& outcome : outcomes) {
    for (const Chunk& chunk : outcome.answer.chunks) {
      tokens[static_cast<int64_t>(absl::ToDoubleSeconds(chunk.at - start))] += chunk.num_tokens;
    }
  }
  int peak = 0;
  for (const auto& [second, count] : tokens) peak = std::max(peak, count);
  return peak;
}

void CountFailure(const absl::Status& status, std::map<std::string, Failures>* failures) {
  const std::pair<std::string, std::string> words =
      absl::StrSplit(std::string(status.message()), absl::MaxSplits(": ", 1));
  Failures& kind = (*failures)[words.first];
  if (kind.count++ == 0) kind.first = words.second;
}

}  // namespace

Summary Summarize(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  const double count = static_cast<double>(samples.size());
  Summary summary;
  summary.mean = std::accumulate(samples.begin(), samples.end(), 0.0) / count;
  double squares = 0;
  for (const double sample : samples) squares += (sample - summary.mean) * (sample - summary.mean);
  summary.std = std::sqrt(squares / count);
  summary.median = Percentile(samples, 50);
  summary.p90 = Percentile(samples, 90);
  summary.p95 = Percentile(samples, 95);
  summary.p99 = Percentile(samples, 99);
  summary.max = samples.back();
  return summary;
}

void CountTokensOfChunks(absl::FunctionRef<int(absl::string_view)> retokenize, std::vector<Outcome>* outcomes) {
  for (Outcome& outcome : *outcomes) {
    size_t begin = 0;
    for (Chunk& chunk : outcome.answer.chunks) {
      const absl::string_view text = absl::string_view(outcome.answer.text).substr(begin, chunk.text_end - begin);
      chunk.num_tokens = std::max(retokenize(text), 1);
      begin = chunk.text_end;
    }
  }
}

std::vector<double> GapsMs(const Answer& answer) {
  std::vector<double> gaps;
  for (size_t i = 1; i < answer.chunks.size(); ++i) {
    const Chunk& chunk = answer.chunks[i];
    const double gap = absl::ToDoubleMilliseconds(chunk.at - answer.chunks[i - 1].at) / chunk.num_tokens;
    gaps.insert(gaps.end(), chunk.num_tokens, gap);
  }
  return gaps;
}

int OutputLen(const Answer& answer) {
  if (answer.completion_tokens.has_value()) return *answer.completion_tokens;
  int num_tokens = 0;
  for (const Chunk& chunk : answer.chunks) num_tokens += chunk.num_tokens;
  return num_tokens;
}

BenchMetrics CalculateMetrics(const std::vector<Outcome>& outcomes, absl::Duration start, absl::Duration duration,
                              const GoodputLimits& limits, absl::FunctionRef<int(absl::string_view)> retokenize) {
  BenchMetrics metrics;
  metrics.duration = absl::ToDoubleSeconds(duration);
  std::vector<double> e2es, ttfts, tpots, itls, latenesses;
  for (const Outcome& outcome : outcomes) {
    latenesses.push_back(absl::ToDoubleMilliseconds(outcome.lateness));
    if (!outcome.status.ok()) {
      CountFailure(outcome.status, &metrics.failures);
      continue;
    }
    const AnswerTimes times = TimesOf(outcome);
    const int output_len = OutputLen(outcome.answer);
    ++metrics.completed;
    metrics.total_input += outcome.prompt_len;
    metrics.total_output += output_len;
    metrics.total_output_retokenized += retokenize(outcome.answer.text);
    metrics.num_other_length += output_len != outcome.output_len_asked;
    metrics.num_uncounted += !outcome.answer.completion_tokens.has_value();
    metrics.prompt_tokens_counted += outcome.answer.prompt_tokens.value_or(0);
    metrics.cached_tokens += outcome.answer.cached_tokens.value_or(0);
    metrics.has_cached_tokens |= outcome.answer.cached_tokens.has_value();
    metrics.num_good += IsGood(times, limits);
    e2es.push_back(absl::ToDoubleMilliseconds(times.e2e));
    ttfts.push_back(absl::ToDoubleMilliseconds(times.ttft));
    if (output_len > 1) tpots.push_back(absl::ToDoubleMilliseconds(times.e2e - times.ttft) / (output_len - 1));
    const std::vector<double> gaps = GapsMs(outcome.answer);
    itls.insert(itls.end(), gaps.begin(), gaps.end());
  }
  if (metrics.duration > 0) {
    metrics.request_throughput = metrics.completed / metrics.duration;
    metrics.input_throughput = static_cast<double>(metrics.total_input) / metrics.duration;
    metrics.output_throughput = static_cast<double>(metrics.total_output) / metrics.duration;
    metrics.total_throughput = static_cast<double>(metrics.total_input + metrics.total_output) / metrics.duration;
    metrics.concurrency = std::accumulate(e2es.begin(), e2es.end(), 0.0) / 1000 / metrics.duration;
    metrics.request_goodput = metrics.num_good / metrics.duration;
  }
  metrics.max_output_tokens_per_s = PeakTokensASecond(outcomes, start);
  metrics.max_concurrent_requests = PeakConcurrency(outcomes);
  metrics.e2e_ms = Summarize(std::move(e2es));
  metrics.ttft_ms = Summarize(std::move(ttfts));
  metrics.tpot_ms = Summarize(std::move(tpots));
  metrics.itl_ms = Summarize(std::move(itls));
  metrics.lateness_ms = Summarize(std::move(latenesses));
  return metrics;
}

}  // namespace tandem::bench_serving
