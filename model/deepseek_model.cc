#include "model/deepseek_model.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "model/decoder_layer.h"
#include "model/index_cache.h"

namespace tandem::model {
namespace {

using kernels::Bf16;
using kernels::Matrix;
using kernels::Vector;

absl::Status WrongSize(absl::string_view what, size_t size, size_t expected) {
  return absl::InvalidArgumentError(absl::StrCat(what, " of ", size, " values, the batch takes ", expected));
}

absl::Status NoRoom(absl::string_view what, const absl::Status& status) {
  return status.ok() ? status : absl::Status(status.code(), absl::StrCat(what, ": ", status.message()));
}

RowShare ShareOf(const DeepseekModelOptions& options) {
  if (options.group == nullptr) return RowShare();
  return {.rank = options.group->rank(), .size = options.group->size(), .split = options.row_split};
}

bool IsTensorParallel(const DeepseekModelOptions& options) {
  return options.group != nullptr && options.group->size() > 1 && options.row_split == RowSplit::kAllRows;
}

// Rows that a rank sends to experts and adds up.
int64_t NumRowsInTurnMax(const DeepseekModelOptions& options) {
  const int64_t rows = options.num_rows_max;
  return IsTensorParallel(options) ? (rows + options.group->size() - 1) / options.group->size()
                                   : ShareOf(options).NumRowsMax(rows);
}

bool SpreadsExperts(const DeepseekModelOptions& options) {
  return options.group != nullptr && options.group->size() > 1 && options.spreads_experts;
}

// Positions that a row attends to at most: what is dense goes no further than contexts do.
int64_t LongestList(const ModelConfig& config, const DeepseekModelOptions& options) {
  return std::max<int64_t>(config.index_topk, std::min(options.dense_context_max, options.num_positions_max));
}

absl::Status CheckSizes(const ModelConfig& config, bool with_mtp, const kvcache::KvLayout& layout,
                        absl::Span<uint8_t> pool, const DeepseekModelOptions& options) {
  const int num_layers = config.num_hidden_layers + (with_mtp ? 1 : 0);
  if (layout.num_layers != num_layers) {
    return absl::InvalidArgumentError(
        absl::StrCat("KV layout of ", layout.num_layers, " layers, the model has ", num_layers));
  }
  if (layout.num_pages < 1 || static_cast<int64_t>(pool.size()) != layout.pool_bytes()) {
    return absl::InvalidArgumentError(
        absl::StrCat("KV pool of ", pool.size(), " bytes, ", layout.num_pages, " pages take ", layout.pool_bytes()));
  }
  if (options.num_rows_max < 1) {
    return absl::InvalidArgumentError(absl::StrCat("num_rows_max is ", options.num_rows_max, ", at least 1"));
  }
  if (options.num_positions_max < 1 || options.num_positions_max > config.max_position_embeddings) {
    return absl::InvalidArgumentError(absl::StrCat("num_positions_max is ", options.num_positions_max,
                                                   ", allowed 1 to ", config.max_position_embeddings));
  }
  RETURN_IF_ERROR(IndexCachePattern(options.index_topk_pattern, /*freq=*/0, config.num_hidden_layers).status());
  if (options.dense_context_max != 0 && options.dense_context_max < config.index_topk) {
    return absl::InvalidArgumentError(absl::StrCat("dense_context_max is ", options.dense_context_max,
                                                   ", at least index_topk ", config.index_topk, ", or 0 for it"));
  }
  if (options.device_buffers.num_pages > 0 && (options.writes_back_kv || options.group != nullptr)) {
    return absl::InvalidArgumentError(
        "device buffers are of a decode worker's one rank: they exclude writes_back_kv and further ranks");
  }
  return absl::OkStatus();
}

// The rows that a recorded step may have.
constexpr int64_t kRecordedRowsMax = 128;
static_assert(kRecordedRowsMax / 2 <= kPaddingRowsMax);

}  // namespace

absl::StatusOr<std::unique_ptr<DeepseekModel>> DeepseekModel::Create(kernels::Backend& backend,
                                                                     std::shared_ptr<const Checkpoint> checkpoint,
                                                                     const kvcache::KvLayout& layout,
                                                                     absl::Span<uint8_t> pool,
                                                                     const DeepseekModelOptions& options) {
  // Before the weights are loaded, which may take minutes.
  RETURN_IF_ERROR(CheckSizes(checkpoint->config(), options.with_mtp, layout, pool, options));
  auto loaded = LoadWeights(backend, std::move(checkpoint), options.with_mtp);
  if (absl::IsResourceExhausted(loaded.status())) return NoRoom("the weights", loaded.status());
  ASSIGN_OR_RETURN(std::shared_ptr<const ModelWeights> weights, std::move(loaded));
  return Create(backend, std::move(weights), layout, pool, options);
}

absl::StatusOr<std::unique_ptr<DeepseekModel>> DeepseekModel::Create(kernels::Backend& backend,
                                                                     std::shared_ptr<const ModelWeights> weights,
                                                                     const kvcache::KvLayout& layout,
                                                                     absl::Span<uint8_t> pool,
                                                                     const DeepseekModelOptions& options) {
  RETURN_IF_ERROR(CheckSizes(weights->config, weights->mtp.has_value(), layout, pool, options));
  if (weights->has_bf16_experts() && !backend.is_host()) {
    return absl::UnimplementedError(
        absl::StrCat("the model's experts are BF16, ", backend.name(), " runs FP8 experts only"));
  }
  if (options.group != nullptr && !backend.is_host()) {
    return absl::UnimplementedError(absl::StrCat(backend.name(), " shares no rows with other ranks"));
  }
  if (SpreadsExperts(options) && options.group->size() > weights->config.n_routed_experts) {
    return absl::InvalidArgumentError(absl::StrCat("experts spread over ", options.group->size(),
                                                   " ranks: n_routed_experts is ", weights->config.n_routed_experts));
  }
  if (IsTensorParallel(options)) {
    ASSIGN_OR_RETURN(weights, SliceWeights(std::move(weights), backend, options.group->rank(), options.group->size()));
  }
  std::unique_ptr<DeepseekModel> model(new DeepseekModel(backend, std::move(weights), layout, pool, options));
  RETURN_IF_ERROR(NoRoom("the KV pool", model->kv_.status()));
  if (model->buffers_ != nullptr) RETURN_IF_ERROR(NoRoom("the device buffers", model->buffers_->status()));
  RETURN_IF_ERROR(NoRoom("the rows of a batch", model->plan_.status()));
  RETURN_IF_ERROR(NoRoom("the workspace", model->workspace_.status()));
  RETURN_IF_ERROR(NoRoom("the rope table", model->rope_memory_.status()));
  RETURN_IF_ERROR(model->BuildRopeTable());
  if (!backend.is_host()) {
    LOG_INFO("the model is on its device", {"device", backend.name()},
             {"weight_bytes", model->weights_->copies.num_bytes()}, {"kv_pool_bytes", model->kv_.num_bytes()},
             {"device_buffer_bytes", model->buffers_ != nullptr ? model->buffers_->num_bytes() : 0},
             {"workspace_bytes", model->workspace_.num_bytes()});
  }
  return model;
}

DeepseekModel::DeepseekModel(kernels::Backend& backend, std::shared_ptr<const ModelWeights> weights,
                             const kvcache::KvLayout& layout, absl::Span<uint8_t> pool,
                             const DeepseekModelOptions& options)
    : backend_(backend),
      weights_(std::move(weights)),
      config_(weights_->config),
      layout_(layout),
      tap_(options.tap),
      writes_back_kv_(options.writes_back_kv && !backend.is_host()),
      has_ends_apart_(!backend.is_host() || options.group != nullptr),
      group_(options.group),
      kv_(backend, layout, pool, options.device_buffers.num_pages > 0 ? config_.num_hidden_layers : 0),
      buffers_(options.device_buffers.num_pages > 0
                   ? std::make_unique<DeviceBuffers>(backend, layout, pool, config_.num_hidden_layers,
                                                     static_cast<int>(LongestList(config_, options)),
                                                     options.num_rows_max, options.device_buffers)
                   : nullptr),
      plan_(backend,
            {.num_rows_max = options.num_rows_max,
             .num_positions_max = options.num_positions_max,
             .num_pages = layout.num_pages,
             .vocab_size = config_.vocab_size},
            ShareOf(options)),
      workspace_(backend, config_, plan_.share().NumRowsMax(options.num_rows_max), options.num_positions_max,
                 weights_->has_bf16_experts(), has_ends_apart_,
                 /*expert_rows_max=*/SpreadsExperts(options) ? options.num_rows_max : 0,
                 /*expert_pairs_max=*/
                 SpreadsExperts(options)
                     ? ExpertExchange::NumPairsMax(config_, options.num_rows_max, options.group->size())
                     : 0,
                 LongestList(config_, options)),
      rope_memory_(backend),
      rope_table_(rope_memory_.Allocate<float>(options.num_positions_max * kvcache::kRopeDim),
                  {options.num_positions_max, kvcache::kRopeDim}),
      softmax_scale_(static_cast<float>(kernels::YarnSoftmaxScaleFactor(config_.yarn.factor, config_.mscale_all_dim) /
                                        std::sqrt(static_cast<double>(config_.qk_head_dim())))),
      index_topk_pattern_(options.index_topk_pattern) {
  under_way_.reserve(layout.num_layers);
  if (IsTensorParallel(options)) {
    columns_.emplace(*group_, config_, options.num_rows_max);
  } else if (group_ != nullptr && group_->size() > 1) {
    exchange_.emplace(*group_, options.kv_placement, layout, pool, options.num_rows_max);
  }
  if (SpreadsExperts(options)) {
    experts_.emplace(*group_, config_, options.num_rows_max, NumRowsInTurnMax(options), weights_->has_bf16_experts());
  }
  if (backend.is_host()) return;
  nan_counts_.resize(workspace_.nan_counts.num_elements());
  records_steps_ = options.records_steps && !writes_back_kv_ && !tap_ && buffers_ == nullptr;
}

// On the host always: its sines and cosines are the same for every backend.
absl::Status DeepseekModel::BuildRopeTable() {
  if (backend_.is_host()) return kernels::BuildRopeTable({.yarn = config_.yarn, .table = rope_table_});
  std::vector<float> table(rope_table_.num_elements());
  RETURN_IF_ERROR(
      kernels::BuildRopeTable({.yarn = config_.yarn, .table = Matrix<float>(table.data(), rope_table_.shape)}));
  RETURN_IF_ERROR(
      backend_.Upload({rope_table_.data, table.data(), static_cast<int64_t>(table.size() * sizeof(float))}));
  return backend_.Synchronize();
}

absl::Status DeepseekModel::BuildPlan(const RowBatch& batch, const std::optional<Padding>& padding,
                                      absl::Span<float> logits) {
  const size_t expected = batch.logits_rows.size() * static_cast<size_t>(config_.vocab_size);
  if (logits.size() != expected) return WrongSize("logits", logits.size(), expected);
  // A batch that failed may have left work behind that reads the plan.
  RETURN_IF_ERROR(EndGroupUnlessOk(backend_.Synchronize()));
  under_way_.clear();
  RETURN_IF_ERROR(plan_.Build(batch, padding));
  if (writes_back_kv_) kv_.NoteRows(plan_);
  return absl::OkStatus();
}

absl::Status DeepseekModel::EndGroupUnlessOk(const absl::Status& status) {
  if (status.ok() || group_ == nullptr) return status;
  group_->Fail(status);
  return group_->status();
}

template <typename T, typename Place>
absl::Status DeepseekModel::GiveRows(const Matrix<const T>& rows, absl::Span<T> all, const Place& place) {
  const auto [count, width] = rows.shape;
  const auto give = [&](int64_t row, int64_t to, int64_t num_rows) {
    return backend_.Download({all.data() + to * width, rows.Row(row), num_rows * width * int64_t{sizeof(T)}});
  };
  if (count == 0 || (columns_.has_value() && columns_->rank() != 0)) return absl::OkStatus();  // all have the same
  if (plan_.share().size == 1) return give(0, place(0), count);
  for (int64_t row = 0; row < count; ++row) RETURN_IF_ERROR(give(row, place(row), 1));
  return absl::OkStatus();
}

absl::Status DeepseekModel::WriteBack(const Segment& sequence) {
  return buffers_ != nullptr ? buffers_->WriteBack(sequence) : absl::OkStatus();
}

void DeepseekModel::ForgetBuffer(int32_t first_device_page) {
  if (buffers_ != nullptr) buffers_->Forget(first_device_page);
}

const DeviceBufferCounters* DeepseekModel::device_buffer_counters() const {
  return buffers_ != nullptr ? &buffers_->counters() : nullptr;
}

absl::Status DeepseekModel::RunLayer(int layer, const LayerWeights& weights, ResidualState state,
                                     absl::FunctionRef<void(int layer)> layer_done) {
  DeviceBuffers* buffers = layer < config_.num_hidden_layers ? buffers_.get() : nullptr;
  const LayerRun run{.backend = backend_,
                     .config = config_,
                     .plan = plan_,
                     .workspace = workspace_,
                     .rope_table = rope_table_,
                     .softmax_scale = softmax_scale_,
                     .layer = layer,
                     .shares_selection = SharesSelection(index_topk_pattern_, layer),
                     .kv_cache_dtype = layout_.kv_cache_dtype,
                     .buffers = buffers,
                     .latent_pages = buffers != nullptr ? buffers->LatentPages(layer) : kv_.LatentPages(layer),
                     .index_pages = kv_.IndexPages(layer),
                     .nan_count = workspace_.nan_counts.Slice(int64_t{layer} * plan_.num_rows(), plan_.num_rows()),
                     .tap = tap_,
                     .experts = experts_.has_value() ? &*experts_ : nullptr,
                     .columns = columns_.has_value() ? &*columns_ : nullptr};
  return RunDecoderLayer(run, weights, state, [&]() -> absl::Status {
    if (exchange_.has_value()) RETURN_IF_ERROR(exchange_->Run(plan_, layer));
    if (!writes_back_kv_) {
      layer_done(layer);
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(const int64_t ticket, kv_.WriteBack(layer));
    under_way_.push_back({.layer = layer, .ticket = ticket});
    return FinishLayers(1, layer_done);  // the device has this layer to go on with
  });
}

absl::Status DeepseekModel::FinishLayers(size_t num_left, absl::FunctionRef<void(int layer)> layer_done) {
  while (under_way_.size() > num_left) {
    RETURN_IF_ERROR(backend_.AwaitDownloads(under_way_.front().ticket));
    layer_done(under_way_.front().layer);
    under_way_.erase(under_way_.begin());
  }
  return absl::OkStatus();
}

absl::Status DeepseekModel::Finish(int begin, int end) {
  const int64_t stride = plan_.num_rows(), first = begin * stride, count = (end - begin) * stride;
  const int32_t* counts = workspace_.nan_counts.data + first;
  if (!backend_.is_host()) {
    RETURN_IF_ERROR(backend_.Download({nan_counts_.data(), counts, count * static_cast<int64_t>(sizeof(int32_t))}));
    counts = nan_counts_.data();
  }
  RETURN_IF_ERROR(backend_.Synchronize());
  for (int layer = 0; layer < end - begin; ++layer) {
    if (SharesSelection(index_topk_pattern_, begin + layer)) continue;  // counted where they were chosen
    for (int row = 0; row < plan_.num_batch_rows(); ++row) num_nan_index_logits_ += counts[layer * stride + row];
  }
  return absl::OkStatus();
}

absl::Status DeepseekModel::NormAllRows(const Vector<const Bf16>& norm, absl::Span<Bf16> hidden) {
  const int64_t rows = plan_.num_batch_rows();
  const Matrix<Bf16> residual = workspace_.residual.Slice(0, rows);
  const Matrix<Bf16> out(has_ends_apart_ ? workspace_.hidden.data : hidden.data(), {rows, config_.hidden_size});
  // `normed` is free here, so the stream itself stays as it is for RunHead.
  RETURN_IF_ERROR(backend_.AddRmsNorm({.x = workspace_.x.Slice(0, rows),
                                       .residual = residual,
                                       .weight = norm,
                                       .eps = config_.rms_norm_eps,
                                       .y = out,
                                       .residual_out = workspace_.normed.Slice(0, rows)}));
  if (!has_ends_apart_) return absl::OkStatus();
  return GiveRows<Bf16>(out, hidden, [&](int64_t row) { return plan_.BatchRow(static_cast<int>(row)); });
}

absl::Status DeepseekModel::NormLogitsRows(const Vector<const Bf16>& norm, const Matrix<Bf16>& normed) {
  const Vector<const int32_t> rows = plan_.logits_rows();
  const int64_t count = rows.shape[0];
  const Matrix<Bf16> x = workspace_.head_x.Slice(0, count);
  const Matrix<Bf16> residual = workspace_.head_residual.Slice(0, count);
  RETURN_IF_ERROR(backend_.GatherRows({.table = workspace_.x.Slice(0, plan_.num_rows()), .rows = rows, .out = x}));
  RETURN_IF_ERROR(
      backend_.GatherRows({.table = workspace_.residual.Slice(0, plan_.num_rows()), .rows = rows, .out = residual}));
  return backend_.AddRmsNorm({.x = x,
                              .residual = residual,
                              .weight = norm,
                              .eps = config_.rms_norm_eps,
                              .y = normed,
                              .residual_out = residual});
}

absl::Status DeepseekModel::RunHead(const Vector<const Bf16>& norm, const Matrix<const Bf16>& head,
                                    const Matrix<Bf16>& normed, absl::Span<float> logits) {
  RETURN_IF_ERROR(NormLogitsRows(norm, normed));
  const int64_t count = normed.shape[0], vocab = head.shape[0];
  if (columns_.has_value()) {
    // Its own part of the vocabulary, straight to where the caller wants it.
    const ValueShare part = ShareOf(config_.vocab_size, columns_->rank(), columns_->size());
    return backend_.Bf16LinearF32(
        {.x = normed, .weight = head, .y = {logits.data() + part.begin, {count, part.count}, {config_.vocab_size, 1}}});
  }
  if (!has_ends_apart_) {
    return backend_.Bf16LinearF32({.x = normed, .weight = head, .y = {logits.data(), {count, vocab}}});
  }
  const int64_t tile_rows = workspace_.logits.shape[0];
  for (int64_t begin = 0; begin < count; begin += tile_rows) {
    const int64_t tile = std::min(tile_rows, count - begin);
    const Matrix<float> of_tile(workspace_.logits.data, {tile, vocab});
    RETURN_IF_ERROR(backend_.Bf16LinearF32({.x = normed.Slice(begin, tile), .weight = head, .y = of_tile}));
    RETURN_IF_ERROR(GiveRows<float>(of_tile, logits, [&](int64_t row) { return plan_.LogitsPlace(begin + row); }));
  }
  return absl::OkStatus();
}

absl::Status DeepseekModel::RunLayers(const LayerRange& layers, absl::FunctionRef<void(int layer)> layer_done) {
  if (layers.begin == 0) {
    RETURN_IF_ERROR(backend_.GatherRows(
        {.table = weights_->embed_tokens, .rows = plan_.tokens(), .out = workspace_.x.Slice(0, plan_.num_rows())}));
  }
  for (int layer = layers.begin; layer < layers.end; ++layer) {
    RETURN_IF_ERROR(RunLayer(layer, weights_->layers[layer],
                             layer == 0 ? ResidualState::kNone : ResidualState::kCarried, layer_done));
  }
  return absl::OkStatus();
}

absl::Status DeepseekModel::RunStage(const RowBatch& batch, const LayerRange& layers, absl::Span<Bf16> streams,
                                     absl::FunctionRef<void(int layer)> layer_done, absl::Span<float> logits,
                                     absl::Span<Bf16> hidden) {
  TANDEM_CHECK(backend_.is_host() && group_ == nullptr && buffers_ == nullptr, "stages are of one rank on the host");
  const int64_t stream = static_cast<int64_t>(batch.tokens.size()) * config_.hidden_size;
  if (static_cast<int64_t>(streams.size()) != 2 * stream) {
    return WrongSize("streams", streams.size(), static_cast<size_t>(2 * stream));
  }
  RETURN_IF_ERROR(BuildPlan(batch, std::nullopt, logits));
  if (layers.begin > 0) {
    std::copy_n(streams.data(), stream, workspace_.x.data);
    std::copy_n(streams.data() + stream, stream, workspace_.residual.data);
  }
  RETURN_IF_ERROR(RunLayers(layers, layer_done));
  if (layers.end < config_.num_hidden_layers) {
    std::copy_n(workspace_.x.data, stream, streams.data());
    std::copy_n(workspace_.residual.data, stream, streams.data() + stream);
    return Finish(layers.begin, layers.end);
  }
  RETURN_IF_ERROR(
      RunHead(weights_->norm, weights_->lm_head, workspace_.normed.Slice(0, plan_.logits_rows().shape[0]), logits));
  if (!hidden.empty()) RETURN_IF_ERROR(NormAllRows(weights_->norm, hidden));
  return Finish(layers.begin, layers.end);
}

std::optional<Padding> DeepseekModel::PaddingFor(const RowBatch& batch) const {
  const auto rows = static_cast<int64_t>(batch.tokens.size());
  const int64_t rows_max = workspace_.x.shape[0], columns = workspace_.index_logits.shape[1];
  if (!records_steps_ || rows == 0 || rows > std::min({kRecordedRowsMax, workspace_.logits.shape[0], rows_max}) ||
      batch.logits_rows.size() != batch.tokens.size()) {
    return std::nullopt;
  }
  int64_t context_max = 1;
  for (const Segment& segment : batch.segments) {
    context_max = std::max(context_max, segment.first_position + segment.num_rows);
  }
  context_max = std::min(context_max, columns);  // the plan refuses what is beyond
  // Contexts that are taken whole choose nothing; longer ones double.
  const int64_t dense_context_max = workspace_.selected.shape[1];
  const int64_t bound = context_max <= dense_context_max
                            ? dense_context_max
                            : static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(context_max)));
  return Padding{.num_rows = static_cast<int>(std::min<int64_t>(std::bit_ceil(static_cast<uint64_t>(rows)), rows_max)),
                 .page = kv_.spare_page(),
                 .context_max = static_cast<int32_t>(std::min(bound, columns))};
}

