// Proves routing against a statement of noaux_tc with sorts in double, its ties and its special cases.
#include <cmath>
#include <limits>
#include <set>

#include "kernels/op_testing.h"

namespace tandem::kernels {
namespace {

struct Routing {
  std::vector<int32_t> ids;
  std::vector<float> weights;
};
struct Rules {
  int n_group = 1;
  int topk_group = 1;
  int top_k = 2;
  bool norm_topk_prob = true;
  float scaling = 1;
};

Routing Route(std::vector<float> logits, std::vector<float> bias, const Rules& rules) {
  const auto count = static_cast<int64_t>(logits.size());
  Tensor<int32_t, 2> ids({1, rules.top_k});
  Tensor<float, 2> weights({1, rules.top_k});
  const absl::Status status =
      MoeRouter({.logits = Matrix<const float>(logits.data(), {1, count}),
                 .bias = bias.empty() ? Vector<const float>() : Vector<const float>(bias.data(), {count}),
                 .n_group = rules.n_group,
                 .topk_group = rules.topk_group,
                 .norm_topk_prob = rules.norm_topk_prob,
                 .routed_scaling_factor = rules.scaling,
                 .expert_ids = ids,
                 .weights = weights});
  EXPECT_TRUE(status.ok()) << status;
  return {ids.values(), weights.values()};
}

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// Indices of the count largest values among candidates, lower index first on ties.
std::vector<int> Largest(const std::vector<double>& values, std::vector<int> candidates, int count) {
  std::stable_sort(candidates.begin(), candidates.end(), [&](int a, int b) { return values[a] > values[b]; });
  candidates.resize(static_cast<size_t>(count));
  return candidates;
}

TEST(MoeRouterTest, FollowsTheRulesOnRandomLogits) {
  Source source(1);
  for (int trial = 0; trial < 500; ++trial) {
    const bool has_bias = trial % 3 != 0;
    const Rules rules =
        trial % 5 == 0 ? Rules{.top_k = 4} : Rules{.n_group = 8, .topk_group = 4, .top_k = 8, .scaling = 2.5f};
    std::vector<float> logits(64), bias(has_bias ? 64 : 0);
    for (float& logit : logits) logit = source.Normal(2);
    for (float& b : bias) b = source.Uniform(-1.5f, 0.2f);  // mostly negative: a mask of 0 instead of -inf would show
    const Routing routing = Route(logits, bias, rules);

    std::vector<double> p, b;
    for (size_t e = 0; e < 64; ++e) {
      p.push_back(Sigmoid(logits[e]));
      b.push_back(p[e] + (has_bias ? bias[e] : 0));
    }
    const int group_size = 64 / rules.n_group;
    std::vector<double> group_scores;
    std::vector<int> groups;
    for (int g = 0; g < rules.n_group; ++g) {
      std::vector<double> members(b.begin() + g * group_size, b.begin() + (g + 1) * group_size);
      std::sort(members.rbegin(), members.rend());
      group_scores.push_back(has_bias ? members[0] + members[1] : members[0]);
      groups.push_back(g);
    }
    std::vector<int> candidates;
    for (int g : Largest(group_scores, groups, rules.topk_group)) {
      for (int e = g * group_size; e < (g + 1) * group_size; ++e) candidates.push_back(e);
    }
    std::sort(candidates.begin(), candidates.end());
    std::vector<int> expected = Largest(b, candidates, rules.top_k);
    std::sort(expected.begin(), expected.end());
    ASSERT_EQ(std::vector<int>(routing.ids.begin(), routing.ids.end()), expected) << trial;
    double sum = 0;
    for (int e : expected) sum += p[e];
    for (size_t j = 0; j < expected.size(); ++j) {
      EXPECT_NEAR(routing.weights[j], p[expected[j]] / sum * rules.scaling, 1e-6 * rules.scaling);
    }
  }
}

TEST(MoeRouterTest, TiesGoToTheLowerId) {
  EXPECT_EQ(Route({0, 0, 0, 0}, {}, {.top_k = 2}).ids, (std::vector<int32_t>{0, 1}));
  // All groups equal: the first two are kept.
  EXPECT_EQ(
      Route(std::vector<float>(8, 1.0f), std::vector<float>(8, 0.1f), {.n_group = 4, .topk_group = 2, .top_k = 3}).ids,
      (std::vector<int32_t>{0, 1, 2}));
}

TEST(MoeRouterTest, BiasSelectsButDoesNotWeigh) {
  const Routing routing = Route({3, 2, -1, -2}, {0, 0, 0, 1}, {.top_k = 2, .norm_topk_prob = false, .scaling = 2});
  EXPECT_EQ(routing.ids, (std::vector<int32_t>{0, 3}));
  EXPECT_NEAR(routing.weights[0], 2 * Sigmoid(3), 1e-6);
  EXPECT_NEAR(routing.weights[1], 2 * Sigmoid(-2), 1e-6);
}

TEST(MoeRouterTest, WithoutBiasAGroupCountsItsBestExpertOnly) {
  // Group 0 has the best single expert, group 1 the better pair.
  const std::vector<float> logits = {5, -9, 2, 2};
  const Rules rules = {.n_group = 2, .topk_group = 1, .top_k = 1};
  EXPECT_EQ(Route(logits, {}, rules).ids, (std::vector<int32_t>{0}));
  EXPECT_EQ(Route(logits, {0, 0, 0, 0}, rules).ids, (std::vector<int32_t>{2}));
}

TEST(MoeRouterTest, NanLogitsStillGiveDistinctExperts) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(Route({nan, 1, nan, 2}, {}, {.top_k = 2}).ids, (std::vector<int32_t>{1, 3}));
  const Routing all =
      Route(std::vector<float>(8, nan), std::vector<float>(8, 0.0f), {.n_group = 4, .topk_group = 2, .top_k = 3});
  EXPECT_EQ(std::set<int32_t>(all.ids.begin(), all.ids.end()).size(), 3u);
}

TEST(MoeRouterTest, RefusesMoreExpertsThanItsGroupsHave) {
  Tensor<float, 2> logits({1, 16}), weights({1, 5});
  Tensor<int32_t, 2> ids({1, 5});
  EXPECT_EQ(
      MoeRouter({.logits = logits, .bias = {}, .n_group = 4, .topk_group = 1, .expert_ids = ids, .weights = weights})
          .message(),
      "MoeRouter: top_k is 5, must be in [1, experts of topk_group groups]");
}

}  // namespace
}  // namespace tandem::kernels
