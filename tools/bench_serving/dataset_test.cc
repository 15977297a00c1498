// Proves that texts have the tokens that are counted, lengths the range that was asked for, that a seed decides all,
// and what files may hold. The vocabulary is a small one with 26 words of one token each.
#include "tools/bench_serving/dataset.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "router/tokenizer/small_tokenizer.h"

namespace tandem::bench_serving {
namespace {

std::unique_ptr<const router::Tokenizer> WordTokenizer() {
  router::SmallVocabulary vocabulary;
  vocabulary.merges.clear();
  for (char c = 'a'; c <= 'z'; ++c) {
    const std::string letter(1, c), pair(2, c);
    vocabulary.merges.emplace_back(letter, letter);
    vocabulary.merges.emplace_back(" ", pair);
  }
  return router::MakeSmallTokenizer(vocabulary);
}

class DatasetTest : public testing::Test {
 protected:
  DatasetTest() : tokenizer_(WordTokenizer()), texts_(*TokenTexts::Of(*tokenizer_)) {
    flags_.dataset = Dataset::kRandomIds;
    flags_.num_prompts = 200;
    flags_.random_input_len = 40;
    flags_.random_output_len = 20;
  }
  std::vector<BenchRequest> Make() {
    auto requests = MakeDataset(flags_, texts_);
    EXPECT_TRUE(requests.ok()) << requests.status();
    return requests.ok() ? *std::move(requests) : std::vector<BenchRequest>();
  }
  void WriteFile(Dataset dataset, const std::string& content) {
    flags_.dataset = dataset;
    flags_.dataset_path = absl::StrCat(testing::TempDir(), "/dataset.json");
    std::ofstream(flags_.dataset_path) << content;
  }
  int Count(const std::string& text) { return static_cast<int>(Ids(text).size()); }
  std::vector<router::TokenId> Ids(const std::string& text) {
    return *tokenizer_->Encode(text, router::Tokenizer::AddedTokens::kMatch);
  }

  std::unique_ptr<const router::Tokenizer> tokenizer_;
  TokenTexts texts_;
  Flags flags_;
};

TEST_F(DatasetTest, RandomTextsHaveExactlyTheLengthsThatWereDrawn) {
  std::set<int> prompt_lens, output_lens;
  for (const BenchRequest& request : Make()) {
    EXPECT_EQ(Count(request.text), request.prompt_len);
    prompt_lens.insert(request.prompt_len);
    output_lens.insert(request.output_len);
  }
  EXPECT_EQ(*prompt_lens.begin(), 1);
  EXPECT_EQ(*prompt_lens.rbegin(), 40);
  EXPECT_EQ(*output_lens.begin(), 1);
  EXPECT_EQ(*output_lens.rbegin(), 20);
  EXPECT_GT(prompt_lens.size(), 35u) << "200 draws of 40 values";
}

TEST_F(DatasetTest, RangeRatioBoundsTheLengthsFromBelow) {
  flags_.random_range_ratio = 0.5;
  for (const BenchRequest& request : Make()) EXPECT_GE(request.prompt_len, 20);
  flags_.random_range_ratio = 1;
  for (const BenchRequest& request : Make()) {
    EXPECT_EQ(request.prompt_len, 40);
    EXPECT_EQ(request.output_len, 20);
  }
}

TEST_F(DatasetTest, TheSeedDecidesEverything) {
  const auto texts_of = [this](uint64_t seed) {
    flags_.seed = seed;
    std::vector<std::string> texts;
    for (const BenchRequest& request : Make()) texts.push_back(absl::StrCat(request.text, "#", request.output_len));
    return texts;
  };
  EXPECT_EQ(texts_of(1), texts_of(1));
  EXPECT_NE(texts_of(1), texts_of(2));
}

TEST_F(DatasetTest, IdsAreOrdinaryTokens) {
  flags_.tokenize_prompt = true;
  for (const BenchRequest& request : Make()) {
    EXPECT_TRUE(request.text.empty());
    ASSERT_EQ(static_cast<int>(request.ids.size()), request.prompt_len);
    for (const uint32_t id : request.ids) {
      ASSERT_LT(id, tokenizer_->num_ids());
      EXPECT_FALSE(tokenizer_->IsSpecial(id));
    }
  }
}

TEST_F(DatasetTest, GroupsShareASystemPromptAndNothingElse) {
  flags_.dataset = Dataset::kSharedPrefix;
  flags_.gsp_num_groups = 3;
  flags_.gsp_prompts_per_group = 4;
  flags_.gsp_system_prompt_len = 50;
  flags_.gsp_question_len = 10;
  flags_.gsp_output_len = 7;
  std::map<std::string, std::set<std::string>> questions;
  for (const BenchRequest& request : Make()) {
    const size_t cut = request.text.find("\n\n");
    const std::string system_prompt = request.text.substr(0, cut);
    EXPECT_EQ(Count(system_prompt), 50);
    EXPECT_EQ(Count(request.text.substr(cut + 2)), 10);
    EXPECT_EQ(Count(request.text), request.prompt_len);
    EXPECT_EQ(request.output_len, 7);
    questions[system_prompt].insert(request.text);
  }
  EXPECT_EQ(questions.size(), 3u);
  for (const auto& [system_prompt, texts] : questions) EXPECT_EQ(texts.size(), 4u);
}

TEST_F(DatasetTest, ConversationsGiveTheirFirstQuestionAndTheLengthOfItsAnswer) {
  WriteFile(Dataset::kSharegpt, R"([
    {"conversations":[{"from":"human","value":" aa bb cc"},{"from":"gpt","value":" dd ee"},{"value":"more"}]},
    {"conversations":[{"from":"human","value":" only one turn here"}]},
    {"conversations":[{"value":" aa"},{"value":" bb cc"}]},
    {"conversations":[{"value":" aa bb"},{"value":" cc"}]},
    {"conversation":[{"content":" zz yy"},{"content":" xx ww vv"}]},
    {"id":7}, 8])");
  std::map<std::string, std::pair<int, int>> lengths;
  for (const BenchRequest& request : Make()) lengths[request.text] = {request.prompt_len, request.output_len};
  const std::map<std::string, std::pair<int, int>> expected = {{" aa bb cc", {3, 2}}, {" zz yy", {2, 3}}};
  EXPECT_EQ(lengths, expected) << "questions and answers of one token are passed over";
  flags_.sharegpt_output_len = 9;
  for (const BenchRequest& request : Make()) EXPECT_EQ(request.output_len, 9);
  flags_.sharegpt_context_len = 11;
  ASSERT_EQ(Make().size(), 2u) << "three and nine are too many; two such are left";
  flags_.sharegpt_context_len = 5;
  EXPECT_FALSE(MakeDataset(flags_, texts_).ok());
}

TEST_F(DatasetTest, RandomCutsAndRepeatsTheFilesTexts) {
  WriteFile(Dataset::kRandom, R"([{"conversations":[{"value":" aa bb cc"},{"value":" dd ee"}]},
                                  {"conversations":[{"value":""},{"value":" dd ee"}]}])");
  flags_.random_range_ratio = 1;
  flags_.random_input_len = 7;
  for (const BenchRequest& request : Make()) EXPECT_EQ(request.text, " aa bb cc aa bb cc aa");
}

