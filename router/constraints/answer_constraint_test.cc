// Answers drawn at random from what the grammar allows, read by the parsers that read a model's answers: what comes out
// must be calls that follow their schemas, of the tools that were asked for, with nothing lost.
#include "router/constraints/answer_constraint.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/constraints/constraint_probe.h"

namespace tandem::router {
namespace {

using ::tandem::testing::CompileAnswer;
using ::tandem::testing::ConstraintProbe;
using ::tandem::testing::Json;
using Calls = AnswerConstraint::Calls;

ConstrainedTool MakeTool(const std::string& name, const char* parameters) {
  ConstrainedTool tool;
  tool.name = name;
  tool.has_parameters = parameters != nullptr;
  if (tool.has_parameters) tool.parameters = Json(parameters);
  tool.field = "tools[0].function.parameters";
  return tool;
}

ConstrainedTool Weather() {
  return MakeTool("get_weather", R"({"type":"object","properties":{"city":{"type":"string","maxLength":24},
      "unit":{"type":"string","enum":["c","f"]},"days":{"type":["integer","string"],"minimum":1,"maximum":9,"maxLength":2},
      "at":{"type":"object","properties":{"x":{"type":"integer"}},"required":["x"]}},"required":["city","at"]})");
}

AnswerConstraint Required(CallMarkup markup) {
  AnswerConstraint answer;
  answer.markup = markup;
  answer.calls = Calls::kRequired;
  answer.tools = {Weather(), MakeTool("now", nullptr)};
  return answer;
}

struct Read {
  AnswerDelta all;
  int num_calls = 0;
  bool has_incomplete = false;
};

Read ReadAnswer(const AnswerConstraint& answer, const std::string& text) {
  AnswerRules rules;
  rules.markup = answer.markup;
  rules.is_single_call = answer.is_single_call;
  rules.is_markup_exact = true;
  const auto parser = MakeAnswerParser(
      answer.starts_with_reasoning ? ReasoningSplitter::State::kReasoning : ReasoningSplitter::State::kContent, rules);
  Read read;
  parser->Append(text, &read.all);
  parser->Finish(/*is_cut=*/false, &read.all);
  read.num_calls = parser->num_calls();
  read.has_incomplete = parser->has_incomplete_call();
  return read;
}

struct Call {
  std::string name;
  std::string arguments;
};

std::vector<Call> CallsOf(const AnswerDelta& all) {
  std::vector<Call> calls;
  for (const auto& delta : all.tool_calls) {
    if (static_cast<size_t>(delta.index) >= calls.size()) calls.resize(delta.index + 1);
    calls[delta.index].name += delta.name;
    calls[delta.index].arguments += delta.arguments;
  }
  return calls;
}

// By hand, what Weather() says.
void CheckWeather(const std::string& arguments) {
  const auto value = ParseOrderedJson(arguments);
  ASSERT_TRUE(value.ok()) << arguments;
  ASSERT_EQ(value->kind, OrderedJson::Kind::kObject);
  const std::set<std::string> known = {"city", "unit", "days", "at"};
  for (const std::string& key : value->keys) EXPECT_TRUE(known.contains(key)) << key;
  ASSERT_NE(value->Find("city"), nullptr) << arguments;
  EXPECT_EQ(value->Find("city")->kind, OrderedJson::Kind::kString);
  ASSERT_NE(value->Find("at"), nullptr) << arguments;
  ASSERT_EQ(value->Find("at")->keys, std::vector<std::string>{"x"}) << arguments;
  EXPECT_EQ(value->Find("at")->items[0].kind, OrderedJson::Kind::kNumber);
  if (const OrderedJson* unit = value->Find("unit"); unit != nullptr) {
    EXPECT_TRUE(unit->text == "c" || unit->text == "f") << arguments;
  }
  if (const OrderedJson* days = value->Find("days"); days != nullptr) {
    if (days->kind == OrderedJson::Kind::kString) {
      EXPECT_LE(days->text.size(), 8u) << arguments;
    } else {
      EXPECT_EQ(days->kind, OrderedJson::Kind::kNumber);
      EXPECT_EQ(days->text.size(), 1u) << arguments;
    }
  }
}

