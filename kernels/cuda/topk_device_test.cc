// Proves TopK of a device equal to the host's, bit for bit: contexts at and beside every boundary, crowds of equal
// logits, zeros of both signs, infinities, NaN, peaked and sorted rows, odd k, unaligned rows, few rows and many (which
// are cut into different numbers of blocks), rows that do not fit into shared memory.
#include <cmath>
#include <functional>
#include <limits>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/device_testing.h"
#include "kernels/cuda/ops.h"
#include "kernels/op_testing.h"
#include "kernels/ops.h"

namespace tandem::kernels::cuda {
namespace {

class TopKDeviceTest : public DeviceTest {
 protected:
  void ExpectAsOnHost(absl::string_view what, Tensor<float, 2>& logits, const std::vector<int32_t>& contexts, int64_t k,
                      const Placement& placement = {}, int64_t chosen = 0) {
    const int64_t num_rows = logits.dim(0);
    Tensor<int32_t, 1> context({num_rows}), nan_count({num_rows});
    context.values() = contexts;
    Tensor<int32_t, 2> indices({num_rows, k});
    ASSERT_TRUE(
        kernels::TopK(
            {.logits = logits, .context_length = context, .indices = indices, .nan_count = nan_count, .k = chosen})
            .ok());
    const DeviceTensor<float, 2> device_logits = Upload(logits, placement);
    const DeviceTensor<int32_t, 1> device_context = Upload(context);
    DeviceTensor<int32_t, 2> device_indices = Output<int32_t, 2>({num_rows, k}, {.row_gap = placement.row_gap});
    DeviceTensor<int32_t, 1> device_nans = Output<int32_t, 1>({num_rows});
    RunOp(TopK(stream(), {.logits = device_logits,
                          .context_length = device_context,
                          .indices = device_indices,
                          .nan_count = device_nans,
                          .k = chosen}));
    ExpectSameBytes(absl::StrCat(what, " ", num_rows, "x", logits.dim(1), " k ", k, " positions"),
                    device_indices.Download(), indices);
    ExpectSameBytes(absl::StrCat(what, " NaN counts"), device_nans.Download(), nan_count);
  }

  Source source_{1};
};

TEST_F(TopKDeviceTest, EveryContextBesideABoundary) {
  const std::vector<int32_t> contexts = {1,    63,   64,   65,   2047,  2048,  2049,  2050,   2079,   2080,
                                         2081, 4095, 4097, 5000, 16385, 32767, 32768, 131071, 131072, 100001};
  Tensor<float, 2> logits = source_.NormalF32<2>({static_cast<int64_t>(contexts.size()), 131072});
  ExpectAsOnHost("contexts", logits, contexts, 2048);
  ExpectAsOnHost("unaligned", logits, contexts, 2048, {.row_gap = 3, .offset = 1});
}

TEST_F(TopKDeviceTest, EveryNumberOfBlocks) {
  for (const auto& [rows, width] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 131072}, {1, 5000}, {3, 9000}, {70, 8192}, {140, 3000}, {140, 16384}, {140, 20000}, {140, 40000}}) {
    Tensor<float, 2> logits = source_.NormalF32<2>({rows, width});
    std::vector<int32_t> contexts;
    for (int64_t i = 0; i < rows; ++i) contexts.push_back(static_cast<int32_t>(1 + source_.Below(width)));
    contexts[0] = static_cast<int32_t>(width);
    ExpectAsOnHost("blocks", logits, contexts, 2048);
  }
}

// Every path in little work, one block a row to eight: for racecheck.
TEST_F(TopKDeviceTest, SmallCases) {
  for (const auto& [rows, width] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 33000}, {2, 9000}, {3, 5000}, {140, 300}}) {
    Tensor<float, 2> logits = source_.NormalF32<2>({rows, width});
    std::vector<int32_t> contexts(static_cast<size_t>(rows), static_cast<int32_t>(width));
    ExpectAsOnHost("small", logits, contexts, 100);
    for (int64_t i = 0; i < logits.size(); ++i) logits[i] = std::floor(logits[i]);
    ExpectAsOnHost("small with ties", logits, contexts, 100);
  }
}

TEST_F(TopKDeviceTest, RowsBeyondSharedMemory) {
  Tensor<float, 2> logits = source_.NormalF32<2>({2, 500001});
  ExpectAsOnHost("long", logits, {500001, 400003}, 2048);
  for (int64_t i = 0; i < logits.size(); ++i) logits[i] = std::floor(logits[i]);  // ties across the border
  ExpectAsOnHost("long with ties", logits, {500001, 499999}, 2048, {.offset = 3});
}

TEST_F(TopKDeviceTest, OddNumbersOfPositions) {
  Tensor<float, 2> logits = source_.NormalF32<2>({6, 3001});
  for (const int64_t k : {int64_t{1}, int64_t{2}, int64_t{31}, int64_t{100}, int64_t{128}, int64_t{2047}, int64_t{3000},
                          int64_t{3001}, int64_t{5000}}) {
    ExpectAsOnHost("odd k", logits, {3001, 3000, 1, 129, 128, 2999}, k, {.row_gap = 1});
  }
}

