// One layer of the model, residual stream in and out through the workspace (specification, 2.0).
// Tested through deepseek_model_test.cc and, each layer alone, against the golden stages.
#pragma once

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "model/layer_run.h"

namespace tandem::model {

enum class ResidualState { kNone, kCarried };  // kNone: x is the stream itself, as after the embedding

// Reads and replaces workspace.x (this layer's output, not yet added) and workspace.residual. Calls records_written
// once, when the ops that put every row's latent and index records of this layer into the pool are enqueued.
absl::Status RunDecoderLayer(const LayerRun& run, const LayerWeights& weights, ResidualState state,
                             absl::FunctionRef<absl::Status()> records_written);

}  // namespace tandem::model
