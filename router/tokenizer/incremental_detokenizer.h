// Turns a stream of token ids into text, giving out every character as soon as its last byte is known.
//
// Tokens are cut anywhere in a character ("🙂" is F0 9F 99 and 82), so up to three bytes wait until they are complete
// or can no longer become so. What can never become a character is replaced by U+FFFD, one for each maximal invalid
// subpart (Unicode 3.9, the replacement that browsers and Python use), so that the text does not depend on where the
// stream was cut: Append() over any split and Finish() give exactly what one call over all ids gives.
// Tested by incremental_detokenizer_test.cc over all splits of streams; replacement itself by utf8_test.cc.
#pragma once

#include <string>

#include "absl/types/span.h"
#include "router/tokenizer/token_id.h"
#include "router/tokenizer/tokenizer.h"

namespace tandem::router {

class IncrementalDetokenizer {
 public:
  // The tokenizer must outlive the detokenizer.
  explicit IncrementalDetokenizer(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}

  // Appends to *text what `ids` make certain: always whole characters of valid UTF-8, perhaps nothing. Ids without an
  // entry in the vocabulary stand for no bytes.
  void Append(absl::Span<const TokenId> ids, std::string* text);

  // The stream has ended: bytes of an incomplete character become one U+FFFD. The next Append() starts a new stream.
  void Finish(std::string* text);

  // True where bytes wait for the rest of their character and the token's first byte can be of it: its text then begins
  // inside that character. Where it cannot, they become U+FFFD before the token's own text.
  bool IsContinuedBy(TokenId id) const;

  // Bytes that wait for the rest of their character, at most 3.
  size_t num_pending_bytes() const { return pending_.size(); }

 private:
  const Tokenizer* tokenizer_;
  std::string pending_;  // a proper prefix of some character's UTF-8
};

}  // namespace tandem::router
