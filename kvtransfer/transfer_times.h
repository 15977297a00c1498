// When a transfer came how far, as decode saw it: for people who ask where a request's time went.
// Decides nothing; left out of AppendState. Tested by transfer_protocol_test.cc.
#pragma once

#include <vector>

#include "absl/time/time.h"

namespace tandem::kvtransfer {

// Points of decode's clock; InfiniteDuration: not yet, or never.
struct TransferTimes {
  static constexpr size_t kChunksMax = 64;
  struct Chunk {
    int num_pages = 0;  // of the prompt, complete in every layer
    absl::Duration at;
  };

  absl::Duration started = absl::InfiniteDuration();          // prefill was asked
  absl::Duration accepted = absl::InfiniteDuration();         // it has given the prompt pages: its turn has come
  absl::Duration first_announced = absl::InfiniteDuration();  // a layer of the first chunk is complete
  absl::Duration first_token = absl::InfiniteDuration();
  absl::Duration ready = absl::InfiniteDuration();  // every page is here and its sum agrees
  std::vector<Chunk> chunks;                        // the first kChunksMax
};

}  // namespace tandem::kvtransfer
