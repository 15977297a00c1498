// Compares the automaton with a search that sees the whole text, over all short texts of a small alphabet, all splits
// of them, and every small set of stops.
#include "router/parsing/stop_matcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace tandem::router {
namespace {

struct Outcome {
  std::string text;
  int matched = -1;

  bool operator==(const Outcome&) const = default;
};

void PrintTo(const Outcome& outcome, std::ostream* os) { *os << '"' << outcome.text << "\" stop " << outcome.matched; }

// The definition: the stop that is complete first wins, of several the longest, of equal ones the first given.
Outcome SearchWhole(const std::vector<std::string>& stops, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    int best = -1;
    for (size_t i = 0; i < stops.size(); ++i) {
      if (end < stops[i].size() || text.compare(end - stops[i].size(), stops[i].size(), stops[i]) != 0) continue;
      if (best == -1 || stops[i].size() > stops[best].size()) best = static_cast<int>(i);
    }
    if (best != -1) return {text.substr(0, end - stops[best].size()), best};
  }
  return {text, -1};
}

StopSet Build(std::vector<std::string> stops) {
  absl::StatusOr<StopSet> set = StopSet::Build(std::move(stops));
  EXPECT_TRUE(set.ok()) << set.status();
  return *std::move(set);
}

// What comes out delta by delta; the last entry is what Finish() adds.
std::vector<std::string> Deltas(const StopSet& set, const std::vector<std::string>& deltas, int* matched) {
  StopMatcher matcher(set);
  std::vector<std::string> out;
  for (const std::string& delta : deltas) matcher.Append(delta, &out.emplace_back());
  matcher.Finish(&out.emplace_back());
  *matched = matcher.matched().value_or(-1);
  return out;
}

std::vector<std::string> Characters(const std::string& text) {
  std::vector<std::string> characters;
  for (const char c : text) characters.emplace_back(1, c);
  return characters;
}

Outcome Stream(const StopSet& set, const std::vector<std::string>& deltas) {
  Outcome outcome;
  for (const std::string& delta : Deltas(set, deltas, &outcome.matched)) outcome.text += delta;
  return outcome;
}

std::vector<std::string> AllTexts(absl::string_view letters, size_t length_max) {
  std::vector<std::string> all = {""};
  for (size_t begin = 0, length = 1; length <= length_max; ++length) {
    const size_t end = all.size();
    for (; begin < end; ++begin) {
      for (const char letter : letters) all.push_back(all[begin] + letter);
    }
  }
  return all;
}

using Texts = std::vector<std::string>;

TEST(StopMatcherTest, NothingOfAStopIsShownOneCharacterAtATime) {
  const StopSet set = Build({"DEFGHIJ"});
  int matched;
  EXPECT_EQ(Deltas(set, Characters("ABC DEFGHIJ K"), &matched),
            (Texts{"A", "B", "C", " ", "", "", "", "", "", "", "", "", "", ""}));
  EXPECT_EQ(matched, 0);
}

TEST(StopMatcherTest, TheStopThatIsCompleteFirstWins) {
  EXPECT_EQ(Stream(Build({"ab", "abc"}), {"xabcd"}), (Outcome{"x", 0}));
  EXPECT_EQ(Stream(Build({"abc", "ab"}), {"x", "a", "b", "c"}), (Outcome{"x", 1}));
  EXPECT_EQ(Stream(Build({"abcd", "bc"}), {"xabcd"}), (Outcome{"xa", 1}));
}

TEST(StopMatcherTest, OfStopsCompleteTogetherTheLongestWins) {
  EXPECT_EQ(Stream(Build({"c", "bc", "abc"}), {"xab", "c"}), (Outcome{"x", 2}));
}

TEST(StopMatcherTest, AStopMayBeginInsideAFailedOne) {
  EXPECT_EQ(Stream(Build({"aab"}), {"aaab"}), (Outcome{"a", 0}));
  EXPECT_EQ(Stream(Build({"aab"}), Characters("aaab")), (Outcome{"a", 0}));
}

TEST(StopMatcherTest, HeldTextComesOutAsSoonAsItCannotMatchAndAtTheEnd) {
  const StopSet set = Build({"###"});
  int matched;
  EXPECT_EQ(Deltas(set, {"#", " Title", "##"}, &matched), (Texts{"", "# Title", "", "##"}));
  EXPECT_EQ(matched, -1);
}

