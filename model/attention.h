// Multi-head latent attention over the paged cache, in the absorbed form for every row (specification, 2.2 and 2.4).
// Tested through deepseek_model_test.cc and the golden stages.
#pragma once

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "model/layer_run.h"

namespace tandem::model {

// out = attention of the normed rows, after o_proj. Writes the rows' latent and index records first and then calls
// records_written once.
absl::Status RunAttention(const LayerRun& run, const AttentionWeights& weights,
                          const kernels::Matrix<const kernels::Bf16>& normed,
                          absl::FunctionRef<absl::Status()> records_written, const kernels::Matrix<kernels::Bf16>& out);

}  // namespace tandem::model
