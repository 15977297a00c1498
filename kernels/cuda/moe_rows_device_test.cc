// MoeGroupRows on the device gives the CPU's ids, and MoeCombine its bits.
#include "kernels/cuda/device_testing.h"
#include "kernels/cuda/ops.h"
#include "kernels/op_testing.h"
#include "kernels/ops.h"

namespace tandem::kernels::cuda {
namespace {

constexpr Placement kPlacements[] = {{}, {.row_gap = 8}, {.row_gap = 3, .offset = 1}};

class MoeRowsDeviceTest : public DeviceTest {
 protected:
  void CompareGroups(absl::string_view what, Tensor<int32_t, 2>& ids, int64_t num_experts) {
    const int64_t num_rows = ids.dim(0), top_k = ids.dim(1);
    Tensor<int32_t, 1> expected_offsets({num_experts + 1}), expected_pair_rows({num_rows * top_k});
    Tensor<int32_t, 2> expected_row_pairs({num_rows, top_k});
    ASSERT_TRUE(kernels::MoeGroupRows({.expert_ids = ids,
                                       .group_offsets = expected_offsets,
                                       .pair_rows = expected_pair_rows,
                                       .row_pairs = expected_row_pairs})
                    .ok());
    for (const Placement& placement : kPlacements) {
      auto device_ids = Upload(ids, placement);
      auto offsets = Output<int32_t, 1>({num_experts + 1});
      auto pair_rows = Output<int32_t, 1>({num_rows * top_k});
      auto row_pairs = Output<int32_t, 2>({num_rows, top_k}, placement);
      RunOp(MoeGroupRows(
          stream(),
          {.expert_ids = device_ids, .group_offsets = offsets, .pair_rows = pair_rows, .row_pairs = row_pairs}));
      const std::string name = absl::StrCat("MoeGroupRows ", what, " ", num_rows, "x", top_k, " of ", num_experts,
                                            " gap ", placement.row_gap);
      ExpectSameBytes(name + " offsets", offsets.Download(), expected_offsets);
      ExpectSameBytes(name + " pair_rows", pair_rows.Download(), expected_pair_rows);
      ExpectSameBytes(name + " row_pairs", row_pairs.Download(), expected_row_pairs);
    }
  }
};

TEST_F(MoeRowsDeviceTest, GroupsAreTheCpus) {
  Source source(1);
  for (const auto& [num_experts, top_k] : {std::pair<int64_t, int64_t>{256, 8}, {8, 2}, {1, 1}, {5, 5}, {1000, 3}}) {
    for (const int64_t num_rows : {0, 1, 2, 63, 64, 65, 1000, 4099}) {
      Tensor<int32_t, 2> ids({num_rows, top_k});
      for (int64_t row = 0; row < num_rows; ++row) {
        std::vector<int32_t> chosen = source.Permutation(static_cast<int>(num_experts));
        std::sort(chosen.begin(), chosen.begin() + top_k);
        for (int64_t j = 0; j < top_k; ++j) ids.at(row, j) = chosen[static_cast<size_t>(j)];
      }
      CompareGroups("random", ids, num_experts);
    }
  }
}

TEST_F(MoeRowsDeviceTest, OneExpertMayGetEverything) {
  Tensor<int32_t, 2> ids({700, 3});
  for (int64_t i = 0; i < ids.size(); ++i) ids[i] = 41;  // three times in a row: the order of j decides
  CompareGroups("all to one", ids, 64);
}

TEST_F(MoeRowsDeviceTest, CombinesWithTheCpusBits) {
  Source source(2);
  for (const int64_t dim : {16, 1040, 7168}) {
    for (const auto& [num_rows, top_k] : {std::pair<int64_t, int64_t>{0, 8}, {1, 8}, {3, 1}, {65, 8}, {7, 13}}) {
      Tensor<Bf16, 2> expert_out = source.NormalBf16<2>({num_rows * top_k, dim});
      Tensor<Bf16, 2> shared_out = source.NormalBf16<2>({num_rows, dim});
      Tensor<float, 2> weights = source.NormalF32<2>({num_rows, top_k});
      Tensor<int32_t, 2> row_pairs({num_rows, top_k});
      row_pairs.values() = source.Permutation(static_cast<int>(num_rows * top_k));
      if (num_rows > 1) {
        expert_out.at(row_pairs.at(1, 0), 5) = Bf16{0x7fc0};
        for (int64_t j = 0; j < top_k; ++j) weights.at(2, j) = -0.0f;
      }
      for (const bool has_shared : {true, false}) {
        Tensor<Bf16, 2> expected({num_rows, dim});
        MoeCombineArgs args = {.expert_out = expert_out, .row_pairs = row_pairs, .weights = weights, .y = expected};
        if (has_shared) args.shared_out = shared_out;
        ASSERT_TRUE(kernels::MoeCombine(args).ok());
        for (const Placement& placement : kPlacements) {
          auto device_expert_out = Upload(expert_out, placement);
          auto device_shared_out = Upload(shared_out, placement);
          auto device_weights = Upload(weights, placement);
          auto device_row_pairs = Upload(row_pairs, placement);
          auto y = Output<Bf16, 2>({num_rows, dim}, placement);
          MoeCombineArgs device_args = {
              .expert_out = device_expert_out, .row_pairs = device_row_pairs, .weights = device_weights, .y = y};
          if (has_shared) device_args.shared_out = device_shared_out;
          RunOp(MoeCombine(stream(), device_args));
          const std::string name =
              absl::StrCat("MoeCombine top ", top_k, has_shared ? " shared" : "", " gap ", placement.row_gap);
          ExpectSameBits(name, y.Download(), expected);
          if (!has_shared) continue;
          device_args.y = device_shared_out;
          RunOp(MoeCombine(stream(), device_args));
          ExpectSameBits(name + " in place", device_shared_out.Download(), expected);
        }
      }
    }
  }
}

TEST_F(MoeRowsDeviceTest, RefusesShapesThatDoNotFit) {
  auto ids = Output<int32_t, 2>({2, 2});
  auto offsets = Output<int32_t, 1>({5});
  auto pair_rows = Output<int32_t, 1>({3});
  EXPECT_EQ(
      MoeGroupRows(stream(), {.expert_ids = ids, .group_offsets = offsets, .pair_rows = pair_rows, .row_pairs = ids})
          .message(),
      "MoeGroupRows: pair_rows is [3], must be [4]");
}

}  // namespace
}  // namespace tandem::kernels::cuda
