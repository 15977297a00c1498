// Texts of a given number of tokens, from a vocabulary.
//
// Random ids decoded to text come back as another number of tokens. So texts are made of whole words that begin with a
// space and are one token each: no pre-tokeniser joins or cuts those, and the text has exactly as many tokens as it has
// words. A vocabulary without such words gets decoded ids, and counts that are true but not the ones asked for.
// Tested by dataset_test.cc.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "router/tokenizer/tokenizer.h"
#include "tools/bench_serving/draws.h"

namespace tandem::bench_serving {

class TokenTexts final {
 public:
  // The tokenizer outlives this. FAILED_PRECONDITION where it has no ordinary token.
  static absl::StatusOr<TokenTexts> Of(const router::Tokenizer& tokenizer);

  std::string DrawText(Draws& draws, int num_tokens) const;
  std::vector<router::TokenId> DrawIds(Draws& draws, int num_tokens) const;
  // Tokens of the text, without any that a server adds. A text that is no UTF-8 is INVALID_ARGUMENT.
  absl::StatusOr<int> CountTokens(absl::string_view text) const;
  // The text's tokens as often as it takes to have that many, back to text. Empty of an empty text.
  absl::StatusOr<std::string> FitText(absl::string_view text, int num_tokens) const;

 private:
  explicit TokenTexts(const router::Tokenizer* tokenizer) : tokenizer_(tokenizer) {}

  const router::Tokenizer* tokenizer_;
  std::vector<router::TokenId> ordinary_;  // ids that text can produce
  std::vector<router::TokenId> words_;
};

}  // namespace tandem::bench_serving
