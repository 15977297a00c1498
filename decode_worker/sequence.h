// One request as the engine holds it, from its arrival until its Ended.
//
//   waiting      in line, holds nothing
//   transferring holds its pages; its prompt is on its way from prefill
//   running      its prompt is in place; it is stepped
//   releasing    gives back what it holds, here and on its peer; then it ends, or waits again
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "decode_worker/generate_request.h"
#include "kvcache/page_allocator.h"

namespace tandem::decode {

enum class Phase { kWaiting, kTransferring, kRunning, kReleasing };

struct Outcome {
  absl::Status error;  // OK: finished
  bool is_cancelled = false;
};

struct Sequence {
  GenerateRequest request;
  uint64_t arrival = 0;                                // age: lower is older
  absl::Duration deadline = absl::InfiniteDuration();  // point of the clock
  Phase phase = Phase::kWaiting;

  std::vector<uint32_t> generated;  // accepted by the router before, then sent to it
  proto::FinishReason finish_reason = proto::FINISH_REASON_UNSPECIFIED;
  int64_t num_written = 0;             // positions whose KV is in the pages
  std::vector<kvcache::PageId> pages;  // page table

  uint64_t epoch = 0;              // of the transfer under way, 0 where there is none
  int num_open_epochs = 0;         // not yet confirmed by the peer
  std::optional<Outcome> outcome;  // set: it ends as soon as nothing is held any more
  bool was_retried_stale = false;  // ABORTED and DATA_LOSS are each tried again once
  bool was_retried_data_loss = false;

  int64_t num_prompt_tokens() const { return static_cast<int64_t>(request.prompt_tokens.size()); }
  int64_t num_tokens() const { return num_prompt_tokens() + static_cast<int64_t>(generated.size()); }
  std::string Owner() const { return absl::StrCat("request ", request.key.ToString()); }  // of its pages
  bool HoldsPages() const { return !pages.empty(); }
};

}  // namespace tandem::decode
