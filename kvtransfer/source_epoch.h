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
#include "kvtransfer/start_parts.h"
#include "proto/kv_transfer.pb.h"

namespace tandem::kvtransfer {

enum class SourcePhase : uint8_t {
  kStarting,   // parts of Start are missing
  kAdmitting,  // the engine was asked
  kServing,    // pages are pinned and readable
  kEnding,     // failed here; nothing is held any more; waits for D's AbortAck
};

struct SourceEpoch {
  SourcePhase phase = SourcePhase::kStarting;
  proto::RequestKey key;
  std::optional<StartAssembly> start;  // until it is complete
  int num_first_tokens = 0;            // that will be sampled here
  absl::Duration began;                // for people alone
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
  absl::Duration next_answer = -absl::InfiniteDuration();  // a Repeat before it is not answered
};

struct TargetLink {
  std::string instance;
  bool is_up = true;
  absl::Duration lapses_at = absl::InfiniteDuration();
  DeadEpochs dead;
};

}  // namespace tandem::kvtransfer
