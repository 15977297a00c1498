// Proves what counts as a chunk, a token and an end for each API, on streams written by hand after the APIs' own
// shapes.
#include "tools/bench_serving/answer_reader.h"

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace tandem::bench_serving {
namespace {

absl::Duration Ms(int milliseconds) { return absl::Milliseconds(milliseconds); }

// Events at 10, 20, ... ms.
absl::Status ReadAll(const std::vector<std::string>& events, AnswerReader* reader) {
  int at = 0;
  for (const std::string& event : events) {
    const absl::Status status = reader->Append(absl::StrCat("data: ", event, "\n\n"), Ms(at += 10));
    if (!status.ok()) return status;
  }
  return reader->Finish(Ms(at));
}

std::vector<int> Tokens(const Answer& answer) {
  std::vector<int> tokens;
  for (const Chunk& chunk : answer.chunks) tokens.push_back(chunk.num_tokens);
  return tokens;
}

std::vector<absl::Duration> Times(const Answer& answer) {
  std::vector<absl::Duration> times;
  for (const Chunk& chunk : answer.chunks) times.push_back(chunk.at);
  return times;
}

TEST(AnswerReaderTest, ChatChunksAreEventsWithText) {
  AnswerReader reader(Backend::kChat, true);
  ASSERT_TRUE(
      ReadAll(
          {R"({"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]})",
           R"({"choices":[{"index":0,"delta":{"reasoning_content":"Let"}}]})",
           R"({"choices":[{"index":0,"delta":{"reasoning_content":null,"content":"4"}}]})",
           R"({"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"name":"f","arguments":""}}]}}]})",
           R"({"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}}]})",
           R"({"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]})",
           R"({"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":20,"prompt_tokens_details":{"cached_tokens":8}}})",
           "[DONE]"},
          &reader)
          .ok());
  const Answer& answer = reader.answer();
  EXPECT_EQ(answer.text, "Let4f{}");
  EXPECT_EQ(Times(answer), (std::vector<absl::Duration>{Ms(20), Ms(30), Ms(40), Ms(50)}));
  EXPECT_EQ(answer.chunks[1].text_end, 4u);
  EXPECT_EQ(answer.prompt_tokens, 10);
  EXPECT_EQ(answer.completion_tokens, 20);
  EXPECT_EQ(answer.cached_tokens, 8);
  EXPECT_EQ(reader.end(), Ms(80)) << "the end is [DONE], not the last text";
}

TEST(AnswerReaderTest, CompletionsHaveTextInTheChoice) {
  AnswerReader reader(Backend::kCompletions, true);
  ASSERT_TRUE(ReadAll({R"({"choices":[{"index":0,"text":"a"}],"usage":null})",
                       R"({"choices":[{"index":0,"text":"b"}]})", "[DONE]"},
                      &reader)
                  .ok());
  EXPECT_EQ(reader.answer().text, "ab");
  EXPECT_EQ(Tokens(reader.answer()), (std::vector<int>{1, 1}));
  EXPECT_EQ(reader.answer().completion_tokens, std::nullopt);
}

TEST(AnswerReaderTest, GenerateIsCumulative) {
  AnswerReader reader(Backend::kGenerate, true);
  ASSERT_TRUE(ReadAll({R"({"text":"","meta_info":{"completion_tokens":1}})",
                       R"({"text":"ab","meta_info":{"prompt_tokens":3,"completion_tokens":2}})",
                       R"({"text":"abcd","meta_info":{"completion_tokens":5}})",
                       R"({"text":"abcde","meta_info":{"completion_tokens":5}})",
                       R"({"text":"abcdef","meta_info":{"completion_tokens":6,"cached_tokens":1}})", "[DONE]"},
                      &reader)
                  .ok());
  const Answer& answer = reader.answer();
  EXPECT_EQ(answer.text, "abcdef");
  EXPECT_EQ(Tokens(answer), (std::vector<int>{2, 3, 1})) << "more text without a new token is no chunk";
  EXPECT_EQ(Times(answer), (std::vector<absl::Duration>{Ms(20), Ms(30), Ms(50)}));
  EXPECT_EQ(answer.completion_tokens, 6);
  EXPECT_EQ(answer.prompt_tokens, 3);
}

TEST(AnswerReaderTest, WholeAnswersAreOneChunk) {
  AnswerReader chat(Backend::kChat, false);
  ASSERT_TRUE(chat.Append(R"({"choices":[{"message":{"content":"hi"}}],)", Ms(1)).ok());
  ASSERT_TRUE(chat.Append(R"("usage":{"completion_tokens":2}})", Ms(2)).ok());
  ASSERT_TRUE(chat.Finish(Ms(3)).ok());
  EXPECT_EQ(chat.answer().text, "hi");
  EXPECT_EQ(chat.answer().completion_tokens, 2);
  EXPECT_EQ(Times(chat.answer()), (std::vector<absl::Duration>{Ms(3)}));
  AnswerReader generate(Backend::kGenerate, false);
  ASSERT_TRUE(generate.Append(R"({"text":"hi","meta_info":{"completion_tokens":2}})", Ms(1)).ok());
  ASSERT_TRUE(generate.Finish(Ms(1)).ok());
  EXPECT_EQ(generate.answer().completion_tokens, 2);
}

TEST(AnswerReaderTest, FailuresAreToldByKind) {
  const struct {
    std::vector<std::string> events;
    const char* begin;
  } cases[] = {
      {{R"({"error":{"message":"no pair","type":"x","code":503}})"}, "error event 503: no pair"},
      {{R"({"error":{"message":"no pair","type":"overloaded"}})"}, "error event overloaded: no pair"},
      {{R"({"error":"bad"})"}, "error event: \"bad\""},
      {{"{"}, "unreadable event: \"{\""},
      {{"7"}, "unreadable event: \"7\""},
      {{R"({"choices":[{"index":0,"text":"a"}]})"}, "stream ended without [DONE]: "},
      {{}, "stream ended without [DONE]: "},
  };
  for (const auto& [events, begin] : cases) {
    AnswerReader reader(Backend::kCompletions, true);
    const absl::Status status = ReadAll(events, &reader);
    EXPECT_TRUE(absl::StartsWith(status.message(), begin)) << status;
  }
}

TEST(AnswerReaderTest, AnEventOfAnyShapeIsNoCrash) {
  for (const char* event : {"{}", R"({"choices":null})", R"({"choices":[null,7,{}]})", R"({"choices":[{"delta":7}]})",
                            R"({"choices":[{"delta":{"content":7,"tool_calls":[null,{"function":null}]}}]})",
                            R"({"usage":{"completion_tokens":"many"}})", R"({"usage":7})", R"({"error":null})"}) {
    AnswerReader reader(Backend::kChat, true);
    EXPECT_TRUE(ReadAll({event, "[DONE]"}, &reader).ok()) << event;
    EXPECT_TRUE(reader.answer().chunks.empty()) << event;
    AnswerReader generate(Backend::kGenerate, true);
    EXPECT_TRUE(ReadAll({event, R"({"text":7,"meta_info":7})", "[DONE]"}, &generate).ok()) << event;
    EXPECT_TRUE(generate.answer().chunks.empty()) << event;
  }
}

}  // namespace
}  // namespace tandem::bench_serving
