// MlaAbsorbQuery and MlaUnabsorbOutput: kv_b_proj's two halves, applied per head around the latent attention.
//
// W_UK is [nope, 512] and the sum runs over nope, its outer axis: one FP32 accumulator per latent dim, nope ascending.
// W_UV is [v, 512] and the sum runs over the contiguous axis: lanes and tree. Tested by mla_test.cc.
#include <algorithm>
#include <cstring>

#include "base/status_macros.h"
#include "kernels/op_border.h"
#include "kernels/ops.h"
#include "kernels/reference/bf16_multiply.h"
#include "kernels/reference/lane_kernels.h"
#include "kernels/reference/lanes.h"
#include "kvcache/kv_layout.h"

namespace tandem::kernels {
namespace {

constexpr int kLatentDim = kvcache::kLatentDim;

// One head of a [rows, heads, dim] tensor.
template <typename T>
Matrix<T> HeadOf(const Cube<T>& cube, int64_t head) {
  return Matrix<T>(cube.data + head * cube.strides[1], {cube.shape[0], cube.shape[2]},
                   {cube.strides[0], cube.strides[2]});
}

constexpr int kTileRows = 32;
constexpr int kTileNope = 64;
constexpr int kTileColumns = 128;
static_assert(kLatentDim % kTileColumns == 0);

struct Tiles {
  alignas(64) float q[kTileRows * kTileNope];
  alignas(64) float w[kTileNope * kTileColumns];
  alignas(64) float y[kTileRows * kTileColumns];
};

// y[row .. row + num_rows, column ..] = q * w for one head.
void AbsorbTile(const Matrix<const Bf16>& q, const Matrix<const Bf16>& w, const Matrix<Bf16>& y, int64_t row,
                int num_rows, int64_t column, Tiles& tiles) {
  const LaneKernels& kernels = BestLaneKernels();
  const int64_t nope_dim = w.shape[0];
  std::memset(tiles.y, 0, sizeof(tiles.y));
  for (int64_t d = 0; d < nope_dim; d += kTileNope) {
    const int depth = static_cast<int>(std::min<int64_t>(kTileNope, nope_dim - d));
    for (int i = 0; i < num_rows; ++i) kernels.decode_bf16(q.Row(row + i) + d, tiles.q + i * kTileNope, depth);
    for (int j = 0; j < depth; ++j) {
      kernels.decode_bf16(w.Row(d + j) + column, tiles.w + j * kTileColumns, kTileColumns);
    }
    kernels.add_scaled_rows({tiles.q, kTileNope, num_rows}, {tiles.w, kTileColumns, depth}, kTileColumns, tiles.y,
                            kTileColumns);
  }
  for (int i = 0; i < num_rows; ++i) {
    for (int c = 0; c < kTileColumns; c += kLanes) {
      StoreBf16Lanes(y.Row(row + i) + column + c, LoadLanes(tiles.y + i * kTileColumns + c));
    }
  }
}

}  // namespace

absl::Status MlaAbsorbQuery(const MlaAbsorbQueryArgs& args) {
  const auto [num_rows, num_heads, nope_dim] = args.q_nope.shape;
  OpBorder border("MlaAbsorbQuery");
  border.Require(nope_dim > 0 && nope_dim % kLanes == 0, "nope_dim", nope_dim, "a positive multiple of 16")
      .Shape("q_nope", args.q_nope, {num_rows, num_heads, nope_dim})
      .Shape("w_uk", args.w_uk, {num_heads, nope_dim, kLatentDim})
      .Shape("q_latent", args.q_latent, {num_rows, num_heads, kLatentDim});
  RETURN_IF_ERROR(border.status());
  Tiles tiles;
  for (int64_t head = 0; head < num_heads; ++head) {
    const Matrix<const Bf16> q = HeadOf(args.q_nope, head);
    const Matrix<Bf16> y = HeadOf(args.q_latent, head);
    for (int64_t row = 0; row < num_rows; row += kTileRows) {
      const int tile_rows = static_cast<int>(std::min<int64_t>(kTileRows, num_rows - row));
      for (int64_t column = 0; column < kLatentDim; column += kTileColumns) {
        AbsorbTile(q, args.w_uk.At(head), y, row, tile_rows, column, tiles);
      }
    }
  }
  return absl::OkStatus();
}

absl::Status MlaUnabsorbOutput(const MlaUnabsorbOutputArgs& args) {
  const auto [num_rows, num_heads, latent_dim] = args.latent_out.shape;
  const int64_t v_dim = args.w_uv.shape[1];
  OpBorder border("MlaUnabsorbOutput");
  border.Shape("latent_out", args.latent_out, {num_rows, num_heads, kLatentDim})
      .Shape("w_uv", args.w_uv, {num_heads, v_dim, kLatentDim})
      .Shape("out", args.out, {num_rows, num_heads, v_dim});
  RETURN_IF_ERROR(border.status());
  for (int64_t head = 0; head < num_heads; ++head) {
    MultiplyBf16({.x = HeadOf(args.latent_out, head),
                  .w = args.w_uv.At(head),
                  .k_segments = 1,
                  .y_f32 = {},
                  .y_bf16 = HeadOf(args.out, head)});
  }
  return absl::OkStatus();
}

}  // namespace tandem::kernels
