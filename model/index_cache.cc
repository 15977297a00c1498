#include "model/index_cache.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tandem::model {

absl::StatusOr<std::string> IndexCachePattern(absl::string_view pattern, int freq, int num_layers) {
  if (freq < 0) return absl::InvalidArgumentError(absl::StrCat("index_topk_freq is ", freq, ", must be at least 0"));
  if (!pattern.empty() && freq > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("index_topk_pattern and index_topk_freq ", freq, " are both set, one says what the other does"));
  }
  std::string letters(pattern);
  if (freq > 0) {
    for (int layer = 0; layer < num_layers; ++layer) letters += std::max(layer - 1, 0) % freq == 0 ? 'F' : 'S';
  }
  if (letters.empty()) return letters;
  if (letters.size() != static_cast<size_t>(num_layers)) {
    return absl::InvalidArgumentError(absl::StrCat("index_topk_pattern has ", letters.size(),
                                                   " letters, must have one for each of num_hidden_layers ",
                                                   num_layers));
  }
  const size_t other = letters.find_first_not_of("FS");
  if (other != std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat("index_topk_pattern has '", letters.substr(other, 1), "' for layer ",
                                                   other, ", allowed F (chooses) and S (takes the layer's before)"));
  }
  if (letters.front() == 'S') {
    return absl::InvalidArgumentError("index_topk_pattern begins with S, but no layer is before the first");
  }
  if (letters.find('S') == std::string::npos) letters.clear();
  return letters;
}

}  // namespace tandem::model
