// Proves the drawn token against a brute-force sampler written from the definition with the C library's functions, the
// distribution by chi-square over many positions (fixed seeds, p = 0.001), and that nothing but the arguments counts.
#include "model/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <set>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "model/philox.h"

namespace tandem::model {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> RandomLogits(int count, double deviation, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, static_cast<float>(deviation));
  std::vector<float> logits(count);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

double NaiveNoise(uint64_t seed, uint32_t choice, int64_t position, int32_t token) {
  const auto words = Philox4x32(seed, {static_cast<uint32_t>(token), static_cast<uint32_t>(position),
                                       static_cast<uint32_t>(position >> 32), choice});
  const double uniform = (std::floor((words[0] * 4294967296.0 + words[1]) / 4096.0) + 0.5) / 4503599627370496.0;
  return -std::log(-std::log(uniform));
}

struct NaiveDraw {
  int32_t token = 0;
  double logprob = 0;
  std::vector<int32_t> kept;   // in order of probability
  bool is_borderline = false;  // the kept set or the winner hangs on the last digits
};

NaiveDraw DrawNaively(const std::vector<float>& logits, const SamplingParams& params, uint32_t choice,
                      int64_t position) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  if (params.top_k > 0 && params.top_k < static_cast<int>(order.size())) order.resize(params.top_k);
  auto weight = [&](int32_t token) {
    return std::exp((static_cast<double>(logits[token]) - logits[order[0]]) / params.temperature);
  };
  double total = 0;
  for (int32_t token : order) total += weight(token);
  NaiveDraw draw;
  double mass = 0;
  for (int32_t token : order) {
    if (params.top_p < 1 && mass >= total * params.top_p) break;
    draw.kept.push_back(token);
    mass += weight(token);
    draw.is_borderline |= params.top_p < 1 && std::fabs(mass / total - params.top_p) < 1e-6;
  }
  double best = -kInfinity, second = -kInfinity;
  for (int32_t token : draw.kept) {
    const double score =
        static_cast<double>(logits[token]) / params.temperature + NaiveNoise(params.seed, choice, position, token);
    if (score > best) {
      second = best;
      best = score;
      draw.token = token;
    } else {
      second = std::max(second, score);
    }
  }
  draw.is_borderline |= best - second < 1e-9;
  draw.logprob = std::log(weight(draw.token) / mass);
  return draw;
}

// Draws at positions 0 .. count - 1 and returns how often each token came.
std::vector<int> Histogram(const std::vector<float>& logits, const SamplingParams& params, int count) {
  Sampler sampler(static_cast<int>(logits.size()));
  std::vector<int> histogram(logits.size());
  for (int position = 0; position < count; ++position) ++histogram[sampler.Sample(logits, params, 0, position).token];
  return histogram;
}

double ChiSquare(const std::vector<int>& histogram, const std::vector<double>& probabilities, int count) {
  double sum = 0;
  for (size_t i = 0; i < histogram.size(); ++i) {
    const double expected = probabilities[i] * count;
    if (expected > 0) sum += (histogram[i] - expected) * (histogram[i] - expected) / expected;
  }
  return sum;
}

TEST(SamplerTest, TemperatureZeroTakesTheHighestLogitAndTheLowerIdOnTies) {
  Sampler sampler(5);
  const SamplingParams greedy{.temperature = 0, .seed = 1};
  EXPECT_EQ(sampler.Sample({1, 3, 2, 3, 0}, greedy, 0, 0).token, 1);
  EXPECT_EQ(sampler.Sample({kNan, -5, kNan, -4, -6}, greedy, 0, 0).token, 3);
  EXPECT_EQ(sampler.Sample({kNan, kNan, kNan, kNan, kNan}, greedy, 0, 0).token, 0);
  EXPECT_EQ(sampler.Sample({0, 0, kInfinity, 0, kInfinity}, greedy, 0, 0).token, 2);
  const SampledToken drawn = sampler.Sample({1, 3, 2, 3, 0}, greedy, 0, 0);
  const double total = 2 * std::exp(3) + std::exp(2) + std::exp(1) + 1;
  EXPECT_NEAR(drawn.logprob, 3 - std::log(total), 1e-6);
}

