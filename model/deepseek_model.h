// DeepSeek-V3.2 on one backend: rows of tokens against a paged KV pool, in and out.
//
// Owns weights and workspace, not the pool, of which it keeps a mirror where the backend's memory is not the host's
// (kv_mirror.h). One thread at a time. All memory is taken at construction. A row's logits
// and KV bytes depend on its token, its position and its context alone, in bits (docs/architecture.md, Numerics).
// It may be one rank of a group whose ranks share the rows of every batch (rank_group.h).
// Tested by deepseek_model_test.cc (properties on v32-micro) and deepseek_model_golden_test.cc (the NumPy reference).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/backend_memory.h"
#include "kvcache/kv_layout.h"
#include "model/batch_plan.h"
#include "model/checkpoint.h"
#include "model/communicator/communicator.h"
#include "model/decoder_layer.h"
#include "model/device_buffers.h"
#include "model/expert_exchange.h"
#include "model/kv_mirror.h"
#include "model/model_executor.h"
#include "model/record_exchange.h"
#include "model/tensor_tap.h"
#include "model/weights.h"
#include "model/workspace.h"

namespace tandem::model {

struct DeepseekModelOptions {
  int num_rows_max = 512;            // rows of one batch
  int64_t num_positions_max = 4096;  // longest context of one sequence
  bool with_mtp = false;             // loads the MTP layer, which then has KV pages, too
  // On a device: whether the records that Forward writes are copied into the pool, each layer's before its layer_done.
  // Whoever never reads them there does without.
  bool writes_back_kv = true;
  // On a device without writing back: small batches of which all logits are wanted, as decode steps are, run padded to
  // few shapes, and what they enqueue is recorded once for each shape and replayed. No bit depends on it.
  bool records_steps = true;
  // HiSparse where it has pages: the pool stays on the host, rows see their sequences' device buffers. Not together
  // with writes_back_kv: what is computed goes back a step later. Steps are not recorded then.
  DeviceBufferOptions device_buffers;
  std::string index_topk_pattern;  // Index Cache, of IndexCachePattern; empty: every layer chooses for itself
  // Rows whose context is no longer attend to all of it and need no indexer; at least index_topk, which 0 stands for.
  // More changes the answers of longer contexts, and takes 4 bytes of workspace a row and token.
  int64_t dense_context_max = 0;
  TensorTap tap;
  // Where this is one rank of several that share the rows of every batch; outlives the model. All ranks have equal
  // options, are given the same batches and the same spans for what they give, of which each writes its own rows (with
  // RowSplit::kAllRows its own columns of logits, rank 0 the rest); every rank's pool has the records of all rows, with
  // kAllRows a pool of its own. On the host only.
  Communicator* group = nullptr;
  RowSplit row_split = RowSplit::kInterleave;
  KvPlacement kv_placement = KvPlacement::kCopied;
  bool spreads_experts = false;  // each rank has a part of the experts, to which rows travel
};

class DeepseekModel final : public ModelExecutor {
 public:
  // pool: layout.pool_bytes() bytes that outlive the model, as the backend does; layout.num_layers must be the
  // checkpoint's num_hidden_layers, plus one with_mtp. INVALID_ARGUMENT where sizes do not fit or a tensor is missing,
  // RESOURCE_EXHAUSTED where the backend has no room, UNIMPLEMENTED for BF16 experts on a device.
  static absl::StatusOr<std::unique_ptr<DeepseekModel>> Create(kernels::Backend& backend,
                                                               std::shared_ptr<const Checkpoint> checkpoint,
                                                               const kvcache::KvLayout& layout,
                                                               absl::Span<uint8_t> pool,
                                                               const DeepseekModelOptions& options);
  // The same with weights that are there already, where this backend's ops read them; with_mtp is theirs to say.
  static absl::StatusOr<std::unique_ptr<DeepseekModel>> Create(kernels::Backend& backend,
                                                               std::shared_ptr<const ModelWeights> weights,
                                                               const kvcache::KvLayout& layout,
                                                               absl::Span<uint8_t> pool,
                                                               const DeepseekModelOptions& options);

  // INVALID_ARGUMENT, before a byte of the pool is written, for a batch that BatchPlan::Build refuses or logits of
  // another size than [logits_rows, vocab_size].
  absl::Status Forward(const RowBatch& batch, absl::FunctionRef<void(int layer)> layer_done,
                       absl::Span<float> logits) override;
  absl::Status ForwardWithHidden(const RowBatch& batch, absl::FunctionRef<void(int layer)> layer_done,
                                 absl::Span<float> logits, absl::Span<kernels::Bf16> hidden) override;
  // out_hidden: after shared_head.norm.
  absl::Status RunMtp(const RowBatch& batch, absl::Span<const kernels::Bf16> hidden,
                      absl::FunctionRef<void(int layer)> layer_done, absl::Span<float> logits,
                      absl::Span<kernels::Bf16> out_hidden) override;

  struct LayerRange {
    int begin = 0;
    int end = 0;  // at most num_hidden_layers
  };
  // A pipeline stage's part of Forward: layers [begin, end) over the batch's rows. streams [2, num_rows, hidden_size]:
  // what the layers before left and these leave; where begin is 0 it is only written, where end is num_hidden_layers
  // only read, and logits and, unless it is empty, hidden are ForwardWithHidden's there. Of one rank on the host.
  absl::Status RunStage(const RowBatch& batch, const LayerRange& layers, absl::Span<kernels::Bf16> streams,
                        absl::FunctionRef<void(int layer)> layer_done, absl::Span<float> logits,
                        absl::Span<kernels::Bf16> hidden);

