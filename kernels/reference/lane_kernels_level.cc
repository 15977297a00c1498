// The inner loops at one level: this file is compiled once per level, with the level's name in TANDEM_LANE_LEVEL and
// its instruction set in the compiler's flags. The register tiles below are the only thing that a level chooses.
#include "kernels/reference/lane_kernels.h"
#include "kernels/reference/lanes.h"

namespace tandem::kernels {
namespace {

// Register tile: kTileX rows of x against kTileW rows of w, as many sums as fit the level's registers.
#if defined(__AVX512F__)
constexpr int kTileX = 4;
constexpr int kTileW = 4;
constexpr int kTileColumns = 8;
#elif defined(__AVX2__)
constexpr int kTileX = 2;
constexpr int kTileW = 2;
constexpr int kTileColumns = 4;
#else
constexpr int kTileX = 1;
constexpr int kTileW = 2;
constexpr int kTileColumns = 2;
#endif

void DecodeE4m3(const void* source, float* target, int64_t count) {
  const auto* codes = static_cast<const uint8_t*>(source);
  for (int64_t k = 0; k < count; k += kLanes) StoreLanes(target + k, LoadE4m3Lanes(codes + k));
}

void DecodeBf16(const void* source, float* target, int64_t count) {
  const auto* values = static_cast<const uint16_t*>(source);
  for (int64_t k = 0; k < count; k += kLanes) StoreLanes(target + k, LoadBf16Lanes(values + k));
}

// sums[i][j] += the lane products of x rows i and w rows j.
template <int kX, int kW>
TANDEM_LANES_INLINE void DotTile(const float* x, int64_t x_stride, const float* w, int64_t w_stride, int64_t dim,
                                 Lanes (&sums)[kX][kW]) {
  for (int64_t k = 0; k < dim; k += kLanes) {
    Lanes w_lanes[kW];
    for (int j = 0; j < kW; ++j) w_lanes[j] = LoadLanes(w + j * w_stride + k);
    for (int i = 0; i < kX; ++i) {
      const Lanes x_lanes = LoadLanes(x + i * x_stride + k);
      for (int j = 0; j < kW; ++j) sums[i][j] += x_lanes * w_lanes[j];
    }
  }
}

// Calls tile.Run<rows of x, rows of w>(i, j) so that every pair is covered once; the cover has no part in the bits.
template <int kX, typename Tile>
TANDEM_LANES_INLINE void CoverW(int i, int w_count, const Tile& tile) {
  int j = 0;
  for (; j + kTileW <= w_count; j += kTileW) tile.template Run<kX, kTileW>(i, j);
  for (; j < w_count; ++j) tile.template Run<kX, 1>(i, j);
}
template <typename Tile>
TANDEM_LANES_INLINE void Cover(int x_count, int w_count, const Tile& tile) {
  int i = 0;
  for (; i + kTileX <= x_count; i += kTileX) CoverW<kTileX>(i, w_count, tile);
  for (; i < x_count; ++i) CoverW<1>(i, w_count, tile);
}

struct DotOperands {
  const FloatRows& x;
  const FloatRows& w;
  int64_t dim;

  template <int kX, int kW>
  TANDEM_LANES_INLINE void Add(int i, int j, Lanes (&sums)[kX][kW]) const {
    DotTile<kX, kW>(x.data + i * x.stride, x.stride, w.data + j * w.stride, w.stride, dim, sums);
  }
};

struct DotSumTile {
  DotOperands operands;
  float* y;
  int64_t y_stride;

  template <int kX, int kW>
  TANDEM_LANES_INLINE void Run(int i, int j) const {
    Lanes sums[kX][kW] = {};
    operands.Add(i, j, sums);
    for (int a = 0; a < kX; ++a) {
      for (int b = 0; b < kW; ++b) y[(i + a) * y_stride + j + b] = SumLanes(sums[a][b]);
    }
  }
};

void Dot(const FloatRows& x, const FloatRows& w, int64_t dim, float* y, int64_t y_stride) {
  Cover(x.count, w.count, DotSumTile{{x, w, dim}, y, y_stride});
}

struct DotAccumulateTile {
  DotOperands operands;
  float* totals;
  int64_t stride;

