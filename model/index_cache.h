// Index Cache: which layers choose the positions that their rows attend to, and which take those of the layer before.
//
// Neighbouring layers' indexers choose much the same positions, so a layer may do without its own: 'F' (full) runs
// indexer and top-k, 'S' (shared) attends to what the nearest 'F' before it chose. This changes answers; so the pattern
// is part of what both workers of a pair must agree on. The MTP layer always chooses for itself.
// Tested by index_cache_test.cc, deepseek_model_test.cc and, against the reference, deepseek_model_golden_test.cc.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem::model {

// A letter for each of num_layers main layers, from `pattern` or, where that is empty, from `freq`: layer l is 'S'
// where max(l - 1, 0) is no multiple of freq. Empty where every layer chooses for itself. INVALID_ARGUMENT, with the
// field, where both are given (freq 0: not given), the pattern has another length, another letter than F and S, or
// begins with S, or freq is negative.
absl::StatusOr<std::string> IndexCachePattern(absl::string_view pattern, int freq, int num_layers);

// Whether `layer` attends to what a layer before it chose; the MTP layer (behind the pattern's end) never does.
inline bool SharesSelection(absl::string_view pattern, int layer) {
  return static_cast<size_t>(layer) < pattern.size() && pattern[layer] == 'S';
}

}  // namespace tandem::model
