#include "router/server_information.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "router/openai/api_error.h"
#include "router/openai/json_text.h"
#include "router/pair_picker.h"

namespace tandem::router {
namespace {

const char* JsonBool(bool value) { return value ? "true" : "false"; }

// KV tokens of a worker, from its capacity and the share of its pages that is in use.
struct KvTokens {
  uint64_t total = 0;
  uint64_t used = 0;
  double usage = 0;
};

KvTokens KvTokensOf(const WorkerView& worker) {
  KvTokens tokens;
  tokens.total = worker.kv_tokens_capacity;
  const uint64_t num_pages = worker.load.kv_pages_total;
  if (num_pages == 0) return tokens;
  const uint64_t num_used = num_pages - std::min(worker.load.kv_pages_free, num_pages);
  tokens.usage = static_cast<double>(num_used) / static_cast<double>(num_pages);
  tokens.used = tokens.total / num_pages * num_used;
  return tokens;
}

// What /v1/loads and /server_info both say of a worker, without braces.
void AppendLoad(std::string& out, const WorkerView& worker) {
  const KvTokens tokens = KvTokensOf(worker);
  absl::StrAppend(&out, "\"instance\":", JsonString(worker.instance), ",\"address\":", JsonString(worker.address),
                  ",\"is_up\":", JsonBool(worker.is_up), ",\"is_draining\":", JsonBool(worker.is_draining),
                  ",\"num_running_reqs\":", worker.load.running_sequences,
                  ",\"num_waiting_reqs\":", worker.load.waiting_requests,
                  ",\"num_waiting_uncached_tokens\":", worker.load.waiting_tokens, ",\"num_used_tokens\":", tokens.used,
                  ",\"max_total_num_tokens\":", tokens.total);
  absl::StrAppendFormat(&out, ",\"token_usage\":%.4f", tokens.usage);
}

// Tokens that a window of drafts brought in the mean, over all decode workers since their starts.
std::string AcceptLength(const ClusterView& view) {
  double windows = 0, accepted = 0;
  for (const DecodeView& decode : view.decodes) {
    if (decode.address.empty() || !decode.is_up) continue;
    windows += static_cast<double>(decode.load.spec_windows);
    accepted += static_cast<double>(decode.load.spec_accepted_tokens);
  }
  return windows == 0 ? "null" : absl::StrFormat("%.6g", (windows + accepted) / windows);
}

void AppendRouterLoad(std::string& out, const RouterLoad& load) {
  absl::StrAppend(&out, "\"router\":{\"num_in_flight_reqs\":", load.num_in_flight,
                  ",\"num_waiting_reqs\":", load.num_waiting, "}");
}

template <typename View>
void AppendWorkers(std::string& out, const std::vector<View>& workers) {
  out += '[';
  bool is_first = true;
  for (const View& worker : workers) {
    if (worker.address.empty()) continue;
    out += std::exchange(is_first, false) ? "{" : ",{";
    AppendLoad(out, worker);
    out += '}';
  }
  out += ']';
}

}  // namespace

std::string ModelInfoBody(const ModelContext& context) {
  std::string out = "{";
  absl::StrAppend(&out, "\"model_path\":", JsonString(context.model_path),
                  ",\"tokenizer_path\":", JsonString(context.model_path),
                  ",\"served_model_name\":", JsonString(context.served_model_name),
                  ",\"is_generation\":true,\"preferred_sampling_params\":null,\"has_image_understanding\":false,"
                  "\"has_audio_understanding\":false,\"model_type\":",
                  JsonString(context.facts.model_type), ",\"architectures\":[");
  for (size_t i = 0; i < context.facts.architectures.size(); ++i) {
    absl::StrAppend(&out, i == 0 ? "" : ",", JsonString(context.facts.architectures[i]));
  }
  absl::StrAppend(&out, "],\"max_model_len\":", context.context_length, ",\"vocab_size\":", context.facts.vocab_size,
                  "}");
  return out;
}

std::string ServerInfoBody(const ModelContext& context, const std::string& instance, const ClusterView& view,
                           const RouterLoad& load) {
  uint64_t num_running = 0;
  uint64_t num_tokens = 0;
  for (const DecodeView& decode : view.decodes) {
    num_running += decode.load.running_sequences;
    num_tokens += decode.kv_tokens_capacity;
  }
  const SamplingDefaults& sampling = context.facts.sampling;
  std::string out = "{";
  absl::StrAppend(
      &out, "\"model_path\":", JsonString(context.model_path), ",\"tokenizer_path\":", JsonString(context.model_path),
      ",\"served_model_name\":", JsonString(context.served_model_name), ",\"context_length\":", context.context_length,
      ",\"disaggregation_mode\":\"router\",\"instance\":", JsonString(instance),
      ",\"max_total_num_tokens\":", num_tokens, ",\"sampling_defaults\":{");
  absl::StrAppendFormat(&out, "\"temperature\":%g,\"top_p\":%g,\"top_k\":%d},", sampling.temperature, sampling.top_p,
                        sampling.top_k);
  AppendRouterLoad(out, load);
  absl::StrAppend(&out, ",\"internal_states\":[{\"num_running_reqs\":", num_running,
                  ",\"avg_spec_accept_length\":", AcceptLength(view), ",\"usable_pairs\":", CountUsablePairs(view),
                  "}],\"workers\":{\"prefill\":");
  AppendWorkers(out, view.prefills);
  out += ",\"decode\":";
  AppendWorkers(out, view.decodes);
  out += "}}";
  return out;
}

absl::StatusOr<std::string> LoadsBody(absl::string_view query, const ClusterView& view, const RouterLoad& load,
                                      absl::Time now) {
  for (const absl::string_view pair : absl::StrSplit(query, '&', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(pair, absl::MaxSplits('=', 1));
    if (parts.first == "format" && parts.second != "json") {
      return FieldError("format",
                        absl::StrCat("must be json, got ", Quoted(parts.second), "; /metrics is Prometheus's"));
    }
    if (parts.first == "dp_rank")
      return FieldError("dp_rank", "is not supported: workers have no ranks to choose from");
  }
  std::string out =
      absl::StrCat("{\"timestamp\":", JsonString(absl::FormatTime(absl::RFC3339_sec, now, absl::UTCTimeZone())), ",");
  AppendRouterLoad(out, load);
  out += ",\"loads\":[";
  int rank = 0;
  const auto append = [&](const WorkerView& worker, const char* role) {
    if (worker.address.empty()) return;
    absl::StrAppend(&out, rank == 0 ? "{" : ",{", "\"dp_rank\":", rank, ",\"role\":\"", role, "\",");
    AppendLoad(out, worker);
    out += '}';
    ++rank;
  };
  for (const PrefillView& prefill : view.prefills) append(prefill, "prefill");
  for (const DecodeView& decode : view.decodes) append(decode, "decode");
  out += "]}";
  return out;
}

}  // namespace tandem::router
