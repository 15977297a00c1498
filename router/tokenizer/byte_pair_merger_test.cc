// Compares the merger with the definition (search all pairs, merge one, start again) under random rules.
#include "router/tokenizer/byte_pair_merger.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

namespace tandem::router {
namespace {

std::array<TokenId, 256> Identity() {
  std::array<TokenId, 256> tokens;
  for (TokenId byte = 0; byte < 256; ++byte) tokens[byte] = byte;
  return tokens;
}

std::vector<TokenId> MergeByDefinition(absl::Span<const MergeRule> rules, absl::string_view piece) {
  std::map<std::pair<TokenId, TokenId>, size_t> ranks;
  for (size_t rank = 0; rank < rules.size(); ++rank) ranks[{rules[rank].left, rules[rank].right}] = rank;
  std::vector<TokenId> tokens;
  for (const char c : piece) tokens.push_back(static_cast<uint8_t>(c));
  for (;;) {
    size_t best_rank = rules.size(), best_at = 0;
    for (size_t at = 0; at + 1 < tokens.size(); ++at) {
      const auto it = ranks.find({tokens[at], tokens[at + 1]});
      if (it != ranks.end() && it->second < best_rank) best_rank = it->second, best_at = at;
    }
    if (best_rank == rules.size()) return tokens;
    tokens[best_at] = rules[best_rank].result;
    tokens.erase(tokens.begin() + static_cast<ptrdiff_t>(best_at) + 1);
  }
}

// Rules over the letters a, b and c. Token bytes come out in *token_bytes, by id.
std::vector<MergeRule> RandomRules(std::mt19937* generator, std::vector<std::string>* token_bytes) {
  const auto below = [generator](size_t bound) { return (*generator)() % bound; };
  std::vector<TokenId> tokens = {'a', 'b', 'c'};
  token_bytes->clear();
  for (int byte = 0; byte < 256; ++byte) token_bytes->emplace_back(1, static_cast<char>(byte));
  std::map<std::pair<TokenId, TokenId>, bool> seen;
  std::map<std::string, TokenId> ids;
  std::vector<MergeRule> rules;
  for (size_t i = 0; i < 1 + below(25); ++i) {
    const TokenId left = tokens[below(tokens.size())], right = tokens[below(tokens.size())];
    if (seen[{left, right}]) continue;
    seen[{left, right}] = true;
    const std::string bytes = (*token_bytes)[left] + (*token_bytes)[right];
    auto [it, is_new] = ids.emplace(bytes, token_bytes->size());
    if (is_new) {
      token_bytes->push_back(bytes);
      tokens.push_back(it->second);
    }
    rules.push_back({left, right, it->second});
  }
  return rules;
}

TEST(BytePairMergerTest, MergesAsTheDefinitionSaysForShortAndLongPieces) {
  std::mt19937 generator(11);
  for (int round = 0; round < 1500; ++round) {
    std::vector<std::string> token_bytes;
    const std::vector<MergeRule> rules = RandomRules(&generator, &token_bytes);
    absl::StatusOr<BytePairMerger> merger = BytePairMerger::Build(Identity(), rules);
    ASSERT_TRUE(merger.ok()) << merger.status();
    std::vector<absl::string_view> views(token_bytes.begin(), token_bytes.end());
    for (int is_indexed = 0; is_indexed < 2; ++is_indexed) {
      if (is_indexed == 1) merger->IndexWholeTokens(views);
      for (const size_t length : {1, 2, 3, 5, 9, 50, 95, 96, 97, 200}) {
        std::string piece;
        while (piece.size() < length) piece.push_back(static_cast<char>('a' + generator() % (1 + round % 3)));
        std::vector<TokenId> ids;
        merger->Merge(piece, &ids);
        ASSERT_EQ(ids, MergeByDefinition(rules, piece)) << piece;
      }
    }
  }
}

TEST(BytePairMergerTest, EqualRanksMergeFromTheLeft) {
  const std::vector<MergeRule> rules = {{'a', 'a', 300}};
  absl::StatusOr<BytePairMerger> merger = BytePairMerger::Build(Identity(), rules);
  ASSERT_TRUE(merger.ok());
  std::vector<TokenId> ids;
  merger->Merge("aaaaa", &ids);
  EXPECT_EQ(ids, (std::vector<TokenId>{300, 300, 'a'}));
}

TEST(BytePairMergerTest, ATokenThatMergingCannotReachIsNotTakenWhole) {
  // "abc" is a token, but "b"+"c" merges first and then nothing makes a+bc.
  const std::vector<MergeRule> rules = {{'b', 'c', 300}, {'a', 'b', 301}, {301, 'c', 302}};
  absl::StatusOr<BytePairMerger> merger = BytePairMerger::Build(Identity(), rules);
  ASSERT_TRUE(merger.ok());
  std::vector<absl::string_view> token_bytes(303);
  token_bytes[300] = "bc", token_bytes[301] = "ab", token_bytes[302] = "abc";
  merger->IndexWholeTokens(token_bytes);
  std::vector<TokenId> ids;
  merger->Merge("abc", &ids);
  EXPECT_EQ(ids, (std::vector<TokenId>{'a', 300}));
  ids.clear();
  merger->Merge("ab", &ids);
  EXPECT_EQ(ids, (std::vector<TokenId>{301}));
}

TEST(BytePairMergerTest, AMegabyteOfOneLetterTakesLinearlyManySteps) {
  std::vector<MergeRule> rules = {{'a', 'a', 300}};
  for (TokenId id = 300; id < 310; ++id) rules.push_back({id, id, id + 1});
  absl::StatusOr<BytePairMerger> merger = BytePairMerger::Build(Identity(), rules);
  ASSERT_TRUE(merger.ok());
  const std::string piece(1 << 20, 'a');
  std::vector<TokenId> ids;
  EXPECT_LE(merger->Merge(piece, &ids), 3 * piece.size());
  EXPECT_EQ(ids, std::vector<TokenId>(512, 310));
}

TEST(BytePairMergerTest, RefusesThePairThatComesTwice) {
  const std::vector<MergeRule> rules = {{'a', 'b', 300}, {'b', 'c', 301}, {'a', 'b', 302}};
  const absl::Status status = BytePairMerger::Build(Identity(), rules).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "merges 0 and 2 are the same pair");
}

TEST(BytePairMergerTest, KnowsWhatItCanYield) {
  const std::vector<MergeRule> rules = {{'a', 'b', 300}};
  absl::StatusOr<BytePairMerger> merger = BytePairMerger::Build(Identity(), rules);
  ASSERT_TRUE(merger.ok());
  EXPECT_TRUE(merger->CanYield('z'));
  EXPECT_TRUE(merger->CanYield(300));
  EXPECT_FALSE(merger->CanYield(299));
  EXPECT_FALSE(merger->CanYield(301));
}

}  // namespace
}  // namespace tandem::router
