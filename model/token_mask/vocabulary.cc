#include "model/token_mask/vocabulary.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "model/token_mask/char_prefix.h"
#include "model/token_mask/constraint.h"

namespace tandem::model {
namespace {

// All but control characters, the quote and the backslash of JSON, the `<` of markup, and U+FF5C, the bar of marks.
constexpr CharRange kPlainChars[] = {
    {0x20, 0x21}, {0x23, 0x3B}, {0x3D, 0x5B}, {0x5D, 0xD7FF}, {0xE000, 0xFF5B}, {0xFF5D, 0x10FFFF},
};

bool IsPlain(uint32_t c) {
  return std::any_of(std::begin(kPlainChars), std::end(kPlainChars),
                     [c](const CharRange& range) { return c >= range.first && c <= range.last; });
}

// 0: not of plain characters alone.
int NumPlainChars(const std::string& bytes) {
  CharPrefix prefix;
  int num_chars = 0;
  for (const char byte : bytes) {
    const CharPrefix::Result result = prefix.Append(static_cast<uint8_t>(byte));
    if (result == CharPrefix::Result::kInvalid) return 0;
    if (result == CharPrefix::Result::kPartial) continue;
    if (!IsPlain(prefix.first())) return 0;
    ++num_chars;
  }
  return prefix.empty() && num_chars <= Vocabulary::kPlainCharsMax ? num_chars : 0;
}

}  // namespace

TokenTrie::TokenTrie(absl::Span<const std::string> bytes, std::vector<int32_t> tokens) : tokens_(std::move(tokens)) {
  std::sort(tokens_.begin(), tokens_.end(), [&](int32_t a, int32_t b) {
    const int order = bytes[a].compare(bytes[b]);
    return order != 0 ? order < 0 : a < b;
  });
  nodes_.push_back({});
  std::vector<uint32_t> path = {0};  // path[i]: the node behind i bytes of the token before
  absl::string_view before;
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const absl::string_view text = bytes[tokens_[i]];
    size_t num_common = 0;
    while (num_common < std::min(before.size(), text.size()) && before[num_common] == text[num_common]) ++num_common;
    while (path.size() > num_common + 1) {
      nodes_[path.back()].end = static_cast<uint32_t>(nodes_.size());
      path.pop_back();
    }
    for (size_t at = num_common; at < text.size(); ++at) {
      path.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back({.byte = static_cast<uint8_t>(text[at])});
    }
    Node& node = nodes_[path.back()];
    if (node.num_tokens == 0) node.tokens_begin = static_cast<uint32_t>(i);
    TANDEM_CHECK(node.num_tokens < std::numeric_limits<uint16_t>::max(), "ids of the same bytes");
    ++node.num_tokens;
    before = text;
  }
  for (const uint32_t node : path) nodes_[node].end = static_cast<uint32_t>(nodes_.size());
}

struct Vocabulary::Split {
  explicit Split(absl::Span<const std::string> bytes) {
    for (size_t token = 0; token < bytes.size(); ++token) {
      if (bytes[token].empty()) continue;
      const int length = NumPlainChars(bytes[token]);
      (length > 0 ? plain : rest).push_back(static_cast<int32_t>(token));
      if (length > 0) lengths.push_back(length);
    }
  }
  std::vector<int32_t> plain, rest;
  std::vector<int> lengths;  // of plain
};

absl::Span<const CharRange> Vocabulary::PlainChars() { return kPlainChars; }

Vocabulary::Vocabulary(std::vector<std::string> bytes) : Vocabulary(bytes, Split(bytes)) {}

Vocabulary::Vocabulary(std::vector<std::string> bytes, Split split)
    : bytes_(std::move(bytes)), plain_(bytes_, split.plain), rest_(bytes_, split.rest) {
  TANDEM_CHECK(!bytes_.empty(), "a vocabulary has tokens");
  plain_up_to_.assign(kPlainCharsMax, TokenMask(size()));
  for (size_t i = 0; i < split.plain.size(); ++i) {
    for (int num_chars = split.lengths[i]; num_chars <= kPlainCharsMax; ++num_chars) {
      plain_up_to_[num_chars - 1].Allow(split.plain[i]);
    }
  }
}

const TokenMask& Vocabulary::PlainUpTo(int num_chars) const {
  TANDEM_CHECK(num_chars >= 1, "a number of characters");
  return plain_up_to_[std::min(num_chars, kPlainCharsMax) - 1];
}

}  // namespace tandem::model
