// Proves that each instruction set level gives the bits of the documented order, written here as plain scalar loops,
// for row counts that meet every register tile and its remainders.
#include "kernels/reference/lane_kernels.h"

#include <cmath>

#include "kernels/reference/op_testing.h"

namespace tandem::kernels {
namespace {

constexpr int kLaneCount = 16;

class LaneKernelsTest : public testing::TestWithParam<LaneLevel> {
 protected:
  void SetUp() override {
    kernels_ = LaneKernelsAt(GetParam());
    if (kernels_ == nullptr) GTEST_SKIP() << "this machine lacks the instruction set level";
  }
  const LaneKernels* kernels_ = nullptr;
};

std::vector<float> LaneSums(const float* x, const float* w, int64_t dim, std::vector<float> sums) {
  for (int64_t k = 0; k < dim; ++k) sums[static_cast<size_t>(k % kLaneCount)] += x[k] * w[k];
  return sums;
}
float Tree(std::vector<float> lanes) {
  for (size_t half = kLaneCount / 2; half >= 1; half /= 2) {
    for (size_t l = 0; l < half; ++l) lanes[l] = lanes[l] + lanes[l + half];
  }
  return lanes[0];
}

constexpr int64_t kDim = 128;
constexpr int64_t kStride = 144;
constexpr int kRowsMax = 11;

struct Operands {
  explicit Operands(uint32_t seed)
      : source(seed), x(source.NormalF32<2>({kRowsMax, kStride})), w(source.NormalF32<2>({kRowsMax, kStride})) {}
  Source source;
  Tensor<float, 2> x;
  Tensor<float, 2> w;
};

TEST_P(LaneKernelsTest, DotIsLaneSumsThenTheTree) {
  Operands operands(1);
  for (int num_x = 1; num_x <= kRowsMax; ++num_x) {
    for (int num_w = 1; num_w <= kRowsMax; ++num_w) {
      Tensor<float, 2> y({num_x, 16});
      kernels_->dot({&operands.x[0], kStride, num_x}, {&operands.w[0], kStride, num_w}, kDim, &y[0], 16);
      for (int i = 0; i < num_x; ++i) {
        for (int j = 0; j < num_w; ++j) {
          const auto sums = LaneSums(&operands.x.at(i, 0), &operands.w.at(j, 0), kDim, std::vector<float>(kLaneCount));
          ASSERT_EQ(y.at(i, j), Tree(sums)) << num_x << " x " << num_w;
        }
      }
    }
  }
}

TEST_P(LaneKernelsTest, DotAccumulateGoesOnLaneByLane) {
  Operands operands(2);
  Tensor<float, 3> sums = operands.source.NormalF32<3>({kRowsMax, 12, kLaneCount});
  Tensor<float, 3> expected = sums;
  kernels_->dot_accumulate({&operands.x[0], kStride, kRowsMax}, {&operands.w[0], kStride, 10}, kDim, &sums[0], 12);
  for (int i = 0; i < kRowsMax; ++i) {
    for (int j = 0; j < 10; ++j) {
      const std::vector<float> start(&expected.at(i, j, 0), &expected.at(i, j, 0) + kLaneCount);
      const auto lanes = LaneSums(&operands.x.at(i, 0), &operands.w.at(j, 0), kDim, start);
      std::copy(lanes.begin(), lanes.end(), &expected.at(i, j, 0));
    }
  }
  EXPECT_TRUE(sums == expected);
}

TEST_P(LaneKernelsTest, DotAccumulateScaledAddsTheScaledBlock) {
  Operands operands(3);
  Tensor<float, 1> x_scale = operands.source.NormalF32<1>({kRowsMax});
  const float w_scale = 0.37f;
  Tensor<float, 3> sums = operands.source.NormalF32<3>({kRowsMax, 12, kLaneCount});
  Tensor<float, 3> expected = sums;
  kernels_->dot_accumulate_scaled({&operands.x[0], kStride, kRowsMax}, {&operands.w[0], kStride, 9}, kDim, &x_scale[0],
                                  w_scale, &sums[0], 12);
  for (int i = 0; i < kRowsMax; ++i) {
    for (int j = 0; j < 9; ++j) {
      const auto lanes = LaneSums(&operands.x.at(i, 0), &operands.w.at(j, 0), kDim, std::vector<float>(kLaneCount));
      for (int l = 0; l < kLaneCount; ++l) {
        expected.at(i, j, l) += lanes[static_cast<size_t>(l)] * (x_scale[i] * w_scale);
      }
    }
  }
  EXPECT_TRUE(sums == expected);
}

TEST_P(LaneKernelsTest, AddScaledRowsIsAscendingPerColumn) {
  Operands operands(4);
  for (int64_t dim : {16, 48, 128, 144}) {
    Tensor<float, 2> y = operands.source.NormalF32<2>({5, kStride});
    Tensor<float, 2> expected = y;
    kernels_->add_scaled_rows({&operands.x[0], kStride, 5}, {&operands.w[0], kStride, 7}, dim, &y[0], kStride);
    for (int i = 0; i < 5; ++i) {
      for (int64_t c = 0; c < dim; ++c) {
        for (int r = 0; r < 7; ++r) expected.at(i, c) += operands.x.at(i, r) * operands.w.at(r, c);
      }
    }
    EXPECT_TRUE(y == expected) << dim;
  }
}

TEST_P(LaneKernelsTest, DecodesEveryCode) {
  std::vector<uint8_t> codes(256);
  std::iota(codes.begin(), codes.end(), 0);
  std::vector<float> decoded(256);
  kernels_->decode_e4m3(codes.data(), decoded.data(), 256);
  for (size_t i = 0; i < 256; ++i) {
    const float scalar = ToFloat(E4m3{codes[i]});
    EXPECT_TRUE(std::bit_cast<uint32_t>(decoded[i]) == std::bit_cast<uint32_t>(scalar) ||
                (std::isnan(decoded[i]) && std::isnan(scalar)))
        << i;
  }
  std::vector<uint16_t> halves(65536);
  std::iota(halves.begin(), halves.end(), 0);
  std::vector<float> floats(65536);
  kernels_->decode_bf16(halves.data(), floats.data(), 65536);
  for (size_t i = 0; i < 65536; ++i) ASSERT_EQ(std::bit_cast<uint32_t>(floats[i]), i << 16);
}

std::string LevelName(const testing::TestParamInfo<LaneLevel>& level) {
  const std::array<const char*, 3> names = {"Baseline", "Avx2", "Avx512"};
  return names[static_cast<size_t>(level.param)];
}
INSTANTIATE_TEST_SUITE_P(Levels, LaneKernelsTest,
                         testing::Values(LaneLevel::kBaseline, LaneLevel::kAvx2, LaneLevel::kAvx512), LevelName);

}  // namespace
}  // namespace tandem::kernels
