// Proves the drawn token against a brute-force sampler written from the definition with the C library's functions, the
// distribution by chi-square over many positions (fixed seeds, p = 0.001), what penalties, biases and masks do to it,
// and that nothing but the arguments counts.
#include "model/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <set>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
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

// A row with no history.
absl::StatusOr<SampledToken> SampleRow(Sampler& sampler, const std::vector<float>& logits, const SamplingParams& params,
                                       uint32_t choice, int64_t position) {
  const TokenCounts none;
  return sampler.Sample({.logits = logits,
                         .params = params,
                         .counts = none,
                         .masked_tokens = {},
                         .choice = choice,
                         .position = position});
}

int32_t DrawRow(Sampler& sampler, const std::vector<float>& logits, const SamplingParams& params, uint32_t choice = 0,
                int64_t position = 0) {
  const auto sampled = SampleRow(sampler, logits, params, choice, position);
  EXPECT_TRUE(sampled.ok()) << sampled.status();
  return sampled.ok() ? sampled->token : -1;
}

struct NaiveDraw {
  int32_t token = 0;
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
  std::erase_if(draw.kept, [&](int32_t token) {
    draw.is_borderline |= params.min_p > 0 && std::fabs(weight(token) - params.min_p) < 1e-6;
    return weight(token) < params.min_p;
  });
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
  return draw;
}

// Draws at positions 0 .. count - 1 and returns how often each token came.
std::vector<int> Histogram(const std::vector<float>& logits, const SamplingParams& params, int count) {
  Sampler sampler(static_cast<int>(logits.size()));
  std::vector<int> histogram(logits.size());
  for (int position = 0; position < count; ++position) ++histogram[DrawRow(sampler, logits, params, 0, position)];
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
  EXPECT_EQ(DrawRow(sampler, {1, 3, 2, 3, 0}, greedy), 1);
  EXPECT_EQ(DrawRow(sampler, {kNan, -5, kNan, -4, -6}, greedy), 3);
  EXPECT_EQ(DrawRow(sampler, {0, 0, kInfinity, 0, kInfinity}, greedy), 2);
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
                                .seed = uint64_t{random()} << 32 | random(),
                                .min_p = round % 5 == 0 ? 0.001f * (random() % 900) : 0.0f};
    const uint32_t choice = random() % 3;
    const int64_t position = (int64_t{1} << (random() % 40)) + random() % 100;
    const NaiveDraw expected = DrawNaively(logits, params, choice, position);
    if (expected.is_borderline) continue;
    EXPECT_EQ(DrawRow(sampler, logits, params, choice, position), expected.token) << "round " << round;
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
  EXPECT_EQ(Histogram(logits, {.seed = 2, .min_p = 1}, 100)[best], 100);
}

TEST(SamplerTest, MinPKeepsWhatIsThatShareOfTheLikeliest) {
  // Probabilities 0.4, 0.3, 0.2, 0.1; at temperature 0.5 their squares, renormalised.
  std::vector<float> logits;
  for (double p : {0.2, 0.4, 0.1, 0.3}) logits.push_back(static_cast<float>(std::log(p)));
  std::vector<int> histogram = Histogram(logits, {.seed = 3, .min_p = 0.45f}, 20000);
  EXPECT_EQ(histogram[2], 0);
  EXPECT_LT(ChiSquare(histogram, {2 / 9.0, 4 / 9.0, 0, 3 / 9.0}, 20000), 13.8) << "2 degrees of freedom";
  histogram = Histogram(logits, {.temperature = 0.5f, .seed = 3, .min_p = 0.45f}, 20000);
  EXPECT_EQ(histogram[0] + histogram[2], 0);
  EXPECT_LT(ChiSquare(histogram, {0, 16 / 25.0, 0, 9 / 25.0}, 20000), 10.8) << "1 degree of freedom";
  // Equal tokens are kept or cut together.
  histogram = Histogram({1, 1, 0, 1}, {.seed = 3, .min_p = 1}, 2000);
  EXPECT_EQ(histogram[2], 0);
  for (const int token : {0, 1, 3}) EXPECT_GT(histogram[token], 500);
}

