// Finds added tokens (`<｜User｜>`, `</think>`, ...) in text: leftmost first, the longest where several begin together.
//
// Tokens with `normalized` false are cut out in a first pass, the others in what that leaves, as the format demands: a
// token of the first kind wins even against one of the second that begins before it. A pass tries a trie at each byte
// that begins a token, so it costs at most text times the longest token (tens of bytes) and, on ordinary text, one
// table look-up a byte.
// Tested by added_token_finder_test.cc against a search that tries every token everywhere.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "router/tokenizer/marked_text.h"
#include "router/tokenizer/token_id.h"

namespace tandem::router {

struct AddedToken {
  TokenId id = 0;
  std::string content;  // not empty
  bool is_special = false;
  bool is_normalized = false;
};

class AddedTokenFinder {
 public:
  struct Occurrence {
    size_t begin;  // byte offsets into the text
    size_t end;
    TokenId id;
  };

  explicit AddedTokenFinder(absl::Span<const AddedToken> tokens);

  // Occurrences inside the markup runs of `text`, in order, none overlapping another or the border of a run.
  std::vector<Occurrence> Find(absl::string_view text, absl::Span<const MarkedText::Run> runs) const;

  std::optional<TokenId> IdOf(absl::string_view content) const;

 private:
  class Trie {
   public:
    void Insert(absl::string_view content, TokenId id);
    bool empty() const { return nodes_.size() == 1; }
    // Appends occurrences within [begin, end).
    void Find(absl::string_view text, size_t begin, size_t end, std::vector<Occurrence>* found) const;

   private:
    static constexpr int64_t kNoToken = -1;
    struct Node {
      int64_t id = kNoToken;
      std::vector<std::pair<unsigned char, int>> children;
    };
    const int* Child(int node, unsigned char byte) const;

    std::vector<Node> nodes_ = std::vector<Node>(1);
    std::array<bool, 256> begins_{};  // bytes that begin a token
  };

  Trie first_pass_;
  Trie second_pass_;
  absl::flat_hash_map<std::string, TokenId> ids_;
};

}  // namespace tandem::router