TEST(SamplerTest, DrawsWhatTheDefinitionSays) {
  std::mt19937 random(5);
  Sampler sampler(1000);
  int num_compared = 0, num_filtered = 0;
  for (int round = 0; round < 400; ++round) {
    const std::vector<float> logits = RandomLogits(1000, 1 + round % 7, round);
    const SamplingParams params{.temperature = 0.2f + 0.1f * (random() % 15),
                                .top_p = round % 3 == 0 ? 1.0f : 0.05f + 0.9f * (random() % 1000) / 1000.0f,
                                .top_k = round % 4 == 0 ? 0 : static_cast<int>(1 + random() % 1100),
                                .seed = uint64_t{random()} << 32 | random()};
    const uint32_t choice = random() % 3;
    const int64_t position = (int64_t{1} << (random() % 40)) + random() % 100;
    const NaiveDraw expected = DrawNaively(logits, params, choice, position);
    if (expected.is_borderline) continue;
    const SampledToken drawn = sampler.Sample(logits, params, choice, position);
    EXPECT_EQ(drawn.token, expected.token) << "round " << round;
    EXPECT_NEAR(drawn.logprob, expected.logprob, 1e-5) << "round " << round;
    ++num_compared;
    num_filtered += expected.kept.size() < 1000;
  }
  EXPECT_GT(num_compared, 380);
  EXPECT_GT(num_filtered, 250);
}

TEST(SamplerTest, FollowsTheSoftmaxAtItsTemperature) {
  const std::vector<float> logits = {0.5f, -1.0f, 2.0f, 0.0f, 1.0f, -3.0f, 1.5f, 0.25f};
  for (float temperature : {0.5f, 1.0f, 2.0f}) {
    std::vector<double> probabilities;
    double total = 0;
    for (float logit : logits) total += std::exp(logit / temperature);
    for (float logit : logits) probabilities.push_back(std::exp(logit / temperature) / total);
    const std::vector<int> histogram = Histogram(logits, {.temperature = temperature, .seed = 77}, 40000);
    EXPECT_LT(ChiSquare(histogram, probabilities, 40000), 24.3) << "7 degrees of freedom, temperature " << temperature;
  }
}

TEST(SamplerTest, RenormalisesWithinTheKeptSet) {
  // Probabilities 0.4, 0.3, 0.2, 0.1: top_p 0.65 keeps two, top_k 3 keeps three.
  std::vector<float> logits;
  for (double p : {0.2, 0.4, 0.1, 0.3}) logits.push_back(static_cast<float>(std::log(p)));
  std::vector<int> histogram = Histogram(logits, {.top_p = 0.65f, .seed = 3}, 20000);
  EXPECT_EQ(histogram[0] + histogram[2], 0);
  EXPECT_LT(ChiSquare(histogram, {0, 4 / 7.0, 0, 3 / 7.0}, 20000), 10.8) << "1 degree of freedom";
  histogram = Histogram(logits, {.top_k = 3, .seed = 3}, 20000);
  EXPECT_EQ(histogram[2], 0);
  EXPECT_LT(ChiSquare(histogram, {2 / 9.0, 4 / 9.0, 0, 3 / 9.0}, 20000), 13.8) << "2 degrees of freedom";
  // Of the three that top_k keeps, 0.4 / 0.9 is below 0.5 and 0.7 / 0.9 above: top_p counts within them.
  histogram = Histogram(logits, {.top_p = 0.75f, .top_k = 3, .seed = 3}, 2000);
  EXPECT_EQ(histogram[0] + histogram[2], 0);
}

TEST(SamplerTest, KeepsTheLowerIdsAmongEqualLogits) {
  const std::vector<float> logits(48, 1.25f);
  std::vector<int> histogram = Histogram(logits, {.top_k = 7, .seed = 9}, 2000);
  for (int token = 0; token < 48; ++token) EXPECT_EQ(histogram[token] > 0, token < 7) << token;
  histogram = Histogram(logits, {.top_p = 0.125f, .seed = 9}, 2000);
  for (int token = 0; token < 48; ++token) EXPECT_EQ(histogram[token] > 0, token < 6) << token;
}

TEST(SamplerTest, KeepsOneTokenHoweverSmallTopPIs) {
  const std::vector<float> logits = RandomLogits(100, 1, 4);
  const int best = static_cast<int>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  EXPECT_EQ(Histogram(logits, {.top_p = 1e-9f, .seed = 2}, 100)[best], 100);
  EXPECT_EQ(Histogram(logits, {.top_k = 1, .seed = 2}, 100)[best], 100);
  Sampler sampler(100);
  EXPECT_EQ(sampler.Sample(logits, {.top_k = 1, .seed = 2}, 0, 0).logprob, 0);
}

