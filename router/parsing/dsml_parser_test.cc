// Each way in which a model writes calls, well or badly, and what a client then sees: the whole text, and every cut of
// it (parser_cases.h), give the same. Random texts made of the format's pieces are compared with a second parser,
// written apart, that sees the whole text (whole_dsml.h). What comes out when: the tests at the end.
#include <gtest/gtest.h>

#include <random>
#include <regex>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "router/chat/ordered_json.h"
#include "router/parsing/answer_parser.h"
#include "router/parsing/parser_cases.h"
#include "router/parsing/whole_dsml.h"

namespace tandem::router {
namespace {

constexpr auto kReasoning = ReasoningSplitter::State::kReasoning;
constexpr auto kContent = ReasoningSplitter::State::kContent;

// The markup in short: [calls] [f] [k:t]..[/k] [/f] [/calls], k:t a string, k:j JSON, k a parameter that does not say;
// with a dot in front the tag is bare. Other brackets stand for themselves.
std::string Markup(absl::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find(']', at);
    static const std::regex kTag("\\[\\.?/?[a-z_]+(:[tj])?\\]");
    if (text[at] != '[' || end == absl::string_view::npos ||
        !std::regex_match(std::string(text.substr(at, end + 1 - at)), kTag)) {
      out += text[at++];
      continue;
    }
    absl::string_view name = text.substr(at + 1, end - at - 1);
    at = end + 1;
    const bool is_bare = absl::ConsumePrefix(&name, ".");
    const bool is_end = absl::ConsumePrefix(&name, "/");
    const std::string front = absl::StrCat(is_end ? "</" : "<", is_bare ? "" : "｜DSML｜");
    if (name == "calls") {
      absl::StrAppend(&out, front, "function_calls>");
    } else if (absl::StartsWith(name, "f") || absl::StartsWith(name, "g")) {
      absl::StrAppend(&out, front, "invoke");
      is_end ? absl::StrAppend(&out, ">") : absl::StrAppend(&out, " name=\"", name, "\">");
    } else if (is_end) {
      absl::StrAppend(&out, front, "parameter>");
    } else {
      const bool is_text = absl::ConsumeSuffix(&name, ":t");
      const bool is_json = absl::ConsumeSuffix(&name, ":j");
      absl::StrAppend(&out, front, "parameter name=\"", name, "\"",
                      is_text   ? " string=\"true\""
                      : is_json ? " string=\"false\""
                                : "",
                      ">");
    }
  }
  return out;
}

ParserSetup Chat() {
  auto catalog = std::make_shared<ToolCatalog>();
  catalog->tools = {{"f", {{"x"}, {"s", true}, {"path", true}}},
                    {"g", {{"arguments", true}, {"a"}}},
                    {"f_only", {{"command", true}}}};
  return {.rules = {.markup = CallMarkup::kDsml, .catalog = std::move(catalog)}};
}

ParserSetup Thinking() {
  ParserSetup setup = Chat();
  setup.start = kReasoning;
  return setup;
}

ParserSetup Cut(ParserSetup setup) {
  setup.is_cut = true;
  return setup;
}

void ExpectAnswer(const ParserSetup& setup, absl::string_view text, const ParsedAnswer& expected) {
  const std::string markup = Markup(text);
  ASSERT_EQ(ParsePieces(setup, {markup}), expected) << markup;
  for (const std::vector<std::string>& pieces : AllCuts(markup)) {
    ASSERT_EQ(ParsePieces(setup, pieces), expected)
        << markup << "\nin " << pieces.size() << " pieces, the first \"" << pieces[0] << '"';
  }
  ASSERT_EQ(ParseWholeDsml(setup, markup), expected) << markup;
}

ParsedAnswer Calls(std::vector<ParsedCall> calls) { return {.calls = std::move(calls)}; }

TEST(DsmlParserTest, ReadsTheFormat) {
  ExpectAnswer(Chat(), "hi", {.content = "hi"});
  ExpectAnswer(Thinking(), "r</think>hi", {.reasoning = "r", .content = "hi"});
  ExpectAnswer(Thinking(), "r</think>\n\n[calls]\n[f]\n[x:j]1[/x]\n[s:t]a \"b\"\nc[/s]\n[/f]\n[/calls]",
               {.reasoning = "r", .calls = {{"f", R"({"x": 1, "s": "a \"b\"\nc"})"}}});
  ExpectAnswer(Thinking(), "r</think>pre\n\n[calls]\n[g]\n[/g]\n[/calls]",
               {.reasoning = "r", .content = "pre", .calls = {{"g", "{}"}}});
  ExpectAnswer(Chat(), "\n\n[calls]\n[f]\n\n[/f]\n[/calls]", Calls({{"f", "{}"}}));
  ExpectAnswer(Chat(), "\n\n[calls]\n[f]\n[x:j][1, {\"a\": null}][/x]\n[/f]\n[g]\n[a:j]true[/a]\n[/g]\n[/calls]",
               Calls({{"f", R"({"x": [1, {"a": null}]})"}, {"g", R"({"a": true})"}}));
}

TEST(DsmlParserTest, ValuesKeepTheirWhiteSpaceAndTheirNumbers) {
  ExpectAnswer(Chat(), "[calls]\n[f]\n[s:t]  def f():\n    return\t1\n\n[/s]\n[/f]\n[/calls]",
               Calls({{"f", R"({"s": "  def f():\n    return\t1\n\n"})"}}));
  ExpectAnswer(Chat(), "[calls]\n[f]\n[x:j]1.50[/x]\n[y:j]12345678901234567890[/y]\n[z:j]1e-07[/z]\n[/f]\n[/calls]",
               Calls({{"f", R"({"x": 1.50, "y": 12345678901234567890, "z": 1e-07})"}}));
  ExpectAnswer(Chat(), "[calls]\n[f]\n[s:t]é\\ \"q\" 😀 </b> <i & a < b\x01[/s]\n[/f]\n[/calls]",
               Calls({{"f", "{\"s\": \"é\\\\ \\\"q\\\" 😀 </b> <i & a < b\\u0001\"}"}}));
  ExpectAnswer(Chat(), "[calls]\n[f]\n[s:t][/s]\n[/f]\n[/calls]", Calls({{"f", R"({"s": ""})"}}));
}

// Calls that would come back as plain content.
TEST(DsmlParserTest, MissingWrapperAndMissingEnds) {
  ExpectAnswer(Chat(), "[f]\n[x:j]1[/x]\n[/f]", Calls({{"f", R"({"x": 1})"}}));
  ExpectAnswer(Chat(), "so:\n\n[f]\n[x:j]1[/x]\n[/f]\n[g]\n[/g]",
               {.content = "so:", .calls = {{"f", R"({"x": 1})"}, {"g", "{}"}}});
  ExpectAnswer(Chat(), "[calls]\n[f]\n[x:j]1[/x]\n[/f]", Calls({{"f", R"({"x": 1})"}}));
  ExpectAnswer(Chat(), "[calls]\n[f]\n[x:j]1[/x]\n", Calls({{"f", R"({"x": 1})"}}));
  ExpectAnswer(Chat(), "[calls]\n[f]\n[x:j]1\n[/f]\n[/calls]", Calls({{"f", R"({"x": 1})"}}));
  ExpectAnswer(Chat(), "[calls]\n[f]\n[s:t]one\n[x:j]2[/x]\n[/calls]", Calls({{"f", R"({"s": "one", "x": 2})"}}));
  ExpectAnswer(Chat(), "[calls]\n[f]\n[s:t]one\n[g]\n[/g]\n[/calls]", Calls({{"f", R"({"s": "one"})"}, {"g", "{}"}}));
  ExpectAnswer(Chat(), "[calls]\n[f]\n[s:t]one", Calls({{"f", R"({"s": "one"})"}}));
  ExpectAnswer(Chat(), "[calls]\n[f]\n[s:t]one</｜DSML｜par", Calls({{"f", R"({"s": "one"})"}}));
  ExpectAnswer(Chat(), "a[calls]\n[calls]\n[f]\n[/f]\n[/calls]\n[/calls]\n", {.content = "a", .calls = {{"f", "{}"}}});
}

TEST(DsmlParserTest, AMalformedSiblingIsDroppedAndTheGoodOneDelivered) {
  const std::string good = "[calls]\n[f]\n[x:j]1[/x]\n[/f]\n";
  for (const std::string bad : {"<｜DSML｜invoke>\n[x:j]2[/x]\n[/f]\n",
                                "<｜DSML｜invoke nom=\"g\">\n[a:j]2[/a]\n[/g]\n", "<｜DSML｜invoke name=\"\">[/f]\n"}) {
    ExpectAnswer(Chat(), absl::StrCat(good, bad, "[/calls]"), Calls({{"f", R"({"x": 1})"}}));
    ExpectAnswer(Chat(), absl::StrCat("[calls]\n", bad, "[f]\n[x:j]1[/x]\n[/f]\n[/calls]"),
                 Calls({{"f", R"({"x": 1})"}}));
  }
  ExpectAnswer(Chat(), "[calls]\n[f]\n<｜DSML｜parameter nom=\"x\">2[/x]\n[s:t]a[/s]\n[/f]\n[/calls]",
               Calls({{"f", R"({"s": "a"})"}}));
}

TEST(DsmlParserTest, AValueThatIsNoJsonIsAStringAndTheStreamGoesOn) {
  for (const std::string bare : {"python3 -c \"print(1)\"", "1e", "[1,2", "tru", "", "NaN", "'a'"}) {
    std::string quoted;
    AppendPythonJsonString(bare, &quoted);
    ExpectAnswer(Chat(), absl::StrCat("[calls]\n[f]\n[x:j]", bare, "[/x]\n[s:t]t[/s]\n[/f]\n[g]\n[/g]\n[/calls]"),
                 Calls({{"f", absl::StrCat("{\"x\": ", quoted, ", \"s\": \"t\"}")}, {"g", "{}"}}));
  }
}

TEST(DsmlParserTest, AParameterThatDoesNotSayIsReadByItsSchemaElseByItsForm) {
  ExpectAnswer(Chat(), "[calls]\n[f]\n[s]5[/s]\n[x]5[/x]\n[y]five[/y]\n[/f]\n[/calls]",
               Calls({{"f", R"({"s": "5", "x": 5, "y": "five"})"}}));
}

TEST(DsmlParserTest, AJsonObjectMayStandInPlaceOfParameters) {
  ExpectAnswer(Chat(), "[calls]\n[f]\n{\"x\": 1.50, \"s\":\"</b> {\"}\n[/f]\n[/calls]",
               Calls({{"f", R"({"x": 1.50, "s":"</b> {"})"}}));
  ExpectAnswer(Chat(), "[f]{\"x\": 1}[/f]\n[g]\n{}\n[/g]", Calls({{"f", R"({"x": 1})"}, {"g", "{}"}}));
  ExpectAnswer(Chat(), "[f]{\"x\": 1", Calls({{"f", "{\"x\": 1"}}));
}

TEST(DsmlParserTest, ArgumentsWrappedOnceMoreAreUnwrappedWhereTheSchemaSaysSo) {
  ExpectAnswer(Chat(), "[f]\n{\"arguments\":{\"path\":\"/a\"}}\n[/f]", Calls({{"f", R"({"path": "/a"})"}}));
  ExpectAnswer(Chat(), "[f]\n{\"input\":\"{\\\"path\\\":\\\"/a\\\"}\"}\n[/f]", Calls({{"f", R"({"path":"/a"})"}}));
  ExpectAnswer(Chat(), "[f]\n[arguments:j]{\"path\": \"/a\"}[/arguments]\n[/f]", Calls({{"f", R"({"path": "/a"})"}}));
  ExpectAnswer(Chat(), "[f]\n[input:t]{\"path\": \"/a\"}[/input]\n[/f]", Calls({{"f", R"({"path": "/a"})"}}));
  // What is inside does not fit, or is no object, or is not alone.
  ExpectAnswer(Chat(), "[f]\n{\"arguments\":{\"other\":1}}\n[/f]", Calls({{"f", R"({"arguments":{"other":1}})"}}));
  ExpectAnswer(Chat(), "[f_only]\n[arguments:t]ls[/arguments]\n[/f]", Calls({{"f_only", R"({"arguments": "ls"})"}}));
  ExpectAnswer(Chat(), "[f]\n[arguments:j]{\"path\": \"/a\"}[/arguments]\n[x:j]1[/x]\n[/f]",
               Calls({{"f", R"({"arguments": {"path": "/a"}, "x": 1})"}}));
  // The tool has such a parameter; a tool that is not known.
  ExpectAnswer(Chat(), "[g]\n{\"arguments\":{\"a\":1}}\n[/g]", Calls({{"g", R"({"arguments":{"a":1}})"}}));
  ExpectAnswer(Chat(), "[g]\n[arguments:t]{\"a\":1}[/arguments]\n[/g]",
               Calls({{"g", R"({"arguments": "{\"a\":1}"})"}}));
  ExpectAnswer(Chat(), "[fother]\n{\"arguments\":{\"a\":1}}\n[/f]", Calls({{"fother", R"({"arguments":{"a":1}})"}}));
}

TEST(DsmlParserTest, CallsWithoutParametersAreCalls) {
  ExpectAnswer(Chat(), "[calls]\n[f]\n[/f]\n[/calls]", Calls({{"f", "{}"}}));
  ExpectAnswer(Chat(), "[calls]\n[f][/f]\n[/calls]", Calls({{"f", "{}"}}));
  ExpectAnswer(Chat(), "[calls]\n<｜DSML｜invoke name=\"f\"/>\n<｜DSML｜invoke name=\"f\" />\n[/calls]",
               Calls({{"f", "{}"}, {"f", "{}"}}));
  ExpectAnswer(Chat(), "[calls][f]\n[/f][f]\n[/f][/calls]", Calls({{"f", "{}"}, {"f", "{}"}}));
}

TEST(DsmlParserTest, ForbiddenCallsReachNeitherTheCallsNorTheContent) {
  ParserSetup setup = Chat();
  setup.rules.shows_calls = false;
  ExpectAnswer(setup, "Let me see.\n\n[calls]\n[f]\n[s:t]a[/s]\n[/f]\n[/calls]", {.content = "Let me see."});
  ExpectAnswer(setup, "[f]{\"x\": 1}[/f]ok", {.content = "ok"});
}

TEST(DsmlParserTest, WhereOneCallIsAllowedTheAnswerEndsWithIt) {
  ParserSetup setup = Chat();
  setup.rules.is_single_call = true;
  ExpectAnswer(setup, "a\n\n[calls]\n[f]\n[x:j]1[/x]\n[/f]\n[g]\n[/g]\n[/calls]b",
               {.content = "a", .calls = {{"f", R"({"x": 1})"}}});
  const std::unique_ptr<AnswerParser> parser = MakeAnswerParser(setup.start, setup.rules);
  AnswerDelta delta;
  parser->Append(Markup("[calls]\n[f]\n[x:j]1[/x]\n"), &delta);
  EXPECT_FALSE(parser->is_complete());
  parser->Append(Markup("[/f]"), &delta);
  EXPECT_TRUE(parser->is_complete());
}

TEST(DsmlParserTest, ASectionWithoutACallIsNoCall) {
  ExpectAnswer(Chat(), "[calls]\n[/calls]", {});
  ExpectAnswer(Chat(), "[calls]\nI cannot.\n[/calls]", {.content = "I cannot."});
  ExpectAnswer(Chat(), "a\n\n[calls]", {.content = "a"});
  ExpectAnswer(Chat(), "a\n\n<｜DSML｜function_ca", {.content = "a"});
}

TEST(DsmlParserTest, WhatOnlyLooksLikeAMarkIsContent) {
  for (const std::string text :
       {"hello<|DSML|function_calls>", "a < b and <| c", "<‖DSML‖invoke name=\"f\">", "<｜｜DSML｜｜function_calls>",
        "a\n\n\n\nb\n", "<", "\n\n", "<｜", "</think>", "<b>x</b>\n<", "<invoke name=\"unknown\">x</invoke>",
        "<function_calls>\nnothing\n</function_calls>", "<function_calls>", "</function_calls>",
        "<parameter name=\"f\">"}) {
    ExpectAnswer(Chat(), text, {.content = text});
  }
  ExpectAnswer(Thinking(), "<invoke name=\"f\">?</think>b", {.reasoning = "<invoke name=\"f\">?", .content = "b"});
}

TEST(DsmlParserTest, BareTagsOfAToolOfTheRequestAreTags) {
  ExpectAnswer(Chat(), "a\n\n[.calls]\n[.f]\n[.s:t]v[./s]\n[./f]\n[./calls]",
               {.content = "a", .calls = {{"f", R"({"s": "v"})"}}});
  ExpectAnswer(Chat(), "[.f]\n[.x:j]1[./x]\n[./f]", Calls({{"f", R"({"x": 1})"}}));
  ExpectAnswer(Chat(), "[calls]\n[.f]\n[x:j]1[/x]\n[./f]\n[./calls]", Calls({{"f", R"({"x": 1})"}}));
  ExpectAnswer(Chat(), "[.calls]\n[f]\n[x:j]1[/x]\n[/f]\n[/calls]", Calls({{"f", R"({"x": 1})"}}));
  // As the end of a marked value they count only where nothing else can be meant.
  ExpectAnswer(Chat(), "[calls]\n[f]\n[s:t]v[./s]\n[./f]\n[./calls]", Calls({{"f", R"({"s": "v"})"}}));
  ExpectAnswer(Chat(), "[calls]\n[f]\n[s:t]v[./s]\n[x:j]1[/x]\n[/f]\n[/calls]",
               Calls({{"f", R"({"s": "v", "x": 1})"}}));
  ExpectAnswer(Chat(), "[calls]\n[f]\n[s:t]<a>[./s] b[/s]\n[/f]\n[/calls]",
               Calls({{"f", R"({"s": "<a></parameter> b"})"}}));
}

TEST(DsmlParserTest, ACallInsideTheReasoningIsACall) {
  ExpectAnswer(Thinking(), "I call f.\n\n[calls]\n[f]\n[x:j]1[/x]\n[/f]\n[/calls]",
               {.reasoning = "I call f.", .calls = {{"f", R"({"x": 1})"}}});
  ExpectAnswer(Thinking(), "r\n\n[calls]\n[f]\n[/f]\n[/calls]</think>a",
               {.reasoning = "r", .content = "a", .calls = {{"f", "{}"}}});
  ExpectAnswer(Thinking(), "r\n\n[calls]\n[f]\n[/f]\n[/calls]\nmore</think>a",
               {.reasoning = "rmore", .content = "a", .calls = {{"f", "{}"}}});
  ExpectAnswer(Thinking(), "r[calls]\n[f]\n[s:t]</think>[/s]\n</think>a",
               {.reasoning = "r", .content = "a", .calls = {{"f", R"({"s": "</think>"})"}}});
  ExpectAnswer(Thinking(), "thought</think>", {.reasoning = "thought"});
}

TEST(DsmlParserTest, TextBetweenAndBehindCallsIsContent) {
  ExpectAnswer(Chat(), "a\n\n[calls]\n[f]\n[/f]\nand\n[g]\n[/g]\n[/calls]\n\nbye\n",
               {.content = "aandbye\n", .calls = {{"f", "{}"}, {"g", "{}"}}});
  ExpectAnswer(Chat(), "[x:t]v[/x] w", {.content = "vw"});
}

TEST(DsmlParserTest, OfTwoParametersOfOneNameTheFirstCounts) {
  ExpectAnswer(Chat(), "[f]\n[x:j]1[/x]\n[x:j]2[/x]\n[s:t]a[/s]\n[s:t]b[/s]\n[/f]",
               Calls({{"f", R"({"x": 1, "s": "a"})"}}));
}

// Cut by length or a stop string: a call that is not complete has arguments that are no JSON, so nobody acts on it.
TEST(DsmlParserTest, ACallThatIsCutStaysIncomplete) {
  ExpectAnswer(Cut(Chat()), "[calls]\n[f]\n[x:j]1[/x]\n[/f]\n[g]\n[a:j]1",
               {.calls = {{"f", R"({"x": 1})"}, {"g", "{\"a\": 1"}}, .has_incomplete_call = true});
  ExpectAnswer(Cut(Chat()), "[f]\n[s:t]half a va",
               {.calls = {{"f", "{\"s\": \"half a va"}}, .has_incomplete_call = true});
  ExpectAnswer(Cut(Chat()), "[f]\n[s:t]a\n", {.calls = {{"f", "{\"s\": \"a\\n"}}, .has_incomplete_call = true});
  ExpectAnswer(Cut(Chat()), "[f]\n[s:t]whole[/s]\n",
               {.calls = {{"f", "{\"s\": \"whole\""}}, .has_incomplete_call = true});
  ExpectAnswer(Cut(Chat()), "[f]\n", {.calls = {{"f", ""}}, .has_incomplete_call = true});
  ExpectAnswer(Cut(Chat()), "[f]\n[arguments:j]{\"path\"",
               {.calls = {{"f", "{\"arguments\": {\"path\""}}, .has_incomplete_call = true});
  ExpectAnswer(Cut(Chat()), "[f]\n[arguments:j]{}[/arguments]\n",
               {.calls = {{"f", "{\"arguments\": {}"}}, .has_incomplete_call = true});
  ExpectAnswer(Cut(Chat()), "[f]{\"x\": 1", {.calls = {{"f", "{\"x\": 1"}}, .has_incomplete_call = true});
  ExpectAnswer(Cut(Chat()), "[f]\n[/f]", Calls({{"f", "{}"}}));
}

// The format's pieces in random order. Whatever the text: all cuts give what the whole gives, which is what the second
// parser gives; arguments of complete calls are JSON; no mark reaches the text.
TEST(DsmlParserTest, RandomTextsGiveWhatTheSecondParserGives) {
  const std::vector<std::string> pieces = {"[calls]",
                                           "[/calls]",
                                           "[f]",
                                           "[/f]",
                                           "[g]",
                                           "[/g]",
                                           "[x:j]",
                                           "[/x]",
                                           "[s:t]",
                                           "[/s]",
                                           "[y]",
                                           "[arguments:j]",
                                           "[input:t]",
                                           "[.calls]",
                                           "[./calls]",
                                           "[.f]",
                                           "[./f]",
                                           "[.x:j]",
                                           "[.s:t]",
                                           "[./s]",
                                           "[.fother]",
                                           "</think>",
                                           "\n",
                                           "\n\n",
                                           " ",
                                           "text",
                                           "{\"x\": 1}",
                                           "{\"path\": \"/a\"}",
                                           "{",
                                           "}",
                                           "1",
                                           "\"",
                                           "<",
                                           "<b>",
                                           "</",
                                           "｜DSML｜",
                                           "é",
                                           "<｜DSML｜invoke>",
                                           "<｜DSML｜parameter name=\"x\">",
                                           "</｜DSML｜invoke x>",
                                           "<｜DSML｜invoke name=\"f\"/>"};
  std::mt19937 generator(20);
  for (int round = 0; round < 12000; ++round) {
    ParserSetup setup = generator() % 2 ? Thinking() : Chat();
    setup.is_cut = generator() % 3 == 0;
    setup.rules.is_single_call = generator() % 8 == 0;
    setup.rules.shows_calls = generator() % 8 != 0;
    std::string text;
    for (size_t count = 1 + generator() % 14; count > 0; --count) text += Markup(pieces[generator() % pieces.size()]);
    const ParsedAnswer expected = ParsePieces(setup, {text});
    ASSERT_EQ(ParseWholeDsml(setup, text), expected) << text << "\ncut " << setup.is_cut << " round " << round;
    if (round % 8 == 0) {
      for (const std::vector<std::string>& cut : AllCuts(text)) {
        ASSERT_EQ(ParsePieces(setup, cut), expected)
            << text << "\nin " << cut.size() << " pieces, the first " << cut[0];
      }
    }
    for (size_t i = 0; i < expected.calls.size(); ++i) {
      const bool is_whole = i + 1 < expected.calls.size() || !expected.has_incomplete_call;
      // A body in place of parameters is passed on as it is, JSON or not.
      if (!is_whole || absl::StrContains(text, "{")) continue;
      EXPECT_TRUE(ParseOrderedJson(expected.calls[i].arguments).ok()) << text << "\n" << expected.calls[i].arguments;
    }
    for (const std::string& shown : {expected.reasoning, expected.content}) {
      EXPECT_FALSE(absl::StrContains(shown, "<｜DSML｜invoke") || absl::StrContains(shown, "<｜DSML｜parameter"))
          << text;
    }
  }
}

// --- what comes out when ---

class StreamTest : public testing::Test {
 protected:
  AnswerDelta Append(absl::string_view text) {
    AnswerDelta delta;
    parser_->Append(Markup(text), &delta);
    return delta;
  }
  std::string Arguments(absl::string_view text) {
    const AnswerDelta delta = Append(text);
    return delta.tool_calls.empty() ? "" : delta.tool_calls[0].arguments;
  }

  std::unique_ptr<AnswerParser> parser_ = MakeAnswerParser(kContent, Chat().rules);
};

TEST_F(StreamTest, ContentIsHeldBackOnlyWhileItMayBeATag) {
  EXPECT_EQ(Append("hello").content, "hello");
  EXPECT_EQ(Append(" a <").content, " a ");
  EXPECT_EQ(Append(" b\n").content, "< b");
  EXPECT_EQ(Append("\n\nc").content, "\n\n\nc");
  EXPECT_EQ(Append("<｜DSML｜func").content, "");
  EXPECT_EQ(Append("tion").content, "");
  EXPECT_EQ(Append("s ").content, "<｜DSML｜functions ");
}

TEST_F(StreamTest, TheNameComesFirstThenTheArgumentsAsTheyAreWritten) {
  EXPECT_TRUE(Append("\n\n[calls]\n<｜DSML｜invoke name=\"f").empty());
  const AnswerDelta begun = Append("\">");
  ASSERT_EQ(begun.tool_calls.size(), 1u);
  EXPECT_EQ(begun.tool_calls[0].name, "f");
  EXPECT_EQ(begun.tool_calls[0].arguments, "");
  EXPECT_EQ(Arguments("\n[s:t]"), "{\"s\": \"");
  EXPECT_EQ(Arguments("abc"), "abc");
  EXPECT_EQ(Arguments(" d\n"), " d");
  EXPECT_EQ(Arguments("e <"), "\\ne ");
  EXPECT_EQ(Arguments("b"), "<b");
  EXPECT_EQ(Arguments("f</｜DSML｜"), "f");
  EXPECT_EQ(Arguments("parameter>"), "\"");
  EXPECT_EQ(Arguments("\n[x:j]4"), "");
  EXPECT_EQ(Arguments("2[/x]"), ", \"x\": 42");
  EXPECT_EQ(Arguments("\n[/f]"), "}");
  EXPECT_TRUE(Append("\n[/calls]").empty());
}

// 20 KB of one string value, a few bytes at a time: nothing waits longer than a tag.
TEST_F(StreamTest, ALongTextNeverWaits) {
  Append("[calls]\n[f]\n[s:t]");
  size_t num_out = 0;
  for (size_t num_in = 0; num_in < 20000; num_in += 5) {
    num_out += Arguments("abcd<").size();
    ASSERT_LE(num_in + 5 - num_out, 1u);
  }
}

}  // namespace
}  // namespace tandem::router
