// Rope and Hadamard128 on the device have the CPU's bits.
#include "kernels/cuda/device_testing.h"
#include "kernels/cuda/ops.h"
#include "kernels/op_testing.h"
#include "kernels/ops.h"

namespace tandem::kernels::cuda {
namespace {

// Gaps of 128 are the rotary parts of wider heads.
constexpr Placement kPlacements[] = {{}, {.row_gap = 128}, {.row_gap = 3, .offset = 1}};
constexpr int64_t kPositions = 5000;

class RopeDeviceTest : public DeviceTest {};

TEST_F(RopeDeviceTest, BothLayoutsAreTheCpus) {
  Source source(1);
  Tensor<float, 2> table({kPositions, 64});
  ASSERT_TRUE(BuildRopeTable({.yarn = {}, .table = table}).ok());
  auto device_table = Upload(table);
  for (const RopeLayout layout : {RopeLayout::kInterleaved, RopeLayout::kHalfSplit}) {
    for (const auto& [num_rows, num_heads] : {std::pair<int64_t, int64_t>{0, 4}, {1, 1}, {3, 5}, {65, 128}}) {
      Tensor<Bf16, 3> x = source.NormalBf16<3>({num_rows, num_heads, 64});
      Tensor<int32_t, 1> positions({num_rows});
      for (int32_t& position : positions.values()) position = static_cast<int32_t>(source.Below(kPositions));
      if (num_rows > 1) {
        positions[0] = 0;
        positions[1] = kPositions - 1;
        x.at(1, 0, 5) = Bf16{0x7fc0};  // NaN: its pair alone
        x.at(1, 0, 40) = Bf16{0x7f80};
        x.at(0, 0, 2) = Bf16{0x8000};
      }
      Tensor<Bf16, 3> expected({num_rows, num_heads, 64});
      ASSERT_TRUE(
          kernels::Rope({.layout = layout, .x = x, .positions = positions, .table = table, .y = expected}).ok());
      auto device_positions = Upload(positions);
      for (const Placement& placement : kPlacements) {
        auto device_x = Upload(x, placement);
        auto y = Output<Bf16, 3>({num_rows, num_heads, 64}, placement);
        RopeArgs args = {.layout = layout, .x = device_x, .positions = device_positions, .table = device_table, .y = y};
        RunOp(Rope(stream(), args));
        const std::string what = absl::StrCat(
            layout == RopeLayout::kInterleaved ? "Rope interleaved" : "Rope half-split", " gap ", placement.row_gap);
        ExpectSameBits(what, y.Download(), expected);
        args.y = device_x;
        RunOp(Rope(stream(), args));
        ExpectSameBits(what + " in place", device_x.Download(), expected);
      }
    }
  }
}

TEST_F(RopeDeviceTest, HadamardIsTheCpus) {
  Source source(2);
  for (const auto& [num_rows, num_heads] : {std::pair<int64_t, int64_t>{0, 4}, {1, 1}, {3, 5}, {65, 64}}) {
    Tensor<Bf16, 3> x = source.NormalBf16<3>({num_rows, num_heads, 128});
    if (num_rows > 1) {
      x.at(1, 0, 77) = Bf16{0x7fc0};
      for (int64_t i = 0; i < 128; ++i) x.at(2, 1, i) = Bf16{0x8000};
    }
    Tensor<Bf16, 3> expected({num_rows, num_heads, 128});
    ASSERT_TRUE(kernels::Hadamard128({.x = x, .y = expected}).ok());
    for (const Placement& placement : kPlacements) {
      auto device_x = Upload(x, placement);
      auto y = Output<Bf16, 3>({num_rows, num_heads, 128}, placement);
      RunOp(Hadamard128(stream(), {.x = device_x, .y = y}));
      ExpectSameBits(absl::StrCat("Hadamard128 gap ", placement.row_gap), y.Download(), expected);
      RunOp(Hadamard128(stream(), {.x = device_x, .y = device_x}));
      ExpectSameBits(absl::StrCat("Hadamard128 in place, gap ", placement.row_gap), device_x.Download(), expected);
    }
  }
}

TEST_F(RopeDeviceTest, RefusesShapesThatDoNotFit) {
  auto x = Output<Bf16, 3>({2, 3, 32});
  auto positions = Output<int32_t, 1>({2});
  auto table = Output<float, 2>({8, 64});
  EXPECT_EQ(Rope(stream(), {.x = x, .positions = positions, .table = table, .y = x}).message(),
            "Rope: x is [2, 3, 32], must be [2, 3, 64]");
  EXPECT_EQ(Hadamard128(stream(), {.x = x, .y = x}).message(), "Hadamard128: x is [2, 3, 32], must be [2, 3, 128]");
}

}  // namespace
}  // namespace tandem::kernels::cuda