TEST(SamplerTest, DependsOnSeedChoiceAndPositionAndNothingElse) {
  const std::vector<float> logits = RandomLogits(1000, 0.1, 6);
  Sampler fresh(1000), used(1000);
  for (int i = 0; i < 10; ++i) DrawRow(used, RandomLogits(1000, 3, i), {.top_p = 0.5f, .top_k = 10, .seed = 1}, 0, i);
  const SamplingParams params{.seed = 0x0123456789abcdef, .wants_logprobs = true, .num_top_logprobs = 5};
  EXPECT_EQ(*SampleRow(fresh, logits, params, 2, 77), *SampleRow(used, logits, params, 2, 77));
  // Near-uniform logits: other noise means another token.
  const int32_t token = DrawRow(fresh, logits, params, 2, 77);
  EXPECT_NE(token, DrawRow(fresh, logits, params, 3, 77));
  EXPECT_NE(token, DrawRow(fresh, logits, params, 2, 78));
  EXPECT_NE(token, DrawRow(fresh, logits, params, 2, 77 + (int64_t{1} << 32)));
  EXPECT_NE(token, DrawRow(fresh, logits, {.seed = 0x0123456789abcdee}, 2, 77));
}

TEST(SamplerTest, ATokenThatIsKeptBothTimesIsDrawnBothTimesUnlessAnotherWins) {
  // The noise is the token's own: cutting tokens away changes a draw only if the drawn token is cut.
  const std::vector<float> logits = RandomLogits(200, 1, 8);
  Sampler sampler(200);
  int num_same = 0;
  for (int position = 0; position < 500; ++position) {
    const SamplingParams all{.seed = 5}, some{.top_k = 50, .seed = 5};
    const int32_t free_token = DrawRow(sampler, logits, all, 0, position);
    const std::vector<int32_t> kept = DrawNaively(logits, some, 0, position).kept;
    if (std::find(kept.begin(), kept.end(), free_token) == kept.end()) continue;
    EXPECT_EQ(DrawRow(sampler, logits, some, 0, position), free_token);
    ++num_same;
  }
  EXPECT_GT(num_same, 200);
}

TEST(SamplerTest, ANearlyZeroTemperatureIsArgmax) {
  const std::vector<float> logits = RandomLogits(1000, 1, 10);
  const int best = static_cast<int>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  for (float temperature : {1e-3f, 1e-20f, std::numeric_limits<float>::denorm_min()}) {
    Sampler sampler(1000);
    EXPECT_EQ(DrawRow(sampler, logits, {.temperature = temperature, .seed = 1}), best) << temperature;
    EXPECT_EQ(DrawRow(sampler, logits, {.temperature = temperature, .top_p = 0.9f, .seed = 1, .min_p = 0.1f}), best);
  }
}

TEST(SamplerTest, SurvivesInfinitiesAndNan) {
  Sampler sampler(4);
  for (const SamplingParams& params :
       std::vector<SamplingParams>{{.seed = 1},
                                   {.top_p = 0.9999f, .top_k = 3, .seed = 1, .min_p = 1e-6f},
                                   {.seed = 1, .repetition_penalty = 2}}) {
    std::set<int32_t> tokens;
    for (int position = 0; position < 200; ++position) {
      tokens.insert(DrawRow(sampler, {kNan, 1, -kInfinity, 1}, params, 0, position));
    }
    EXPECT_EQ(tokens, (std::set<int32_t>{1, 3}));
    tokens.clear();
    for (int position = 0; position < 200; ++position) {
      tokens.insert(DrawRow(sampler, {0, kInfinity, 3e38f, kInfinity}, params, 0, position));
    }
    EXPECT_THAT(tokens, ::testing::IsSubsetOf({1, 3}));
  }
}

