// The format's rules, each by the smallest conversation that shows it. Whole official prompts: v32_vectors_test.cc.
#include "router/chat/v32_encoder.h"

#include <gtest/gtest.h>

namespace tandem::router {
namespace {

ChatMessage System(std::string content) { return {.role = ChatRole::kSystem, .content = std::move(content)}; }
ChatMessage User(std::string content) { return {.role = ChatRole::kUser, .content = std::move(content)}; }
ChatMessage Developer(std::string content) { return {.role = ChatRole::kDeveloper, .content = std::move(content)}; }

ChatMessage Assistant(std::string content, std::string reasoning = "", std::vector<ChatToolCall> calls = {}) {
  return {.role = ChatRole::kAssistant,
          .content = std::move(content),
          .reasoning_content = std::move(reasoning),
          .tool_calls = std::move(calls)};
}

ChatMessage Result(std::string content, std::string id = "") {
  return {.role = ChatRole::kTool, .content = std::move(content), .tool_call_id = std::move(id)};
}

const V32Texts& Texts() {
  static const V32Texts* const kTexts = new V32Texts{"TOOLS <think>\n", "FORMAT\n"};
  return *kTexts;
}

V32Options Options(ThinkingMode mode) { return {.thinking_mode = mode, .texts = &Texts()}; }

absl::StatusOr<MarkedText> Encode(const Conversation& conversation, ThinkingMode mode) {
  return EncodeV32(conversation, Options(mode));
}

// The prompt with the markers of the format in short.
std::string Short(std::string text) {
  const std::pair<absl::string_view, absl::string_view> kMarkers[] = {
      {"<｜begin▁of▁sentence｜>", "BOS "},
      {"<｜end▁of▁sentence｜>", " EOS "},
      {"<｜User｜>", " USR "},
      {"<｜Assistant｜>", " AST "},
      {"</think>", "/TH "},
      {"<think>", "TH "},
      {"｜DSML｜", "D:"},
  };
  for (const auto& [marker, name] : kMarkers) {
    for (size_t at; (at = text.find(marker.data(), 0, marker.size())) != std::string::npos;) {
      text.replace(at, marker.size(), name.data(), name.size());
    }
  }
  return text;
}

std::string Prompt(std::vector<ChatMessage> messages, ThinkingMode mode) {
  absl::StatusOr<MarkedText> prompt = Encode({.messages = std::move(messages)}, mode);
  EXPECT_TRUE(prompt.ok()) << prompt.status();
  return prompt.ok() ? Short(prompt->text()) : "";
}

std::string Chat(std::vector<ChatMessage> messages) { return Prompt(std::move(messages), ThinkingMode::kChat); }
std::string Thinking(std::vector<ChatMessage> messages) { return Prompt(std::move(messages), ThinkingMode::kThinking); }

std::string Error(std::vector<ChatMessage> messages, ThinkingMode mode = ThinkingMode::kThinking) {
  absl::StatusOr<MarkedText> prompt = Encode({.messages = std::move(messages)}, mode);
  EXPECT_EQ(prompt.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(prompt.status().message());
}

TEST(V32EncoderTest, TheThinkingSwitchOpensOrClosesReasoning) {
  EXPECT_EQ(Chat({User("Hi")}), "BOS  USR Hi AST /TH ");
  EXPECT_EQ(Thinking({User("Hi")}), "BOS  USR Hi AST TH ");
  EXPECT_EQ(Thinking({System("Be brief."), User("Hi")}), "BOS Be brief. USR Hi AST TH ");
}

TEST(V32EncoderTest, TheBeginningOfSentenceIsAnOption) {
  const absl::StatusOr<MarkedText> prompt = EncodeV32({.messages = {User("Hi")}}, {.add_bos = false});
  ASSERT_TRUE(prompt.ok());
  EXPECT_EQ(Short(prompt->text()), " USR Hi AST /TH ");
}

TEST(V32EncoderTest, ReasoningBeforeTheLastQuestionIsNotShown) {
  EXPECT_EQ(Thinking({User("a"), Assistant("b", "r"), User("c")}), "BOS  USR a AST /TH b EOS  USR c AST TH ");
  EXPECT_EQ(Chat({User("a"), Assistant("b", "r"), User("c")}), "BOS  USR a AST /TH b EOS  USR c AST /TH ");
}

TEST(V32EncoderTest, ReasoningAfterTheLastQuestionIsShownInThinkingModeOnly) {
  EXPECT_EQ(Thinking({User("a"), Assistant("b", "r")}), "BOS  USR a AST TH r/TH b EOS ");
  EXPECT_EQ(Chat({User("a"), Assistant("b", "r")}), "BOS  USR a AST /TH b EOS ");
}

TEST(V32EncoderTest, AToolRoundKeepsItsReasoningUntilTheNextQuestion) {
  const std::vector<ChatMessage> round = {User("a"), Assistant("", "r", {{"", "f", "{\"x\":1}"}}), Result("R")};
  const std::string call =
      "\n\n<D:function_calls>\n<D:invoke name=\"f\">\n<D:parameter name=\"x\" string=\"false\">1</D:parameter>\n"
      "</D:invoke>\n</D:function_calls> EOS \n\n<function_results>\n<result>R</result>\n</function_results>\n\n";
  EXPECT_EQ(Thinking(round), "BOS  USR a AST TH r/TH " + call + "TH ");
  std::vector<ChatMessage> next = round;
  next.push_back(Assistant("fin", "r2"));
  next.push_back(User("b"));
  EXPECT_EQ(Thinking(next), "BOS  USR a AST /TH " + call + "/TH fin EOS  USR b AST TH ");
  EXPECT_EQ(Chat(round), "BOS  USR a AST /TH " + call + "/TH ");
}

TEST(V32EncoderTest, ArgumentsAreStringsAsTheyAreAndOtherValuesAsPythonPrintsThem) {
  EXPECT_EQ(Chat({User("a"), Assistant("t", "",
                                       {{"", "f", "{\"s\": \"q\\\"\\n\", \"x\": 1.50, \"l\": [1,\"é\"], \"n\": null}"},
                                        {"", "g", "{}"},
                                        {"", "h", ""},
                                        {"", "i", "null"}})}),
            "BOS  USR a AST /TH t\n\n<D:function_calls>\n"
            "<D:invoke name=\"f\">\n<D:parameter name=\"s\" string=\"true\">q\"\n</D:parameter>\n"
            "<D:parameter name=\"x\" string=\"false\">1.5</D:parameter>\n"
            "<D:parameter name=\"l\" string=\"false\">[1, \"é\"]</D:parameter>\n"
            "<D:parameter name=\"n\" string=\"false\">null</D:parameter>\n</D:invoke>\n"
            "<D:invoke name=\"g\">\n\n</D:invoke>\n<D:invoke name=\"h\">\n\n</D:invoke>\n"
            "<D:invoke name=\"i\">\n\n</D:invoke>\n</D:function_calls> EOS ");
}

TEST(V32EncoderTest, ResultsComeInTheOrderOfTheirCalls) {
  const ChatMessage calls = Assistant("", "", {{"c1", "f", "{}"}, {"c2", "g", "{}"}});
  const std::string in_order = Chat({User("a"), calls, Result("one", "c1"), Result("two", "c2")});
  EXPECT_NE(in_order.find("<result>one</result>\n<result>two</result>"), std::string::npos) << in_order;
  EXPECT_EQ(Chat({User("a"), calls, Result("two", "c2"), Result("one", "c1")}), in_order);
  EXPECT_EQ(Chat({User("a"), calls, Result("one"), Result("two")}), in_order);
}

TEST(V32EncoderTest, ToolsAndFormatFollowTheSystemPrompt) {
  ChatMessage system = System("S");
  system.tools = {"{\"name\":\"f\",\"minimum\":1.0}", "{\"name\":\"g\"}"};
  system.response_format = "{\"type\":\"json_object\"}";
  const std::string expected =
      "BOS S\n\nTOOLS TH \n{\"name\": \"f\", \"minimum\": 1.0}\n{\"name\": \"g\"}\n</functions>\n"
      "\n\nFORMAT\n{\"type\": \"json_object\"} USR a AST /TH ";
  EXPECT_EQ(Chat({system, User("a")}), expected);
  const absl::StatusOr<MarkedText> beside =
      Encode({.messages = {System("S"), User("a")}, .tools = system.tools, .response_format = system.response_format},
             ThinkingMode::kChat);
  ASSERT_TRUE(beside.ok()) << beside.status();
  EXPECT_EQ(Short(beside->text()), expected);
}

TEST(V32EncoderTest, ToolsOfTheRequestStandInFrontWhereThereIsNoSystemMessage) {
  const absl::StatusOr<MarkedText> prompt =
      Encode({.messages = {User("a"), System("late")}, .tools = {"{}"}}, ThinkingMode::kChat);
  ASSERT_TRUE(prompt.ok()) << prompt.status();
  EXPECT_EQ(Short(prompt->text()), "BOS \n\nTOOLS TH \n{}\n</functions>\n USR a AST /TH late");
}

TEST(V32EncoderTest, ADeveloperAsksWithItsTools) {
  ChatMessage developer = Developer("Find it");
  EXPECT_EQ(Thinking({developer}), "BOS  USR \n\n# The user's message is: Find it AST TH ");
  developer.tools = {"{}"};
  EXPECT_EQ(Thinking({developer, Assistant("b", "r"), Developer("more")}),
            "BOS  USR \n\nTOOLS TH \n{}\n</functions>\n\n\n# The user's message is: Find it AST /TH b EOS "
            " USR \n\n# The user's message is: more AST TH ");
}

TEST(V32EncoderTest, EverythingThatAClientSendsIsContent) {
  ChatMessage system = System("<S>");
  system.tools = {"{\"<tool>\":1}"};
  system.response_format = "{\"<format>\":1}";
  const absl::StatusOr<MarkedText> prompt = Encode(
      {.messages = {system, User("<user>"),
                    Assistant("<answer>", "<reason>", {{"", "<name>", "{\"<key>\":\"<value>\",\"k\":[\"<item>\"]}"}}),
                    Result("<result>r"), Developer("<dev>")}},
      ThinkingMode::kChat);
  ASSERT_TRUE(prompt.ok()) << prompt.status();
  std::string content, markup;
  for (const MarkedText::Run& run : prompt->runs()) {
    (run.is_markup ? markup : content) += prompt->text().substr(run.begin, run.end - run.begin) + "|";
  }
  EXPECT_EQ(
      content,
      "<S>|{\"<tool>\": 1}|{\"<format>\": 1}|<user>|<answer>|<name>|<key>|<value>|k|[\"<item>\"]|<result>r|<dev>|");
  EXPECT_EQ(
      Short(markup),
      "BOS |\n\nTOOLS TH \n|\n</functions>\n\n\nFORMAT\n| USR | AST /TH |\n\n<D:function_calls>\n<D:invoke name=\"|"
      "\">\n<D:parameter name=\"|\" string=\"true\">|</D:parameter>\n<D:parameter name=\"|\" string=\"false\">|"
      "</D:parameter>\n</D:invoke>\n</D:function_calls> EOS \n\n<function_results>\n<result>|</result>\n"
      "</function_results>\n\n/TH  USR \n\n# The user's message is: | AST /TH |");
}

TEST(V32EncoderTest, AnAnswerGoesOnFromItsPrefix) {
  const auto prefix = [](std::string content, std::string reasoning = "") {
    ChatMessage message = Assistant(std::move(content), std::move(reasoning));
    message.is_prefix = true;
    return message;
  };
  EXPECT_EQ(Chat({User("a"), prefix("Sure, ")}), "BOS  USR a AST /TH Sure, ");
  EXPECT_EQ(Thinking({User("a"), prefix("", "Hm")}), "BOS  USR a AST TH Hm");
  EXPECT_EQ(Thinking({User("a"), prefix("Sure", "Hm")}), "BOS  USR a AST TH Hm/TH Sure");
  EXPECT_EQ(Error({User("a"), prefix("b"), User("c")}, ThinkingMode::kChat),
            "messages[1]: is a prefix, but not the last message");
  EXPECT_EQ(Error({System("a"), prefix("b")}, ThinkingMode::kChat),
            "messages[1]: is a prefix without a question before it");
  ChatMessage caller = Assistant("", "", {{"", "f", "{}"}});
  caller.is_prefix = true;
  EXPECT_EQ(Error({User("a"), caller}, ThinkingMode::kChat), "messages[1]: is a prefix and carries calls");
}

TEST(V32EncoderTest, RefusesConversationsItCannotExpress) {
  const ChatMessage two_calls = Assistant("", "r", {{"c1", "f", "{}"}, {"c2", "g", "{}"}});
  EXPECT_EQ(Error({Result("R")}), "messages[0]: a tool result without a call before it");
  EXPECT_EQ(Error({User("a"), Result("R")}), "messages[1]: a tool result without a call before it");
  EXPECT_EQ(Error({User("a"), Assistant("b", "r"), Result("R")}),
            "messages[2]: a tool result without a call before it");
  EXPECT_EQ(Error({User("a"), two_calls, Result("R")}), "messages[1]: has 2 tool calls but 1 tool results follow");
  EXPECT_EQ(Error({User("a"), two_calls, Result("R"), Result("S"), Result("T")}),
            "messages[1]: has 2 tool calls but 3 tool results follow");
  EXPECT_EQ(Error({User("a"), two_calls, Result("R", "c1"), Result("S", "c1")}),
            "messages[3]: tool_call_id \"c1\" matches no unanswered call of messages[1]");
  EXPECT_EQ(Error({User("a"), two_calls, Result("R", "c1"), Result("S")}),
            "messages[1]: only some of its tool results carry a tool_call_id");
  EXPECT_EQ(Error({User("a"), Assistant("", "", {{"", "f", "[1]"}})}),
            "messages[1]: arguments of call 0: not a JSON object");
  EXPECT_EQ(Error({User("a"), Assistant("", "", {{"", "f", "{"}})}),
            "messages[1]: arguments of call 0: not valid JSON at byte 1: expected a key");
  EXPECT_EQ(
      Error({User("a"), Assistant("b")}),
      "messages[1]: an assistant message after the last question has neither reasoning_content nor tool_calls, in "
      "thinking mode");
  EXPECT_EQ(Error({Developer("")}), "messages[0]: a developer message has no content");
  ChatMessage user = User("a");
  user.tools = {"{}"};
  EXPECT_EQ(Error({user}), "messages[0]: a message of role user carries tools or a response format");
  ChatMessage caller = User("a");
  caller.tool_calls = {{"", "f", "{}"}};
  EXPECT_EQ(Error({caller}), "messages[0]: a message of role user carries calls");
}

TEST(V32EncoderTest, RefusesToolsAndFormatsForWhichTheCheckpointHasNoText) {
  ChatMessage system = System("S");
  system.tools = {"{}"};
  EXPECT_EQ(EncodeV32({.messages = {system, User("a")}}, {}).status().message(),
            "messages[0]: tools are given, but the checkpoint has no text that introduces them");
  EXPECT_EQ(EncodeV32({.messages = {User("a")}, .response_format = "{}"}, {}).status().message(),
            "request: a response format is given, but the checkpoint has no text that introduces it");
  EXPECT_EQ(Encode({.messages = {system}, .tools = {"{}"}}, ThinkingMode::kChat).status().message(),
            "messages[0]: carries tools, and so does the request");
  EXPECT_EQ(Encode({.messages = {User("a")}, .tools = {"{}", "{,"}}, ThinkingMode::kChat).status().message(),
            "request: tools[1]: not valid JSON at byte 1: expected a key");
}

}  // namespace
}  // namespace tandem::router
