// What prefill knows of one open epoch and of one decode worker. Details of transfer_source.h; nobody else includes
// this.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "kvtransfer/dead_epochs.h"
#include "proto/kv_transfer.pb.h"

namespace tandem::kvtransfer {

// A Start, put together from its parts.
struct StartRequest {
  proto::RequestKey key;
  std::vector<uint32_t> prompt_tokens;
  std::vector<uint32_t> generated_tokens;  // where not empty, nothing is sampled
  proto::Sampling sampling;
  proto::Stopping stopping;
  int num_choices = 1;
  int num_prefix_tokens_held = 0;  // D has these pages: they must be computed or cached here, but not announced
  absl::Duration deadline = absl::InfiniteDuration();  // point of the clock
};

enum class SourcePhase : uint8_t {
  kStarting,   // parts of Start are missing
  kAdmitting,  // the engine was asked
  kServing,    // pages are pinned and readable
  kEnding,     // failed here; nothing is held any more; waits for D's AbortAck
};

struct SourceEpoch {
  SourcePhase phase = SourcePhase::kStarting;
  proto::RequestKey key;
  StartRequest start;        // moved out with AdmitRequest
  int num_first_tokens = 0;  // that will be sampled here
  uint32_t next_part = 0;
  uint32_t num_tokens = 0;
  absl::Duration deadline = absl::InfiniteDuration();
  int first_page = 0;  // pages before it are D's already
  int num_pages = 0;
  std::vector<std::vector<int32_t>> pages;  // [source rank][logical page]
  std::vector<uint8_t> is_complete;         // [layer, num_pages - first_page]
  std::vector<uint64_t> latent_sums;        // same shape, bound
  std::vector<uint64_t> index_sums;         // same shape, bound
  std::vector<uint8_t> ranks;               // same shape: who completed it
  int64_t num_complete = 0;
  std::set<int> sampled_choices;
  std::vector<proto::TransferMessage> said;  // everything D needs, for Repeat; in kEnding, the Abort
  absl::Duration next_repeat = absl::InfiniteDuration();
};

struct TargetLink {
  std::string instance;
  bool is_up = true;
  absl::Duration lapses_at = absl::InfiniteDuration();
  DeadEpochs dead;
};

}  // namespace tandem::kvtransfer
