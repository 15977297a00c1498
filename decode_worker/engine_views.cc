// What others see of the engine: load, /statusz. See engine.h.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "decode_worker/engine.h"

namespace tandem::decode {
namespace {

const char* NameOf(Phase phase) {
  switch (phase) {
    case Phase::kWaiting:
      return "waiting";
    case Phase::kTransferring:
      return "transferring";
    case Phase::kRunning:
      return "running";
    case Phase::kReleasing:
      return "releasing";
    case Phase::kParked:
      return "parked";
  }
  return "";
}

}  // namespace

proto::Load Engine::load() const {
  proto::Load load;
  int num_running = 0;
  for (const auto& [place, request] : holders_) num_running += request->num_holding_sequences();
  load.set_running_sequences(static_cast<uint32_t>(num_running));
  load.set_waiting_requests(static_cast<uint32_t>(waiting_.size()));
  int64_t waiting_tokens = 0;
  for (const auto& [place, request] : waiting_) waiting_tokens += request->num_tokens_left_to_hold();
  load.set_waiting_tokens(waiting_tokens);
  load.set_kv_pages_free(num_pages_available());
  load.set_kv_pages_total(pages_.num_pages());
  load.set_engine_steps(counters_.steps);
  load.set_spec_windows(speculation_.counters().windows);
  load.set_spec_accepted_tokens(speculation_.counters().num_accepted());
  load.set_cached_prompt_tokens(counters_.held_prompt_tokens);
  load.set_generated_tokens(counters_.tokens_generated);
  load.set_transferred_kv_bytes(transfer_.counters().fetched_bytes);
  if (const model::DeviceBufferCounters* buffers = device_buffer_counters(); buffers != nullptr) {
    int64_t hits = 0, misses = 0;
    for (const model::DeviceBufferCounters::Layer& layer : buffers->layers) {
      hits += layer.hits;
      misses += layer.misses;
    }
    load.set_hisparse_hits(hits);
    load.set_hisparse_misses(misses);
    load.set_device_pages_used(device_pages_.num_used());
    load.set_device_pages_total(device_pages_.num_pages());
  }
  return load;
}

std::string Engine::Describe() const {
  std::string text = "request phase prompt_tokens generated_tokens choices choices_left pages open_epochs prefill\n";
  std::vector<const Request*> by_age;
  for (const auto& [key, request] : requests_) by_age.push_back(request.get());
  std::sort(by_age.begin(), by_age.end(), [](const Request* a, const Request* b) { return a->place < b->place; });
  for (const Request* request : by_age) {
    size_t num_generated = 0;
    int num_left = 0;
    for (const Sequence& sequence : request->sequences) {
      num_generated += sequence.generated.size();
      num_left += sequence.has_ended ? 0 : 1;
    }
    absl::StrAppendFormat(&text, "%s %s %d %d %d %d %d %d %s\n", request->generate.key.ToString(),
                          NameOf(request->phase), request->num_prompt_tokens(), num_generated,
                          request->sequences.size(), num_left, request->num_pages(), request->num_open_epochs,
                          request->generate.head.prefill_address());
  }
  if (speculation_.is_on()) absl::StrAppend(&text, "\n", speculation_.Describe());
  if (const model::DeviceBufferCounters* buffers = device_buffer_counters(); buffers != nullptr) {
    absl::StrAppendFormat(&text,
                          "\nhisparse: %d of %d device pages, %d of %d host pages, %d swap-outs\nlayer hits misses\n",
                          device_pages_.num_used(), device_pages_.num_pages(), pages_.num_used(), pages_.num_pages(),
                          counters_.swap_outs);
    for (size_t layer = 0; layer < buffers->layers.size(); ++layer) {
      absl::StrAppend(&text, layer, " ", buffers->layers[layer].hits, " ", buffers->layers[layer].misses, "\n");
    }
  }
  if (const kvcache::PageAllocator& kept = retracted_.pages(); kept.num_pages() > 0) {
    absl::StrAppendFormat(&text,
                          "\nretraction to the host: %d of %d pages; of %d retractions %d were kept there, %d went on "
                          "from there\n",
                          kept.num_used(), kept.num_pages(), counters_.retractions + counters_.credit_retractions,
                          counters_.kept_retractions, counters_.kept_resumes);
  }
  if (prefixes_.has_value()) {
    absl::StrAppendFormat(&text, "\nprefix cache: %d pages, %d of them idle; %d prompt tokens were not fetched again\n",
                          prefixes_->num_pages(), pages_.num_idle(), counters_.held_prompt_tokens);
  }
  absl::StrAppend(&text, "\nprefill usable lanes_or_why_not\n");
  for (const auto& [peer, status] : peers_) {
    absl::StrAppend(&text, peer, status.is_usable() ? " yes " : " no ", status.detail(), "\n");
  }
  return absl::StrCat(text, "\n", transfer_.Describe());
}

}  // namespace tandem::decode
