// The layers of one worker in stages as one executor: each stage has some consecutive layers and takes a batch's rows
// through them in micro-batches, which it hands on, so that all stages work at once.
//
// Micro-batches keep the order of rows, so a row finds the records of those before it in every layer's pages; a row's
// bits depend on neither its micro-batch nor the stages: they are those of one rank. Stages are threads of this process
// with a backend each and one pool, of which each touches its own layers' pages only: who announces or fetches pages
// sees them all. What is handed on are a row's two streams of hidden values, 2 x 2 x hidden bytes.
// A stage that fails ends the pipeline: that call and every later one returns its status, which names the stage.
// Tested by pipeline_test.cc, against one rank.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/dtypes.h"
#include "kvcache/kv_layout.h"
#include "model/batch_plan.h"
#include "model/checkpoint.h"
#include "model/deepseek_model.h"
#include "model/model_executor.h"
#include "model/rank_threads.h"
#include "model/weights.h"

namespace tandem::model {

struct PipelineOptions {
  int micro_batch_rows = 64;  // that go through a stage at once, at least 1
  int async_depth = 1;        // micro-batches that may wait between two stages, at least 1
};

class Pipeline final : public ModelExecutor {
 public:
  // A stage on each backend, which outlive the pipeline, as pool does. INVALID_ARGUMENT for fewer layers than stages
  // and for a stage that would begin with a layer that attends to what a layer before it chose; the errors of
  // DeepseekModel::Create. model_options: of one rank, without device buffers.
  static absl::StatusOr<std::unique_ptr<Pipeline>> Create(absl::Span<kernels::Backend* const> backends,
                                                          std::shared_ptr<const Checkpoint> checkpoint,
                                                          const kvcache::KvLayout& layout, absl::Span<uint8_t> pool,
                                                          const DeepseekModelOptions& model_options,
                                                          const PipelineOptions& options);
  // The same with weights that are there already, where every backend's ops read them.
  static absl::StatusOr<std::unique_ptr<Pipeline>> Create(absl::Span<kernels::Backend* const> backends,
                                                          std::shared_ptr<const ModelWeights> weights,
                                                          const kvcache::KvLayout& layout, absl::Span<uint8_t> pool,
                                                          const DeepseekModelOptions& model_options,
                                                          const PipelineOptions& options);

  absl::Status Forward(const RowBatch& batch, absl::FunctionRef<void(int layer)> layer_done,
                       absl::Span<float> logits) override;
  absl::Status ForwardWithHidden(const RowBatch& batch, absl::FunctionRef<void(int layer)> layer_done,
                                 absl::Span<float> logits, absl::Span<kernels::Bf16> hidden) override;
  // On the caller's thread: one layer has nothing to share.
  absl::Status RunMtp(const RowBatch& batch, absl::Span<const kernels::Bf16> hidden,
                      absl::FunctionRef<void(int layer)> layer_done, absl::Span<float> logits,
                      absl::Span<kernels::Bf16> out_hidden) override;
  absl::Status PagesArrived(absl::Span<const int32_t> pages) override { return stages_[0]->PagesArrived(pages); }

  int vocab_size() const override { return stages_[0]->vocab_size(); }
  int num_layers() const override { return stages_[0]->num_layers(); }
  bool has_mtp() const override { return stages_[0]->has_mtp(); }
  int hidden_size() const override { return stages_[0]->hidden_size(); }

  int size() const { return static_cast<int>(stages_.size()); }
  // The first layer of a stage; of size(): behind the last one's. Equal parts, the first stages one more.
  int FirstLayer(int stage) const { return first_layers_[stage]; }
  // What a stage has handed on so far. From any thread.
  int64_t bytes_sent(int stage) const { return bytes_sent_[stage]; }
  // A line for each stage: /statusz. From any thread.
  std::string Describe() const;
  // OK while every stage works. From any thread.
  absl::Status status() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  using LayerDone = absl::FunctionRef<void(int layer)>;
  struct MicroBatch {
    std::vector<Segment> segments;
    std::vector<int32_t> logits_rows;
    RowBatch batch;
    absl::Span<float> logits;
    absl::Span<kernels::Bf16> hidden;  // empty where nobody asked
  };
  using Streams = std::vector<kernels::Bf16>;  // of a micro-batch, on the way to the next stage

  Pipeline(std::vector<std::unique_ptr<DeepseekModel>> stages, std::vector<int> first_layers,
           std::unique_ptr<BatchPlan> whole, const PipelineOptions& options);

  absl::Status Run(const RowBatch& batch, LayerDone layer_done, absl::Span<float> logits,
                   absl::Span<kernels::Bf16> hidden);
  std::vector<MicroBatch> Cut(const RowBatch& batch, absl::Span<float> logits, absl::Span<kernels::Bf16> hidden) const;
  // A stage's part of a run.
  absl::Status RunStage(int stage, std::vector<MicroBatch>& micro_batches, LayerDone layer_done);
  // Calls layer_done for the layers of later stages as they end.
  absl::Status AwaitLaterLayers(LayerDone layer_done) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<Streams> Take(int stage) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Give(int stage, Streams streams) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status End(int stage, const absl::Status& cause) ABSL_LOCKS_EXCLUDED(mutex_);

  const std::vector<std::unique_ptr<DeepseekModel>> stages_;
  const std::vector<int> first_layers_;     // [size() + 1]
  const std::unique_ptr<BatchPlan> whole_;  // a batch is refused before any part of it has run
  const PipelineOptions options_;
  std::vector<std::atomic<int64_t>> bytes_sent_;  // by stage
  mutable absl::Mutex mutex_;
  absl::CondVar changed_;
  std::vector<std::deque<Streams>> waiting_ ABSL_GUARDED_BY(mutex_);  // by the stage that takes them
  int num_layers_done_ ABSL_GUARDED_BY(mutex_) = 0;                   // of the run under way
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  RankThreads threads_;
};

}  // namespace tandem::model
