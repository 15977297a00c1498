// A model executor for tests whose next token is a hash of every KV byte it reads.
//
// Each layer writes a full latent record and a full index record for every row, made from the row's state, and then
// folds every byte of the records of positions 0..p, in order, into the state of the row at position p. The state
// starts from (token, position) and ends as the seed of the row's logits. So a lost, stale, swapped, torn or zeroed
// page anywhere in a sequence's cache changes its text, while chunking and batching cannot (as for the real model).
// Writing layer l happens for all rows before any of them reads layer l: layer_done(l) is as truthful as the model's.
//
// With an MTP layer, which is then the last, half of all places (token, position) favour one token that both the model
// and the MTP layer know, and the rest of the logits stays a hash: drafts are right sometimes. The MTP layer's own hash
// is of every byte of its layer that it may read, so that what it drafts shows whether its KV is whole. A hidden state
// is the row's state.
// Tested by hash_model_test.cc.
#pragma once

#include <cstdint>
#include <vector>

#include "kvcache/kv_pool.h"
#include "model/model_executor.h"

namespace tandem::sim {

struct HashModelOptions {
  int vocab_size = 0;
  uint64_t weights_seed = 0;  // other seed, other model
  bool has_mtp = false;       // the pool's last layer is the MTP layer's
};

class HashModel final : public model::ModelExecutor {
 public:
  HashModel(const kvcache::KvPool& pool, const HashModelOptions& options) : pool_(pool), options_(options) {}

  // INVALID_ARGUMENT where a segment reaches beyond its page table, a page beyond the pool, or a token beyond the
  // vocabulary.
  absl::Status Forward(const model::RowBatch& batch, absl::FunctionRef<void(int layer)> layer_done,
                       absl::Span<float> logits) override;
  absl::Status ForwardWithHidden(const model::RowBatch& batch, absl::FunctionRef<void(int layer)> layer_done,
                                 absl::Span<float> logits, absl::Span<kernels::Bf16> hidden) override;
  absl::Status RunMtp(const model::RowBatch& batch, absl::Span<const kernels::Bf16> hidden,
                      absl::FunctionRef<void(int layer)> layer_done, absl::Span<float> logits,
                      absl::Span<kernels::Bf16> out_hidden) override;
  absl::Status PagesArrived(absl::Span<const int32_t>) override { return absl::OkStatus(); }
  int vocab_size() const override { return options_.vocab_size; }
  int num_layers() const override { return pool_.layout().num_layers; }
  bool has_mtp() const override { return options_.has_mtp; }
  int hidden_size() const override { return kHiddenSize; }

  static constexpr int kHiddenSize = 4;  // 64 bits

 private:
  // Writes the records of the layer for all rows, then folds them into the rows' states.
  void RunLayer(int layer, const model::RowBatch& batch, absl::Span<uint64_t> states) const;
  // Of the row at that position that holds that token: half of them have a favourite next token, else -1.
  int32_t Favourite(int32_t token, int64_t position) const;
  void WriteLogits(const model::RowBatch& batch, int64_t favourites_shift, absl::Span<const uint64_t> states,
                   absl::Span<float> logits) const;
  absl::Status Validate(const model::RowBatch& batch, absl::Span<float> logits) const;
  void WriteRecords(int layer, int32_t page, int slot, uint64_t state) const;
  uint64_t FoldRecords(int layer, absl::Span<const int32_t> page_table, int64_t position, uint64_t state) const;

  const kvcache::KvPool pool_;
  const HashModelOptions options_;
};

}  // namespace tandem::sim
