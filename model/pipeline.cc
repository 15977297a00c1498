#include "model/pipeline.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "model/communicator/communicator.h"
#include "model/index_cache.h"

namespace tandem::model {

absl::StatusOr<std::unique_ptr<Pipeline>> Pipeline::Create(absl::Span<kernels::Backend* const> backends,
                                                           std::shared_ptr<const Checkpoint> checkpoint,
                                                           const kvcache::KvLayout& layout, absl::Span<uint8_t> pool,
                                                           const DeepseekModelOptions& model_options,
                                                           const PipelineOptions& options) {
  TANDEM_CHECK(!backends.empty(), "a pipeline has a stage");
  ASSIGN_OR_RETURN(std::shared_ptr<const ModelWeights> weights,
                   LoadWeights(*backends[0], std::move(checkpoint), model_options.with_mtp));
  return Create(backends, std::move(weights), layout, pool, model_options, options);
}

absl::StatusOr<std::unique_ptr<Pipeline>> Pipeline::Create(absl::Span<kernels::Backend* const> backends,
                                                           std::shared_ptr<const ModelWeights> weights,
                                                           const kvcache::KvLayout& layout, absl::Span<uint8_t> pool,
                                                           const DeepseekModelOptions& model_options,
                                                           const PipelineOptions& options) {
  TANDEM_CHECK(!backends.empty(), "a pipeline has a stage");
  TANDEM_CHECK(model_options.group == nullptr && options.micro_batch_rows >= 1 && options.async_depth >= 1,
               "stages of one rank, with room between them");
  const int size = static_cast<int>(backends.size()), num_layers = weights->config.num_hidden_layers;
  if (size > num_layers) {
    return absl::InvalidArgumentError(
        absl::StrCat("a pipeline of ", size, " stages: num_hidden_layers is ", num_layers));
  }
  if (model_options.device_buffers.num_pages > 0) {
    return absl::InvalidArgumentError("device buffers are of one rank: they exclude pipeline stages");
  }
  std::vector<int> first_layers;
  for (int stage = 0; stage < size; ++stage) {
    first_layers.push_back(static_cast<int>(ShareOf(num_layers, stage, size).begin));
    if (SharesSelection(model_options.index_topk_pattern, first_layers.back())) {
      return absl::InvalidArgumentError(absl::StrCat("stage ", stage, " of ", size, " would begin with layer ",
                                                     first_layers.back(),
                                                     ", which attends to what a layer before it chose"));
    }
  }
  first_layers.push_back(num_layers);
  const int vocab_size = weights->config.vocab_size;
  std::vector<std::unique_ptr<DeepseekModel>> stages(size);
  for (int stage = 0; stage < size; ++stage) {
    if (!backends[stage]->is_host()) {
      return absl::UnimplementedError(absl::StrCat(backends[stage]->name(), " hands no rows on to other stages"));
    }
    ASSIGN_OR_RETURN(stages[stage], DeepseekModel::Create(*backends[stage], weights, layout, pool, model_options));
  }
  auto whole =
      std::make_unique<BatchPlan>(*backends[0], BatchLimits{.num_rows_max = model_options.num_rows_max,
                                                            .num_positions_max = model_options.num_positions_max,
                                                            .num_pages = layout.num_pages,
                                                            .vocab_size = vocab_size});
  RETURN_IF_ERROR(whole->status());
  return std::unique_ptr<Pipeline>(new Pipeline(std::move(stages), std::move(first_layers), std::move(whole), options));
}

Pipeline::Pipeline(std::vector<std::unique_ptr<DeepseekModel>> stages, std::vector<int> first_layers,
                   std::unique_ptr<BatchPlan> whole, const PipelineOptions& options)
    : stages_(std::move(stages)),
      first_layers_(std::move(first_layers)),
      whole_(std::move(whole)),
      options_(options),
      bytes_sent_(stages_.size()),
      waiting_(stages_.size()),
      threads_(static_cast<int>(stages_.size())) {}

absl::Status Pipeline::status() const {
  absl::MutexLock lock(&mutex_);
  return failure_;
}

std::string Pipeline::Describe() const {
  std::string text = "stage layers bytes_sent\n";
  for (int stage = 0; stage < size(); ++stage) {
    absl::StrAppend(&text, stage, " ", FirstLayer(stage), "-", FirstLayer(stage + 1) - 1, " ", bytes_sent(stage), "\n");
  }
  if (const absl::Status ended = status(); !ended.ok()) absl::StrAppend(&text, "ended: ", ended.ToString(), "\n");
  return text;
}

absl::Status Pipeline::End(int stage, const absl::Status& cause) {
  absl::MutexLock lock(&mutex_);
  if (failure_.ok()) {
    failure_ = absl::Status(cause.code(), absl::StrCat("stage ", stage, " failed: ", cause.message()));
    changed_.SignalAll();
  }
  return failure_;
}

absl::StatusOr<Pipeline::Streams> Pipeline::Take(int stage) {
  absl::MutexLock lock(&mutex_);
  while (failure_.ok() && waiting_[stage].empty()) changed_.Wait(&mutex_);
  RETURN_IF_ERROR(failure_);
  Streams streams = std::move(waiting_[stage].front());
  waiting_[stage].pop_front();
  changed_.SignalAll();
  return streams;
}

absl::Status Pipeline::Give(int stage, Streams streams) {
  bytes_sent_[stage - 1] += static_cast<int64_t>(streams.size() * sizeof(kernels::Bf16));
  absl::MutexLock lock(&mutex_);
  while (failure_.ok() && static_cast<int>(waiting_[stage].size()) >= options_.async_depth) changed_.Wait(&mutex_);
  RETURN_IF_ERROR(failure_);
  waiting_[stage].push_back(std::move(streams));
  changed_.SignalAll();
  return absl::OkStatus();
}

std::vector<Pipeline::MicroBatch> Pipeline::Cut(const RowBatch& batch, absl::Span<float> logits,
                                                absl::Span<kernels::Bf16> hidden) const {
  const int num_rows = static_cast<int>(batch.tokens.size());
  const int num_micro_batches = (num_rows + options_.micro_batch_rows - 1) / options_.micro_batch_rows;
  std::vector<MicroBatch> cut(num_micro_batches);
  size_t num_logits = 0;
  for (int i = 0; i < num_micro_batches; ++i) {
    MicroBatch& part = cut[i];
    const int begin = i * options_.micro_batch_rows, end = std::min(num_rows, begin + options_.micro_batch_rows);
    for (const Segment& segment : batch.segments) {
      const int first = std::max(begin, segment.row_begin);
      const int last = std::min(end, segment.row_begin + segment.num_rows);
      if (first >= last) continue;
      Segment piece = segment;
      piece.row_begin = first - begin;
      piece.num_rows = last - first;
      piece.first_position = segment.first_position + (first - segment.row_begin);
      part.segments.push_back(piece);
    }
    const size_t first_logits = num_logits;
    for (; num_logits < batch.logits_rows.size() && batch.logits_rows[num_logits] < end; ++num_logits) {
      part.logits_rows.push_back(batch.logits_rows[num_logits] - begin);
    }
    part.batch = {
        .tokens = batch.tokens.subspan(begin, end - begin), .segments = part.segments, .logits_rows = part.logits_rows};
    part.logits = logits.subspan(first_logits * vocab_size(), part.logits_rows.size() * vocab_size());
    if (!hidden.empty())
      part.hidden = hidden.subspan(int64_t{begin} * hidden_size(), int64_t{end - begin} * hidden_size());
  }
  return cut;
}

absl::Status Pipeline::RunStage(int stage, std::vector<MicroBatch>& micro_batches, LayerDone layer_done) {
  const bool is_last = stage + 1 == size();
  for (size_t i = 0; i < micro_batches.size(); ++i) {
    MicroBatch& part = micro_batches[i];
    Streams streams;
    if (stage > 0) {
      ASSIGN_OR_RETURN(streams, Take(stage));
    } else {
      streams.resize(2 * part.batch.tokens.size() * hidden_size());
    }
    const bool ends_layers = i + 1 == micro_batches.size();
    const auto done = [&](int layer) {
      if (ends_layers) layer_done(layer);
    };
    const DeepseekModel::LayerRange layers = {.begin = FirstLayer(stage), .end = FirstLayer(stage + 1)};
    if (absl::Status status =
            stages_[stage]->RunStage(part.batch, layers, absl::MakeSpan(streams), done, part.logits, part.hidden);
        !status.ok()) {
      return End(stage, status);
    }
    if (!is_last) RETURN_IF_ERROR(Give(stage + 1, std::move(streams)));
  }
  return absl::OkStatus();
}

absl::Status Pipeline::AwaitLaterLayers(LayerDone layer_done) {
  for (int layer = FirstLayer(1); layer < FirstLayer(size()); ++layer) {
    {
      absl::MutexLock lock(&mutex_);
      while (failure_.ok() && num_layers_done_ <= layer) changed_.Wait(&mutex_);
      RETURN_IF_ERROR(failure_);
    }
    layer_done(layer);
  }
  return absl::OkStatus();
}

absl::Status Pipeline::Run(const RowBatch& batch, LayerDone layer_done, absl::Span<float> logits,
                           absl::Span<kernels::Bf16> hidden) {
  RETURN_IF_ERROR(status());
  const size_t expected = batch.logits_rows.size() * static_cast<size_t>(vocab_size());
  if (logits.size() != expected) {
    return absl::InvalidArgumentError(absl::StrCat("logits of ", logits.size(), " values, the batch takes ", expected));
  }
  RETURN_IF_ERROR(whole_->Build(batch));
  std::vector<MicroBatch> micro_batches = Cut(batch, logits, hidden);
  if (micro_batches.empty()) return absl::OkStatus();
  {
    absl::MutexLock lock(&mutex_);
    num_layers_done_ = 0;
  }
  threads_.Run([&](int stage) {
    // What it returns is failure_ by then, too.
    if (stage > 0) {
      RunStage(stage, micro_batches, [&](int layer) {
        absl::MutexLock lock(&mutex_);
        num_layers_done_ = layer + 1;
        changed_.SignalAll();
      }).IgnoreError();
    } else if (RunStage(stage, micro_batches, layer_done).ok()) {
      AwaitLaterLayers(layer_done).IgnoreError();
    }
  });
  return status();
}

absl::Status Pipeline::Forward(const RowBatch& batch, LayerDone layer_done, absl::Span<float> logits) {
  return Run(batch, layer_done, logits, {});
}

absl::Status Pipeline::ForwardWithHidden(const RowBatch& batch, LayerDone layer_done, absl::Span<float> logits,
                                         absl::Span<kernels::Bf16> hidden) {
  const size_t expected = batch.tokens.size() * static_cast<size_t>(hidden_size());
  if (hidden.size() != expected) {
    return absl::InvalidArgumentError(absl::StrCat("hidden of ", hidden.size(), " values, the batch takes ", expected));
  }
  return Run(batch, layer_done, logits, hidden);
}

absl::Status Pipeline::RunMtp(const RowBatch& batch, absl::Span<const kernels::Bf16> hidden, LayerDone layer_done,
                              absl::Span<float> logits, absl::Span<kernels::Bf16> out_hidden) {
  RETURN_IF_ERROR(status());
  return stages_.back()->RunMtp(batch, hidden, layer_done, logits, out_hidden);
}

}  // namespace tandem::model
