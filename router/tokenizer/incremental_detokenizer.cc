#include "router/tokenizer/incremental_detokenizer.h"

#include "absl/strings/string_view.h"
#include "router/tokenizer/utf8.h"

namespace tandem::router {

void IncrementalDetokenizer::Append(absl::Span<const TokenId> ids, std::string* text) {
  for (const TokenId id : ids) {
    const absl::string_view bytes = tokenizer_->TokenBytes(id);
    pending_.append(bytes.data(), bytes.size());
  }
  pending_.erase(0, AppendDecodedUtf8(pending_, text));
}

bool IncrementalDetokenizer::IsContinuedBy(TokenId id) const {
  const absl::string_view bytes = tokenizer_->TokenBytes(id);
  if (pending_.empty() || bytes.empty()) return false;
  return DecodeUtf8(pending_ + bytes[0]).kind != Utf8Char::Kind::kInvalid;
}

void IncrementalDetokenizer::Finish(std::string* text) {
  if (!pending_.empty()) text->append(kReplacementCharacter.data(), kReplacementCharacter.size());
  pending_.clear();
}

}  // namespace tandem::router
