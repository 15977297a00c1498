// Compares the finder with a search that tries every token at every place, over random texts of a small alphabet.
#include "router/tokenizer/added_token_finder.h"

#include <gtest/gtest.h>

#include <random>

namespace tandem::router {
namespace {

using Found = std::vector<std::tuple<size_t, size_t, TokenId>>;

Found Find(const AddedTokenFinder& finder, absl::string_view text, absl::Span<const MarkedText::Run> runs) {
  Found found;
  for (const auto& occurrence : finder.Find(text, runs)) {
    found.emplace_back(occurrence.begin, occurrence.end, occurrence.id);
  }
  return found;
}

Found FindEverywhere(const AddedTokenFinder& finder, absl::string_view text) {
  const MarkedText::Run whole{0, text.size(), true};
  return Find(finder, text, absl::MakeConstSpan(&whole, 1));
}

// Cuts out the tokens of one kind from the places that are still free: leftmost, then longest.
void CutOut(absl::Span<const AddedToken> tokens, bool is_normalized, absl::string_view text, std::vector<bool>* is_free,
            Found* found) {
  for (size_t begin = 0; begin < text.size();) {
    const AddedToken* longest = nullptr;
    for (const AddedToken& token : tokens) {
      if (token.is_normalized != is_normalized || text.substr(begin, token.content.size()) != token.content) continue;
      bool fits = true;
      for (size_t i = begin; i < begin + token.content.size(); ++i) fits = fits && (*is_free)[i];
      if (fits && (longest == nullptr || token.content.size() > longest->content.size())) longest = &token;
    }
    if (longest == nullptr) {
      ++begin;
      continue;
    }
    const size_t end = begin + longest->content.size();
    for (size_t i = begin; i < end; ++i) (*is_free)[i] = false;
    found->emplace_back(begin, end, longest->id);
    begin = end;
  }
}

TEST(AddedTokenFinderTest, TakesTheLeftmostAndThenTheLongest) {
  const std::vector<AddedToken> tokens = {{10, "<a>"}, {11, "<a>b"}, {12, "a>bc"}};
  const AddedTokenFinder finder(tokens);
  EXPECT_EQ(FindEverywhere(finder, "x<a>bc<a>a>bc"), (Found{{1, 5, 11}, {6, 9, 10}, {9, 13, 12}}));
}

TEST(AddedTokenFinderTest, TokensThatAreNotNormalizedAreCutOutFirst) {
  const std::vector<AddedToken> tokens = {{10, "b|c", false, false}, {11, "a|b", false, true}};
  const AddedTokenFinder finder(tokens);
  EXPECT_EQ(FindEverywhere(finder, "a|b|c"), (Found{{2, 5, 10}}));
  EXPECT_EQ(FindEverywhere(finder, "a|b|a|b"), (Found{{0, 3, 11}, {4, 7, 11}}));
}

TEST(AddedTokenFinderTest, NeverLooksOutsideMarkupNorAcrossItsBorder) {
  const std::vector<AddedToken> tokens = {{10, "<a>"}};
  const AddedTokenFinder finder(tokens);
  const absl::string_view text = "<a><a><a><a>";
  const std::vector<MarkedText::Run> runs = {{0, 2, true}, {2, 3, false}, {3, 6, true}, {6, 10, false}, {10, 12, true}};
  EXPECT_EQ(Find(finder, text, runs), (Found{{3, 6, 10}}));
}

TEST(AddedTokenFinderTest, KnowsIdsByContent) {
  const std::vector<AddedToken> tokens = {{10, "<a>"}, {11, "<b>", false, true}};
  const AddedTokenFinder finder(tokens);
  EXPECT_EQ(finder.IdOf("<a>"), TokenId{10});
  EXPECT_EQ(finder.IdOf("<b>"), TokenId{11});
  EXPECT_EQ(finder.IdOf("<a"), std::nullopt);
}

TEST(AddedTokenFinderTest, FindsWhatTryingEveryTokenEverywhereFinds) {
  std::mt19937 generator(7);
  const auto below = [&generator](size_t bound) { return generator() % bound; };
  const auto letters = [&](size_t length) {
    std::string text;
    while (text.size() < length) text.push_back(static_cast<char>('a' + below(3)));
    return text;
  };
  for (int round = 0; round < 3000; ++round) {
    std::vector<AddedToken> tokens;
    for (TokenId id = 0; id < 1 + below(6); ++id) {
      const std::string content = letters(1 + below(4));
      const bool is_new =
          std::none_of(tokens.begin(), tokens.end(), [&](const AddedToken& token) { return token.content == content; });
      if (is_new) tokens.push_back({id, content, false, below(2) == 1});
    }
    MarkedText text;
    for (size_t i = 0; i < 5; ++i) {
      below(3) == 0 ? text.AppendContent(letters(below(6))) : text.AppendMarkup(letters(below(8)));
    }
    Found expected;
    for (const MarkedText::Run& run : text.runs()) {
      if (!run.is_markup) continue;
      const std::string markup = text.text().substr(run.begin, run.end - run.begin);
      std::vector<bool> is_free(markup.size(), true);
      Found found;
      CutOut(tokens, false, markup, &is_free, &found);
      CutOut(tokens, true, markup, &is_free, &found);
      std::sort(found.begin(), found.end());
      for (const auto& [begin, end, id] : found) expected.emplace_back(run.begin + begin, run.begin + end, id);
    }
    ASSERT_EQ(Find(AddedTokenFinder(tokens), text.text(), text.runs()), expected) << text.text();
  }
}

}  // namespace
}  // namespace tandem::router
