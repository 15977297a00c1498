#include "tools/bench_serving/token_texts.h"

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "base/status_macros.h"

namespace tandem::bench_serving {
namespace {

using router::TokenId;
using router::Tokenizer;

constexpr size_t kWordsMin = 16;  // fewer would make texts that are all alike

bool IsWord(absl::string_view bytes) {
  return bytes.size() >= 3 && bytes[0] == ' ' &&
         absl::c_all_of(bytes.substr(1), [](unsigned char c) { return absl::ascii_islower(c); });
}

}  // namespace

absl::StatusOr<TokenTexts> TokenTexts::Of(const Tokenizer& tokenizer) {
  TokenTexts texts(&tokenizer);
  for (TokenId id = 0; id < tokenizer.num_ids(); ++id) {
    const absl::string_view bytes = tokenizer.TokenBytes(id);
    if (bytes.empty() || tokenizer.FindAddedToken(bytes).has_value()) continue;
    texts.ordinary_.push_back(id);
    if (!IsWord(bytes)) continue;
    ASSIGN_OR_RETURN(const std::vector<TokenId> ids, tokenizer.Encode(bytes, Tokenizer::AddedTokens::kIgnore));
    if (ids.size() == 1) texts.words_.push_back(id);
  }
  if (texts.ordinary_.empty()) return absl::FailedPreconditionError("the tokenizer has no ordinary token");
  if (texts.words_.size() < kWordsMin) texts.words_.clear();
  return texts;
}

std::vector<TokenId> TokenTexts::DrawIds(Draws& draws, int num_tokens) const {
  std::vector<TokenId> ids(num_tokens);
  for (TokenId& id : ids) id = ordinary_[draws.Between(0, ordinary_.size() - 1)];
  return ids;
}

std::string TokenTexts::DrawText(Draws& draws, int num_tokens) const {
  if (words_.empty()) return tokenizer_->Decode(DrawIds(draws, num_tokens));
  std::vector<TokenId> ids(num_tokens);
  for (TokenId& id : ids) id = words_[draws.Between(0, words_.size() - 1)];
  return tokenizer_->Decode(ids);
}

absl::StatusOr<int> TokenTexts::CountTokens(absl::string_view text) const {
  ASSIGN_OR_RETURN(const std::vector<TokenId> ids, tokenizer_->Encode(text, Tokenizer::AddedTokens::kIgnore));
  return static_cast<int>(ids.size());
}

absl::StatusOr<std::string> TokenTexts::FitText(absl::string_view text, int num_tokens) const {
  ASSIGN_OR_RETURN(const std::vector<TokenId> ids, tokenizer_->Encode(text, Tokenizer::AddedTokens::kIgnore));
  if (ids.empty()) return std::string();
  std::vector<TokenId> fitted(num_tokens);
  for (size_t i = 0; i < fitted.size(); ++i) fitted[i] = ids[i % ids.size()];
  return tokenizer_->Decode(fitted);
}

}  // namespace tandem::bench_serving
