// The lightning indexer: which cached positions a row attends to (specification, section 2.3).
// Tested through deepseek_model_test.cc and the golden stages.
#pragma once

#include "absl/status/status.h"
#include "model/layer_run.h"

namespace tandem::model {

// Projects the rows' index keys and writes them into the pool, and their heads' weights as far as they do not depend on
// the queries. `normed`: the layer's normed input.
absl::Status ProjectIndexKeys(const LayerRun& run, const IndexerWeights& weights, const Activation& normed);

// Projects the rows' index queries. `q_latent`: q_a_proj's output after its norm.
absl::Status ProjectIndexQueries(const LayerRun& run, const IndexerWeights& weights, const Activation& q_latent);

// Brings the queries' scales into the heads' weights, after the two above.
absl::Status FinishIndexWeights(const LayerRun& run);

// Fills workspace.selected with each row's positions: all of a context that fits its width, else the index_topk
// highest index logits. run.nan_count gets the number of NaN logits met, which is not zero only after a fault upstream.
absl::Status SelectPositions(const LayerRun& run);

}  // namespace tandem::model
