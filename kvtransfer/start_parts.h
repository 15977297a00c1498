// A transfer's Start message: checked, cut into parts that stay below 256 KiB, put together again.
// Tested by start_parts_test.cc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kvcache/kv_layout.h"
#include "proto/kv_transfer.pb.h"

namespace tandem::kvtransfer {

// What decode wants of prefill.
struct TransferRequest {
  proto::RequestKey key;
  std::vector<uint32_t> prompt_tokens;
  std::vector<uint32_t> generated_tokens;  // where not empty, P samples nothing and no first token comes
  proto::Sampling sampling;
  proto::Stopping stopping;
  int num_choices = 1;
  int num_prefix_tokens_held = 0;  // a multiple of kPageTokens: those pages are not fetched
  std::string cache_salt;
  int priority = 0;
  std::string trace_parent;
  absl::Duration remaining_time = absl::InfiniteDuration();
  std::vector<int32_t> target_pages;  // page of each logical page of the prompt, held prefix included
};

// The same, as prefill's engine gets it.
struct StartRequest {
  proto::RequestKey key;
  std::vector<uint32_t> prompt_tokens;
  std::vector<uint32_t> generated_tokens;  // where not empty, nothing is sampled
  proto::Sampling sampling;
  proto::Stopping stopping;
  int num_choices = 1;
  int num_prefix_tokens_held = 0;  // D has these pages: they must be computed or cached here, but not announced
  std::string cache_salt;          // cached pages of others are used where it is equal
  int priority = 0;
  std::string trace_parent;
  absl::Duration deadline = absl::InfiniteDuration();  // point of the clock
};

// INVALID_ARGUMENT where the request contradicts itself or the pool; DEADLINE_EXCEEDED where no time is left.
absl::Status ValidateRequest(const TransferRequest& request, const kvcache::KvLayout& target_layout);
// In order of part_index, at least one.
std::vector<proto::Start> BuildStartParts(const TransferRequest& request);

// Takes the parts of one Start in order. Copies of parts and parts after a lost one are ignored.
class StartAssembly final {
 public:
  // INVALID_ARGUMENT where the first part promises more than num_tokens_max tokens.
  static absl::Status ValidateFirst(const proto::Start& start, int num_tokens_max);
  // `start` is part 0; it still has to be given to Add.
  StartAssembly(const proto::RequestKey& key, const proto::Start& start, absl::Duration now);

  void Add(const proto::Start& part);
  // The last part has come, or more tokens than were promised.
  bool IsComplete() const { return is_complete_; }
  // INVALID_ARGUMENT where what came is not what was promised or contradicts itself.
  absl::Status Validate() const;
  const StartRequest& request() const { return request_; }
  StartRequest Take() { return std::move(request_); }

 private:
  StartRequest request_;
  uint32_t num_tokens_;
  uint32_t next_part_ = 0;
  bool is_complete_ = false;
};

}  // namespace tandem::kvtransfer
