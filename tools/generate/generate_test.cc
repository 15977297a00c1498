// On v32-micro (sparse attention from 17 tokens on): one sequence equals what the executor and the sampler give row by
// row, however the prompt is cut.
#include "tools/generate/generate.h"

#include <algorithm>

#include "gtest/gtest.h"
#include "model/testing/micro_model.h"

namespace tandem::generate {
namespace {

constexpr int kVocabSize = 1024;

std::vector<int32_t> Generated(const GenerateOptions& options, int num_prompt_tokens = 70) {
  model::TestModel model(model::MakeTestCheckpoint("v32-micro", 1), {});
  const auto generated = Generate(model.model(), model::GoldenTokens(num_prompt_tokens, kVocabSize), options);
  EXPECT_TRUE(generated.ok()) << generated.status();
  return generated.ok() ? generated->tokens : std::vector<int32_t>();
}

// Greedy, with the whole sequence computed anew for every token: no cache to be wrong.
std::vector<int32_t> GreedyWithoutCache(int num_prompt_tokens, int num_new_tokens) {
  std::vector<int32_t> tokens = model::GoldenTokens(num_prompt_tokens, kVocabSize);
  for (int i = 0; i < num_new_tokens; ++i) {
    model::TestModel model(model::MakeTestCheckpoint("v32-micro", 1), {});
    model::TestSequence sequence = model.NewSequence(static_cast<int64_t>(tokens.size()));
    const std::vector<float> logits = model.Append(sequence, tokens, 256).logits;
    const auto last = logits.end() - kVocabSize;
    tokens.push_back(static_cast<int32_t>(std::max_element(last, logits.end()) - last));
  }
  return {tokens.begin() + num_prompt_tokens, tokens.end()};
}

TEST(GenerateTest, GreedyTokensAreThoseOfWholeForwardPasses) {
  EXPECT_EQ(Generated({.sampling = {.temperature = 0}, .max_new_tokens = 6}), GreedyWithoutCache(70, 6));
}

TEST(GenerateTest, ChunksChangeNoToken) {
  const GenerateOptions whole{.sampling = {.temperature = 1, .seed = 3}, .max_new_tokens = 20};
  for (int chunk_size : {1, 7, 64, 69, 70, 71}) {
    GenerateOptions cut = whole;
    cut.chunk_size = chunk_size;
    EXPECT_EQ(Generated(cut), Generated(whole)) << chunk_size;
  }
}

TEST(GenerateTest, AShorterAnswerIsTheBeginningOfALongerOne) {
  GenerateOptions options{.sampling = {.temperature = 1, .seed = 3}, .max_new_tokens = 20};
  const std::vector<int32_t> longer = Generated(options);
  ASSERT_EQ(longer.size(), 20u);
  options.max_new_tokens = 8;
  EXPECT_EQ(Generated(options), std::vector<int32_t>(longer.begin(), longer.begin() + 8));
}

TEST(GenerateTest, EndsAtAStopTokenWhichItKeeps) {
  GenerateOptions options{.sampling = {.temperature = 1, .seed = 3}, .max_new_tokens = 20};
  const std::vector<int32_t> whole = Generated(options);
  options.stop_token_ids = {whole[5]};
  const auto first = std::find(whole.begin(), whole.end(), whole[5]);
  EXPECT_EQ(Generated(options), std::vector<int32_t>(whole.begin(), first + 1));
}

TEST(GenerateTest, RefusesWhatCannotBe) {
  model::TestModel model(model::MakeTestCheckpoint("v32-micro", 1), {});
  const std::vector<int32_t> prompt = {0, 1, 2};
  EXPECT_EQ(Generate(model.model(), {}, {}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Generate(model.model(), prompt, {.max_new_tokens = 0}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Generate(model.model(), prompt, {.chunk_size = 0}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Generate(model.model(), prompt, {.sampling = {.temperature = -1}}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Generate(model.model(), prompt, {.stop_token_ids = {kVocabSize}}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Generate(model.model(), std::vector<int32_t>{kVocabSize}, {}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tandem::generate