void CheckRandomCalls(const AnswerConstraint& answer) {
  const auto constraint = CompileAnswer(answer);
  ASSERT_TRUE(constraint.ok()) << constraint.status();
  ConstraintProbe probe(**constraint);
  int num_answers = 0, num_weather = 0;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    const auto written = probe.Write(seed, /*num_tokens_soft=*/80, /*num_tokens_max=*/3000);
    if (!written.has_value()) continue;
    ++num_answers;
    const Read read = ReadAnswer(answer, written->text);
    const std::vector<Call> calls = CallsOf(read.all);
    ASSERT_GE(calls.size(), 1u) << written->text;
    EXPECT_TRUE(!answer.is_single_call || calls.size() == 1) << calls.size();
    EXPECT_FALSE(read.has_incomplete);
    EXPECT_EQ(read.all.content, "");
    EXPECT_TRUE(answer.starts_with_reasoning || read.all.reasoning.empty()) << read.all.reasoning;
    for (const Call& call : calls) {
      if (call.name == "now") {
        EXPECT_EQ(Json(call.arguments).keys.size(), 0u) << call.arguments;
      } else {
        ASSERT_EQ(call.name, "get_weather");
        CheckWeather(call.arguments);
        ++num_weather;
      }
    }
  }
  EXPECT_GT(num_answers, 40);
  EXPECT_GT(num_weather, 10);
}

TEST(AnswerConstraintTest, RequiredCallsFollowTheirSchemas) {
  for (const CallMarkup markup : {CallMarkup::kDsml, CallMarkup::kToolMarks}) {
    for (const bool is_single : {true, false}) {
      for (const bool thinks : {false, true}) {
        AnswerConstraint answer = Required(markup);
        answer.is_single_call = is_single;
        answer.starts_with_reasoning = thinks;
        CheckRandomCalls(answer);
      }
    }
  }
}

TEST(AnswerConstraintTest, WritesDsmlAsTheFormatHasIt) {
  const auto constraint = CompileAnswer(Required(CallMarkup::kDsml));
  ASSERT_TRUE(constraint.ok()) << constraint.status();
  ConstraintProbe probe(**constraint);
  const std::string open = "\n\n<｜DSML｜function_calls>\n";
  const std::string call =
      "<｜DSML｜invoke name=\"get_weather\">\n"
      "<｜DSML｜parameter name=\"city\" string=\"true\">a <b> </parameter>\n\"c\"</｜DSML｜parameter>\n"
      "<｜DSML｜parameter name=\"days\" string=\"false\">3</｜DSML｜parameter>\n"
      "<｜DSML｜parameter name=\"at\" string=\"false\">{\"x\": 1}</｜DSML｜parameter>\n"
      "</｜DSML｜invoke>\n";
  const std::string now = "<｜DSML｜invoke name=\"now\">\n\n</｜DSML｜invoke>\n";
  const std::string close = "</｜DSML｜function_calls>";
  EXPECT_TRUE(probe.Accepts(open + call + close));
  EXPECT_TRUE(probe.Accepts(open + now + call + now + close));
  EXPECT_FALSE(probe.Accepts(open + close));
  EXPECT_FALSE(probe.Accepts(""));
  EXPECT_FALSE(probe.AcceptsFront("x"));
  EXPECT_FALSE(probe.AcceptsFront(open + "<｜DSML｜invoke name=\"other\">"));
  EXPECT_FALSE(probe.AcceptsFront(open + "<｜DSML｜invoke name=\"get_weather\">\n</"));  // city is required
  // What the parser gives back is what was written, bare ends and all.
  const std::vector<Call> calls = CallsOf(ReadAnswer(Required(CallMarkup::kDsml), open + call + close).all);
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0].arguments, R"({"city": "a <b> </parameter>\n\"c\"", "days": 3, "at": {"x": 1}})");
}

TEST(AnswerConstraintTest, ReasoningIsFreeButWritesNoCalls) {
  AnswerConstraint answer = Required(CallMarkup::kDsml);
  answer.starts_with_reasoning = true;
  ConstraintProbe probe(**CompileAnswer(answer));
  EXPECT_TRUE(probe.AcceptsFront("anything < goes <b> \n\n</think>\n\n<｜DSML｜function_calls>\n"));
  EXPECT_FALSE(probe.AcceptsFront("so <｜DSML｜"));
  EXPECT_FALSE(probe.Accepts("so"));
}

