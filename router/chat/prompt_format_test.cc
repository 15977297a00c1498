// Which format a checkpoint's folder asks for, and where the texts come from.
#include "router/chat/prompt_format.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace tandem::router {
namespace {

namespace fs = std::filesystem;

constexpr char kPython[] = R"(import json
TOOLS_SYSTEM_TEMPLATE = """## Tools
<{dsml_token}function_calls> {{x}} {thinking_start_token}..{thinking_end_token}
<functions>
{tool_schemas}
</functions>
"""

thinking_start_token: str = "<think>"
thinking_end_token: str = "</think>"
dsml_token: str = "｜DSML｜"
response_format_template: str = (
    "## Response Format:\n\nReply:\n{schema}"
)
)";

class PromptFormatTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(root_);
    fs::create_directories(root_);
  }

  void Write(const std::string& name, absl::string_view text) {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name, std::ios::binary) << text;
  }

  PromptFormat Load(const char* name = "auto", const std::string& preamble = "") {
    absl::StatusOr<PromptFormat> format = LoadPromptFormat(root_.string(), name, preamble);
    EXPECT_TRUE(format.ok()) << format.status();
    return format.value_or(PromptFormat());
  }
  std::string Error(const char* name = "auto", const std::string& preamble = "") {
    return std::string(LoadPromptFormat(root_.string(), name, preamble).status().message());
  }
  std::string PromptWithTool(const PromptFormat& format) {
    const absl::StatusOr<MarkedText> prompt =
        EncodeChat({.messages = {{.role = ChatRole::kUser, .content = "q"}}, .tools = {R"({"name":"f"})"}},
                   ThinkingMode::kChat, format);
    return prompt.ok() ? prompt->text() : std::string(prompt.status().message());
  }

  fs::path root_;
};

TEST_F(PromptFormatTest, ABareCheckpointIsV32AndTakesNoTools) {
  const PromptFormat format = Load();
  EXPECT_STREQ(format.name(), "v3.2");
  EXPECT_TRUE(absl::StrContains(format.CheckTakesTools().message(), "process.chat.tools_preamble"));
  EXPECT_FALSE(format.CheckTakesResponseFormat().ok());
}

TEST_F(PromptFormatTest, TheTextsOfThePythonFileAreReadAsText) {
  Write("encoding/encoding_dsv32.py", kPython);
  const PromptFormat format = Load();
  EXPECT_TRUE(format.CheckTakesTools().ok());
  EXPECT_TRUE(format.CheckTakesResponseFormat().ok());
  EXPECT_EQ(PromptWithTool(format),
            "<｜begin▁of▁sentence｜>\n\n## Tools\n<｜DSML｜function_calls> {x} <think>..</think>\n<functions>\n"
            "{\"name\": \"f\"}\n</functions>\n<｜User｜>q<｜Assistant｜></think>");
  EXPECT_EQ(format.v32_texts.response_format_head, "## Response Format:\n\nReply:\n");
}

TEST_F(PromptFormatTest, TheCheckpointsOwnTextAndTheUsersFileComeBeforeThePythonFile) {
  Write("encoding/encoding_dsv32.py", kPython);
  Write("encoding/tools_preamble.txt", "OWN\n");
  EXPECT_EQ(PromptWithTool(Load()),
            "<｜begin▁of▁sentence｜>\n\nOWN\n{\"name\": \"f\"}\n</functions>\n<｜User｜>q<｜Assistant｜></think>");
  Write("mine.txt", "A {tools} B");
  EXPECT_EQ(PromptWithTool(Load("auto", (root_ / "mine.txt").string())),
            "<｜begin▁of▁sentence｜>\n\nA {\"name\": \"f\"} B<｜User｜>q<｜Assistant｜></think>");
}

TEST_F(PromptFormatTest, AFileThatCannotBeReadIsNamed) {
  Write("encoding/encoding_dsv32.py", "TOOLS_SYSTEM_TEMPLATE = make()\n");
  EXPECT_EQ(Error(), absl::StrCat((root_ / "encoding/encoding_dsv32.py").string(),
                                  ": TOOLS_SYSTEM_TEMPLATE: line 1: its value is no string"));
  Write("encoding/encoding_dsv32.py", kPython);
  EXPECT_EQ(Error("auto", "/no/such/file"), "process.chat.tools_preamble: no file /no/such/file");
}

TEST_F(PromptFormatTest, AChatTemplateOfItsKindMakesItV31) {
  Write("tokenizer_config.json", R"({"chat_template": "{{'<｜tool▁output▁begin｜>'}}"})");
  const PromptFormat format = Load();
  EXPECT_STREQ(format.name(), "v3.1");
  EXPECT_FALSE(format.CheckTakesTools().ok());
  Write("mine.txt", "HEAD{tools}TAIL");
  EXPECT_EQ(PromptWithTool(Load("auto", (root_ / "mine.txt").string())),
            "<｜begin▁of▁sentence｜>\n\nHEAD\n### f\nDescription: \n\nParameters: "
            "{}\nTAIL<｜User｜>q<｜Assistant｜></think>");
  Write("tokenizer_config.json", R"({"chat_template": "<｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>"})");
  EXPECT_TRUE(absl::StrContains(Error(), "its chat template is none that is known")) << Error();
  EXPECT_STREQ(Load("v3.2").name(), "v3.2") << "a name overrides the checkpoint";
}

TEST_F(PromptFormatTest, SpecialeIsKnownByItsPathOrByName) {
  root_ /= "DeepSeek-V3.2-Speciale/snapshots/1";
  Write("encoding/encoding_dsv32.py", kPython);
  const PromptFormat format = Load();
  EXPECT_STREQ(format.name(), "v3.2-speciale");
  EXPECT_EQ(format.CheckTakesTools().message(), "this model (DeepSeek-V3.2-Speciale) does not support tool calls");
  EXPECT_STREQ(Load("v3.2-speciale").name(), "v3.2-speciale");
  EXPECT_EQ(Error("v4"), "there is no chat format v4");
}

}  // namespace
}  // namespace tandem::router