  absl::Status PagesArrived(absl::Span<const int32_t> pages) override { return kv_.TakeOver(pages); }
  absl::Status PagesLeave(absl::Span<const int32_t> pages) override { return kv_.GiveBack(pages); }
  absl::Status PinHostMemory(absl::Span<std::byte> bytes) override { return backend_.PinHostMemory(bytes); }
  void UnpinHostMemory(absl::Span<std::byte> bytes) override { backend_.UnpinHostMemory(bytes); }
  absl::Status WriteBack(const Segment& sequence) override;
  void ForgetBuffer(int32_t first_device_page) override;
  const DeviceBufferCounters* device_buffer_counters() const override;

  int vocab_size() const override { return config_.vocab_size; }
  int num_layers() const override { return config_.num_hidden_layers + (has_mtp() ? 1 : 0); }
  bool has_mtp() const override { return weights_->mtp.has_value(); }
  int hidden_size() const override { return config_.hidden_size; }
  // Pairs of a row and an expert that this rank has computed, where the experts are spread. From any thread.
  int64_t num_expert_pairs() const { return experts_.has_value() ? experts_->num_pairs() : 0; }
  // NaN index logits met so far: not zero means damaged weights or KV.
  int64_t num_nan_index_logits() const { return num_nan_index_logits_; }

 private:
  // Layers whose records are on their way into the pool.
  struct LayerUnderWay {
    int layer = 0;
    int64_t ticket = 0;
  };

  DeepseekModel(kernels::Backend& backend, std::shared_ptr<const ModelWeights> weights, const kvcache::KvLayout& layout,
                absl::Span<uint8_t> pool, const DeepseekModelOptions& options);

  absl::Status BuildRopeTable();
  absl::Status RunForward(const std::optional<Padding>& padding, absl::FunctionRef<void(int layer)> layer_done,
                          absl::Span<float> logits);
  // The MTP layer over the plan.
  absl::Status RunMtpRows(absl::Span<const kernels::Bf16> hidden, absl::FunctionRef<void(int layer)> layer_done,
                          absl::Span<float> logits, absl::Span<kernels::Bf16> out_hidden);
  // A rank that goes no further ends its group, which says who failed first.
  absl::Status EndGroupUnlessOk(const absl::Status& status);
  // Rows of what ops wrote, in order, each to its place in `all`. place: of row i among the caller's rows.
  template <typename T, typename Place>
  absl::Status GiveRows(const kernels::Matrix<const T>& rows, absl::Span<T> all, const Place& place);
  absl::Status BuildPlan(const RowBatch& batch, const std::optional<Padding>& padding, absl::Span<float> logits);
  // How a batch is to be padded; none where its step is not one to record.
  std::optional<Padding> PaddingFor(const RowBatch& batch) const;
  // Runs the padded plan: enqueued op by op when its shape is seen first, then recorded, from then on replayed.
  absl::Status RunPadded(const Padding& padding, absl::FunctionRef<void(int layer)> layer_done,
                         absl::Span<float> logits);
  // Layers of the plan, the embedding before the first.
  absl::Status RunLayers(const LayerRange& layers, absl::FunctionRef<void(int layer)> layer_done);
  absl::Status RunLayer(int layer, const LayerWeights& weights, ResidualState state,
                        absl::FunctionRef<void(int layer)> layer_done);
  // Waits for the records of all layers under way but the last `num_left` and says so.
  absl::Status FinishLayers(size_t num_left, absl::FunctionRef<void(int layer)> layer_done);
  // The final norm over all rows, into hidden [num_rows, hidden_size].
  absl::Status NormAllRows(const kernels::Vector<const kernels::Bf16>& norm, absl::Span<kernels::Bf16> hidden);
  // The final norm over the rows whose logits are wanted: normed [logits_rows, hidden_size].
  absl::Status NormLogitsRows(const kernels::Vector<const kernels::Bf16>& norm,
                              const kernels::Matrix<kernels::Bf16>& normed);
  // That, and the head.
  absl::Status RunHead(const kernels::Vector<const kernels::Bf16>& norm,
                       const kernels::Matrix<const kernels::Bf16>& head, const kernels::Matrix<kernels::Bf16>& normed,
                       absl::Span<float> logits);
  // Counts the NaN index logits of layers [begin, end) and waits until everything is done.
  absl::Status Finish(int begin, int end);

  kernels::Backend& backend_;
  const std::shared_ptr<const ModelWeights> weights_;
  const ModelConfig& config_;
  const kvcache::KvLayout layout_;
  const TensorTap tap_;
  const bool writes_back_kv_;
  const bool has_ends_apart_;  // from where ops read what a caller gives, and write what it takes
  Communicator* const group_;  // null: all rows are its own
  std::optional<RecordExchange> exchange_;
  std::optional<ExpertExchange> experts_;
  std::optional<ColumnGather> columns_;
  KvMirror kv_;
  std::unique_ptr<DeviceBuffers> buffers_;  // null without HiSparse
  BatchPlan plan_;
  Workspace workspace_;
  kernels::BackendMemory rope_memory_;
  kernels::Matrix<float> rope_table_;  // [num_positions_max, 64]
  const float softmax_scale_;
  const std::string index_topk_pattern_;
  std::vector<LayerUnderWay> under_way_;
  // Steps of one shape: rows and bound of contexts.
  struct StepOfShape {
    bool has_run = false;
    std::unique_ptr<kernels::RecordedOps> recorded;
  };
  std::map<std::pair<int, int32_t>, StepOfShape> steps_;
  bool records_steps_ = false;
  std::vector<int32_t> nan_counts_;  // where workspace_'s are not the host's
  int64_t num_nan_index_logits_ = 0;
};

}  // namespace tandem::model