// Contexts up to the width are taken whole, of longer ones fewer are chosen.
TEST_F(TopKDeviceTest, ListsWiderThanWhatIsChosen) {
  Tensor<float, 2> logits = source_.NormalF32<2>({6, 9000});
  for (const int64_t chosen : {int64_t{1}, int64_t{100}, int64_t{2048}, int64_t{4096}}) {
    ExpectAsOnHost("wide lists", logits, {9000, 4097, 4096, 4095, 1, 5000}, 4096, {.row_gap = 1}, chosen);
  }
}

TEST_F(TopKDeviceTest, HardRows) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::pair<const char*, std::function<float(int64_t)>>> kinds = {
      {"all equal", [](int64_t) { return 1.5f; }},
      {"two values", [&](int64_t) { return source_.Below(2) == 0 ? -1.0f : 1.0f; }},
      {"few values", [&](int64_t) { return static_cast<float>(source_.Below(40)); }},
      {"zeros of both signs", [&](int64_t) { return source_.Below(2) == 0 ? -0.0f : 0.0f; }},
      {"mostly zeros",
       [&](int64_t) { return source_.Below(50) == 0  ? source_.Normal()
                             : source_.Below(2) == 0 ? -0.0f
                                                     : 0.0f; }},
      {"rounded to BF16", [&](int64_t) { return RoundToBf16(source_.Normal()); }},
      {"peaked", [&](int64_t) { return 100 + 1e-3f * source_.Normal(); }},
      {"negative", [&](int64_t) { return -std::abs(source_.Normal()); }},
      {"huge and tiny",
       [&](int64_t) { return std::ldexp(source_.Normal(), static_cast<int>(source_.Below(250)) - 125); }},
      {"subnormal", [&](int64_t) { return source_.Normal() * 1e-40f; }},
      {"ascending", [](int64_t i) { return static_cast<float>(i); }},
      {"descending", [](int64_t i) { return static_cast<float>(-i); }},
      {"mostly -inf", [&](int64_t) { return source_.Below(20) == 0 ? source_.Normal() : -kInfinity; }},
      {"all -inf", [](int64_t) { return -kInfinity; }},
      {"some inf", [&](int64_t) { return source_.Below(10) == 0 ? kInfinity : source_.Normal(); }},
      {"some NaN", [&](int64_t) { return source_.Below(10) == 0 ? kNan : source_.Normal(); }},
      {"negative NaN among -inf", [&](int64_t) { return source_.Below(2) == 0 ? -kNan : -kInfinity; }},
      {"mostly NaN", [&](int64_t) { return source_.Below(100) != 0 ? kNan : source_.Normal(); }},
      {"all NaN", [](int64_t) { return kNan; }},
  };
  const std::vector<int32_t> contexts = {20000, 19999, 4097, 2049, 2047};
  for (const auto& [name, value] : kinds) {
    Tensor<float, 2> logits({static_cast<int64_t>(contexts.size()), 20000});
    for (int64_t i = 0; i < logits.size(); ++i) logits[i] = value(i % 20000);
    ExpectAsOnHost(name, logits, contexts, 2048);
  }
}

TEST_F(TopKDeviceTest, ShortContextsNeedNoLogits) {
  Tensor<int32_t, 1> context({3}), nan_count({3});
  context.values() = {7, 1, 6};
  Tensor<int32_t, 2> indices({3, 7});
  const Matrix<const float> none(nullptr, {3, 0});
  ASSERT_TRUE(
      kernels::TopK({.logits = none, .context_length = context, .indices = indices, .nan_count = nan_count}).ok());
  const DeviceTensor<int32_t, 1> device_context = Upload(context);
  DeviceTensor<int32_t, 2> device_indices = Output<int32_t, 2>({3, 7});
  DeviceTensor<int32_t, 1> device_nans = Output<int32_t, 1>({3});
  RunOp(TopK(stream(),
             {.logits = none, .context_length = device_context, .indices = device_indices, .nan_count = device_nans}));
  ExpectSameBytes("no logits", device_indices.Download(), indices);
  ExpectSameBytes("no logits, NaN counts", device_nans.Download(), nan_count);
}

TEST_F(TopKDeviceTest, ZeroRowsAndBadShapes) {
  DeviceTensor<float, 2> logits = Output<float, 2>({2, 10});
  DeviceTensor<int32_t, 1> context = Output<int32_t, 1>({2});
  DeviceTensor<int32_t, 2> indices = Output<int32_t, 2>({2, 4});
  DeviceTensor<int32_t, 1> nans = Output<int32_t, 1>({2});
  RunOp(TopK(stream(), {.logits = logits.view().Slice(0, 0),
                        .context_length = context.view().Slice(0, 0),
                        .indices = indices.view().Slice(0, 0),
                        .nan_count = nans.view().Slice(0, 0)}));
  const absl::Status status =
      TopK(stream(),
           {.logits = logits, .context_length = context.view().Slice(0, 1), .indices = indices, .nan_count = nans});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
}

}  // namespace
}  // namespace tandem::kernels::cuda
