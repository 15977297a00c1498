#include "router/tokenizer/pre_tokenizer.h"

#include <utility>

#include "base/status_macros.h"

namespace tandem::router {

absl::StatusOr<PreTokenizer> PreTokenizer::Build(const std::vector<SplitStep>& steps) {
  PreTokenizer pre_tokenizer;
  for (const SplitStep& step : steps) {
    ASSIGN_OR_RETURN(SplitPattern pattern,
                     step.is_regex ? SplitPattern::FromRegex(step.pattern) : SplitPattern::FromLiteral(step.pattern));
    pre_tokenizer.patterns_.push_back(std::move(pattern));
  }
  return pre_tokenizer;
}

absl::Status PreTokenizer::Split(absl::string_view text, std::vector<absl::string_view>* pieces) const {
  pieces->clear();
  if (text.empty()) return absl::OkStatus();
  pieces->push_back(text);
  std::vector<absl::string_view> cut;
  for (const SplitPattern& pattern : patterns_) {
    cut.clear();
    RETURN_IF_ERROR(pattern.Split(*pieces, &cut));
    std::swap(*pieces, cut);
  }
  return absl::OkStatus();
}

}  // namespace tandem::router
