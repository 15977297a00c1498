// The lightning indexer: which cached positions a row attends to (specification, section 2.3).
// Tested through deepseek_model_test.cc and the golden stages.
#pragma once

#include "absl/status/status.h"
#include "model/layer_run.h"

namespace tandem::model {

// Projects the rows' index queries and keys and writes the keys into the pool. `normed`: the layer's normed input;
// `q_latent`: q_a_proj's output after its norm.
absl::Status ProjectIndex(const LayerRun& run, const IndexerWeights& weights, const Activation& normed,
                          const Activation& q_latent);

// Fills workspace.selected with each row's positions: all of a context that fits index_topk, else the highest index
// logits. run.nan_count gets the number of NaN logits met, which is not zero only after a fault upstream.
absl::Status SelectPositions(const LayerRun& run);

}  // namespace tandem::model
