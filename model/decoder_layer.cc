#include "model/decoder_layer.h"

#include "base/status_macros.h"
#include "model/attention.h"
#include "model/mlp.h"

namespace tandem::model {

using kernels::Bf16;
using kernels::Matrix;

absl::Status RunDecoderLayer(const LayerRun& run, const LayerWeights& weights, ResidualState state,
                             absl::FunctionRef<absl::Status()> records_written) {
  const int64_t rows = run.num_rows();
  const float eps = run.config.rms_norm_eps;
  const Matrix<Bf16> x = run.workspace.x.Slice(0, rows);
  const Matrix<Bf16> residual = run.workspace.residual.Slice(0, rows);
  const Matrix<Bf16> normed = run.workspace.normed.Slice(0, rows);
  if (state == ResidualState::kNone) {
    RETURN_IF_ERROR(run.backend.Copy({residual.data, x.data, x.num_elements() * static_cast<int64_t>(sizeof(Bf16))}));
    RETURN_IF_ERROR(run.backend.RmsNorm({.x = x, .weight = weights.input_layernorm, .eps = eps, .y = normed}));
  } else {
    RETURN_IF_ERROR(run.backend.AddRmsNorm({.x = x,
                                            .residual = residual,
                                            .weight = weights.input_layernorm,
                                            .eps = eps,
                                            .y = normed,
                                            .residual_out = residual}));
  }
  RETURN_IF_ERROR(ShowStage(run, "input", normed));
  RETURN_IF_ERROR(RunAttention(run, weights.self_attn, normed, records_written, x));

  RETURN_IF_ERROR(run.backend.AddRmsNorm({.x = x,
                                          .residual = residual,
                                          .weight = weights.post_attention_layernorm,
                                          .eps = eps,
                                          .y = normed,
                                          .residual_out = residual}));
  RETURN_IF_ERROR(ShowStage(run, "ffn_input", normed));
  RETURN_IF_ERROR(ShowStage(run, "residual", residual));
  ASSIGN_OR_RETURN(const Activation in, Quantize(run.backend, run.config, normed, run.workspace.normed_q));
  if (weights.moe.has_value()) {
    RETURN_IF_ERROR(RunMoe(run, *weights.moe, in, x));
  } else {
    RETURN_IF_ERROR(RunMlp(run, *weights.mlp, in, run.workspace.Mlp(rows, weights.mlp->gate_proj.out_dim()), x));
  }
  return ShowStage(run, "ffn", x);
}

}  // namespace tandem::model
