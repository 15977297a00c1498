#include "router/tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/status_macros.h"
#include "router/tokenizer/deepseek_splitter.h"

namespace tandem::router {
namespace {

bool AreDeepseeks(const std::vector<SplitStep>& steps) {
  return std::equal(
      steps.begin(), steps.end(), std::begin(kDeepseekPatterns), std::end(kDeepseekPatterns),
      [](const SplitStep& step, absl::string_view regex) { return step.is_regex && step.pattern == regex; });
}

}  // namespace

absl::StatusOr<PreTokenizer> PreTokenizer::Build(const std::vector<SplitStep>& steps) {
  PreTokenizer pre_tokenizer;
  pre_tokenizer.is_deepseek_ = AreDeepseeks(steps);
  if (pre_tokenizer.is_deepseek_) return pre_tokenizer;
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
  if (is_deepseek_) {
    SplitAsDeepseek(text, pieces);
    return absl::OkStatus();
  }
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
