// For tests: a v32-micro (or v32-tiny) checkpoint made on the spot, a model on a pool of its own, and sequences whose
// pages are handed out in a scrambled order.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/dtypes.h"
#include "kvcache/kv_layout.h"
#include "model/checkpoint.h"
#include "model/deepseek_model.h"

namespace tandem::model {

// Writes it under the test's temporary folder, once per process and (name, seed), and opens it.
std::shared_ptr<const Checkpoint> MakeTestCheckpoint(const std::string& config_name, uint64_t seed);

// The tokens that golden files use: x' = (1664525 x + 1013904223) mod 2^32 from 12345 + n; token = x' >> 8 mod vocab.
std::vector<int32_t> GoldenTokens(int n, int vocab_size);

struct TestSequence {
  std::vector<int32_t> pages;
  std::vector<int32_t> device_pages;  // with HiSparse: its device buffer, for the test to fill in
  int64_t num_cached = 0;
};

class TestModel final {
 public:
  struct Options {
    int num_rows_max = 256;
    int64_t num_positions_max = 1024;
    int64_t num_pages = 24;
    kvcache::KvCacheDtype kv_cache_dtype = kvcache::KvCacheDtype::kFp8E4m3;
    bool with_mtp = true;
    uint32_t page_order_seed = 1;
    TensorTap tap;
    kernels::Backend* backend = nullptr;  // null: the host, one thread
    bool writes_back_kv = true;
    bool records_steps = true;
    DeviceBufferOptions device_buffers;
    std::string index_topk_pattern = {};
    int64_t dense_context_max = 0;
  };
  TestModel(std::shared_ptr<const Checkpoint> checkpoint, const Options& options);

  DeepseekModel& model() { return *model_; }
  const kvcache::KvLayout& layout() const { return layout_; }
  std::vector<uint8_t>& pool() { return pool_; }
  // Pages for so many tokens, never handed out before.
  TestSequence NewSequence(int64_t num_tokens);

  // What one call gave: logits of every row [num_rows, vocab] and, from Append, the hidden states [num_rows, hidden].
  struct Result {
    std::vector<float> logits;
    std::vector<kernels::Bf16> hidden;
  };
  // Runs tokens of one sequence in chunks of at most chunk_size rows.
  Result Append(TestSequence& sequence, absl::Span<const int32_t> tokens, int chunk_size);
  // The MTP layer over positions 0 .. next_tokens.size() - 1; Result.hidden holds its own output states.
  Result RunMtp(const TestSequence& sequence, absl::Span<const int32_t> next_tokens,
                absl::Span<const kernels::Bf16> hidden, int chunk_size);

  // The sequence's records of one layer, in order of position: latent record and index key with its scale.
  std::vector<uint8_t> Records(const TestSequence& sequence, int layer, int64_t num_tokens) const;
  // Of them the latent records alone.
  std::vector<uint8_t> Latents(const TestSequence& sequence, int layer, int64_t num_tokens) const;
  // All pages are free again.
  void FreeAll();

 private:
  std::unique_ptr<kernels::Backend> own_backend_;
  kvcache::KvLayout layout_;
  std::vector<uint8_t> pool_;
  std::vector<int32_t> all_pages_, free_pages_;
  std::unique_ptr<DeepseekModel> model_;
};

// 1 - 2<x,y> / (<x,x> + <y,y>) in FP64.
double Distance(absl::Span<const float> x, absl::Span<const float> y);

}  // namespace tandem::model