TEST_F(DatasetTest, RandomWithoutAFileIsWords) {
  const std::vector<BenchRequest> words = Make();
  flags_.dataset = Dataset::kRandom;
  const std::vector<BenchRequest> without_file = Make();
  ASSERT_EQ(without_file.size(), words.size());
  for (size_t i = 0; i < words.size(); ++i) EXPECT_EQ(without_file[i].text, words[i].text);
}

TEST_F(DatasetTest, LinesMayBeConversationsPromptsOrMessages) {
  flags_.backend = Backend::kChat;
  WriteFile(Dataset::kCustom, R"({"prompt":" aa bb","output_len":5}
{"messages":[{"role":"user","content":" cc dd"}],"max_tokens":6}

{"conversations":[{"value":" ee ff"},{"value":" gg hh ii"}]}
{"prompt":" jj kk"}
)");
  std::map<std::string, int> outputs;
  for (const BenchRequest& request : Make()) {
    outputs[request.messages.empty() ? request.text : request.messages] = request.output_len;
  }
  const std::map<std::string, int> expected = {
      {" aa bb", 5}, {R"([{"role":"user","content":" cc dd"}])", 6}, {" ee ff", 3}, {" jj kk", 256}};
  EXPECT_EQ(outputs, expected);
}

TEST_F(DatasetTest, FaultsOfAFileNameItAndTheLine) {
  const struct {
    Dataset dataset;
    const char* content;
    const char* words;
  } cases[] = {{Dataset::kCustom, "{\"prompt\":\"x\"}\n{\"text\":\"x\"}", "line 2: none of"},
               {Dataset::kCustom, "{", "line 1: no JSON"},
               {Dataset::kCustom, "7", "line 1: no JSON object"},
               {Dataset::kCustom, "", "has no entry of use"},
               {Dataset::kSharegpt, "{}", "no JSON array"},
               {Dataset::kSharegpt, "[1, {}]", "has no entry of use"},
               {Dataset::kCustom, "{\"messages\":[]}", "take a chat backend"}};
  for (const auto& [dataset, content, words] : cases) {
    WriteFile(dataset, content);
    const absl::Status status = MakeDataset(flags_, texts_).status();
    EXPECT_TRUE(absl::StrContains(status.message(), words)) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "dataset.json")) << status;
  }
  flags_.dataset_path = "/nonexistent/file";
  EXPECT_EQ(MakeDataset(flags_, texts_).status().code(), absl::StatusCode::kNotFound);
}

TEST(TokenTextsTest, AVocabularyWithoutWordsStillGivesTextThatIsCountedTruly) {
  const std::unique_ptr<const router::Tokenizer> tokenizer = router::MakeSmallTokenizer();
  const auto texts = TokenTexts::Of(*tokenizer);
  ASSERT_TRUE(texts.ok()) << texts.status();
  Draws draws(1);
  const std::string text = texts->DrawText(draws, 50);
  EXPECT_FALSE(text.empty());
  const auto ids = tokenizer->Encode(text, router::Tokenizer::AddedTokens::kIgnore);
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_EQ(*texts->CountTokens(text), static_cast<int>(ids->size()));
}

}  // namespace
}  // namespace tandem::bench_serving
