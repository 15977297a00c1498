#include "model/deepseek_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "model/decoder_layer.h"

namespace tandem::model {
namespace {

using kernels::Bf16;
using kernels::Matrix;
using kernels::Vector;

absl::Status WrongSize(absl::string_view what, size_t size, size_t expected) {
  return absl::InvalidArgumentError(absl::StrCat(what, " of ", size, " values, the batch takes ", expected));
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeepseekModel>> DeepseekModel::Create(std::shared_ptr<const Checkpoint> checkpoint,
                                                                     const kvcache::KvLayout& layout,
                                                                     absl::Span<uint8_t> pool,
                                                                     const DeepseekModelOptions& options) {
  const ModelConfig& config = checkpoint->config();
  const int num_layers = config.num_hidden_layers + (options.with_mtp ? 1 : 0);
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
  if (options.num_threads < 1) {
    return absl::InvalidArgumentError(absl::StrCat("num_threads is ", options.num_threads, ", at least 1"));
  }
  if (options.num_positions_max < 1 || options.num_positions_max > config.max_position_embeddings) {
    return absl::InvalidArgumentError(absl::StrCat("num_positions_max is ", options.num_positions_max,
                                                   ", allowed 1 to ", config.max_position_embeddings));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<const ModelWeights> weights, LoadWeights(std::move(checkpoint), options.with_mtp));
  std::unique_ptr<DeepseekModel> model(new DeepseekModel(std::move(weights), layout, pool, options));
  RETURN_IF_ERROR(kernels::BuildRopeTable(
      {.yarn = model->config_.yarn,
       .table = Matrix<float>(model->rope_table_.data(), {options.num_positions_max, kvcache::kRopeDim})}));
  return model;
}

DeepseekModel::DeepseekModel(std::unique_ptr<const ModelWeights> weights, const kvcache::KvLayout& layout,
                             absl::Span<uint8_t> pool, const DeepseekModelOptions& options)
    : weights_(std::move(weights)),
      config_(weights_->checkpoint->config()),
      layout_(layout),
      pool_(pool),
      tap_(options.tap),
      plan_({.num_rows_max = options.num_rows_max,
             .num_positions_max = options.num_positions_max,
             .num_pages = layout.num_pages,
             .vocab_size = config_.vocab_size}),
      workspace_(config_, options.num_rows_max, options.num_positions_max, weights_->has_bf16_experts(),
                 options.num_threads),
      rope_table_(options.num_positions_max * kvcache::kRopeDim),
      softmax_scale_(static_cast<float>(kernels::YarnSoftmaxScaleFactor(config_.yarn.factor, config_.mscale_all_dim) /
                                        std::sqrt(static_cast<double>(config_.qk_head_dim())))) {}

absl::Status DeepseekModel::BuildPlan(const RowBatch& batch, absl::Span<float> logits) {
  const size_t expected = batch.logits_rows.size() * static_cast<size_t>(config_.vocab_size);
  if (logits.size() != expected) return WrongSize("logits", logits.size(), expected);
  return plan_.Build(batch);
}

absl::Status DeepseekModel::RunLayer(int layer, const LayerWeights& weights, ResidualState state,
                                     absl::FunctionRef<void(int layer)> layer_done) {
  const int64_t num_positions = static_cast<int64_t>(rope_table_.size()) / kvcache::kRopeDim;
  const LayerRun run{
      .config = config_,
      .plan = plan_,
      .workspace = workspace_,
      .rope_table = {rope_table_.data(), {num_positions, kvcache::kRopeDim}},
      .softmax_scale = softmax_scale_,
      .layer = layer,
      .kv_cache_dtype = layout_.kv_cache_dtype,
      .latent_pages = {&pool_[layout_.LatentOffset(layer, 0)],
                       {layout_.num_pages, layout_.PageBytes(kvcache::RecordKind::kLatent)}},
      .index_pages = {&pool_[layout_.IndexOffset(layer, 0)], {layout_.num_pages, kvcache::kIndexPageBytes}},
      .tap = tap_};
  ASSIGN_OR_RETURN(const int64_t num_nan, RunDecoderLayer(run, weights, state, [&] { layer_done(layer); }));
  num_nan_index_logits_ += num_nan;
  return absl::OkStatus();
}

absl::Status DeepseekModel::NormAllRows(const Vector<const Bf16>& norm, absl::Span<Bf16> hidden) {
  const int64_t rows = plan_.num_rows();
  const Matrix<Bf16> residual = workspace_.residual.Slice(0, rows);
  const Matrix<Bf16> out(hidden.data(), {rows, config_.hidden_size});
  // `normed` is free here, so the stream itself stays as it is for RunHead.
  return kernels::AddRmsNorm({.x = workspace_.x.Slice(0, rows),
                              .residual = residual,
                              .weight = norm,
                              .eps = config_.rms_norm_eps,
                              .y = out,
                              .residual_out = workspace_.normed.Slice(0, rows)});
}

absl::Status DeepseekModel::RunHead(const Vector<const Bf16>& norm, const Matrix<const Bf16>& head,
                                    const Matrix<Bf16>& normed, absl::Span<float> logits) {
  const Vector<const int32_t> rows = plan_.logits_rows();
  const int64_t count = rows.shape[0];
  const Matrix<Bf16> x = workspace_.head_x.Slice(0, count);
  const Matrix<Bf16> residual = workspace_.head_residual.Slice(0, count);
  RETURN_IF_ERROR(kernels::GatherRows({.table = workspace_.x.Slice(0, plan_.num_rows()), .rows = rows, .out = x}));
  RETURN_IF_ERROR(
      kernels::GatherRows({.table = workspace_.residual.Slice(0, plan_.num_rows()), .rows = rows, .out = residual}));
  RETURN_IF_ERROR(kernels::AddRmsNorm({.x = x,
                                       .residual = residual,
                                       .weight = norm,
                                       .eps = config_.rms_norm_eps,
                                       .y = normed,
                                       .residual_out = residual}));
  return kernels::Bf16LinearF32(
      {.x = normed, .weight = head, .y = {logits.data(), {count, head.shape[0]}}, .threads = workspace_.threads.get()});
}

absl::Status DeepseekModel::Forward(const RowBatch& batch, absl::FunctionRef<void(int layer)> layer_done,
                                    absl::Span<float> logits) {
  RETURN_IF_ERROR(BuildPlan(batch, logits));
  RETURN_IF_ERROR(kernels::GatherRows(
      {.table = weights_->embed_tokens, .rows = plan_.tokens(), .out = workspace_.x.Slice(0, plan_.num_rows())}));
  for (int layer = 0; layer < config_.num_hidden_layers; ++layer) {
    RETURN_IF_ERROR(RunLayer(layer, weights_->layers[layer],
                             layer == 0 ? ResidualState::kNone : ResidualState::kCarried, layer_done));
  }
  return RunHead(weights_->norm, weights_->lm_head,
                 workspace_.normed.Slice(0, static_cast<int64_t>(batch.logits_rows.size())), logits);
}

absl::Status DeepseekModel::ForwardWithHidden(const RowBatch& batch, absl::FunctionRef<void(int layer)> layer_done,
                                              absl::Span<float> logits, absl::Span<Bf16> hidden) {
  const size_t expected = batch.tokens.size() * static_cast<size_t>(config_.hidden_size);
  if (hidden.size() != expected) return WrongSize("hidden", hidden.size(), expected);
  RETURN_IF_ERROR(Forward(batch, layer_done, logits));
  RETURN_IF_ERROR(NormAllRows(weights_->norm, hidden));
  ShowTensor(tap_, "final_hidden",
             Matrix<const Bf16>(hidden.data(), {static_cast<int64_t>(batch.tokens.size()), config_.hidden_size}));
  return absl::OkStatus();
}

absl::Status DeepseekModel::RunMtp(const RowBatch& batch, absl::Span<const Bf16> hidden,
                                   absl::FunctionRef<void(int layer)> layer_done, absl::Span<float> logits,
                                   absl::Span<Bf16> out_hidden) {
  if (!weights_->mtp.has_value()) return absl::FailedPreconditionError("the MTP layer is not loaded");
  const MtpWeights& mtp = *weights_->mtp;
  const int64_t width = config_.hidden_size;
  const size_t num_in = batch.tokens.size() * width, num_out = batch.logits_rows.size() * width;
  if (hidden.size() != num_in) return WrongSize("hidden", hidden.size(), num_in);
  if (out_hidden.size() != num_out) return WrongSize("out_hidden", out_hidden.size(), num_out);
  RETURN_IF_ERROR(BuildPlan(batch, logits));

  // x = eh_proj [enorm(embedding) ; hnorm(hidden)]: the embedding comes first.
  const int64_t rows = plan_.num_rows();
  const Matrix<Bf16> x = workspace_.x.Slice(0, rows);
  const Matrix<Bf16> in = workspace_.mtp_in.Slice(0, rows);
  RETURN_IF_ERROR(kernels::GatherRows({.table = mtp.embed_tokens, .rows = plan_.tokens(), .out = x}));
  RETURN_IF_ERROR(
      kernels::RmsNorm({.x = x, .weight = mtp.enorm, .eps = config_.rms_norm_eps, .y = in.Columns(0, width)}));
  RETURN_IF_ERROR(kernels::RmsNorm({.x = {hidden.data(), {rows, width}},
                                    .weight = mtp.hnorm,
                                    .eps = config_.rms_norm_eps,
                                    .y = in.Columns(width, width)}));
  ASSIGN_OR_RETURN(const Activation joined, Quantize(config_, in, workspace_.mtp_in_q));
  RETURN_IF_ERROR(RunLinear(workspace_, mtp.eh_proj, joined, x));
  RETURN_IF_ERROR(RunLayer(config_.num_hidden_layers, mtp.layer, ResidualState::kNone, layer_done));
  return RunHead(mtp.shared_head_norm, mtp.head,
                 {out_hidden.data(), {static_cast<int64_t>(batch.logits_rows.size()), width}}, logits);
}

}  // namespace tandem::model
