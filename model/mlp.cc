#include "model/mlp.h"

#include "base/status_macros.h"
#include "model/output_linear.h"

namespace tandem::model {

absl::Status RunMlp(const LayerRun& run, const MlpWeights& weights, const Activation& in,
                    const Workspace::MlpBuffers& buffers, const kernels::Matrix<kernels::Bf16>& out) {
  const int64_t rows = in.x.shape[0], width = weights.gate_proj.out_dim();
  const kernels::Matrix<kernels::Bf16> gate(buffers.gate.data, {rows, width}), up(buffers.up.data, {rows, width});
  if (width > 0) {  // a rank may have nothing of a narrow one
    RETURN_IF_ERROR(RunLinear(run.backend, run.workspace, weights.gate_proj, in, gate));
    RETURN_IF_ERROR(RunLinear(run.backend, run.workspace, weights.up_proj, in, up));
    RETURN_IF_ERROR(run.backend.SwiGlu({.gate = gate, .up = up, .y = gate}));
  }
  return RunOutputLinear(run, weights.down_proj, gate, kernels::kQuantGroup, buffers.product_q, out);
}

}  // namespace tandem::model
