// What of a request's tools reaches the prompt and the parsers, and what is refused at which field.
#include "router/openai/chat_tools.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "router/openai/api_error.h"

namespace tandem::router {
namespace {

absl::StatusOr<ChatTools> Parse(const std::string& body) {
  const boost::json::value root = boost::json::parse(body);
  return ParseChatTools(root.get_object(), body);
}

ChatTools Parsed(const std::string& body) {
  absl::StatusOr<ChatTools> tools = Parse(body);
  EXPECT_TRUE(tools.ok()) << tools.status();
  return tools.value_or(ChatTools());
}

std::string Error(const std::string& body) {
  const absl::Status status = Parse(body).status();
  EXPECT_EQ(HttpStatusOf(status), 400) << body;
  return std::string(status.message());
}

// One tool with these members of its function.
std::string WithFunction(const std::string& members) {
  return absl::StrCat(R"({"tools":[{"type":"function","function":{)", members, "}}]}");
}

TEST(ChatToolsTest, WithoutToolsThereAreNone) {
  for (const char* body : {"{}", R"({"tools":null,"tool_choice":null,"parallel_tool_calls":null})", R"({"tools":[]})",
                           R"({"tool_choice":"auto","parallel_tool_calls":true})"}) {
    const ChatTools tools = Parsed(body);
    EXPECT_TRUE(tools.functions.empty() && tools.catalog == nullptr) << body;
    EXPECT_TRUE(tools.may_call() && !tools.is_single_call) << body;
  }
}

TEST(ChatToolsTest, DefinitionsKeepTheirKeysAndNumbers) {
  const ChatTools tools = Parsed(
      R"({"tools":[{"function":{"parameters":{"type":"object","properties":{"x":{"minimum":1.0,"maximum":12345678901234567890,)"
      R"("type":"number"},"s":{"type":"string"}}},"name":"f","description":"d é","strict":false,"extra":[1,2]}},)"
      R"({"type":"function","function":{"name":"g"}}]})");
  ASSERT_EQ(tools.functions.size(), 2u);
  EXPECT_EQ(
      tools.functions[0],
      R"({"parameters": {"type": "object", "properties": {"x": {"minimum": 1.0, "maximum": 12345678901234567890, )"
      R"("type": "number"}, "s": {"type": "string"}}}, "name": "f", "description": "d é", "strict": false, )"
      R"("extra": [1, 2]})");
  EXPECT_EQ(tools.functions[1], R"({"name": "g"})");
  ASSERT_EQ(tools.catalog->tools.size(), 2u);
  const Tool* f = tools.catalog->Find("f");
  ASSERT_NE(f, nullptr);
  EXPECT_FALSE(f->Find("x")->is_string);
  EXPECT_TRUE(f->Find("s")->is_string);
  EXPECT_EQ(f->Find("t"), nullptr);
}

TEST(ChatToolsTest, ChoiceAndParallelCalls) {
  EXPECT_FALSE(Parsed(R"({"tool_choice":"none"})").may_call());
  EXPECT_TRUE(Parsed(R"({"parallel_tool_calls":false})").is_single_call);
}

TEST(ChatToolsTest, AChoiceMayAskForACall) {
  const std::string tools = R"("tools":[{"function":{"name":"f"}},{"function":{"name":"g","strict":true,)"
                            R"("parameters":{"type":"object","required":["x"]}}}])";
  const ChatTools required = Parsed(absl::StrCat("{", tools, R"(,"tool_choice":"required"})"));
  EXPECT_TRUE(required.may_call() && required.must_call());
  EXPECT_EQ(required.choice, ChatTools::Choice::kRequired);
  ASSERT_EQ(required.definitions.size(), 2u);
  EXPECT_EQ(required.definitions[0].name, "f");
  EXPECT_FALSE(required.definitions[0].is_strict || required.definitions[0].parameters.has_value());
  EXPECT_TRUE(required.definitions[1].is_strict);
  EXPECT_NE(required.definitions[1].parameters->Find("required"), nullptr);
  const ChatTools named =
      Parsed(absl::StrCat("{", tools, R"(,"tool_choice":{"type":"function","function":{"name":"g"}}})"));
  EXPECT_TRUE(named.must_call());
  EXPECT_EQ(named.named, "g");
  EXPECT_FALSE(Parsed(absl::StrCat("{", tools, "}")).must_call());
}

TEST(ChatToolsTest, AChoiceWithoutItsToolIsRefused) {
  EXPECT_EQ(Error(R"({"tool_choice":"required"})"), "tool_choice: is \"required\", but the request has no tools");
  EXPECT_EQ(Error(R"({"tool_choice":{"type":"function","function":{"name":"f"}}})"),
            "tool_choice.function.name: is none of the request's tools: \"f\"");
  EXPECT_EQ(Error(R"({"tool_choice":{"type":"allowed_tools"}})"),
            "tool_choice.type: only \"function\" is supported, got \"allowed_tools\"");
  EXPECT_EQ(Error(R"({"tool_choice":{"type":"function"}})"), "tool_choice.function: is required");
  EXPECT_EQ(Error(R"({"tool_choice":{"function":{}}})"), "tool_choice.function.name: is required");
  EXPECT_EQ(Error(WithFunction(R"("name":"f","strict":"yes")")),
            "tools[0].function.strict: must be a boolean, got a string");
}

TEST(ChatToolsTest, EachErrorNamesItsField) {
  EXPECT_EQ(Error(R"({"tools":{}})"), "tools: must be an array, got an object");
  EXPECT_EQ(Error(R"({"tools":[1]})"), "tools[0]: must be an object, got a number");
  EXPECT_EQ(Error(R"({"tools":[{"type":"web"}]})"), "tools[0].type: only \"function\" is supported, got \"web\"");
  EXPECT_EQ(Error(R"({"tools":[{}]})"), "tools[0].function: is required");
  EXPECT_EQ(Error(R"({"tools":[{"function":[]}]})"), "tools[0].function: must be an object, got an array");
  EXPECT_EQ(Error(WithFunction("")), "tools[0].function.name: is required");
  EXPECT_EQ(Error(WithFunction(R"("name":1)")), "tools[0].function.name: must be a string, got a number");
  for (const std::string name : {"", "a b", "a\\\"", "é", "a>"}) {
    EXPECT_TRUE(absl::StartsWith(Error(WithFunction(absl::StrCat("\"name\":\"", name, "\""))),
                                 "tools[0].function.name: must have 1 to 128 letters"));
  }
  EXPECT_TRUE(Parse(WithFunction(R"("name":"mcp__a-b.c:d/e")")).ok());
  EXPECT_EQ(Error(WithFunction(R"("name":"f","description":1)")),
            "tools[0].function.description: must be a string, got a number");
  EXPECT_EQ(Error(WithFunction(R"("name":"f","parameters":"x")")),
            "tools[0].function.parameters: must be an object, got a string");
  EXPECT_EQ(Error(WithFunction(R"("name":"f","parameters":{"type":"array"})")),
            "tools[0].function.parameters.type: must be \"object\", got \"array\"");
  EXPECT_EQ(Error(WithFunction(R"("name":"f","parameters":{"properties":[]})")),
            "tools[0].function.parameters.properties: must be an object, got an array");
  EXPECT_EQ(Error(R"({"tools":[{"function":{"name":"f"}},{"function":{"name":"f"}}]})"),
            "tools[1].function.name: is given twice: \"f\"");
  EXPECT_EQ(Error(R"({"tool_choice":"any"})"),
            "tool_choice: must be \"none\", \"auto\", \"required\" or an object that names a function");
  EXPECT_EQ(Error(R"({"parallel_tool_calls":"no"})"), "parallel_tool_calls: must be a boolean, got a string");
  EXPECT_EQ(Error(R"({"\u0074ools":[{"function":{"name":"f"}}]})"), "tools: its name must be written without escapes");
}

}  // namespace
}  // namespace tandem::router
