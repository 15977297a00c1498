// Proves what the other device tests stand on: data comes back as it went, strided or not, poison is where it should be
// and its loss is seen; the comparisons see what differs. The latter need no device.
#include "gtest/gtest-spi.h"
#include "kernels/cuda/device_testing.h"
#include "kernels/cuda/ops.h"
#include "kernels/op_testing.h"

namespace tandem::kernels::cuda {
namespace {

class DeviceMemoryTest : public DeviceTest {};

TEST_F(DeviceMemoryTest, BringsBackWhatWentThere) {
  Source source(1);
  for (const Placement& placement : {Placement{}, Placement{.row_gap = 3}, Placement{.row_gap = 8, .offset = 1}}) {
    Tensor<Bf16, 3> x = source.NormalBf16<3>({3, 2, 5});
    ExpectSameBytes("bf16 3x2x5", Upload(x, placement).Download(), x);
    Tensor<float, 1> v = source.NormalF32<1>({7});
    ExpectSameBytes("float 7", Upload(v, placement).Download(), v);
    Tensor<int32_t, 2> empty({0, 4});
    ExpectSameBytes("int32 0x4", Upload(empty, placement).Download(), empty);
  }
}

TEST_F(DeviceMemoryTest, OutputsStartPoisoned) {
  DeviceTensor<float, 2> y = Output<float, 2>({2, 3}, {.row_gap = 1});
  Tensor<float, 2> expected({2, 3});
  std::memset(expected.values().data(), kPoison, expected.values().size() * sizeof(float));
  ExpectSameBytes("poison", y.Download(), expected);
}

TEST_F(DeviceMemoryTest, SeesWritesAroundATensor) {
  DeviceTensor<uint8_t, 2> y = Output<uint8_t, 2>({2, 3}, {.row_gap = 2});
  const uint8_t zero = 0;
  ASSERT_TRUE(CopyToDevice(stream(), y.view().Row(0) + 2, &zero, 1).ok());
  y.Download();  // an element: no fault
  ASSERT_TRUE(CopyToDevice(stream(), y.view().Row(0) + 3, &zero, 1).ok());
  EXPECT_NONFATAL_FAILURE(y.Download(), "byte 3 from the start");
}

TEST_F(DeviceMemoryTest, RefusesWhatNoDeviceHas) {
  const absl::StatusOr<DeviceMemory> memory = DeviceMemory::Allocate(int64_t{1} << 50);
  EXPECT_EQ(memory.status().code(), absl::StatusCode::kInternal) << memory.status();
  // An op after it is not told of the failure.
  auto table = Output<Bf16, 2>({1, 8}), out = Output<Bf16, 2>({1, 8});
  Tensor<int32_t, 1> zero({1});
  auto rows = Upload(zero);
  RunOp(GatherRows(stream(), {.table = table, .rows = rows, .out = out}));
}

TEST(DeviceTestingTest, ComparisonsSeeWhatDiffers) {
  Tensor<Bf16, 2> expected({2, 3});
  for (int64_t i = 0; i < 6; ++i) expected[i] = ToBf16(static_cast<float>(i));
  Tensor<Bf16, 2> actual = expected;
  ExpectSameBits("equal", actual, expected);
  actual[4].bits += 1;
  ExpectClose("one ulp", actual, expected, {.max_ulp = 1});
  static Tensor<Bf16, 2>*a = &actual, *e = &expected;  // the macros below see statics only
  EXPECT_NONFATAL_FAILURE(ExpectSameBits("one ulp", *a, *e), "1 BAD, first at [1, 1]: 4.03125, expected 4");
  EXPECT_NONFATAL_FAILURE(ExpectClose("share", *a, *e, {.max_ulp = 1, .max_different_share = 0.1}), "1 of 6 differ");
  EXPECT_NONFATAL_FAILURE(ExpectSameBytes("bytes", *a, *e), "1 of 6 differ, first at [1, 1]");
}

TEST(DeviceTestingTest, NanEqualsNanAndNothingElse) {
  Tensor<float, 1> expected({2});
  expected.values() = {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()};
  Tensor<float, 1> actual = expected;
  actual[0] = -actual[0];
  ExpectSameBits("nan", actual, expected);
  actual[0] = 0;
  static Tensor<float, 1>*a = &actual, *e = &expected;
  EXPECT_NONFATAL_FAILURE(ExpectClose("nan", *a, *e, {.abs = 1e30}), "1 BAD, first at [0]");
  actual[0] = expected[0];
  actual[1] = 1;
  EXPECT_NONFATAL_FAILURE(ExpectClose("infinity", *a, *e, {.abs = 1e30}), "1 BAD, first at [1]");
}

}  // namespace
}  // namespace tandem::kernels::cuda
