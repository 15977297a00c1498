// What becomes of the KV pool with HiSparse: how many tokens the host has room for, and how many pages the device
// buffers have together, in the device memory that the pool would take without it (docs/hisparse.md derives the sums).
// Pure. Tested by pool_sizes_test.cc.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "kvcache/kv_layout.h"

namespace tandem::decode {

// process.hisparse.
struct HiSparseSettings {
  bool enabled = false;
  int top_k = 0;                    // 0: the model's index_topk; nothing else is right
  int device_buffer_size = 0;       // tokens; 0: twice top_k
  double host_to_device_ratio = 2;  // tokens of the host pool to kv_cache_tokens
};

// What of a model decides about bytes.
struct KvShape {
  int index_topk = 0;
  int64_t dense_context_max = 0;  // longer lists than index_topk, of contexts up to this one; 0: none
  int num_main_layers = 0;
  bool has_mtp = false;  // a further layer, whole on the device
  kvcache::KvCacheDtype kv_cache_dtype = kvcache::KvCacheDtype::kFp8E4m3;
};

struct PoolSizes {
  int64_t num_tokens = 0;        // of the pool that sequences take their pages from
  int num_kept_pages_max = 0;    // of one buffer, beside the page of its newest tokens; 0: HiSparse is off
  int64_t num_device_pages = 0;  // of all buffers; each has LatentPageBytes in every main layer
  int64_t device_bytes = 0;      // index keys, MTP layer and buffers; without HiSparse the pool

  bool operator==(const PoolSizes&) const = default;
};

// INVALID_ARGUMENT naming field, value and rule.
absl::StatusOr<PoolSizes> PlanPools(const HiSparseSettings& settings, const KvShape& shape, int64_t kv_cache_tokens);

// In one line, for the log.
std::string Describe(const PoolSizes& sizes);

}  // namespace tandem::decode
