// Fp8Linear and Fp8GroupedLinear: tiles of 32 rows by 32 outputs, each weight tile decoded once per row tile.
//
// Per output: for each block of 128 channels the products are summed in 16 lanes from zero and added, times the two
// scales, to 16 running lanes; the lanes' tree comes last. With segments, that per segment, then the segments' tree.
// How rows are tiled has no part in this. Tested by fp8_linear_test.cc.
#include <algorithm>
#include <cstring>

#include "base/status_macros.h"
#include "kernels/op_border.h"
#include "kernels/ops.h"
#include "kernels/reference/fp8_weight.h"
#include "kernels/reference/lane_kernels.h"
#include "kernels/reference/lanes.h"
#include "kernels/reference/segments.h"

namespace tandem::kernels {
namespace {

constexpr int kTileRows = 32;
constexpr int kTileOut = 32;
constexpr int kFewRows = 8;
constexpr int kTileOutOfFewRows = 8;
static_assert(kQuantGroup % kTileOut == 0 && kQuantGroup % kTileOutOfFewRows == 0,
              "a tile of outputs lies within one row of weight scales");

// Rows of quantised activations, picked by index where x_rows is given.
struct QuantizedRows {
  Matrix<const E4m3> x;
  Matrix<const float> scale;
  const int32_t* x_rows = nullptr;

  int64_t Index(int64_t row) const { return x_rows == nullptr ? row : x_rows[row]; }
};

class TileMultiplier {
 public:
  TileMultiplier(const QuantizedRows& x, const Fp8Weight& weight, int k_segments, const Matrix<Bf16>& y)
      : x_(x), weight_(weight), k_segments_(k_segments), y_(y) {}

  // Rows [row, row + num_rows) by outputs [out, out + num_out), at most a tile each.
  void Run(int64_t row, int num_rows, int64_t out, int num_out) {
    const int64_t num_blocks = weight_.weight.shape[1] / kQuantGroup;
    const int64_t segment_blocks = num_blocks / k_segments_;
    for (int segment = 0; segment < k_segments_; ++segment) {
      std::memset(sums_, 0, sizeof(float) * static_cast<size_t>(num_rows * kTileOut * kLanes));
      for (int64_t block = segment * segment_blocks; block < (segment + 1) * segment_blocks; ++block) {
        AddBlock(row, num_rows, out, num_out, block);
      }
      for (int i = 0; i < num_rows; ++i) {
        for (int j = 0; j < num_out; ++j) {
          partials_[segment][i * kTileOut + j] = SumLanes(LoadLanes(sums_ + (i * kTileOut + j) * kLanes));
        }
      }
    }
    for (int i = 0; i < num_rows; ++i) {
      Bf16* y = y_.Row(row + i) + out;
      for (int j = 0; j < num_out; ++j) {
        y[j] = ToBf16(SumSegments(&partials_[0][i * kTileOut + j], kTileRows * kTileOut, k_segments_));
      }
    }
  }

 private:
  void AddBlock(int64_t row, int num_rows, int64_t out, int num_out, int64_t block) {
    const int64_t k = block * kQuantGroup;
    for (int i = 0; i < num_rows; ++i) {
      const int64_t index = x_.Index(row + i);
      kernels_.decode_e4m3(x_.x.Row(index) + k, x_tile_ + i * kQuantGroup, kQuantGroup);
      x_scale_[i] = x_.scale.Row(index)[block];
    }
    for (int j = 0; j < num_out; ++j) {
      kernels_.decode_e4m3(weight_.weight.Row(out + j) + k, w_tile_ + j * kQuantGroup, kQuantGroup);
    }
    const float w_scale = weight_.scale.Row(out / kQuantGroup)[block];
    kernels_.dot_accumulate_scaled({x_tile_, kQuantGroup, num_rows}, {w_tile_, kQuantGroup, num_out}, kQuantGroup,
                                   x_scale_, w_scale, sums_, kTileOut);
  }