TEST(StopMatcherTest, AfterAStopNothingMoreIsReadOrShown) {
  const StopSet set = Build({"b"});
  StopMatcher matcher(set);
  std::string text;
  EXPECT_EQ(matcher.Append("abc", &text), 2u);
  EXPECT_EQ(matcher.Append("def", &text), 0u);
  matcher.Finish(&text);
  EXPECT_EQ(text, "a");
  EXPECT_EQ(matcher.matched(), 0);
}

TEST(StopMatcherTest, WithoutStopsTextPassesThrough) {
  EXPECT_EQ(Stream(Build({}), {"ab", "c"}), (Outcome{"abc", -1}));
}

TEST(StopMatcherTest, OfEqualStopsTheFirstIsReported) {
  EXPECT_EQ(Stream(Build({"b", "a", "a"}), {"a"}), (Outcome{"", 1}));
}

TEST(StopMatcherTest, WholeCharactersInGiveWholeCharactersOut) {
  const StopSet set = Build({"é!", "你好"});
  int matched;
  EXPECT_EQ(Deltas(set, {"è", "é", "?", "你", "们", "你", "好"}, &matched),
            (Texts{"è", "", "é?", "", "你们", "", "", ""}));
  EXPECT_EQ(matched, 1);
}

TEST(StopMatcherTest, RefusesEmptyAndEndlessStops) {
  EXPECT_EQ(StopSet::Build({"a", ""}).status().message(), "stop string 1 is empty");
  EXPECT_EQ(StopSet::Build({std::string(StopSet::kBytesMax, 'a'), "b"}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(StopSet::Build({std::string(StopSet::kBytesMax, 'a')}).ok());
}

// Each pair of stops of up to 3 letters, each text of up to 7 letters, whole and letter by letter.
TEST(StopMatcherTest, AllPairsOfShortStopsOnAllShortTextsGiveWhatTheSearchGives) {
  const Texts stops = AllTexts("ab", 3);
  const Texts texts = AllTexts("ab", 7);
  for (size_t i = 1; i < stops.size(); ++i) {
    for (size_t j = i; j < stops.size(); ++j) {
      const std::vector<std::string> both = {stops[i], stops[j]};
      const StopSet set = Build(both);
      for (const std::string& text : texts) {
        const Outcome expected = SearchWhole(both, text);
        ASSERT_EQ(Stream(set, {text}), expected) << both[0] << " " << both[1] << " on " << text;
        ASSERT_EQ(Stream(set, Characters(text)), expected) << both[0] << " " << both[1] << " on " << text;
      }
    }
  }
}

// Random sets of longer stops, every split of the text; what is shown is never taken back and never more than certain.
TEST(StopMatcherTest, EverySplitShowsWhatIsCertainAndNoMore) {
  std::mt19937 generator(17);
  const auto letters = [&generator](size_t length) {
    std::string text;
    while (text.size() < length) text.push_back(static_cast<char>('a' + generator() % 2));
    return text;
  };
  for (int round = 0; round < 60; ++round) {
    std::vector<std::string> stops;
    for (uint32_t i = 0; i < 1 + generator() % 4; ++i) stops.push_back(letters(1 + generator() % 6));
    const StopSet set = Build(stops);
    const std::string text = letters(11);
    const Outcome expected = SearchWhole(stops, text);
    for (int cuts = 0; cuts < 1 << 10; ++cuts) {
      StopMatcher matcher(set);
      std::string shown;
      size_t begin = 0;
      for (size_t end = 1; end <= text.size(); ++end) {
        if (end < text.size() && (cuts >> (end - 1) & 1) == 0) continue;
        matcher.Append(text.substr(begin, end - begin), &shown);
        begin = end;
        // Held back is the longest suffix that may still become a stop.
        const std::string seen = text.substr(0, end);
        if (SearchWhole(stops, seen).matched != -1) continue;
        size_t held = 0;
        for (const std::string& stop : stops) {
          for (size_t length = std::min(stop.size() - 1, seen.size()); length > held; --length) {
            if (seen.ends_with(stop.substr(0, length))) held = length;
          }
        }
        ASSERT_EQ(shown, seen.substr(0, seen.size() - held));
        ASSERT_EQ(matcher.num_held_bytes(), held);
      }
      matcher.Finish(&shown);
      ASSERT_EQ((Outcome{shown, matcher.matched().value_or(-1)}), expected) << text;
    }
  }
}

}  // namespace
}  // namespace tandem::router
