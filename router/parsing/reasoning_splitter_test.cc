// The splitter over all splits of a stream gives what it gives for the whole, which is what a search for the marker
// says.
#include "router/parsing/reasoning_splitter.h"

#include <gtest/gtest.h>

#include <vector>

#include "absl/strings/string_view.h"

namespace tandem::router {
namespace {

using State = ReasoningSplitter::State;

struct Answer {
  std::string reasoning;
  std::string content;

  bool operator==(const Answer&) const = default;
};

void PrintTo(const Answer& answer, std::ostream* os) {
  *os << "reasoning \"" << answer.reasoning << "\" content \"" << answer.content << '"';
}

Answer Split(State start, const std::vector<std::string>& deltas) {
  ReasoningSplitter splitter(start);
  AnswerDelta all;
  for (const std::string& delta : deltas) splitter.Append(delta, &all);
  splitter.Finish(&all);
  return {all.reasoning, all.content};
}

Answer SearchWhole(State start, const std::string& text) {
  if (start == State::kContent) return {"", text};
  const size_t marker = text.find("</think>");
  if (marker == std::string::npos) return {text, ""};
  return {text.substr(0, marker), text.substr(marker + 8)};
}

TEST(ReasoningSplitterTest, TheStartIsReadFromThePromptsTail) {
  const auto state = [](const std::vector<std::pair<bool, std::string>>& runs) {
    MarkedText prompt;
    for (const auto& [is_markup, text] : runs) is_markup ? prompt.AppendMarkup(text) : prompt.AppendContent(text);
    return ReasoningSplitter::StateAfterPrompt(prompt);
  };
  EXPECT_EQ(state({{true, "<｜User｜>"}, {false, "Hi"}, {true, "<｜Assistant｜><think>"}}), State::kReasoning);
  EXPECT_EQ(state({{true, "<｜User｜>"}, {false, "Hi"}, {true, "<｜Assistant｜></think>"}}), State::kContent);
  EXPECT_EQ(state({{true, "</think>"}, {false, "R"}, {true, "</result>\n</function_results>\n\n<think>"}}),
            State::kReasoning);
  EXPECT_EQ(state({{true, "<think>"}, {false, "R"}, {true, "</result>\n</function_results>\n\n</think>"}}),
            State::kContent);
  EXPECT_EQ(state({{true, "<｜Assistant｜></think>"}, {false, "a"}, {true, "<｜tool▁output▁end｜>"}}), State::kContent);
  EXPECT_EQ(state({{true, "<｜Assistant｜><think>"}, {false, "half a thought, </think>"}}), State::kReasoning);
  EXPECT_EQ(state({{true, "<｜Assistant｜></think>"}, {false, "a front <think>"}}), State::kContent);
  EXPECT_EQ(state({{true, "<think>..</think>\n<functions>"}}), State::kContent);
  EXPECT_EQ(state({}), State::kContent);
}

TEST(ReasoningSplitterTest, AnAnswerAfterAToolResultIsSplitByItsPrompt) {
  EXPECT_EQ(Split(State::kReasoning, {"I got 22C.</think>It is 22C."}), (Answer{"I got 22C.", "It is 22C."}));
  EXPECT_EQ(Split(State::kContent, {"It is 22C."}), (Answer{"", "It is 22C."}));
}

TEST(ReasoningSplitterTest, OnlyTheFirstMarkerSplits) {
  EXPECT_EQ(Split(State::kReasoning, {"a</think>b</think>c<think>d"}), (Answer{"a", "b</think>c<think>d"}));
  EXPECT_EQ(Split(State::kContent, {"a</think>b"}), (Answer{"", "a</think>b"}));
}

TEST(ReasoningSplitterTest, ReasoningThatNeverEndsIsAllReasoning) {
  EXPECT_EQ(Split(State::kReasoning, {"a", "</thi"}), (Answer{"a</thi", ""}));
  EXPECT_EQ(Split(State::kReasoning, {}), (Answer{"", ""}));
  EXPECT_EQ(Split(State::kReasoning, {"</think>"}), (Answer{"", ""}));
}

TEST(ReasoningSplitterTest, TextComesOutAsSoonAsItIsNoMarker) {
  ReasoningSplitter splitter(State::kReasoning);
  const auto append = [&splitter](absl::string_view text) {
    AnswerDelta delta;
    splitter.Append(text, &delta);
    return Answer{delta.reasoning, delta.content};
  };
  EXPECT_EQ(append("x</th"), (Answer{"x", ""}));
  EXPECT_EQ(append("ere"), (Answer{"</there", ""}));
  EXPECT_EQ(append("<</think"), (Answer{"<", ""}));
  EXPECT_EQ(splitter.state(), State::kReasoning);
  EXPECT_EQ(append(">y"), (Answer{"", "y"}));
  EXPECT_EQ(splitter.state(), State::kContent);
  EXPECT_EQ(append("</th"), (Answer{"", "</th"}));
}

// Texts of up to six fragments of markers, cut at every subset of places.
TEST(ReasoningSplitterTest, EverySplitGivesWhatTheWholeGives) {
  const std::string kTexts[] = {"a</think>b", "<</think>",        "</</think>x", "</thin</think>",
                                "</think",    "</think></think>", "</thinker>",  "ab</thi nk>"};
  for (const State start : {State::kReasoning, State::kContent}) {
    for (const std::string& text : kTexts) {
      const Answer expected = SearchWhole(start, text);
      for (uint32_t cuts = 0; cuts < 1u << (text.size() - 1); ++cuts) {
        std::vector<std::string> deltas(1);
        for (size_t i = 0; i < text.size(); ++i) {
          deltas.back().push_back(text[i]);
          if (cuts >> i & 1) deltas.emplace_back();
        }
        ASSERT_EQ(Split(start, deltas), expected) << text << " cut " << cuts;
      }
    }
  }
}

}  // namespace
}  // namespace tandem::router