TEST(SamplerTest, DependsOnSeedChoiceAndPositionAndNothingElse) {
  const std::vector<float> logits = RandomLogits(1000, 0.1, 6);
  Sampler fresh(1000), used(1000);
  for (int i = 0; i < 10; ++i) used.Sample(RandomLogits(1000, 3, i), {.top_p = 0.5f, .top_k = 10, .seed = 1}, 0, i);
  const SamplingParams params{.seed = 0x0123456789abcdef};
  EXPECT_EQ(fresh.Sample(logits, params, 2, 77), used.Sample(logits, params, 2, 77));
  // Near-uniform logits: other noise means another token.
  const int32_t token = fresh.Sample(logits, params, 2, 77).token;
  EXPECT_NE(token, fresh.Sample(logits, params, 3, 77).token);
  EXPECT_NE(token, fresh.Sample(logits, params, 2, 78).token);
  EXPECT_NE(token, fresh.Sample(logits, params, 2, 77 + (int64_t{1} << 32)).token);
  EXPECT_NE(token, fresh.Sample(logits, {.seed = 0x0123456789abcdee}, 2, 77).token);
}

TEST(SamplerTest, ATokenThatIsKeptBothTimesIsDrawnBothTimesUnlessAnotherWins) {
  // The noise is the token's own: cutting tokens away changes a draw only if the drawn token is cut.
  const std::vector<float> logits = RandomLogits(200, 1, 8);
  Sampler sampler(200);
  int num_same = 0;
  for (int position = 0; position < 500; ++position) {
    const SamplingParams all{.seed = 5}, some{.top_k = 50, .seed = 5};
    const int32_t free_token = sampler.Sample(logits, all, 0, position).token;
    const std::vector<int32_t> kept = DrawNaively(logits, some, 0, position).kept;
    if (std::find(kept.begin(), kept.end(), free_token) == kept.end()) continue;
    EXPECT_EQ(sampler.Sample(logits, some, 0, position).token, free_token);
    ++num_same;
  }
  EXPECT_GT(num_same, 200);
}

TEST(SamplerTest, ANearlyZeroTemperatureIsArgmax) {
  const std::vector<float> logits = RandomLogits(1000, 1, 10);
  const int best = static_cast<int>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  for (float temperature : {1e-3f, 1e-20f, std::numeric_limits<float>::denorm_min()}) {
    Sampler sampler(1000);
    EXPECT_EQ(sampler.Sample(logits, {.temperature = temperature, .seed = 1}, 0, 0).token, best) << temperature;
  }
}

TEST(SamplerTest, SurvivesInfinitiesAndNan) {
  Sampler sampler(4);
  std::set<int32_t> tokens;
  for (int position = 0; position < 200; ++position) {
    const SampledToken drawn = sampler.Sample({kNan, 1, -kInfinity, 1}, {.seed = 1}, 0, position);
    tokens.insert(drawn.token);
    EXPECT_NEAR(drawn.logprob, std::log(0.5), 1e-6);
  }
  EXPECT_EQ(tokens, (std::set<int32_t>{1, 3}));
  EXPECT_EQ(sampler.Sample({0, kInfinity, 0, kInfinity}, {.seed = 1}, 0, 0).token, 1);
  const SampledToken nothing = sampler.Sample({kNan, kNan, -kInfinity, kNan}, {.top_p = 0.5f, .seed = 1}, 0, 0);
  EXPECT_GE(nothing.token, 0);
  EXPECT_LT(nothing.token, 4);
  EXPECT_FALSE(std::isnan(nothing.logprob));
}

TEST(GumbelNoiseTest, IsTheDefinitionsNoise) {
  double sum = 0;
  for (int i = 0; i < 20000; ++i) {
    const double noise = GumbelNoise(1234567890123, i % 3, int64_t{1} << (i % 45), i);
    EXPECT_NEAR(noise, NaiveNoise(1234567890123, i % 3, int64_t{1} << (i % 45), i), 1e-12 * (1 + std::fabs(noise)));
    sum += noise;
  }
  EXPECT_NEAR(sum / 20000, 0.5772156649, 5 * 1.2825 / std::sqrt(20000.0)) << "Euler's constant, five standard errors";
}

TEST(ValidateSamplingParamsTest, NamesFieldValueAndRange) {
  EXPECT_TRUE(ValidateSamplingParams({}).ok());
  EXPECT_TRUE(ValidateSamplingParams({.temperature = 0, .top_p = 0.01f, .top_k = 1}).ok());
  const std::pair<SamplingParams, const char*> cases[] = {
      {{.temperature = -1}, "temperature is -1, allowed 0 to 100"},
      {{.temperature = kNan}, "temperature is nan"},
      {{.temperature = kInfinity}, "temperature is inf"},
      {{.top_p = 0}, "top_p is 0, allowed above 0 to 1"},
      {{.top_p = 1.5f}, "top_p is 1.5"},
      {{.top_p = kNan}, "top_p is nan"},
      {{.top_k = -1}, "top_k is -1, at least 0"},
  };
  for (const auto& [params, message] : cases) {
    const absl::Status status = ValidateSamplingParams(params);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(absl::StrContains(status.message(), message)) << status;
  }
}

}  // namespace
}  // namespace tandem::model
