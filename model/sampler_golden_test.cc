// Proves words, noise, drawn tokens (with every filter, penalty, bias and mask) and log-probabilities against the NumPy
// reference (tests/golden/ops/sampling).
#include <cmath>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "model/philox.h"
#include "model/sampler.h"
#include "model/testing/golden.h"

namespace tandem::model {
namespace {

class SamplerGoldenTest : public ::testing::Test {
 protected:
  const Golden golden_{"tests/golden/ops/sampling.safetensors"};
  // 64-bit values are stored as pairs of 32-bit words, the low one first.
  static uint64_t Word64(const std::vector<int32_t>& words, size_t i) {
    return static_cast<uint32_t>(words[2 * i]) | uint64_t{static_cast<uint32_t>(words[2 * i + 1])} << 32;
  }
};

TEST_F(SamplerGoldenTest, PhiloxGivesTheSameWords) {
  const std::vector<int32_t> seeds = golden_.Ints("philox.seed"), counters = golden_.Ints("philox.counter"),
                             words = golden_.Ints("philox.words");
  ASSERT_GT(words.size(), 0u);
  for (size_t i = 0; i < words.size() / 4; ++i) {
    PhiloxCounter counter;
    for (int j = 0; j < 4; ++j) counter[j] = static_cast<uint32_t>(counters[4 * i + j]);
    const auto result = Philox4x32(Word64(seeds, i), counter);
    for (int j = 0; j < 4; ++j) EXPECT_EQ(result[j], static_cast<uint32_t>(words[4 * i + j])) << i;
  }
}

TEST_F(SamplerGoldenTest, NoiseBelongsToSeedChoicePositionAndToken) {
  const std::vector<int32_t> seeds = golden_.Ints("noise.seed"), choices = golden_.Ints("noise.choice"),
                             positions = golden_.Ints("noise.position"), tokens = golden_.Ints("noise.token_id");
  const std::vector<float> values = golden_.Floats("noise.value");
  ASSERT_GT(values.size(), 0u);
  for (size_t i = 0; i < values.size(); ++i) {
    const double noise = GumbelNoise(Word64(seeds, i), static_cast<uint32_t>(choices[i]),
                                     static_cast<int64_t>(Word64(positions, i)), tokens[i]);
    EXPECT_NEAR(noise, values[i], 1e-9 + 2e-7 * std::fabs(values[i])) << i;
  }
}

TEST_F(SamplerGoldenTest, DrawsTheSameTokens) {
  const std::vector<float> logits = golden_.Floats("draw.logits"), temperatures = golden_.Floats("draw.temperature"),
                           top_ps = golden_.Floats("draw.top_p"), logprobs = golden_.Floats("draw.logprob");
  const std::vector<int32_t> top_ks = golden_.Ints("draw.top_k"), choices = golden_.Ints("draw.choice"),
                             seeds = golden_.Ints("draw.seed"), positions = golden_.Ints("draw.position"),
                             tokens = golden_.Ints("draw.token");
  ASSERT_GT(tokens.size(), 0u);
  const size_t vocab = logits.size() / tokens.size();
  Sampler sampler(static_cast<int>(vocab));
  const TokenCounts none;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const SamplingParams params{.temperature = temperatures[i],
                                .top_p = top_ps[i],
                                .top_k = top_ks[i],
                                .seed = Word64(seeds, i),
                                .wants_logprobs = true};
    const auto drawn = sampler.Sample({.logits = absl::MakeConstSpan(&logits[i * vocab], vocab),
                                       .params = params,
                                       .counts = none,
                                       .masked_tokens = {},
                                       .choice = static_cast<uint32_t>(choices[i]),
                                       .position = static_cast<int64_t>(Word64(positions, i))});
    ASSERT_TRUE(drawn.ok()) << drawn.status();
    EXPECT_EQ(drawn->token, tokens[i]) << i;
    EXPECT_NEAR(drawn->logprobs.logprob, logprobs[i], 2e-6 + 1e-5 * std::fabs(logprobs[i])) << i;
  }
}

TEST_F(SamplerGoldenTest, PenaltiesBiasesMasksAndMinPGiveTheSameTokens) {
  const auto floats = [&](const char* name) { return golden_.Floats(absl::StrCat("adjusted.", name)); };
  const auto ints = [&](const char* name) { return golden_.Ints(absl::StrCat("adjusted.", name)); };
  const std::vector<float> logits = floats("logits"), biases = floats("bias"),
                           repetitions = floats("repetition_penalty"), frequencies = floats("frequency_penalty"),
                           presences = floats("presence_penalty"), temperatures = floats("temperature"),
                           top_ps = floats("top_p"), min_ps = floats("min_p"), logprobs = floats("logprob"),
                           top_logprobs = floats("top_logprob");
  const std::vector<int32_t> prompts = ints("prompt"), generated = ints("generated"), bias_tokens = ints("bias_token"),
                             masked = ints("masked"), top_ks = ints("top_k"), choices = ints("choice"),
                             seeds = ints("seed"), positions = ints("position"), tokens = ints("token"),
                             top_tokens = ints("top_token");
  const size_t num_rows = tokens.size();
  ASSERT_GT(num_rows, 0u);
  const size_t vocab = logits.size() / num_rows;
  // The row's part of a list, without its padding.
  const auto row_of = [num_rows](const std::vector<int32_t>& list, size_t row) {
    const size_t width = list.size() / num_rows;
    std::vector<int32_t> values(list.begin() + row * width, list.begin() + (row + 1) * width);
    std::erase(values, -1);
    return values;
  };
  Sampler sampler(static_cast<int>(vocab));
  for (size_t i = 0; i < num_rows; ++i) {
    SamplingParams params{.temperature = temperatures[i],
                          .top_p = top_ps[i],
                          .top_k = top_ks[i],
                          .seed = Word64(seeds, i),
                          .min_p = min_ps[i],
                          .repetition_penalty = repetitions[i],
                          .frequency_penalty = frequencies[i],
                          .presence_penalty = presences[i],
                          .wants_logprobs = true,
                          .num_top_logprobs = kTopLogprobsMax};
    const size_t num_biases = bias_tokens.size() / num_rows;
    for (size_t j = i * num_biases; j < (i + 1) * num_biases; ++j) {
      if (bias_tokens[j] >= 0) params.logit_bias.push_back({bias_tokens[j], biases[j]});
    }
    const std::vector<int32_t> prompt = row_of(prompts, i), masked_here = row_of(masked, i);
    const std::vector<int32_t> answer = row_of(generated, i);
    TokenCounts counts(std::vector<uint32_t>(prompt.begin(), prompt.end()), answer.size());
    for (const int32_t token : answer) counts.Add(token);
    const auto drawn = sampler.Sample({.logits = absl::MakeConstSpan(&logits[i * vocab], vocab),
                                       .params = params,
                                       .counts = counts,
                                       .masked_tokens = masked_here,
                                       .choice = static_cast<uint32_t>(choices[i]),
                                       .position = static_cast<int64_t>(Word64(positions, i))});
    ASSERT_TRUE(drawn.ok()) << drawn.status();
    EXPECT_EQ(drawn->token, tokens[i]) << i;
    const TokenLogprobs& got = drawn->logprobs;
    EXPECT_NEAR(got.logprob, logprobs[i], 2e-6 + 1e-5 * std::fabs(logprobs[i])) << i;
    const std::vector<int32_t> top = row_of(top_tokens, i);
    ASSERT_EQ(got.num_top, static_cast<int>(top.size())) << i;
    for (size_t place = 0; place < top.size(); ++place) {
      EXPECT_EQ(got.top_tokens[place], top[place]) << i << " place " << place;
      const float expected = top_logprobs[i * kTopLogprobsMax + place];
      EXPECT_NEAR(got.top_logprobs[place], expected, 2e-6 + 1e-5 * std::fabs(expected)) << i << " place " << place;
    }
  }
}

}  // namespace
}  // namespace tandem::model
