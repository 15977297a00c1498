// A HashModel as on a device: it computes on a pool of its own and sees of the engine's pool what it is told has
// arrived, as that was then. An engine that forgets to say so, or says so too early, gives other text. What it writes
// itself stays in its own pool, so that an engine which reads it elsewhere is found out, too.
#pragma once

#include <algorithm>

#include "kvcache/kv_pool.h"
#include "model/model_executor.h"
#include "tests/sim/hash_model.h"
#include "tests/sim/pool_memory.h"

namespace tandem::sim {

class MirrorModel final : public model::ModelExecutor {
 public:
  MirrorModel(const kvcache::KvPool& pool, const HashModelOptions& options)
      : pool_(pool), own_memory_(pool.layout()), model_(own_memory_.pool(), options) {}

  absl::Status Forward(const model::RowBatch& batch, absl::FunctionRef<void(int layer)> layer_done,
                       absl::Span<float> logits) override {
    return model_.Forward(batch, layer_done, logits);
  }
  absl::Status ForwardWithHidden(const model::RowBatch& batch, absl::FunctionRef<void(int layer)> layer_done,
                                 absl::Span<float> logits, absl::Span<kernels::Bf16> hidden) override {
    return model_.ForwardWithHidden(batch, layer_done, logits, hidden);
  }
  absl::Status RunMtp(const model::RowBatch& batch, absl::Span<const kernels::Bf16> hidden,
                      absl::FunctionRef<void(int layer)> layer_done, absl::Span<float> logits,
                      absl::Span<kernels::Bf16> out_hidden) override {
    return model_.RunMtp(batch, hidden, layer_done, logits, out_hidden);
  }
  absl::Status PagesArrived(absl::Span<const int32_t> pages) override {
    const kvcache::KvPool own = own_memory_.pool();
    for (const int32_t page : pages) {
      if (page < 0 || page >= pool_.layout().num_pages) return absl::InvalidArgumentError("a page beyond the pool");
      for (int layer = 0; layer < pool_.layout().num_layers; ++layer) {
        for (const auto kind : {kvcache::RecordKind::kLatent, kvcache::RecordKind::kIndex}) {
          std::ranges::copy(pool_.Page(kind, layer, page), own.Page(kind, layer, page).begin());
        }
      }
    }
    return absl::OkStatus();
  }
  absl::Status PagesLeave(absl::Span<const int32_t> pages) override {
    const kvcache::KvPool own = own_memory_.pool();
    for (const int32_t page : pages) {
      if (page < 0 || page >= pool_.layout().num_pages) return absl::InvalidArgumentError("a page beyond the pool");
      own.CopyPageTo(page, pool_, page);
    }
    return absl::OkStatus();
  }
  int vocab_size() const override { return model_.vocab_size(); }
  int num_layers() const override { return model_.num_layers(); }
  bool has_mtp() const override { return model_.has_mtp(); }
  int hidden_size() const override { return model_.hidden_size(); }

 private:
  const kvcache::KvPool pool_;
  PoolMemory own_memory_;
  HashModel model_;
};

}  // namespace tandem::sim
