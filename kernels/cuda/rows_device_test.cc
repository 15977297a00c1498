// GatherRows and Argmax on the device have the CPU's bits, whatever the rows' starts, gaps and number.
#include "kernels/cuda/device_testing.h"
#include "kernels/cuda/ops.h"
#include "kernels/op_testing.h"
#include "kernels/ops.h"

namespace tandem::kernels::cuda {
namespace {

constexpr Placement kPlacements[] = {{}, {.row_gap = 8}, {.row_gap = 3, .offset = 1}};
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

class RowsDeviceTest : public DeviceTest {
 protected:
  void CompareGather(Tensor<Bf16, 2>& table, Tensor<int32_t, 1>& rows, const Placement& placement) {
    Tensor<Bf16, 2> expected({rows.size(), table.dim(1)});
    ASSERT_TRUE(kernels::GatherRows({.table = table, .rows = rows, .out = expected}).ok());
    auto device_table = Upload(table, placement);
    auto device_rows = Upload(rows);
    auto out = Output<Bf16, 2>({rows.size(), table.dim(1)}, placement);
    RunOp(GatherRows(stream(), {.table = device_table, .rows = device_rows, .out = out}));
    ExpectSameBytes(absl::StrCat("GatherRows of ", table.dim(0), " gap ", placement.row_gap), out.Download(), expected);
  }
  void CompareArgmax(absl::string_view what, Tensor<float, 2>& logits, const Placement& placement) {
    Tensor<int32_t, 1> expected({logits.dim(0)});
    ASSERT_TRUE(kernels::Argmax({.logits = logits, .tokens = expected}).ok());
    auto device_logits = Upload(logits, placement);
    auto tokens = Output<int32_t, 1>({logits.dim(0)});
    RunOp(Argmax(stream(), {.logits = device_logits, .tokens = tokens}));
    ExpectSameBytes(absl::StrCat("Argmax ", what, " ", logits.dim(0), "x", logits.dim(1), " gap ", placement.row_gap),
                    tokens.Download(), expected);
  }
};

TEST_F(RowsDeviceTest, GathersBitForBit) {
  Source source(1);
  for (const int64_t dim : {1, 7, 8, 64, 7168}) {
    Tensor<Bf16, 2> table({37, dim});
    for (Bf16& value : table.values()) value.bits = static_cast<uint16_t>(source.Below(1 << 16));  // NaN, too
    for (const int64_t num_rows : {0, 1, 5, 300}) {
      Tensor<int32_t, 1> rows({num_rows});
      for (int32_t& row : rows.values()) row = static_cast<int32_t>(source.Below(37));
      for (const Placement& placement : kPlacements) CompareGather(table, rows, placement);
    }
  }
}

TEST_F(RowsDeviceTest, GathersFromATableOfOneRow) {
  Source source(2);
  Tensor<Bf16, 2> table = source.NormalBf16<2>({1, 24});
  Tensor<int32_t, 1> rows({3});
  for (const Placement& placement : kPlacements) CompareGather(table, rows, placement);
}

TEST_F(RowsDeviceTest, FindsTheLargestOfRandomLogits) {
  Source source(3);
  for (const int64_t vocab_size : {1, 3, 4, 511, 4099, 129280}) {
    for (const int64_t num_rows : {0, 1, 3, 65}) {
      if (num_rows == 65 && vocab_size == 129280) continue;
      Tensor<float, 2> logits = source.NormalF32<2>({num_rows, vocab_size});
      for (const Placement& placement : kPlacements) CompareArgmax("random", logits, placement);
    }
  }
}

TEST_F(RowsDeviceTest, TakesTheLowerOfEqualLogitsAndNoNan) {
  Source source(4);
  constexpr int64_t kVocab = 20000;
  Tensor<float, 2> logits({9, kVocab});
  const auto row = [&](int64_t r) { return logits.view().Row(r); };
  for (int64_t i = 0; i < kVocab; ++i) {
    row(0)[i] = 1;                                                        // all equal
    row(1)[i] = -kInfinity;                                               // nothing larger: index 0
    row(2)[i] = kNan;                                                     // index 0
    row(3)[i] = i == 19999 ? -kInfinity : kNan;                           // NaN as -inf: index 0
    row(4)[i] = i == 19998 ? -1e38f : kNan;                               // the only number
    row(5)[i] = i % 2 == 0 ? -0.0f : 0.0f;                                // equal zeros: index 0
    row(6)[i] = i == 12345 || i == 4321 || i == 17 + 8192 ? 5.0f : 4.0f;  // ties in several blocks
    row(7)[i] = i == 7777 ? kInfinity : static_cast<float>(source.Below(3));
    row(8)[i] = std::ldexp(static_cast<float>(i - kVocab), -149);  // subnormal, ascending
  }
  for (const Placement& placement : kPlacements) CompareArgmax("ties", logits, placement);
}

TEST_F(RowsDeviceTest, RefusesShapesThatDoNotFit) {
  auto table = Output<Bf16, 2>({4, 8});
  auto rows = Output<int32_t, 1>({3});
  auto out = Output<Bf16, 2>({2, 8});
  EXPECT_EQ(GatherRows(stream(), {.table = table, .rows = rows, .out = out}).message(),
            "GatherRows: out is [2, 8], must be [3, 8]");
  auto logits = Output<float, 2>({2, 0});
  auto tokens = Output<int32_t, 1>({2});
  EXPECT_EQ(Argmax(stream(), {.logits = logits, .tokens = tokens}).message(),
            "Argmax: vocab_size is 0, must be in [1, 2^31)");
}

}  // namespace
}  // namespace tandem::kernels::cuda
