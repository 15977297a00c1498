#include "model/output_linear.h"

#include "base/status_macros.h"

namespace tandem::model {

using kernels::Bf16;
using kernels::kQuantGroup;
using kernels::Matrix;

absl::Status RunOutputLinear(const LayerRun& run, const LinearWeight& weight, const Matrix<const Bf16>& x, int64_t unit,
                             const QuantizedRows& buffer, const Matrix<Bf16>& out) {
  const int k_segments = kernels::RowParallelSegments(weight.in_dim());
  if (run.columns == nullptr) {
    ASSIGN_OR_RETURN(const Activation in, Quantize(run.backend, run.config, x, buffer));
    return RunLinear(run.backend, run.workspace, weight, in, out, k_segments);
  }
  const auto [rows, own] = x.shape;
  Activation in{.scale_format = run.config.scale_format};
  if (weight.is_fp8()) {
    const QuantizedRows of_own{.q = {buffer.q.data, {rows, own}},
                               .scale = {buffer.scale.data, {rows, own / kQuantGroup}}};
    if (own > 0) RETURN_IF_ERROR(Quantize(run.backend, run.config, x, of_own).status());
    in.quantized = run.columns->GatheredQuantizedRows(rows, weight.in_dim());
    RETURN_IF_ERROR(run.columns->Gather(of_own, unit, in.quantized));
  } else {
    const Matrix<Bf16> gathered = run.columns->GatheredRows(rows, weight.in_dim());
    RETURN_IF_ERROR(run.columns->Gather(x, unit, gathered));
    in.x = gathered;
  }
  const Matrix<Bf16> own_out = run.columns->OwnColumns(rows, weight.out_dim());
  if (weight.out_dim() > 0) {
    RETURN_IF_ERROR(RunLinear(run.backend, run.workspace, weight, in, own_out, k_segments));
  }
  return run.columns->Gather(own_out, kQuantGroup, out);
}

}  // namespace tandem::model