  template <int kX, int kW>
  TANDEM_LANES_INLINE void Run(int i, int j) const {
    Lanes sums[kX][kW];
    for (int a = 0; a < kX; ++a) {
      for (int b = 0; b < kW; ++b) sums[a][b] = LoadLanes(totals + ((i + a) * stride + j + b) * kLanes);
    }
    operands.Add(i, j, sums);
    for (int a = 0; a < kX; ++a) {
      for (int b = 0; b < kW; ++b) StoreLanes(totals + ((i + a) * stride + j + b) * kLanes, sums[a][b]);
    }
  }
};

void DotAccumulate(const FloatRows& x, const FloatRows& w, int64_t dim, float* sums, int64_t sums_stride) {
  Cover(x.count, w.count, DotAccumulateTile{{x, w, dim}, sums, sums_stride});
}

struct DotAccumulateScaledTile {
  DotOperands operands;
  const float* x_scale;
  float w_scale;
  float* totals;
  int64_t stride;

  template <int kX, int kW>
  TANDEM_LANES_INLINE void Run(int i, int j) const {
    Lanes sums[kX][kW] = {};
    operands.Add(i, j, sums);
    for (int a = 0; a < kX; ++a) {
      const Lanes scale = BroadcastLanes(x_scale[i + a] * w_scale);
      for (int b = 0; b < kW; ++b) {
        float* total = totals + ((i + a) * stride + j + b) * kLanes;
        StoreLanes(total, LoadLanes(total) + sums[a][b] * scale);
      }
    }
  }
};

void DotAccumulateScaled(const FloatRows& x, const FloatRows& w, int64_t dim, const float* x_scale, float w_scale,
                         float* sums, int64_t sums_stride) {
  Cover(x.count, w.count, DotAccumulateScaledTile{{x, w, dim}, x_scale, w_scale, sums, sums_stride});
}

template <int kVectors>
TANDEM_LANES_INLINE void AddScaledColumns(const float* coefficients, const FloatRows& rows, int64_t column, float* y) {
  Lanes sums[kVectors];
  for (int v = 0; v < kVectors; ++v) sums[v] = LoadLanes(y + column + v * kLanes);
  for (int r = 0; r < rows.count; ++r) {
    const float* row = rows.data + r * rows.stride + column;
    for (int v = 0; v < kVectors; ++v) sums[v] += BroadcastLanes(coefficients[r]) * LoadLanes(row + v * kLanes);
  }
  for (int v = 0; v < kVectors; ++v) StoreLanes(y + column + v * kLanes, sums[v]);
}

void AddScaledRows(const FloatRows& coefficients, const FloatRows& rows, int64_t dim, float* y, int64_t y_stride) {
  constexpr int64_t kColumns = kTileColumns * kLanes;
  int64_t column = 0;
  for (; column + kColumns <= dim; column += kColumns) {
    for (int i = 0; i < coefficients.count; ++i) {
      AddScaledColumns<kTileColumns>(coefficients.data + i * coefficients.stride, rows, column, y + i * y_stride);
    }
  }
  for (; column < dim; column += kLanes) {
    for (int i = 0; i < coefficients.count; ++i) {
      AddScaledColumns<1>(coefficients.data + i * coefficients.stride, rows, column, y + i * y_stride);
    }
  }
}

}  // namespace

extern const LaneKernels TANDEM_LANE_LEVEL;
const LaneKernels TANDEM_LANE_LEVEL = {DecodeE4m3, DecodeBf16, Dot, DotAccumulate, DotAccumulateScaled, AddScaledRows};

}  // namespace tandem::kernels
