#include "model/mlp.h"

#include "base/status_macros.h"

namespace tandem::model {

absl::Status RunMlp(const LayerRun& run, const MlpWeights& weights, const Activation& in,
                    const Workspace::MlpBuffers& buffers, const kernels::Matrix<kernels::Bf16>& out) {
  RETURN_IF_ERROR(RunLinear(run.backend, run.workspace, weights.gate_proj, in, buffers.gate));
  RETURN_IF_ERROR(RunLinear(run.backend, run.workspace, weights.up_proj, in, buffers.up));
  RETURN_IF_ERROR(run.backend.SwiGlu({.gate = buffers.gate, .up = buffers.up, .y = buffers.gate}));
  ASSIGN_OR_RETURN(const Activation product, Quantize(run.backend, run.config, buffers.gate, buffers.product_q));
  return RunRowParallelLinear(run, weights.down_proj, product, out);
}

}  // namespace tandem::model
