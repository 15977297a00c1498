// MoeRouter on the device has the CPU's ids and the CPU's weights, bit for bit, ties and NaN included.
#include "kernels/cuda/device_testing.h"
#include "kernels/cuda/ops.h"
#include "kernels/op_testing.h"
#include "kernels/ops.h"

namespace tandem::kernels::cuda {
namespace {

constexpr Placement kPlacements[] = {{}, {.row_gap = 3, .offset = 1}};
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Routing {
  int num_experts, n_group, topk_group, top_k;
  bool has_bias = true, norm_topk_prob = true;
  float routed_scaling_factor = 2.5f;
};
constexpr Routing kRoutings[] = {
    {.num_experts = 256, .n_group = 8, .topk_group = 4, .top_k = 8},  // V3
    {.num_experts = 256, .n_group = 8, .topk_group = 4, .top_k = 8, .has_bias = false},
    {.num_experts = 8, .n_group = 4, .topk_group = 2, .top_k = 2},
    {.num_experts = 8, .n_group = 8, .topk_group = 3, .top_k = 3},  // groups of one
    {.num_experts = 64, .n_group = 1, .topk_group = 1, .top_k = 6, .norm_topk_prob = false},
    {.num_experts = 160, .n_group = 5, .topk_group = 2, .top_k = 64},
    {.num_experts = 257, .n_group = 1, .topk_group = 1, .top_k = 257},
    {.num_experts = 1024, .n_group = 64, .topk_group = 40, .top_k = 40},
    {.num_experts = 1024, .n_group = 512, .topk_group = 100, .top_k = 33},
    {.num_experts = 1, .n_group = 1, .topk_group = 1, .top_k = 1},
};

class MoeRouterDeviceTest : public DeviceTest {
 protected:
  void Compare(absl::string_view what, const Routing& routing, Tensor<float, 2>& logits, Tensor<float, 1>& bias) {
    const int64_t num_rows = logits.dim(0);
    Tensor<int32_t, 2> expected_ids({num_rows, routing.top_k});
    Tensor<float, 2> expected_weights({num_rows, routing.top_k});
    MoeRouterArgs args = {.logits = logits,
                          .n_group = routing.n_group,
                          .topk_group = routing.topk_group,
                          .norm_topk_prob = routing.norm_topk_prob,
                          .routed_scaling_factor = routing.routed_scaling_factor,
                          .expert_ids = expected_ids,
                          .weights = expected_weights};
    if (routing.has_bias) args.bias = bias;
    ASSERT_TRUE(kernels::MoeRouter(args).ok()) << kernels::MoeRouter(args);
    auto device_bias = Upload(bias);
    for (const Placement& placement : kPlacements) {
      auto device_logits = Upload(logits, placement);
      auto ids = Output<int32_t, 2>({num_rows, routing.top_k}, placement);
      auto weights = Output<float, 2>({num_rows, routing.top_k}, placement);
      MoeRouterArgs device_args = args;
      device_args.logits = device_logits;
      device_args.bias = routing.has_bias ? Vector<const float>(device_bias) : Vector<const float>();
      device_args.expert_ids = ids;
      device_args.weights = weights;
      RunOp(MoeRouter(stream(), device_args));
      const std::string name = absl::StrCat("MoeRouter ", what, " ", routing.num_experts, "/", routing.n_group, "/",
                                            routing.topk_group, "/", routing.top_k, " gap ", placement.row_gap);
      ExpectSameBytes(name + " ids", ids.Download(), expected_ids);
      ExpectSameBits(name + " weights", weights.Download(), expected_weights);
    }
  }
};

TEST_F(MoeRouterDeviceTest, RandomRowsAreTheCpus) {
  Source source(1);
  for (const Routing& routing : kRoutings) {
    Tensor<float, 1> bias = source.NormalF32<1>({routing.num_experts}, 0.1f);
    for (const int64_t num_rows : {0, 1, 300}) {
      Tensor<float, 2> logits = source.NormalF32<2>({num_rows, routing.num_experts}, 2);
      Compare("random", routing, logits, bias);
    }
  }
}

// Few distinct values: ties within groups, between groups and at the last place.
TEST_F(MoeRouterDeviceTest, TiesGoToTheLowerId) {
  Source source(2);
  for (const Routing& routing : kRoutings) {
    Tensor<float, 1> bias({routing.num_experts});
    for (float& value : bias.values()) value = static_cast<float>(source.Below(2)) * 0.25f;
    Tensor<float, 2> logits({100, routing.num_experts});
    for (int64_t i = 0; i < logits.size(); ++i) {
      logits[i] = i < routing.num_experts ? 0.5f : static_cast<float>(source.Below(3)) - 1;  // row 0: all equal
    }
    Compare("ties", routing, logits, bias);
  }
}

TEST_F(MoeRouterDeviceTest, NanAndInfinityStayInTheirRow) {
  Source source(3);
  for (const Routing& routing : kRoutings) {
    Tensor<float, 1> bias = source.NormalF32<1>({routing.num_experts}, 0.1f);
    Tensor<float, 2> logits = source.NormalF32<2>({6, routing.num_experts});
    for (int64_t e = 0; e < routing.num_experts; ++e) {
      if (e % 3 == 0) logits.at(1, e) = std::numeric_limits<float>::quiet_NaN();
      logits.at(2, e) = std::numeric_limits<float>::quiet_NaN();
      if (e % 5 == 0) logits.at(3, e) = kInfinity;
      logits.at(4, e) = -kInfinity;
      logits.at(5, e) = e % 2 == 0 ? 90 : -90;  // where the sigmoid is one, and where it is zero
    }
    Compare("NaN", routing, logits, bias);
  }
}

TEST_F(MoeRouterDeviceTest, RefusesGroupsThatDoNotFit) {
  auto logits = Output<float, 2>({1, 10});
  auto ids = Output<int32_t, 2>({1, 2});
  auto weights = Output<float, 2>({1, 2});
  EXPECT_EQ(MoeRouter(stream(), {.logits = logits, .n_group = 3, .expert_ids = ids, .weights = weights}).message(),
            "MoeRouter: n_group is 3, must be a divisor of num_experts");
}

}  // namespace
}  // namespace tandem::kernels::cuda