absl::Status DeepseekModel::RunPadded(const Padding& padding, absl::FunctionRef<void(int layer)> layer_done,
                                      absl::Span<float> logits) {
  // Everything that it names is the same for every batch of the shape.
  const auto enqueue = [this]() -> absl::Status {
    const int64_t rows = plan_.num_rows();
    const Matrix<Bf16> normed = workspace_.normed.Slice(0, rows);
    RETURN_IF_ERROR(RunLayers({.begin = 0, .end = config_.num_hidden_layers}, [](int) {}));
    RETURN_IF_ERROR(NormLogitsRows(weights_->norm, normed));
    return backend_.Bf16LinearF32(
        {.x = normed, .weight = weights_->lm_head, .y = {workspace_.logits.data, {rows, config_.vocab_size}}});
  };
  StepOfShape& step = steps_[{padding.num_rows, padding.context_max}];
  if (step.has_run && step.recorded == nullptr && records_steps_) {
    auto recorded = backend_.Record(enqueue);
    if (recorded.ok()) {
      step.recorded = *std::move(recorded);
    } else {
      records_steps_ = false;
      LOG_WARNING("steps are enqueued op by op: one could not be recorded", {"status", recorded.status()});
    }
  }
  RETURN_IF_ERROR(step.recorded != nullptr ? step.recorded->Replay() : enqueue());
  step.has_run = true;
  RETURN_IF_ERROR(
      GiveRows<float>(workspace_.logits.Slice(0, plan_.num_batch_rows()), logits, [](int64_t row) { return row; }));
  for (int layer = 0; layer < config_.num_hidden_layers; ++layer) layer_done(layer);
  return Finish(0, config_.num_hidden_layers);
}