  const LaneKernels& kernels_ = BestLaneKernels();
  const QuantizedRows x_;
  const Fp8Weight weight_;
  const int k_segments_;
  const Matrix<Bf16> y_;
  alignas(64) float x_tile_[kTileRows * kQuantGroup];
  alignas(64) float w_tile_[kTileOut * kQuantGroup];
  alignas(64) float sums_[kTileRows * kTileOut * kLanes];
  float partials_[8][kTileRows * kTileOut];
  float x_scale_[kTileRows];
};

// y rows [begin, end) = those rows of x times the weight.
void Multiply(const QuantizedRows& x, const Fp8Weight& weight, int k_segments, const Matrix<Bf16>& y, int64_t begin,
              int64_t end) {
  TileMultiplier multiplier(x, weight, k_segments, y);
  const int64_t out_dim = weight.weight.shape[0];
  for (int64_t row = begin; row < end; row += kTileRows) {
    const int num_rows = static_cast<int>(std::min<int64_t>(kTileRows, end - row));
    // With few rows the weights are read once from memory: few of them at a time make streams that it can prefetch.
    const int tile_out = num_rows < kFewRows ? kTileOutOfFewRows : kTileOut;
    for (int64_t out = 0; out < out_dim; out += tile_out) {
      multiplier.Run(row, num_rows, out, static_cast<int>(std::min<int64_t>(tile_out, out_dim - out)));
    }
  }
}

}  // namespace

absl::Status Fp8Linear(const Fp8LinearArgs& args) {
  const auto [num_rows, in_dim] = args.x.shape;
  const int64_t out_dim = args.weight.weight.shape[0];
  OpBorder border("Fp8Linear");
  CheckFp8Weight(border, args.weight, out_dim, in_dim);
  CheckSegments(border, args.k_segments, in_dim);
  border.Shape("x", args.x, {num_rows, in_dim})
      .Shape("x_scale", args.x_scale, {num_rows, in_dim / kQuantGroup})
      .Shape("y", args.y, {num_rows, out_dim});
  RETURN_IF_ERROR(border.status());
  Multiply({args.x, args.x_scale}, args.weight, args.k_segments, args.y, 0, num_rows);
  return absl::OkStatus();
}

absl::Status Fp8GroupedLinear(const Fp8GroupedLinearArgs& args) {
  const int64_t num_groups = static_cast<int64_t>(args.weights.size());
  const auto [num_pairs, out_dim] = args.y.shape;
  const auto [num_x_rows, in_dim] = args.x.shape;
  OpBorder border("Fp8GroupedLinear");
  border.Shape("x", args.x, {num_x_rows, in_dim})
      .Shape("x_scale", args.x_scale, {num_x_rows, in_dim / kQuantGroup})
      .Shape("group_offsets", args.group_offsets, {num_groups + 1})
      .Shape("y", args.y, {num_pairs, out_dim});
  CheckSegments(border, args.k_segments, in_dim);
  if (args.x_rows.is_null()) {
    border.Require(num_x_rows == num_pairs, "num_x_rows without x_rows", num_x_rows, "the number of y's rows");
  } else {
    border.Shape("x_rows", args.x_rows, {num_pairs}).Ids("x_rows", args.x_rows, 0, num_x_rows);
  }
  RETURN_IF_ERROR(border.status());
  const int32_t* offsets = args.group_offsets.data;
  border.Require(offsets[0] == 0, "group_offsets[0]", offsets[0], "0")
      .Require(offsets[num_groups] == num_pairs, "the last of group_offsets", offsets[num_groups],
               "the number of pairs");
  for (int64_t group = 0; group < num_groups; ++group) {
    border.Require(offsets[group] <= offsets[group + 1], "group_offsets of group", group, "ascending");
    if (offsets[group] < offsets[group + 1]) CheckFp8Weight(border, args.weights[group], out_dim, in_dim);
  }
  RETURN_IF_ERROR(border.status());
  const QuantizedRows x{args.x, args.x_scale, args.x_rows.data};
  for (int64_t group = 0; group < num_groups; ++group) {
    if (offsets[group] == offsets[group + 1]) continue;
    Multiply(x, args.weights[group], args.k_segments, args.y, offsets[group], offsets[group + 1]);
  }
  return absl::OkStatus();
}

}  // namespace tandem::kernels
