// Proves log-probabilities against the C library in double, the order of the likeliest tokens against a sort, and that
// infinities and NaN give finite numbers.
#include "model/logprobs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace tandem::model {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> RandomLogits(int count, float deviation, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> logits(count);
  // Rounded, so that many are equal.
  for (float& logit : logits) logit = std::round(normal(random) * 8) / 8;
  return logits;
}

TEST(LogprobsTest, AreTheLogSoftmaxAndTheLikeliestComeInOrder) {
  for (int round = 0; round < 40; ++round) {
    const std::vector<float> logits = RandomLogits(50 + 400 * round, 0.5f + round % 7, round);
    const double max_logit = *std::max_element(logits.begin(), logits.end());
    double total = 0;
    for (const float logit : logits) total += std::exp(logit - max_logit);
    const auto expected = [&](int32_t token) { return logits[token] - max_logit - std::log(total); };
    std::vector<int32_t> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
    const int num_top = round % (kTopLogprobsMax + 1);
    const int32_t token = order[(round * 37) % order.size()];
    const TokenLogprobs logprobs = LogprobsOf(logits, token, num_top);
    EXPECT_NEAR(logprobs.logprob, expected(token), 2e-6 + 1e-6 * std::fabs(expected(token)));
    ASSERT_EQ(logprobs.num_top, num_top);
    for (int place = 0; place < num_top; ++place) {
      EXPECT_EQ(logprobs.top_tokens[place], order[place]) << round << " " << place;
      EXPECT_NEAR(logprobs.top_logprobs[place], expected(order[place]),
                  2e-6 + 1e-6 * std::fabs(expected(order[place])));
      // A token's number is the same wherever it is read.
      EXPECT_EQ(LogprobsOf(logits, order[place], 0).logprob, logprobs.top_logprobs[place]);
    }
  }
}

TEST(LogprobsTest, ASmallVocabularyHasFewerLikeliestTokens) {
  const TokenLogprobs logprobs = LogprobsOf({0.0f, 1.0f, 0.0f}, 1, 20);
  ASSERT_EQ(logprobs.num_top, 3);
  EXPECT_EQ(logprobs.top_tokens[0], 1);
  EXPECT_EQ(logprobs.top_tokens[1], 0);
  EXPECT_EQ(logprobs.top_tokens[2], 2);
}

TEST(LogprobsTest, ImpossibleTokensAreNotListedAndEveryNumberIsFinite) {
  const TokenLogprobs some = LogprobsOf({kNan, 1.0f, -kInfinity, 1.0f}, 2, 4);
  EXPECT_EQ(some.logprob, kLogprobMin);
  ASSERT_EQ(some.num_top, 2);
  EXPECT_NEAR(some.top_logprobs[0], std::log(0.5), 1e-6);
  const TokenLogprobs certain = LogprobsOf({3e38f, kInfinity, -3e38f, kInfinity}, 0, 4);
  EXPECT_EQ(certain.logprob, kLogprobMin);
  EXPECT_EQ(certain.top_tokens[0], 1);
  EXPECT_EQ(certain.top_tokens[1], 3);
  EXPECT_NEAR(certain.top_logprobs[1], std::log(0.5), 1e-6);
  EXPECT_EQ(certain.top_logprobs[2], kLogprobMin);
  const TokenLogprobs none = LogprobsOf({kNan, -kInfinity}, 0, 2);
  EXPECT_EQ(none.num_top, 0);
  EXPECT_NEAR(none.logprob, std::log(0.5), 1e-6);
}

}  // namespace
}  // namespace tandem::model
