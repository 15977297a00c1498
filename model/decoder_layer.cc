#include "model/decoder_layer.h"

#include <cstring>

#include "base/status_macros.h"
#include "model/attention.h"
#include "model/mlp.h"

namespace tandem::model {

using kernels::Bf16;
using kernels::Matrix;

absl::StatusOr<int64_t> RunDecoderLayer(const LayerRun& run, const LayerWeights& weights, ResidualState state,
                                        absl::FunctionRef<void()> records_written) {
  const int64_t rows = run.num_rows();
  const float eps = run.config.rms_norm_eps;
  const Matrix<Bf16> x = run.workspace.x.Slice(0, rows);
  const Matrix<Bf16> residual = run.workspace.residual.Slice(0, rows);
  const Matrix<Bf16> normed = run.workspace.normed.Slice(0, rows);
  if (state == ResidualState::kNone) {
    std::memcpy(residual.data, x.data, x.num_elements() * sizeof(Bf16));
    RETURN_IF_ERROR(kernels::RmsNorm({.x = x, .weight = weights.input_layernorm, .eps = eps, .y = normed}));
  } else {
    RETURN_IF_ERROR(kernels::AddRmsNorm({.x = x,
                                         .residual = residual,
                                         .weight = weights.input_layernorm,
                                         .eps = eps,
                                         .y = normed,
                                         .residual_out = residual}));
  }
  ShowStage(run.tap, run.layer, "input", normed);
  ASSIGN_OR_RETURN(const int64_t num_nan, RunAttention(run, weights.self_attn, normed, records_written, x));

  RETURN_IF_ERROR(kernels::AddRmsNorm({.x = x,
                                       .residual = residual,
                                       .weight = weights.post_attention_layernorm,
                                       .eps = eps,
                                       .y = normed,
                                       .residual_out = residual}));
  ShowStage(run.tap, run.layer, "ffn_input", normed);
  ShowStage(run.tap, run.layer, "residual", residual);
  ASSIGN_OR_RETURN(const Activation in, Quantize(run.config, normed, run.workspace.normed_q));
  if (weights.moe.has_value()) {
    RETURN_IF_ERROR(RunMoe(run, *weights.moe, in, x));
  } else {
    RETURN_IF_ERROR(RunMlp(run, *weights.mlp, in, x));
  }
  ShowStage(run.tap, run.layer, "ffn", x);
  return num_nan;
}

}  // namespace tandem::model
