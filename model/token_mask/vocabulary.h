// The bytes of all tokens, laid out so that all tokens which an automaton accepts are found in one walk.
//
// Two tries, each in the order of a walk that goes deep first, so that a walk reads memory once from front to back:
// `plain`, tokens of at most kPlainCharsMax characters that no string of JSON and no markup treats in a special way,
// most of any vocabulary; and `rest`, all others. Where an automaton takes every plain character alike, inside a
// string, the plain tokens need no walk: they are allowed up to a length.
// Immutable; shared by all requests of a worker. Tested by token_masker_test.cc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "model/token_mask/token_mask.h"

namespace tandem::model {

struct CharRange;

class TokenTrie final {
 public:
  struct Node {
    uint32_t end = 0;  // index behind the node's last descendant; its first child stands right behind it
    uint32_t tokens_begin = 0;
    uint16_t num_tokens = 0;  // that end here; more than one where ids share their bytes
    uint8_t byte = 0;         // read on the way to it
  };

  // tokens: ids whose bytes are not empty, in any order.
  TokenTrie(absl::Span<const std::string> bytes, std::vector<int32_t> tokens);

  // Node 0 is the root.
  absl::Span<const Node> nodes() const { return nodes_; }
  absl::Span<const int32_t> TokensAt(const Node& node) const {
    return absl::MakeConstSpan(tokens_).subspan(node.tokens_begin, node.num_tokens);
  }

 private:
  std::vector<Node> nodes_;
  std::vector<int32_t> tokens_;  // in order of their bytes
};

class Vocabulary final {
 public:
  static constexpr int kPlainCharsMax = 32;
  static absl::Span<const CharRange> PlainChars();

  // bytes[id], empty where the id is no text.
  explicit Vocabulary(std::vector<std::string> bytes);

  int size() const { return static_cast<int>(bytes_.size()); }
  const std::string& bytes(int32_t token) const { return bytes_[token]; }
  const TokenTrie& plain() const { return plain_; }
  const TokenTrie& rest() const { return rest_; }
  // Plain tokens of at most as many characters, at least 1.
  const TokenMask& PlainUpTo(int num_chars) const;

 private:
  struct Split;
  Vocabulary(std::vector<std::string> bytes, Split split);

  const std::vector<std::string> bytes_;
  const TokenTrie plain_;
  const TokenTrie rest_;
  std::vector<TokenMask> plain_up_to_;  // [num_chars - 1]
};

}  // namespace tandem::model
