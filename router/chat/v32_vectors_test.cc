// Official prompts, byte for byte. Skips, saying so, where the reference files are absent.
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "router/chat/ordered_json.h"
#include "router/chat/v32_encoder.h"
#include "router/tokenizer/reference_files.h"

namespace tandem::router {
namespace {

std::string TextOf(const OrderedJson* value) { return value == nullptr ? "" : value->text; }

std::string Dump(const OrderedJson& value) {
  std::string out;
  AppendPythonJson(value, &out);
  return out;
}

std::vector<std::string> ReadTools(const OrderedJson* tools) {
  std::vector<std::string> read;
  if (tools == nullptr) return read;
  for (const OrderedJson& tool : tools->items) read.push_back(Dump(*tool.Find("function")));
  return read;
}

ChatRole ReadRole(absl::string_view name) {
  for (const ChatRole role :
       {ChatRole::kSystem, ChatRole::kUser, ChatRole::kAssistant, ChatRole::kTool, ChatRole::kDeveloper}) {
    if (name == ChatRoleName(role)) return role;
  }
  ADD_FAILURE() << "no role " << name;
  return ChatRole::kUser;
}

ChatMessage ReadMessage(const OrderedJson& json) {
  ChatMessage message{.role = ReadRole(TextOf(json.Find("role"))),
                      .content = TextOf(json.Find("content")),
                      .reasoning_content = TextOf(json.Find("reasoning_content")),
                      .tool_call_id = TextOf(json.Find("tool_call_id")),
                      .tools = ReadTools(json.Find("tools"))};
  if (const OrderedJson* calls = json.Find("tool_calls")) {
    for (const OrderedJson& call : calls->items) {
      const OrderedJson* function = call.Find("function");
      message.tool_calls.push_back(
          {TextOf(call.Find("id")), TextOf(function->Find("name")), TextOf(function->Find("arguments"))});
    }
  }
  if (const OrderedJson* format = json.Find("response_format")) message.response_format = Dump(*format);
  return message;
}

std::vector<ChatMessage> ReadMessages(const OrderedJson& json) {
  std::vector<ChatMessage> messages;
  for (const OrderedJson& message : json.items) messages.push_back(ReadMessage(message));
  return messages;
}

class V32VectorsTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::optional<std::string> head = ReadReferenceFile("data/chat/tools_block_head.txt");
    const std::optional<std::string> cases = ReadReferenceFile("data/chat/dsv32_cases.json");
    if (!head.has_value() || !cases.has_value()) GTEST_SKIP() << "data/chat is not at hand (TANDEM_SHARED_DIR)";
    absl::StatusOr<OrderedJson> parsed = ParseOrderedJson(*cases);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    cases_ = *std::move(parsed);
    texts_.tools_head = *head;
    // The one fixed text that has no file of its own stands in a case, between a system prompt and a JSON value.
    for (const OrderedJson& item : cases_.items) {
      if (TextOf(item.Find("name")) != "sys_resp_format") continue;
      const std::string prompt = TextOf(item.Find("prompt"));
      const size_t begin = prompt.find("\n\n") + 2;
      texts_.response_format_head = prompt.substr(begin, prompt.find('{') - begin);
    }
    ASSERT_TRUE(texts_.response_format_head.has_value());
  }

  void ExpectPrompt(const Conversation& conversation, ThinkingMode mode, absl::string_view expected) {
    const absl::StatusOr<MarkedText> prompt = EncodeV32(conversation, {.thinking_mode = mode, .texts = &texts_});
    ASSERT_TRUE(prompt.ok()) << prompt.status();
    EXPECT_EQ(prompt->text(), std::string(expected));
  }

  OrderedJson cases_;
  V32Texts texts_;
};

TEST_F(V32VectorsTest, SmallCasesAreEqual) {
  ASSERT_GE(cases_.items.size(), 9u);
  for (const OrderedJson& item : cases_.items) {
    SCOPED_TRACE(TextOf(item.Find("name")));
    const std::string mode = TextOf(item.Find("kwargs")->Find("thinking_mode"));
    ExpectPrompt({.messages = ReadMessages(*item.Find("messages"))},
                 mode == "thinking" ? ThinkingMode::kThinking : ThinkingMode::kChat, TextOf(item.Find("prompt")));
  }
}

TEST_F(V32VectorsTest, OfficialConversationsAreEqual) {
  const std::pair<const char*, const char*> kFiles[] = {
      {"data/chat/test_input.json", "data/chat/test_output_reconstructed_official.txt"},
      {"data/chat/test_input_search_wo_date.json", "data/chat/test_output_search_wo_date.txt"},
  };
  for (const auto& [input_name, output_name] : kFiles) {
    SCOPED_TRACE(input_name);
    const std::optional<std::string> input = ReadReferenceFile(input_name);
    const std::optional<std::string> output = ReadReferenceFile(output_name);
    if (!input.has_value() || !output.has_value()) GTEST_SKIP() << input_name << " is not at hand (TANDEM_SHARED_DIR)";
    const absl::StatusOr<OrderedJson> request = ParseOrderedJson(*input);
    ASSERT_TRUE(request.ok()) << request.status();
    ExpectPrompt({.messages = ReadMessages(*request->Find("messages")), .tools = ReadTools(request->Find("tools"))},
                 ThinkingMode::kThinking, absl::StripSuffix(*output, "\n"));
  }
}

}  // namespace
}  // namespace tandem::router