absl::Status DeepseekModel::RunForward(const std::optional<Padding>& padding,
                                       absl::FunctionRef<void(int layer)> layer_done, absl::Span<float> logits) {
  if (padding.has_value()) return RunPadded(*padding, layer_done, logits);
  RETURN_IF_ERROR(RunLayers({.begin = 0, .end = config_.num_hidden_layers}, layer_done));
  RETURN_IF_ERROR(
      RunHead(weights_->norm, weights_->lm_head, workspace_.normed.Slice(0, plan_.logits_rows().shape[0]), logits));
  RETURN_IF_ERROR(FinishLayers(0, layer_done));
  return Finish(0, config_.num_hidden_layers);
}

absl::Status DeepseekModel::Forward(const RowBatch& batch, absl::FunctionRef<void(int layer)> layer_done,
                                    absl::Span<float> logits) {
  const std::optional<Padding> padding = PaddingFor(batch);
  RETURN_IF_ERROR(BuildPlan(batch, padding, logits));
  if (buffers_ != nullptr) RETURN_IF_ERROR(buffers_->Begin(batch.segments, plan_.AllRows().sequence));
  return EndGroupUnlessOk(RunForward(padding, layer_done, logits));
}

absl::Status DeepseekModel::ForwardWithHidden(const RowBatch& batch, absl::FunctionRef<void(int layer)> layer_done,
                                              absl::Span<float> logits, absl::Span<Bf16> hidden) {
  const size_t expected = batch.tokens.size() * static_cast<size_t>(config_.hidden_size);
  if (hidden.size() != expected) return WrongSize("hidden", hidden.size(), expected);
  RETURN_IF_ERROR(Forward(batch, layer_done, logits));
  RETURN_IF_ERROR(EndGroupUnlessOk(NormAllRows(weights_->norm, hidden)));
  RETURN_IF_ERROR(EndGroupUnlessOk(backend_.Synchronize()));
  if (tap_) {
    ShowHostTensor(tap_, "final_hidden",
                   Matrix<const Bf16>(hidden.data(), {static_cast<int64_t>(batch.tokens.size()), config_.hidden_size}));
  }
  return absl::OkStatus();
}

