// The ranks of one worker as one executor: engines do not know how many there are.
//
// Context parallelism: the rows of every batch are dealt out to the ranks in turn (RowShare). Each rank takes its rows
// through all layers; at every layer all ranks exchange KV records, so that each rank's rows attend to everything;
// logits and hidden states come from the rank that has the row. Data parallelism: the same, but whole sequences are
// dealt out. Tensor parallelism: every rank has every row and a part of each layer's outputs (tensor_parallel.h).
// Experts may be spread over the ranks of any of them (expert_exchange.h). The bits are those of one rank.
//
// Ranks are threads of this process with a backend each. The caller's pool is rank 0's: it has every record when
// layer_done is called, and it is the only one that others (a transfer) look at.
// A rank that fails ends the group: that call and every later one returns its status, which names the rank; whoever
// owns the group has to end.
// Tested by rank_group_test.cc, against one rank.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/backend_memory.h"
#include "kernels/dtypes.h"
#include "kvcache/kv_layout.h"
#include "model/checkpoint.h"
#include "model/communicator/communicator.h"
#include "model/deepseek_model.h"
#include "model/model_executor.h"
#include "model/rank_threads.h"
#include "model/weights.h"

namespace tandem::model {

class RankGroup final : public ModelExecutor {
 public:
  // A rank on each backend, at least one; all outlive the group. pool: layout.pool_bytes() bytes, rank 0's; with
  // KvPlacement::kCopied every other rank takes as much from its own backend. options.group is left out.
  // Weights are read once for all ranks. The errors of DeepseekModel::Create.
  static absl::StatusOr<std::unique_ptr<RankGroup>> Create(absl::Span<kernels::Backend* const> backends,
                                                           std::shared_ptr<const Checkpoint> checkpoint,
                                                           const kvcache::KvLayout& layout, absl::Span<uint8_t> pool,
                                                           const DeepseekModelOptions& options);
  // The same with weights that are there already, where every backend's ops read them.
  static absl::StatusOr<std::unique_ptr<RankGroup>> Create(absl::Span<kernels::Backend* const> backends,
                                                           std::shared_ptr<const ModelWeights> weights,
                                                           const kvcache::KvLayout& layout, absl::Span<uint8_t> pool,
                                                           const DeepseekModelOptions& options);

  absl::Status Forward(const RowBatch& batch, absl::FunctionRef<void(int layer)> layer_done,
                       absl::Span<float> logits) override;
  absl::Status ForwardWithHidden(const RowBatch& batch, absl::FunctionRef<void(int layer)> layer_done,
                                 absl::Span<float> logits, absl::Span<kernels::Bf16> hidden) override;
  absl::Status RunMtp(const RowBatch& batch, absl::Span<const kernels::Bf16> hidden,
                      absl::FunctionRef<void(int layer)> layer_done, absl::Span<float> logits,
                      absl::Span<kernels::Bf16> out_hidden) override;
  absl::Status PagesArrived(absl::Span<const int32_t> pages) override;
  // The caller's pool is the first rank's, and every rank has the same records.
  absl::Status PagesLeave(absl::Span<const int32_t> pages) override { return ranks_[0].model->PagesLeave(pages); }

  int vocab_size() const override { return ranks_[0].model->vocab_size(); }
  int num_layers() const override { return ranks_[0].model->num_layers(); }
  bool has_mtp() const override { return ranks_[0].model->has_mtp(); }
  int hidden_size() const override { return ranks_[0].model->hidden_size(); }

  int size() const { return static_cast<int>(ranks_.size()); }
  // From any thread: what this rank has sent and how long it took.
  const Communicator& communicator(int rank) const { return *ranks_[rank].communicator; }
  // Pairs of a row and an expert that this rank has computed, where the experts are spread.
  int64_t num_expert_pairs(int rank) const { return ranks_[rank].model->num_expert_pairs(); }
  // The pool of a rank, as its rows read it.
  absl::Span<uint8_t> pool(int rank) const { return ranks_[rank].pool; }
  // OK while every rank works. From any thread.
  absl::Status status() const { return ranks_[0].communicator->status(); }
  // A line for each rank: /statusz. From any thread.
  std::string Describe() const;

 private:
  struct Rank {
    std::unique_ptr<Communicator> communicator;
    std::unique_ptr<kernels::BackendMemory> memory;  // of its pool; null where that is the caller's
    absl::Span<uint8_t> pool;
    std::unique_ptr<DeepseekModel> model;
  };
  using LayerDone = absl::FunctionRef<void(int layer)>;

  RankGroup(const kvcache::KvLayout& layout, std::vector<Rank> ranks)
      : layout_(layout),
        ranks_(std::move(ranks)),
        statuses_(ranks_.size()),
        threads_(static_cast<int>(ranks_.size())) {}

  // Every rank's part of one call, rank 0's with the caller's layer_done.
  absl::Status OnEveryRank(LayerDone layer_done,
                           absl::FunctionRef<absl::Status(DeepseekModel& model, LayerDone layer_done)> part);

  const kvcache::KvLayout layout_;
  const std::vector<Rank> ranks_;
  std::vector<absl::Status> statuses_;  // of the call under way, by rank
  RankThreads threads_;
};

}  // namespace tandem::model
