// Byte-pair encoding of one piece: merge the adjacent pair of smallest rank, the leftmost on ties, until none is left.
//
// Short pieces (nearly all) are merged in place, looking for the smallest rank each time. Long ones keep the places of
// each rank in a list and the ranks in order, O(n log n): a megabyte of one letter is a legal request. Both give what
// the definition gives. A piece that is itself a token is looked up whole, if merging it is known to give that token.
// Tested by byte_pair_merger_test.cc against the definition, and for the number of steps on the worst inputs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "router/tokenizer/token_id.h"

namespace tandem::router {

// Where the two tokens stand side by side they may become `result`. Rank is the place in the list.
struct MergeRule {
  TokenId left;
  TokenId right;
  TokenId result;
};

class BytePairMerger {
 public:
  // byte_tokens[b] is the token of the single byte b. INVALID_ARGUMENT where two rules have the same pair.
  static absl::StatusOr<BytePairMerger> Build(const std::array<TokenId, 256>& byte_tokens,
                                              absl::Span<const MergeRule> rules);

  // Makes Merge() fast for pieces that are tokens. token_bytes[id] is what the id stands for and must outlive the
  // merger; empty ones are passed over.
  void IndexWholeTokens(const std::vector<absl::string_view>& token_bytes);

  // Appends the tokens of `piece`. Returns how many pairs were looked at: at most 3 for each byte of a long piece.
  size_t Merge(absl::string_view piece, std::vector<TokenId>* ids) const;

  // True if merging can yield this token.
  bool CanYield(TokenId id) const;

 private:
  struct PairEntry {
    uint64_t pair;  // left << 32 | right
    uint32_t rank;
    TokenId result;
  };
  struct WholeEntry {
    const char* bytes;  // nullptr in an empty slot
    uint32_t length;
    TokenId id;
  };

  static constexpr uint64_t kNoPair = ~uint64_t{0};
  static constexpr uint32_t kNoRank = ~uint32_t{0};
  static constexpr size_t kShortPieceMax = 96;

  const PairEntry& FindPair(TokenId left, TokenId right) const;
  const TokenId* FindWhole(absl::string_view piece) const;
  size_t MergeShort(absl::string_view piece, std::vector<TokenId>* ids) const;
  size_t MergeLong(absl::string_view piece, std::vector<TokenId>* ids) const;

  std::array<TokenId, 256> byte_tokens_{};
  std::vector<PairEntry> pairs_;  // open addressing, a power of two long; rank kNoRank in empty slots
  int pairs_shift_ = 64;
  std::vector<bool> can_yield_;     // by id
  std::vector<WholeEntry> wholes_;  // open addressing, a power of two long, or empty
  size_t whole_bytes_max_ = 0;
};

}  // namespace tandem::router
