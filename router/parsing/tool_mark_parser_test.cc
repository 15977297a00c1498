// Each way in which a model writes calls between marks, and every cut of it; random texts against a second parser that
// sees the whole text and splits it at its marks.
#include <gtest/gtest.h>

#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "router/parsing/answer_parser.h"
#include "router/parsing/parser_cases.h"

namespace tandem::router {
namespace {

constexpr auto kReasoning = ReasoningSplitter::State::kReasoning;

const std::vector<std::pair<std::string, std::string>>& Marks() {
  static const auto* const kMarks = new std::vector<std::pair<std::string, std::string>>{
      {"[calls]", "<｜tool▁calls▁begin｜>"}, {"[/calls]", "<｜tool▁calls▁end｜>"}, {"[call]", "<｜tool▁call▁begin｜>"},
      {"[/call]", "<｜tool▁call▁end｜>"},    {"[sep]", "<｜tool▁sep｜>"},
  };
  return *kMarks;
}

std::string Markup(absl::string_view text) { return absl::StrReplaceAll(text, Marks()); }

ParserSetup Chat() { return {.rules = {.markup = CallMarkup::kToolMarks}}; }

ParserSetup Thinking() {
  ParserSetup setup = Chat();
  setup.start = kReasoning;
  return setup;
}

// Splits at every mark, then walks over the pieces.
ParsedAnswer ParseWhole(const ParserSetup& setup, std::string text) {
  ParsedAnswer answer;
  bool is_reasoning = setup.start == kReasoning, is_call = false, has_name = false, skips = false;
  std::string name, arguments;
  const auto end_call = [&](bool is_complete) {
    if (!is_call) return;
    is_call = false;
    const std::string stripped(absl::StripAsciiWhitespace(name));
    const std::string shown(absl::StripLeadingAsciiWhitespace(arguments));
    if (stripped.empty() || name.size() > 1024 || !setup.rules.shows_calls || (!is_complete && !has_name)) return;
    answer.calls.push_back({stripped, shown.empty() && is_complete ? "{}" : shown});
    answer.has_incomplete_call = !is_complete;
  };
  while (!text.empty()) {
    size_t at = std::string::npos;
    std::string mark;
    const auto consider = [&](const std::string& candidate) {
      const size_t found = text.find(candidate);
      if (found < at) at = found, mark = candidate;
    };
    for (const auto& [unused, candidate] : Marks()) {
      if (candidate != Markup("[sep]") || (is_call && !has_name)) consider(candidate);
    }
    if (is_reasoning && !is_call) consider("</think>");
    std::string piece = text.substr(0, at);
    text.erase(0, at == std::string::npos ? at : at + mark.size());
    if (is_call) {
      (has_name ? arguments : name) += piece;
    } else {
      if (skips) piece = std::string(absl::StripLeadingAsciiWhitespace(piece));
      if (!piece.empty()) skips = false;
      (is_reasoning ? answer.reasoning : answer.content) += piece;
    }
    if (mark.empty()) break;
    if (mark == "</think>") {
      is_reasoning = skips = false;
    } else if (mark == Markup("[sep]")) {
      has_name = true;
    } else {
      const bool had_call = is_call;
      end_call(true);
      if (had_call && setup.rules.is_single_call && !answer.calls.empty()) return answer;
      skips = true;
      if (mark == Markup("[call]")) {
        is_call = true;
        has_name = false;
        name.clear();
        arguments.clear();
      }
    }
  }
  end_call(!setup.is_cut);
  return answer;
}

void ExpectAnswer(const ParserSetup& setup, absl::string_view text, const ParsedAnswer& expected) {
  const std::string markup = Markup(text);
  ASSERT_EQ(ParseWhole(setup, markup), expected) << markup;
  for (const std::vector<std::string>& pieces : AllCuts(markup)) {
    ASSERT_EQ(ParsePieces(setup, pieces), expected)
        << markup << "\nin " << pieces.size() << " pieces, the first \"" << pieces[0] << '"';
  }
}

TEST(ToolMarkParserTest, ReadsTheFormat) {
  ExpectAnswer(Chat(), "hi\n", {.content = "hi\n"});
  ExpectAnswer(Chat(), "[calls][call]f[sep]{\"x\": 1.50}[/call][/calls]", {.calls = {{"f", "{\"x\": 1.50}"}}});
  ExpectAnswer(Chat(), "pre\n[calls][call]f[sep]{}[/call][call]g[sep]{\"a\": \"<b> \"}[/call][/calls]",
               {.content = "pre\n", .calls = {{"f", "{}"}, {"g", "{\"a\": \"<b> \"}"}}});
  ExpectAnswer(Thinking(), "r</think>[calls][call]f[sep]{}[/call][/calls]", {.reasoning = "r", .calls = {{"f", "{}"}}});
}

TEST(ToolMarkParserTest, IsLenientWhereModelsErr) {
  ExpectAnswer(Chat(), "[call]f[sep]{\"x\": 1}[/call]", {.calls = {{"f", "{\"x\": 1}"}}});
  ExpectAnswer(Chat(), "[calls][call]f[sep]{\"x\": 1}", {.calls = {{"f", "{\"x\": 1}"}}});
  ExpectAnswer(Chat(), "[calls][call]f[sep]{}[call]g[sep]{}[/calls]", {.calls = {{"f", "{}"}, {"g", "{}"}}});
  ExpectAnswer(Chat(), "[calls][call] f \n[/call][call]g[sep]  \n[/call][/calls]",
               {.calls = {{"f", "{}"}, {"g", "{}"}}});
  ExpectAnswer(Chat(), "[calls][call][sep]{}[/call][call]g[sep]{}[/call][/calls]", {.calls = {{"g", "{}"}}});
  ExpectAnswer(Chat(), "[calls][/calls]", {});
  ExpectAnswer(Chat(), "a[calls]\n[call]f[sep]{}[/call]\n[/calls]\nb", {.content = "ab", .calls = {{"f", "{}"}}});
  ExpectAnswer(Thinking(), "r[calls][call]f[sep]\"</think>\"[/call][/calls]s</think>a",
               {.reasoning = "rs", .content = "a", .calls = {{"f", "\"</think>\""}}});
}

TEST(ToolMarkParserTest, WhatOnlyLooksLikeAMarkIsContent) {
  for (const std::string text :
       {"<|tool▁calls▁begin|>", "<｜tool_calls_begin｜>", "a < b <", "<｜tool▁ca", "</think>", "[sep]"}) {
    ExpectAnswer(Chat(), text, {.content = Markup(text)});
  }
}

TEST(ToolMarkParserTest, ForbiddenCallsAndTheSingleCall) {
  ParserSetup forbidden = Chat();
  forbidden.rules.shows_calls = false;
  ExpectAnswer(forbidden, "a[calls][call]f[sep]{}[/call][/calls]b", {.content = "ab"});
  ParserSetup single = Chat();
  single.rules.is_single_call = true;
  ExpectAnswer(single, "a[calls][call]f[sep]{}[/call][call]g[sep]{}[/call][/calls]b",
               {.content = "a", .calls = {{"f", "{}"}}});
}

TEST(ToolMarkParserTest, ACallThatIsCutStaysIncomplete) {
  ParserSetup cut = Chat();
  cut.is_cut = true;
  ExpectAnswer(cut, "[calls][call]f[sep]{\"x\": ", {.calls = {{"f", "{\"x\": "}}, .has_incomplete_call = true});
  ExpectAnswer(cut, "[calls][call]f[sep]", {.calls = {{"f", ""}}, .has_incomplete_call = true});
  ExpectAnswer(cut, "[calls][call]f", {});
  ExpectAnswer(cut, "[calls][call]f[sep]{}[/call]", {.calls = {{"f", "{}"}}});
}

TEST(ToolMarkParserTest, RandomTextsGiveWhatTheSecondParserGives) {
  const std::vector<std::string> pieces = {"[calls]", "[/calls]",   "[call]", "[/call]", "[sep]", "f",
                                           "g",       "{\"x\": 1}", " ",      "\n",      "<",     "｜",
                                           "text",    "</think>",   "é",      "<｜tool▁"};
  std::mt19937 generator(21);
  for (int round = 0; round < 12000; ++round) {
    ParserSetup setup = generator() % 2 ? Thinking() : Chat();
    setup.is_cut = generator() % 3 == 0;
    setup.rules.is_single_call = generator() % 8 == 0;
    setup.rules.shows_calls = generator() % 8 != 0;
    std::string text;
    for (size_t count = 1 + generator() % 14; count > 0; --count) text += Markup(pieces[generator() % pieces.size()]);
    const ParsedAnswer expected = ParseWhole(setup, text);
    ASSERT_EQ(ParsePieces(setup, {text}), expected) << text << "\ncut " << setup.is_cut;
    if (round % 8 != 0) continue;
    for (const std::vector<std::string>& cut : AllCuts(text)) ASSERT_EQ(ParsePieces(setup, cut), expected) << text;
  }
}

TEST(ToolMarkParserTest, ArgumentsLeaveAsTheyCome) {
  const std::unique_ptr<AnswerParser> parser = MakeAnswerParser(ReasoningSplitter::State::kContent, Chat().rules);
  const auto append = [&parser](absl::string_view text) {
    AnswerDelta delta;
    parser->Append(Markup(text), &delta);
    std::string out;
    for (const ToolCallDelta& call : delta.tool_calls) absl::StrAppend(&out, call.name, "(", call.arguments);
    return out;
  };
  EXPECT_EQ(append("[calls][call]f"), "");
  EXPECT_EQ(append("[sep]"), "f(");
  EXPECT_EQ(append("{\"x\""), "({\"x\"");
  EXPECT_EQ(append(": 1}<"), "(: 1}");
  EXPECT_EQ(append("b"), "(<b");
  EXPECT_EQ(append("[/call][call]g[sep]{"), "g({");
}

}  // namespace
}  // namespace tandem::router
