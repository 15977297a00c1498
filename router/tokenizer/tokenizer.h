// Text to token ids and back, byte for byte as the checkpoint's tokenizer.json says.
//
// Encoding takes three steps: added tokens are cut out (added_token_finder.h), the stretches between them are split
// into pieces by the file's own patterns (pre_tokenizer.h), and each piece is merged from bytes (bpe.h).
//
// Trust. A prompt is one text although its bytes come from several hands (marked_text.h). Pre-tokenisation and merging
// see the whole text: a client's "." followed by our "\n\n" may be one token, as it is in training data. Only the
// search for added tokens is confined: a match must lie wholly inside one run of markup. Merging never yields the id of
// an added token (Parse() refuses a file where it could), so no content can produce one.
//
// What is not read: `truncation` and `padding` (the router never cuts a prompt silently) and `post_processor` (the chat
// format writes the beginning-of-sentence token).
// Tested by tokenizer_test.cc (properties, on a small made-up vocabulary) and deepseek_vectors_test.cc (the real file).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "router/tokenizer/marked_text.h"
#include "router/tokenizer/token_id.h"

namespace tandem::router {

// Immutable once made; every method may be called from any thread. An interface, so that tests of other folders can
// bring a vocabulary of a few lines.
class Tokenizer {
 public:
  // Reads a tokenizer.json. NOT_FOUND where there is no such file; otherwise as Parse().
  static absl::StatusOr<std::unique_ptr<const Tokenizer>> Load(const std::string& path);

  // INVALID_ARGUMENT names the part of the file that is malformed, or that asks for something not implemented here.
  static absl::StatusOr<std::unique_ptr<const Tokenizer>> Parse(absl::string_view tokenizer_json);

  virtual ~Tokenizer() = default;

  enum class AddedTokens { kMatch, kIgnore };

  // Ids of the whole text, in order. INVALID_ARGUMENT with the byte offset where the text is not UTF-8.
  virtual absl::StatusOr<std::vector<TokenId>> Encode(absl::string_view text, AddedTokens added_tokens) const = 0;

  // The same, with added tokens matched in markup only.
  virtual absl::StatusOr<std::vector<TokenId>> Encode(const MarkedText& prompt) const = 0;

  // The bytes that the token stands for, perhaps part of a character. Empty for an id that has no entry.
  virtual absl::string_view TokenBytes(TokenId id) const = 0;

  // Text of all ids together; bytes that are no UTF-8 become U+FFFD (incremental_detokenizer.h says how many).
  virtual std::string Decode(absl::Span<const TokenId> ids) const = 0;

  // The id of an added token given by its exact content.
  virtual std::optional<TokenId> FindAddedToken(absl::string_view content) const = 0;

  // True for added tokens that the file flags `special`.
  virtual bool IsSpecial(TokenId id) const = 0;

  // One more than the highest id that has an entry.
  virtual TokenId num_ids() const = 0;
};

}  // namespace tandem::router
