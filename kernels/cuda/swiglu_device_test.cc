// SwiGlu and IndexWeights on the device have the CPU's bits, the exponential's included.
#include "kernels/cuda/device_testing.h"
#include "kernels/cuda/ops.h"
#include "kernels/op_testing.h"
#include "kernels/ops.h"

namespace tandem::kernels::cuda {
namespace {

constexpr Placement kPlacements[] = {{}, {.row_gap = 128}, {.row_gap = 3, .offset = 1}};

class SwiGluDeviceTest : public DeviceTest {
 protected:
  void Compare(absl::string_view what, Tensor<Bf16, 2>& gate, Tensor<Bf16, 2>& up) {
    Tensor<Bf16, 2> expected({gate.dim(0), gate.dim(1)});
    ASSERT_TRUE(kernels::SwiGlu({.gate = gate, .up = up, .y = expected}).ok());
    for (const Placement& placement : kPlacements) {
      auto device_gate = Upload(gate, placement);
      auto device_up = Upload(up, placement);
      auto y = Output<Bf16, 2>({gate.dim(0), gate.dim(1)}, placement);
      RunOp(SwiGlu(stream(), {.gate = device_gate, .up = device_up, .y = y}));
      const std::string name = absl::StrCat("SwiGlu ", what, " gap ", placement.row_gap);
      ExpectSameBits(name, y.Download(), expected);
      RunOp(SwiGlu(stream(), {.gate = device_gate, .up = device_up, .y = device_gate}));
      ExpectSameBits(name + " in place", device_gate.Download(), expected);
    }
  }
};

TEST_F(SwiGluDeviceTest, RandomRowsAreTheCpus) {
  Source source(1);
  for (const int64_t dim : {16, 48, 2048, 18432}) {
    for (const int64_t num_rows : {0, 1, 3, 65}) {
      Tensor<Bf16, 2> gate = source.NormalBf16<2>({num_rows, dim}, 4), up = source.NormalBf16<2>({num_rows, dim});
      Compare("random", gate, up);
    }
  }
}

TEST_F(SwiGluDeviceTest, EveryGateIsTheCpus) {
  Source source(2);
  Tensor<Bf16, 2> gate({64, 1024}), up = source.NormalBf16<2>({64, 1024});
  for (int64_t i = 0; i < gate.size(); ++i) gate[i] = Bf16{static_cast<uint16_t>(i)};  // all 65,536
  Compare("all gates", gate, up);
}

TEST_F(SwiGluDeviceTest, GateAndUpMayBeHalvesOfOneTensor) {
  Source source(3);
  Tensor<Bf16, 2> both = source.NormalBf16<2>({5, 512});
  Tensor<Bf16, 2> expected({5, 256});
  ASSERT_TRUE(
      kernels::SwiGlu({.gate = both.view().Columns(0, 256), .up = both.view().Columns(256, 256), .y = expected}).ok());
  auto device_both = Upload(both);
  auto y = Output<Bf16, 2>({5, 256});
  RunOp(SwiGlu(stream(),
               {.gate = device_both.view().Columns(0, 256), .up = device_both.view().Columns(256, 256), .y = y}));
  ExpectSameBits("SwiGlu halves", y.Download(), expected);
}

TEST_F(SwiGluDeviceTest, IndexWeightsAreTheCpus) {
  Source source(4);
  for (const auto& [num_rows, num_heads] : {std::pair<int64_t, int64_t>{0, 64}, {1, 64}, {7, 3}, {65, 64}}) {
    Tensor<float, 2> projected = source.NormalF32<2>({num_rows, num_heads});
    Tensor<float, 2> q_scale = source.PowersOfTwo<2>({num_rows, num_heads}, -12, -3);
    if (num_rows > 1) projected.at(1, 2) = std::numeric_limits<float>::quiet_NaN();
    Tensor<float, 2> expected({num_rows, num_heads});
    ASSERT_TRUE(kernels::IndexWeights({.projected = projected, .q_scale = q_scale, .weights = expected}).ok());
    for (const Placement& placement : kPlacements) {
      auto device_projected = Upload(projected, placement);
      auto device_q_scale = Upload(q_scale);
      auto weights = Output<float, 2>({num_rows, num_heads}, placement);
      IndexWeightsArgs args = {.projected = device_projected, .q_scale = device_q_scale, .weights = weights};
      RunOp(IndexWeights(stream(), args));
      ExpectSameBits(absl::StrCat("IndexWeights gap ", placement.row_gap), weights.Download(), expected);
      args.weights = device_projected;
      RunOp(IndexWeights(stream(), args));
      ExpectSameBits("IndexWeights in place", device_projected.Download(), expected);
    }
  }
}

TEST_F(SwiGluDeviceTest, RefusesShapesThatDoNotFit) {
  auto gate = Output<Bf16, 2>({2, 24});
  EXPECT_EQ(SwiGlu(stream(), {.gate = gate, .up = gate, .y = gate}).message(),
            "SwiGlu: dim is 24, must be a positive multiple of 16");
}

}  // namespace
}  // namespace tandem::kernels::cuda