// ---- Penalties, biases, masks ----

TEST(SamplerTest, RepetitionPenaltyDividesAboveZeroAndMultipliesBelow) {
  const std::vector<uint32_t> prompt = {0, 2, 2};
  TokenCounts counts(prompt, 4);
  counts.Add(3);
  Sampler sampler(5);
  const auto greedy = [&](const std::vector<float>& logits, float penalty) {
    const SamplingParams params{.temperature = 0, .repetition_penalty = penalty};
    return sampler.Sample({.logits = logits, .params = params, .counts = counts, .masked_tokens = {}})->token;
  };
  EXPECT_EQ(greedy({4, 1, 1, 1, 1}, 3.9f), 0) << "4 / 3.9 is above 1";
  EXPECT_EQ(greedy({4, 1, 1, 1, 1}, 4.1f), 1) << "4 / 4.1 is below 1: a token that was not there";
  EXPECT_EQ(greedy({0, 1, 5, 5, 1}, 1.0f), 2);
  EXPECT_EQ(greedy({0, 1, 5, 5, 1}, 6.0f), 1) << "tokens of prompt and answer alike";
  EXPECT_EQ(greedy({-2, -3, -1, -1, -9}, 2.9f), 2) << "-2.9 is above -3";
  EXPECT_EQ(greedy({-2, -3, -1, -1, -9}, 3.1f), 1) << "-3.1 is below -3";
  EXPECT_EQ(greedy({1, 1.5f, 0, 0, 0}, 0.5f), 0) << "below 1 it prefers what was there";
}

TEST(SamplerTest, FrequencyAndPresencePenaltiesLookAtTheAnswerOnly) {
  const std::vector<uint32_t> prompt = {0, 0, 0};
  TokenCounts counts(prompt, 4);
  for (const int32_t token : {1, 1, 1, 2}) counts.Add(token);
  Sampler sampler(4);
  const auto greedy = [&](const std::vector<float>& logits, float frequency, float presence) {
    const SamplingParams params{.temperature = 0, .frequency_penalty = frequency, .presence_penalty = presence};
    return sampler.Sample({.logits = logits, .params = params, .counts = counts, .masked_tokens = {}})->token;
  };
  EXPECT_EQ(greedy({1, 0, 0, 0.9f}, 2, 2), 0) << "a token of the prompt is not penalised";
  EXPECT_EQ(greedy({0, 3.4f, 2.4f, 2}, 0.4f, 0), 1) << "3.4 - 1.2 against 2.4 - 0.4 and 2";
  EXPECT_EQ(greedy({0, 3.4f, 2.4f, 2}, 0.5f, 0), 3) << "3.4 - 1.5 and 2.4 - 0.5 against 2";
  EXPECT_EQ(greedy({0, 3.4f, 2.4f, 2}, 0, 1.3f), 1) << "3.4 - 1.3, whatever the count";
  EXPECT_EQ(greedy({0, 3.4f, 2.4f, 2}, 0, 1.5f), 3);
  EXPECT_EQ(greedy({1, 0, 0, 0}, -0.5f, 0), 1) << "negative ones ask for repetition";
}

TEST(SamplerTest, ADraftThatWasTakenBackIsNotPenalised) {
  const std::vector<uint32_t> prompt = {7};
  TokenCounts window(prompt, 8), plain(prompt, 8);
  for (const int32_t token : {1, 2}) window.Add(token), plain.Add(token);
  for (const int32_t draft : {2, 5, 9}) window.Add(draft);
  for (const int32_t draft : {9, 5, 2}) window.Remove(draft);
  const std::vector<float> logits = RandomLogits(16, 1, 3);
  const SamplingParams params{.seed = 4, .repetition_penalty = 1.7f, .frequency_penalty = 1, .presence_penalty = 1.5f};
  Sampler sampler(16);
  for (int position = 0; position < 200; ++position) {
    const auto draw = [&](const TokenCounts& counts) {
      return sampler
          .Sample({.logits = logits, .params = params, .counts = counts, .masked_tokens = {}, .position = position})
          ->token;
    };
    EXPECT_EQ(draw(window), draw(plain));
  }
}

