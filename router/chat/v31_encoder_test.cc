// The format's rules, each by the smallest conversation that shows it. The template's own output: v31_vectors_test.cc.
#include "router/chat/v31_encoder.h"

#include <gtest/gtest.h>

#include "absl/strings/str_replace.h"

namespace tandem::router {
namespace {

ChatMessage System(std::string content) { return {.role = ChatRole::kSystem, .content = std::move(content)}; }
ChatMessage User(std::string content) { return {.role = ChatRole::kUser, .content = std::move(content)}; }
ChatMessage Result(std::string content, std::string id = "") {
  return {.role = ChatRole::kTool, .content = std::move(content), .tool_call_id = std::move(id)};
}
ChatMessage Assistant(std::string content, std::vector<ChatToolCall> calls = {}) {
  return {.role = ChatRole::kAssistant, .content = std::move(content), .tool_calls = std::move(calls)};
}
ChatMessage Prefix(std::string content, std::string reasoning = "") {
  return {.role = ChatRole::kAssistant,
          .content = std::move(content),
          .reasoning_content = std::move(reasoning),
          .is_prefix = true};
}

const V31Texts& Texts() {
  static const V31Texts* const kTexts = new V31Texts{"TOOLS\n", "RULES"};
  return *kTexts;
}

absl::StatusOr<MarkedText> Encode(const Conversation& conversation, ThinkingMode mode = ThinkingMode::kChat) {
  return EncodeV31(conversation, {.thinking_mode = mode, .texts = &Texts()});
}

// The prompt with the markers of the format in short.
std::string Short(const std::string& text) {
  return absl::StrReplaceAll(text, {{"<｜begin▁of▁sentence｜>", "BOS "},
                                    {"<｜end▁of▁sentence｜>", " EOS "},
                                    {"<｜User｜>", " USR "},
                                    {"<｜Assistant｜>", " AST "},
                                    {"</think>", "/TH "},
                                    {"<think>", "TH "},
                                    {"<｜tool▁calls▁begin｜>", "[calls]"},
                                    {"<｜tool▁calls▁end｜>", "[/calls]"},
                                    {"<｜tool▁call▁begin｜>", "[call]"},
                                    {"<｜tool▁call▁end｜>", "[/call]"},
                                    {"<｜tool▁sep｜>", "[sep]"},
                                    {"<｜tool▁output▁begin｜>", "[out]"},
                                    {"<｜tool▁output▁end｜>", "[/out]"}});
}

std::string Prompt(const Conversation& conversation, ThinkingMode mode) {
  const absl::StatusOr<MarkedText> prompt = Encode(conversation, mode);
  EXPECT_TRUE(prompt.ok()) << prompt.status();
  return prompt.ok() ? Short(prompt->text()) : "";
}
std::string Chat(std::vector<ChatMessage> messages) {
  return Prompt({.messages = std::move(messages)}, ThinkingMode::kChat);
}
std::string Thinking(std::vector<ChatMessage> messages) {
  return Prompt({.messages = std::move(messages)}, ThinkingMode::kThinking);
}
std::string Error(const Conversation& conversation) {
  const absl::StatusOr<MarkedText> prompt = Encode(conversation);
  EXPECT_EQ(prompt.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(prompt.status().message());
}

TEST(V31EncoderTest, TheThinkingSwitchOpensOrClosesReasoning) {
  EXPECT_EQ(Chat({User("Hi")}), "BOS  USR Hi AST /TH ");
  EXPECT_EQ(Thinking({System("S"), User("a"), Assistant("b"), User("c")}), "BOS S USR a AST /TH b EOS  USR c AST TH ");
  EXPECT_EQ(Thinking({System("S")}), "BOS S AST TH ");
}

TEST(V31EncoderTest, SystemAndDeveloperMessagesStandTogetherInFront) {
  const ChatMessage developer{.role = ChatRole::kDeveloper, .content = "D"};
  EXPECT_EQ(Chat({System("S"), User("a"), developer}), "BOS S\n\nD USR a AST /TH ");
}

TEST(V31EncoderTest, PastAnswersStandWithoutTheirReasoning) {
  EXPECT_EQ(Chat({User("a"), Assistant("r</think>b</think>c"), User("d")}),
            "BOS  USR a AST /TH b/TH c EOS  USR d AST /TH ");
}

TEST(V31EncoderTest, AfterToolResultsTheModelGoesOnAtOnce) {
  const ChatMessage calls = Assistant("ok", {{"c1", "f", "{\"x\": 1}"}, {"c2", "g", ""}});
  const std::string expected =
      "BOS  USR a AST /TH ok[calls][call]f[sep]{\"x\": 1}[/call][call]g[sep]{}[/call][/calls] EOS "
      "[out]1[/out][out]2[/out]";
  EXPECT_EQ(Thinking({User("a"), calls, Result("2", "c2"), Result("1", "c1")}), expected);
  EXPECT_EQ(Chat({User("a"), calls, Result("1"), Result("2"), Assistant("x</think>y"), User("b")}),
            expected + "x/TH y EOS  USR b AST /TH ");
}

TEST(V31EncoderTest, ToolsFollowTheSystemText) {
  const Conversation conversation{
      .messages = {System("S"), User("a")},
      .tools = {R"({"name":"f","description":"d é","parameters":{"a":[1.50,2]}})", R"({"name":"g"})"}};
  EXPECT_EQ(Prompt(conversation, ThinkingMode::kChat),
            "BOS S\n\nTOOLS\n\n### f\nDescription: d é\n\nParameters: {\"a\": [1.5, 2]}\n"
            "\n### g\nDescription: \n\nParameters: {}\nRULES USR a AST /TH ");
}

TEST(V31EncoderTest, AnAnswerGoesOnFromItsPrefix) {
  EXPECT_EQ(Chat({User("a"), Prefix("Sure, ")}), "BOS  USR a AST /TH Sure, ");
  EXPECT_EQ(Thinking({User("a"), Prefix("Hm")}), "BOS  USR a AST TH Hm");
  EXPECT_EQ(Thinking({User("a"), Prefix("", "Hm")}), "BOS  USR a AST TH Hm");
  EXPECT_EQ(Thinking({User("a"), Prefix("Sure", "Hm")}), "BOS  USR a AST TH Hm/TH Sure");
}

TEST(V31EncoderTest, EverythingThatAClientSendsIsContent) {
  const absl::StatusOr<MarkedText> prompt =
      Encode({.messages = {System("<S>"), User("<user>"), Assistant("<answer>", {{"", "<name>", "{\"<key>\":1}"}}),
                           Result("<result>")},
              .tools = {R"({"name":"<tool>","description":"<description>","parameters":{"<p>":1}})"}});
  ASSERT_TRUE(prompt.ok()) << prompt.status();
  std::string content;
  for (const MarkedText::Run& run : prompt->runs()) {
    if (!run.is_markup) content += prompt->text().substr(run.begin, run.end - run.begin) + "|";
  }
  EXPECT_EQ(content, "<S>|<tool>|<description>|{\"<p>\": 1}|<user>|<answer>|<name>|{\"<key>\":1}|<result>|");
}

TEST(V31EncoderTest, RefusesWhatItCannotExpress) {
  EXPECT_EQ(Error({.messages = {Result("R")}}), "messages[0]: a tool result without a call before it");
  EXPECT_EQ(Error({.messages = {User("a"), Assistant("", {{"c", "f", ""}, {"d", "f", ""}}), Result("R", "c")}}),
            "messages[1]: has 2 tool calls but 1 tool results follow");
  EXPECT_EQ(Error({.messages = {User("a"), Prefix("b"), User("c")}}),
            "messages[1]: is a prefix, but not the last message");
  EXPECT_EQ(Error({.messages = {User("a")}, .tools = {"{}"}}), "request: tools[0]: has no name");
  EXPECT_EQ(Error({.messages = {User("a")}, .response_format = "{}"}),
            "request: a response format is given, but the format has no place for it");
  EXPECT_EQ(EncodeV31({.messages = {User("a")}, .tools = {"{}"}}, {}).status().message(),
            "request: tools are given, but there is no text that introduces them");
}

}  // namespace
}  // namespace tandem::router
