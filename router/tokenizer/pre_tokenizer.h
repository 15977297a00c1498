// Cuts text into the pieces that are merged one by one: the `pre_tokenizer` of tokenizer.json.
//
// The steps are applied one after the other, each to every piece that the steps before have left. DeepSeek's own steps
// are recognised and run by deepseek_splitter.h; others run on PCRE2 and its version of Unicode.
// Tested by pre_tokenizer_test.cc.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "router/tokenizer/split_pattern.h"

namespace tandem::router {

struct SplitStep {
  std::string pattern;
  bool is_regex = true;  // otherwise the pattern is literal text
};

class PreTokenizer {
 public:
  // INVALID_ARGUMENT as SplitPattern. No steps: each text is one piece.
  static absl::StatusOr<PreTokenizer> Build(const std::vector<SplitStep>& steps);

  // Replaces *pieces by the pieces of `text`, which must be valid UTF-8. They point into `text`, cover it in order, and
  // none is empty. Errors as SplitPattern::Split.
  absl::Status Split(absl::string_view text, std::vector<absl::string_view>* pieces) const;

 private:
  bool is_deepseek_ = false;
  std::vector<SplitPattern> patterns_;  // empty if is_deepseek_
};

}  // namespace tandem::router
