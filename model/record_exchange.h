// How ranks that share a batch's rows come to have the KV records of all of them: each layer's latents and index keys
// travel as they are cached, so that every rank reads the bytes that one rank alone would have written.
//
// Where ranks have pools of their own, a rank sends each of its rows' records to every other one (all-gather) and
// writes what it is sent into its pool. Where they share one pool's memory, the records are there as soon as they are
// written, and all that is exchanged is that they are.
// Tested by rank_group_test.cc.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kvcache/kv_layout.h"
#include "model/batch_plan.h"
#include "model/communicator/communicator.h"

namespace tandem::model {

enum class KvPlacement {
  kCopied,  // a pool for each rank, each with every record
  kShared,  // one pool's memory for all ranks: threads of one process
};

// Bytes of one row's records of one layer on their way.
constexpr int64_t ExchangedRecordBytes(kvcache::KvCacheDtype kv_cache_dtype) {
  return kvcache::LatentRecordBytes(kv_cache_dtype) + kvcache::kIndexRecordBytes;
}

class RecordExchange final {
 public:
  // num_rows_max: of a whole batch. pool: layout.pool_bytes(), on the host. Both outlive this.
  RecordExchange(Communicator& communicator, KvPlacement placement, const kvcache::KvLayout& layout,
                 absl::Span<uint8_t> pool, int num_rows_max);

  // When it returns, this rank's pool has the records of that layer of every row of the batch. Every rank calls it,
  // also one without rows, once its own are written.
  absl::Status Run(const BatchPlan& plan, int layer);

 private:
  Communicator& communicator_;
  const KvPlacement placement_;
  const kvcache::KvLayout layout_;
  const absl::Span<uint8_t> pool_;
  std::vector<std::byte> records_;    // [rank][its rows][record], of all rows of a batch
  std::vector<MutableBytes> pieces_;  // of records_, by rank
  std::vector<int64_t> num_rows_;     // of this batch, by rank
};

}  // namespace tandem::model
