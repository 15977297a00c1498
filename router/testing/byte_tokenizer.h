// A tokenizer for tests: ids 0 to 255 are bytes, the ids after them are the marks of the chat format.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "router/tokenizer/tokenizer.h"

namespace tandem::router {

class ByteTokenizer final : public Tokenizer {
 public:
  static constexpr TokenId kBos = 256;
  static constexpr TokenId kEos = 257;
  static constexpr TokenId kUser = 258;
  static constexpr TokenId kAssistant = 259;
  static constexpr TokenId kThinkBegin = 260;  // the two are added tokens but not special, as in the real file
  static constexpr TokenId kThinkEnd = 261;
  static constexpr TokenId kDsml = 262;  // special
  static constexpr TokenId kNumIds = 263;

  absl::StatusOr<std::vector<TokenId>> Encode(absl::string_view text, AddedTokens added_tokens) const override;
  absl::StatusOr<std::vector<TokenId>> Encode(const MarkedText& prompt) const override;
  absl::string_view TokenBytes(TokenId id) const override;
  std::string Decode(absl::Span<const TokenId> ids) const override;
  std::optional<TokenId> FindAddedToken(absl::string_view content) const override;
  bool IsSpecial(TokenId id) const override;
  TokenId num_ids() const override { return kNumIds; }

  // Ids of plain text.
  static std::vector<TokenId> Bytes(absl::string_view text);
};

}  // namespace tandem::router