absl::Status DeepseekModel::RunMtp(const RowBatch& batch, absl::Span<const Bf16> hidden,
                                   absl::FunctionRef<void(int layer)> layer_done, absl::Span<float> logits,
                                   absl::Span<Bf16> out_hidden) {
  if (!weights_->mtp.has_value()) return absl::FailedPreconditionError("the MTP layer is not loaded");
  const int64_t width = config_.hidden_size;
  const size_t num_in = batch.tokens.size() * width, num_out = batch.logits_rows.size() * width;
  if (hidden.size() != num_in) return WrongSize("hidden", hidden.size(), num_in);
  if (out_hidden.size() != num_out) return WrongSize("out_hidden", out_hidden.size(), num_out);
  RETURN_IF_ERROR(BuildPlan(batch, std::nullopt, logits));
  return EndGroupUnlessOk(RunMtpRows(hidden, layer_done, logits, out_hidden));
}

absl::Status DeepseekModel::RunMtpRows(absl::Span<const Bf16> hidden, absl::FunctionRef<void(int layer)> layer_done,
                                       absl::Span<float> logits, absl::Span<Bf16> out_hidden) {
  // x = eh_proj [enorm(embedding) ; hnorm(hidden)]: the embedding comes first.
  const MtpWeights& mtp = *weights_->mtp;
  const int64_t rows = plan_.num_rows(), width = config_.hidden_size;
  const Matrix<Bf16> x = workspace_.x.Slice(0, rows);
  const Matrix<Bf16> in = workspace_.mtp_in.Slice(0, rows);
  Matrix<const Bf16> own_hidden(hidden.data(), {rows, width});
  if (has_ends_apart_) {
    const int64_t num_runs = plan_.share().size == 1 ? 1 : rows, rows_of_run = plan_.share().size == 1 ? rows : 1;
    for (int64_t run = 0; run < num_runs; ++run) {
      RETURN_IF_ERROR(
          backend_.Upload({workspace_.hidden.Row(run), hidden.data() + plan_.BatchRow(static_cast<int>(run)) * width,
                           rows_of_run * width * static_cast<int64_t>(sizeof(Bf16))}));
    }
    own_hidden = workspace_.hidden.Slice(0, rows);
  }
  RETURN_IF_ERROR(backend_.GatherRows({.table = mtp.embed_tokens, .rows = plan_.tokens(), .out = x}));
  RETURN_IF_ERROR(
      backend_.RmsNorm({.x = x, .weight = mtp.enorm, .eps = config_.rms_norm_eps, .y = in.Columns(0, width)}));
  RETURN_IF_ERROR(backend_.RmsNorm(
      {.x = own_hidden, .weight = mtp.hnorm, .eps = config_.rms_norm_eps, .y = in.Columns(width, width)}));
  ASSIGN_OR_RETURN(const Activation joined, Quantize(backend_, config_, in, workspace_.mtp_in_q));
  RETURN_IF_ERROR(RunLinear(backend_, workspace_, mtp.eh_proj, joined, x));
  RETURN_IF_ERROR(RunLayer(config_.num_hidden_layers, mtp.layer, ResidualState::kNone, layer_done));
  const Matrix<Bf16> normed(has_ends_apart_ ? workspace_.hidden.data : out_hidden.data(),
                            {plan_.logits_rows().shape[0], width});
  RETURN_IF_ERROR(RunHead(mtp.shared_head_norm, mtp.head, normed, logits));
  if (has_ends_apart_) {
    RETURN_IF_ERROR(GiveRows<Bf16>(normed, out_hidden, [&](int64_t row) { return plan_.LogitsPlace(row); }));
  }
  RETURN_IF_ERROR(FinishLayers(0, layer_done));
  return Finish(config_.num_hidden_layers, config_.num_hidden_layers + 1);
}

}  // namespace tandem::model