TEST(SamplerTest, ABiasOfMinus100IsNeverDrawnAndOneOf100Always) {
  const std::vector<float> logits = {30, 0, 0, 0};
  for (const float temperature : {0.0f, 1.0f, 100.0f}) {
    const std::vector<int> banned =
        Histogram(logits, {.temperature = temperature, .seed = 5, .logit_bias = {{0, kBanBias}}}, 5000);
    EXPECT_EQ(banned[0], 0) << temperature;
    EXPECT_EQ(banned[1] + banned[2] + banned[3], 5000);
  }
  EXPECT_EQ(Histogram(logits, {.seed = 5, .logit_bias = {{2, 100}}}, 1000)[2], 1000);
}

TEST(SamplerTest, ABiasIsAddedToTheLogit) {
  const std::vector<float> logits = {0, 1, 0, 0};
  const std::vector<int> histogram =
      Histogram(logits, {.seed = 6, .logit_bias = {{1, -1}, {3, std::log(5.0f)}}}, 16000);
  EXPECT_LT(ChiSquare(histogram, {1 / 8.0, 1 / 8.0, 1 / 8.0, 5 / 8.0}, 16000), 16.3) << "3 degrees of freedom";
}

TEST(SamplerTest, AMaskedTokenIsNotDrawnAndTheOthersKeepTheirNoise) {
  const std::vector<float> logits = RandomLogits(50, 1, 11);
  Sampler sampler(50);
  const SamplingParams params{.seed = 12};
  const TokenCounts none;
  const std::vector<int32_t> masked = {3, 17, 17, 40};
  int num_other = 0;
  for (int position = 0; position < 2000; ++position) {
    const int32_t free_token = DrawRow(sampler, logits, params, 0, position);
    const int32_t token =
        sampler
            .Sample({.logits = logits, .params = params, .counts = none, .masked_tokens = masked, .position = position})
            ->token;
    EXPECT_THAT(masked, ::testing::Not(::testing::Contains(token)));
    if (std::find(masked.begin(), masked.end(), free_token) == masked.end()) {
      EXPECT_EQ(token, free_token);
    } else {
      ++num_other;
    }
  }
  EXPECT_GT(num_other, 20);
}

TEST(SamplerTest, ARowWithNothingToDrawIsAnErrorThatSaysWhose) {
  Sampler sampler(3);
  const TokenCounts none;
  for (const float temperature : {0.0f, 1.0f}) {
    const SamplingParams bans{.temperature = temperature, .logit_bias = {{0, kBanBias}, {1, kBanBias}}};
    const std::vector<int32_t> masked = {2};
    const absl::Status all_masked =
        sampler.Sample({.logits = {1, 2, 3}, .params = bans, .counts = none, .masked_tokens = masked, .position = 9})
            .status();
    EXPECT_EQ(all_masked.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(absl::StrContains(all_masked.message(), "leave no token to draw at position 9")) << all_masked;
    const absl::Status no_logits =
        SampleRow(sampler, {kNan, -kInfinity, kNan}, {.temperature = temperature}, 0, 9).status();
    EXPECT_EQ(no_logits.code(), absl::StatusCode::kInternal);
    EXPECT_TRUE(absl::StrContains(no_logits.message(), "position 9")) << no_logits;
  }
  EXPECT_EQ(DrawRow(sampler, {1, 2, 3}, {.seed = 1}), DrawRow(sampler, {1, 2, 3}, {.seed = 1})) << "it lives on";
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

}  // namespace
}  // namespace tandem::model
