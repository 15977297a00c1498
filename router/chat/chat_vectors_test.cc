// Official prompts, byte for byte. Skips, saying so, where the reference files are absent.
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "router/chat/ordered_json.h"
#include "router/chat/v31_encoder.h"
#include "router/chat/v32_encoder.h"
#include "router/chat/vector_messages.h"
#include "router/tokenizer/reference_files.h"

namespace tandem::router {
namespace {

class ChatVectorsTest : public testing::Test {
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

TEST_F(ChatVectorsTest, SmallCasesAreEqual) {
  ASSERT_GE(cases_.items.size(), 9u);
  for (const OrderedJson& item : cases_.items) {
    SCOPED_TRACE(TextOf(item.Find("name")));
    const std::string mode = TextOf(item.Find("kwargs")->Find("thinking_mode"));
    ExpectPrompt({.messages = ReadMessages(*item.Find("messages"))},
                 mode == "thinking" ? ThinkingMode::kThinking : ThinkingMode::kChat, TextOf(item.Find("prompt")));
  }
}

TEST_F(ChatVectorsTest, OfficialConversationsAreEqual) {
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

// What the template of V3.1-Terminus and V3.2-Exp printed.
TEST_F(ChatVectorsTest, TemplateOutputsAreEqual) {
  const std::optional<std::string> text = ReadReferenceFile("data/chat/v31_template_cases.json");
  if (!text.has_value()) GTEST_SKIP() << "data/chat is not at hand (TANDEM_SHARED_DIR)";
  const absl::StatusOr<OrderedJson> cases = ParseOrderedJson(*text);
  ASSERT_TRUE(cases.ok()) << cases.status();
  ASSERT_GE(cases->items.size(), 7u);
  for (const OrderedJson& item : cases->items) {
    SCOPED_TRACE(TextOf(item.Find("name")));
    const OrderedJson* thinking = item.Find("kwargs")->Find("thinking");
    const absl::StatusOr<MarkedText> prompt = EncodeV31(
        {.messages = ReadMessages(*item.Find("messages"))},
        {.thinking_mode = thinking != nullptr && thinking->kind == OrderedJson::Kind::kTrue ? ThinkingMode::kThinking
                                                                                            : ThinkingMode::kChat});
    ASSERT_TRUE(prompt.ok()) << prompt.status();
    EXPECT_EQ(prompt->text(), TextOf(item.Find("prompt")));
  }
}

}  // namespace
}  // namespace tandem::router
