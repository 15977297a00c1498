#include "kernels/reference/bf16_multiply.h"

#include <algorithm>
#include <cstring>

#include "kernels/reference/lane_kernels.h"
#include "kernels/reference/lanes.h"
#include "kernels/reference/segments.h"

namespace tandem::kernels {
namespace {

constexpr int kTileRows = 32;
constexpr int kTileOut = 32;
constexpr int64_t kTileIn = 128;

struct Tiles {
  alignas(64) float x[kTileRows * kTileIn];
  alignas(64) float w[kTileOut * kTileIn];
  alignas(64) float sums[kTileRows * kTileOut * kLanes];
  float partials[8][kTileRows * kTileOut];
};

void Decode(const LaneKernels& kernels, const Matrix<const Bf16>& rows, int64_t begin, int count, int64_t k,
            int64_t width, float* tile) {
  for (int i = 0; i < count; ++i) kernels.decode_bf16(rows.Row(begin + i) + k, tile + i * kTileIn, width);
}

void MultiplyTile(const LaneKernels& kernels, const Bf16Multiply& operands, int64_t row, int num_rows, int64_t out,
                  int num_out, Tiles& tiles) {
  const int64_t segment_dim = operands.x.shape[1] / operands.k_segments;
  for (int segment = 0; segment < operands.k_segments; ++segment) {
    std::memset(tiles.sums, 0, sizeof(float) * static_cast<size_t>(num_rows * kTileOut * kLanes));
    const int64_t end = (segment + 1) * segment_dim;
    for (int64_t k = segment * segment_dim; k < end; k += kTileIn) {
      const int64_t width = std::min(kTileIn, end - k);
      Decode(kernels, operands.x, row, num_rows, k, width, tiles.x);
      Decode(kernels, operands.w, out, num_out, k, width, tiles.w);
      kernels.dot_accumulate({tiles.x, kTileIn, num_rows}, {tiles.w, kTileIn, num_out}, width, tiles.sums, kTileOut);
    }
    for (int i = 0; i < num_rows; ++i) {
      for (int j = 0; j < num_out; ++j) {
        tiles.partials[segment][i * kTileOut + j] = SumLanes(LoadLanes(tiles.sums + (i * kTileOut + j) * kLanes));
      }
    }
  }
  for (int i = 0; i < num_rows; ++i) {
    for (int j = 0; j < num_out; ++j) {
      const float sum = SumSegments(&tiles.partials[0][i * kTileOut + j], kTileRows * kTileOut, operands.k_segments);
      if (operands.y_f32.is_null()) {
        operands.y_bf16.Row(row + i)[out + j] = ToBf16(sum);
      } else {
        operands.y_f32.Row(row + i)[out + j] = sum;
      }
    }
  }
}

}  // namespace

void MultiplyBf16(const Bf16Multiply& operands) {
  const LaneKernels& kernels = BestLaneKernels();
  Tiles tiles;
  const int64_t num_rows = operands.x.shape[0];
  const int64_t out_dim = operands.w.shape[0];
  for (int64_t row = 0; row < num_rows; row += kTileRows) {
    const int tile_rows = static_cast<int>(std::min<int64_t>(kTileRows, num_rows - row));
    for (int64_t out = 0; out < out_dim; out += kTileOut) {
      const int tile_out = static_cast<int>(std::min<int64_t>(kTileOut, out_dim - out));
      MultiplyTile(kernels, operands, row, tile_rows, out, tile_out, tiles);
    }
  }
}

}  // namespace tandem::kernels
