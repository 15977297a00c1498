// Proves words, noise, drawn tokens and log-probabilities against the NumPy reference (tests/golden/ops/sampling).
#include <cmath>

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
  for (size_t i = 0; i < tokens.size(); ++i) {
    const SampledToken drawn = sampler.Sample(
        absl::MakeConstSpan(&logits[i * vocab], vocab),
        {.temperature = temperatures[i], .top_p = top_ps[i], .top_k = top_ks[i], .seed = Word64(seeds, i)},
        static_cast<uint32_t>(choices[i]), static_cast<int64_t>(Word64(positions, i)));
    EXPECT_EQ(drawn.token, tokens[i]) << i;
    EXPECT_NEAR(drawn.logprob, logprobs[i], 2e-6 + 1e-5 * std::fabs(logprobs[i])) << i;
  }
}

}  // namespace
}  // namespace tandem::model