TEST(AnswerConstraintTest, AnAnswerMayBeJsonOrCalls) {
  AnswerConstraint answer = Required(CallMarkup::kDsml);
  answer.calls = Calls::kAllowed;
  answer.form = {.schema = Json(R"({"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]})"),
                 .field = "response_format"};
  ConstraintProbe probe(**CompileAnswer(answer));
  EXPECT_TRUE(probe.Accepts(R"({"a": 1})"));
  EXPECT_FALSE(probe.Accepts(R"({})"));
  EXPECT_FALSE(probe.Accepts(""));
  EXPECT_TRUE(probe.AcceptsFront("\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"now\">"));
}

TEST(AnswerConstraintTest, TextIsFreeUntilACallBegins) {
  AnswerConstraint answer = Required(CallMarkup::kDsml);
  answer.calls = Calls::kAllowed;
  answer.allows_text = true;
  ConstraintProbe probe(**CompileAnswer(answer));
  EXPECT_TRUE(probe.Accepts(""));
  EXPECT_TRUE(probe.Accepts("Let me see: <b>\n\n\n"));
  const std::string calls =
      "\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"now\">\n\n</｜DSML｜invoke>\n</｜DSML｜function_calls>";
  EXPECT_TRUE(probe.Accepts("Let me see." + calls));
  EXPECT_TRUE(probe.Accepts(calls));
  EXPECT_FALSE(probe.AcceptsFront(calls + "x"));
  EXPECT_FALSE(probe.AcceptsFront("<｜DSML｜invoke"));
}

TEST(AnswerConstraintTest, ErrorsNameTheToolAndThePlace) {
  AnswerConstraint answer = Required(CallMarkup::kDsml);
  answer.tools = {MakeTool("f", R"({"type":"object","properties":{"a":{"type":"array","uniqueItems":true}}})")};
  EXPECT_EQ(std::string(CompileAnswer(answer).status().message()),
            "tools[0].function.parameters: uniqueItems is not supported (at /properties/a/uniqueItems)");
  answer.tools[0].is_enforced = false;
  EXPECT_TRUE(CompileAnswer(answer).ok());
  answer.tools = {MakeTool("f", R"({"type":"object","properties":{"a<b":{}}})")};
  EXPECT_EQ(
      std::string(CompileAnswer(answer).status().message()),
      "tools[0].function.parameters: a parameter's name must have 1 to 256 bytes, none of < > \" ｜ or a line feed "
      "(at /properties/a<b)");
  answer.markup = CallMarkup::kToolMarks;
  EXPECT_TRUE(CompileAnswer(answer).ok());
  answer.tools = {MakeTool("f", R"({"anyOf":[{"type":"object"}]})")};
  EXPECT_FALSE(CompileAnswer(answer).ok());
}

TEST(AnswerConstraintTest, TriggersBeginStructuresInFreeText) {
  AnswerForm form;
  form.kind = AnswerForm::Kind::kStructuralTag;
  form.field = "response_format";
  form.triggers = {"<f=", "[["};
  form.structures = {{"<f=n>", Json(R"({"type":"integer"})"), "</f>", "s[0]"},
                     {"<f=b>", Json(R"({"type":"boolean"})"), "</f>", "s[1]"},
                     {"[[", Json("true"), "]]", "s[2]"}};
  const auto constraint = CompileAnswer({.form = form});
  ASSERT_TRUE(constraint.ok()) << constraint.status();
  ConstraintProbe probe(**constraint);
  for (const char* text : {"", "free < text [ x", "<f=n>12</f>", "a<f=b>true</f>b<f=n>-3</f>", "[[{\"a\": 1}]][[null]]",
                           "<<f=n>1</f>", "[ [", "</f>"}) {
    EXPECT_TRUE(probe.Accepts(text)) << text;
  }
  for (const char* text : {"<f=", "<f=n>12", "<f=n>true</f>", "<f=x>", "a[[", "[[nul]]", "<f=b>1</f>"}) {
    EXPECT_FALSE(probe.Accepts(text)) << text;
  }
  form.structures[1].schema = Json(R"({"not":{}})");
  EXPECT_EQ(CompileAnswer({.form = form}).status().message(), "s[1]: not is not supported (at /not)");
}

}  // namespace
}  // namespace tandem::router
