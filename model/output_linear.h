// The projections that end a half of a layer (o_proj, down_proj), on one rank or on several that have cut it by
// columns.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "model/layer_run.h"

namespace tandem::model {

// x: [rows, this rank's columns of weight.in_dim()], which come in whole `unit`s; quantised into `buffer` where the
// weight is FP8. out: [rows, all outputs]. The sum is cut into fixed segments (Numerics 6).
absl::Status RunOutputLinear(const LayerRun& run, const LinearWeight& weight,
                             const kernels::Matrix<const kernels::Bf16>& x, int64_t unit, const QuantizedRows& buffer,
                             const kernels::Matrix<kernels::Bf16>& out);

}  // namespace tandem::model
