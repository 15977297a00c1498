// The feed-forward half of a layer: a dense gated MLP, or routed experts beside a shared one (specification, 2.5, 2.6).
// Tested through deepseek_model_test.cc and the golden stages.
#pragma once

#include "absl/status/status.h"
#include "model/layer_run.h"

namespace tandem::model {

// buffers: for the rows of `in`, at least as wide as gate_proj's outputs; as wide where one rank has them all.
absl::Status RunMlp(const LayerRun& run, const MlpWeights& weights, const Activation& in,
                    const Workspace::MlpBuffers& buffers, const kernels::Matrix<kernels::Bf16>& out);

absl::Status RunMoe(const LayerRun& run, const MoeWeights& weights, const Activation& in,
                    const kernels::Matrix<kernels::Bf16>& out);

}  // namespace tandem::model
