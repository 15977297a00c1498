// The linear layers at one level.
//
// A panel of kPanel weight rows, one piece of the axis at a time, is decoded to BF16 in the first-level cache and then
// multiplied with up to kTileRows rows of x; the sixteen lanes of every (row, output) wait in memory between pieces.
// Orders: the pairs of a segment (or block) ascending per lane, the tree over lanes, the tree over segments. Tiles have
// no part.
#include <cstddef>

#include "kernels/cpu/e4m3_decoder.h"
#include "kernels/cpu/level.h"
#include "kernels/lanes.h"

namespace tandem::kernels::cpu {
namespace TANDEM_LEVEL {
namespace {

constexpr int kPanel = 8;
constexpr int kTileRows = 64;
constexpr int kPiece = 1024;  // of the axis; a multiple of 128
constexpr int kPairStep = 2 * kLanes;
constexpr int kSegmentsMax = 8;

#if defined(__AVX512F__)
constexpr int kRegisterRows = 4;
constexpr int kRegisterOuts = 4;
#elif defined(__AVX2__)
constexpr int kRegisterRows = 2;
constexpr int kRegisterOuts = 2;
#else
constexpr int kRegisterRows = 1;
constexpr int kRegisterOuts = 2;
#endif

// The bytes of weights that the next panel reads, asked for a few lines at a time while this one is multiplied: a burst
// would stall the core for want of miss buffers.
struct Prefetch {
  const uint8_t* row = nullptr;
  int64_t stride = 0;
  int num_rows = 0;
  int64_t row_bytes = 0;
  int64_t offset = 0;

  TANDEM_LANES_INLINE void Ask(int lines) {
    for (; lines > 0 && num_rows > 0; --lines) {
      __builtin_prefetch(row + offset, 0, 2);
      offset += 64;
      if (offset < row_bytes) continue;
      offset = 0;
      row += stride;
      --num_rows;
    }
  }
};

struct Tile {
  alignas(64) uint16_t w[kPanel][kPiece];
  alignas(64) float sums[kTileRows][kPanel][kLanes];
  alignas(64) float partials[kSegmentsMax][kTileRows + 1][kPanel];  // rows are read two at a time
  const uint16_t* x[kTileRows];
  const float* x_scale[kTileRows];
  Prefetch next;
  E4m3Decoder decoder;
};

// What becomes of the products of one piece: they start the sums, go on with them, or are one block of 128 that is
// summed apart and added times its scales.
enum class Piece { kFirst, kNext, kScaled };

// Width elements (a multiple of 32) of kX x rows and kW panel rows.
template <int kX, int kW, Piece kPieceKind>
TANDEM_LANES_INLINE void AddProducts(Tile& tile, int row, int out, int64_t k, int width, float w_scale) {
  Lanes sums[kX][kW];
  const uint16_t* x[kX];
  for (int i = 0; i < kX; ++i) {
    x[i] = tile.x[row + i] + k;
    for (int j = 0; j < kW; ++j)
      sums[i][j] = kPieceKind == Piece::kNext ? LoadLanes(tile.sums[row + i][out + j]) : Lanes{};
  }
  const uint16_t* w = tile.w[out];
  for (int step = 0; step < width; step += kPairStep) {
    PairLanes w_pairs[kW];
    for (int j = 0; j < kW; ++j) w_pairs[j] = LoadPairs(w + j * kPiece + step);
    for (int i = 0; i < kX; ++i) {
      const PairLanes x_pairs = LoadPairs(x[i] + step);
      for (int j = 0; j < kW; ++j) sums[i][j] = AddDotOfPairs(sums[i][j], x_pairs, w_pairs[j]);
    }
  }
  for (int i = 0; i < kX; ++i) {
    if constexpr (kPieceKind == Piece::kScaled) {
      const Lanes scale = BroadcastLanes(tile.x_scale[row + i][k / 128] * w_scale);
      for (int j = 0; j < kW; ++j) {
        sums[i][j] = FusedMultiplyAdd(sums[i][j], scale, LoadLanes(tile.sums[row + i][out + j]));
      }
    }
    for (int j = 0; j < kW; ++j) StoreLanes(tile.sums[row + i][out + j], sums[i][j]);
  }
}

template <int kX, Piece kPieceKind>
TANDEM_LANES_INLINE void AddProductsOfRows(Tile& tile, int row, int64_t k, int width, float w_scale, int lines) {
  constexpr int kW = kX == 1 ? kPanel : kRegisterOuts;
  for (int out = 0; out < kPanel; out += kW) {
    AddProducts<kX, kW, kPieceKind>(tile, row, out, k, width, w_scale);
    tile.next.Ask(lines);
  }
}

// The last sixteen elements of an axis that is no multiple of 32: lanes 8 to 15 take zeros.
void AddRest(Tile& tile, int num_rows, int64_t k, int begin) {
  uint16_t x[kPairStep] = {};
  for (int row = 0; row < num_rows; ++row) {
    for (int e = 0; e < kLanes; ++e) x[e] = tile.x[row][k + begin + e];
    for (int j = 0; j < kPanel; ++j) {
      float* sums = tile.sums[row][j];
      StoreLanes(sums, AddDotOfPairs(LoadLanes(sums), LoadPairs(x), LoadPairs(tile.w[j] + begin)));
    }
  }
}

template <Piece kPieceKind>
void AddPanel(Tile& tile, int num_rows, int64_t k, int width, float w_scale) {
  const int whole = width / kPairStep * kPairStep;
  // Half as many lines again as would do if all tiles were whole.
  const int64_t num_lines = tile.next.num_rows * tile.next.row_bytes / 64;
  const int lines = static_cast<int>(num_lines * 3 * kRegisterRows * kRegisterOuts / (2 * kPanel * num_rows)) + 1;
  int row = 0;
  for (; row + kRegisterRows <= num_rows; row += kRegisterRows) {
    AddProductsOfRows<kRegisterRows, kPieceKind>(tile, row, k, whole, w_scale, lines);
  }
  if (kRegisterRows > 2 && row + 2 <= num_rows) {
    AddProductsOfRows<2, kPieceKind>(tile, row, k, whole, w_scale, lines);
    row += 2;
  }
  if (row < num_rows) AddProductsOfRows<1, kPieceKind>(tile, row, k, whole, w_scale, lines);
  if (whole < width) AddRest(tile, num_rows, k, whole);
}

// The piece [k, k + width) of weight rows [out, out + num_out), which share their scales; rows beyond are left as they
// are, their sums unread.
void LoadPanel(const LinearTask& task, Tile& tile, int64_t out, int num_out, int64_t k, int width) {
  if (task.w_e4m3 != nullptr) {
    const float* scales = task.w_scale + out / 128 * task.w_scale_stride + k / 128;
    for (int e = 0; e < width; e += 128) {
      const E4m3Decoder::Tables tables = tile.decoder.TablesOf(task.x_scale == nullptr ? scales[e / 128] : 1.0f);
      for (int j = 0; j < num_out; ++j) {
        const uint8_t* codes = task.w_e4m3 + (out + j) * task.w_stride + k + e;
        E4m3Decoder::DecodeGroup(tables, codes, tile.w[j] + e);
      }
    }
    return;
  }
  for (int j = 0; j < num_out; ++j) {
    const uint16_t* values = task.w_bf16 + (out + j) * task.w_stride + k;
    __builtin_memcpy(tile.w[j], values, static_cast<size_t>(width) * sizeof(uint16_t));
    for (int e = width; e % kPairStep != 0; ++e) tile.w[j][e] = 0;
  }
}

// SumLanes of the first num_rows rows.
void SumTile(Tile& tile, int num_rows, float (*partials)[kPanel]) {
  for (int row = 0; row < num_rows; row += 2) {
    Lanes lanes[kLanes];
    for (int i = 0; i < 2; ++i) {
      for (int j = 0; j < kPanel; ++j) lanes[i * kPanel + j] = LoadLanes(tile.sums[row + i][j]);
    }
    StoreLanes(partials[row], SumSixteenLanes(lanes));
  }
}
static_assert(2 * kPanel == kLanes && kTileRows % 2 == 0);

// partials[0] = ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)), two rows at a time.
void SumSegments(Tile& tile, int num_rows, int num_segments) {
  for (int stride = 1; stride < num_segments; stride *= 2) {
    for (int segment = 0; segment < num_segments; segment += 2 * stride) {
      for (int row = 0; row < num_rows; row += 2) {
        float* sum = tile.partials[segment][row];
        StoreLanes(sum, LoadLanes(sum) + LoadLanes(tile.partials[segment + stride][row]));
      }
    }
  }
}

void StoreTile(const LinearTask& task, const Tile& tile, int64_t row, int num_rows, int64_t out, int num_out) {
  for (int i = 0; i < num_rows; ++i) {
    const int64_t at = (row + i) * task.y_stride + out;
    const float* sums = tile.partials[0][i];
    if (task.y_f32 != nullptr) {
      __builtin_memcpy(task.y_f32 + at, sums, static_cast<size_t>(num_out) * sizeof(float));
      continue;
    }
    uint16_t rounded[kLanes];
    StoreBf16Lanes(rounded, LoadLanes(sums));
    if (num_out == kPanel) {
      __builtin_memcpy(task.y_bf16 + at, rounded, kPanel * sizeof(uint16_t));
    } else {
      __builtin_memcpy(task.y_bf16 + at, rounded, static_cast<size_t>(num_out) * sizeof(uint16_t));
    }
  }
}

// What LoadPanel reads after the piece [k, k + width) of rows [out, out + num_out).
Prefetch NextPiece(const LinearTask& task, int64_t out, int num_out, int64_t k, int width, int64_t out_end) {
  k += width;
  if (k == task.in_dim) {
    k = 0;
    out += num_out;
    num_out = static_cast<int>(out_end - out < kPanel ? out_end - out : kPanel);
  }
  const int64_t longest = task.x_scale != nullptr ? 128 : kPiece;
  const int64_t count = task.in_dim - k < longest ? task.in_dim - k : longest;
  const int64_t at = out * task.w_stride + k;
  if (task.w_e4m3 != nullptr) return {task.w_e4m3 + at, task.w_stride, num_out, count, 0};
  return {reinterpret_cast<const uint8_t*>(task.w_bf16 + at), task.w_stride * 2, num_out, count * 2, 0};
}

void RunTile(const LinearTask& task, Tile& tile, int64_t row, int num_rows, int64_t out, int64_t out_end) {
  const int num_out = static_cast<int>(out_end - out < kPanel ? out_end - out : kPanel);
  const int64_t segment_dim = task.in_dim / task.k_segments;
  for (int segment = 0; segment < task.k_segments; ++segment) {
    const int64_t begin = segment * segment_dim, end = begin + segment_dim;
    if (task.x_scale != nullptr) {
      __builtin_memset(tile.sums, 0, sizeof(tile.sums[0]) * static_cast<size_t>(num_rows));
      const float* w_scale = task.w_scale + out / 128 * task.w_scale_stride;
      for (int64_t k = begin; k < end; k += 128) {
        LoadPanel(task, tile, out, num_out, k, 128);
        tile.next = NextPiece(task, out, num_out, k, 128, out_end);
        AddPanel<Piece::kScaled>(tile, num_rows, k, 128, w_scale[k / 128]);
      }
      SumTile(tile, num_rows, tile.partials[segment]);
      continue;
    }
    for (int64_t k = begin; k < end; k += kPiece) {
      const int width = static_cast<int>(end - k < kPiece ? end - k : kPiece);
      LoadPanel(task, tile, out, num_out, k, width);
      tile.next = NextPiece(task, out, num_out, k, width, out_end);
      if (k == begin) {
        AddPanel<Piece::kFirst>(tile, num_rows, k, width, 1);
      } else {
        AddPanel<Piece::kNext>(tile, num_rows, k, width, 1);
      }
    }
    SumTile(tile, num_rows, tile.partials[segment]);
  }
  SumSegments(tile, num_rows, task.k_segments);
  StoreTile(task, tile, row, num_rows, out, num_out);
}

// Few rows: every weight is read once from memory and goes straight from its register into the products. kW weight rows
// at a time make as many sums as the registers hold, while the next panel is asked for in the order of memory.
constexpr int kFewRows = 8;
constexpr int kFewStep = 64;

#if defined(__AVX512VBMI__)
struct E4m3Rows {
  static constexpr int kLinesOfStep = 1;
  E4m3Decoder& decoder;
  const uint8_t* data;
  int64_t stride;
  const float* scales;
  E4m3Decoder::Tables tables{};

  const uint8_t* At(int row, int64_t k) const { return data + row * stride + k; }
  TANDEM_LANES_INLINE void Enter(int64_t k) {
    if (k % 128 == 0) tables = decoder.TablesOf(scales[k / 128]);
  }
  TANDEM_LANES_INLINE void Load(int row, int64_t k, PairLanes (&values)[2]) const {
    const E4m3Decoder::Values decoded = E4m3Decoder::Decode(tables, At(row, k));
    values[0] = decoded.first;
    values[1] = decoded.second;
  }
};
#endif

TANDEM_LANES_INLINE void LoadStep(const uint16_t* source, PairLanes (&values)[2]) {
  values[0] = LoadPairs(source);
  values[1] = LoadPairs(source + kPairStep);
}

struct Bf16Rows {
  static constexpr int kLinesOfStep = 2;
  const uint16_t* data;
  int64_t stride;

  const uint16_t* At(int row, int64_t k) const { return data + row * stride + k; }
  void Enter(int64_t k) {}
  TANDEM_LANES_INLINE void Load(int row, int64_t k, PairLanes (&values)[2]) const { LoadStep(At(row, k), values); }
};

TANDEM_LANES_INLINE void AddStep(Lanes& sum, const PairLanes (&x)[2], const PairLanes (&w)[2]) {
  sum = AddDotOfPairs(AddDotOfPairs(sum, x[0], w[0]), x[1], w[1]);
}

// Goes on with the sums of kX rows of x and kW weight rows, panel rows from `column` on, over the elements [k, end), a
// multiple of 64; from zero where is_first.
template <int kX, int kW, typename Rows>
TANDEM_LANES_INLINE void AddFewRows(Tile& tile, Rows rows, int64_t k, int64_t end, bool is_first, int column) {
  Lanes sums[kX][kW] = {};
  if (!is_first) {
    for (int i = 0; i < kX; ++i) {
      for (int j = 0; j < kW; ++j) sums[i][j] = LoadLanes(tile.sums[i][column + j]);
    }
  }
  for (; k < end; k += kFewStep) {
    tile.next.Ask(kW * Rows::kLinesOfStep);
    rows.Enter(k);
    // Whichever side is smaller waits in registers.
    if constexpr (kX <= 2) {
      PairLanes x[kX][2];
      for (int i = 0; i < kX; ++i) LoadStep(tile.x[i] + k, x[i]);
#pragma GCC unroll 8
      for (int j = 0; j < kW; ++j) {
        PairLanes w[2];
        rows.Load(column + j, k, w);
        for (int i = 0; i < kX; ++i) AddStep(sums[i][j], x[i], w);
      }
    } else {
      PairLanes w[kW][2];
      for (int j = 0; j < kW; ++j) rows.Load(column + j, k, w[j]);
#pragma GCC unroll 8
      for (int i = 0; i < kX; ++i) {
        PairLanes x[2];
        LoadStep(tile.x[i] + k, x);
        for (int j = 0; j < kW; ++j) AddStep(sums[i][j], x, w[j]);
      }
    }
  }
  for (int i = 0; i < kX; ++i) {
    for (int j = 0; j < kW; ++j) StoreLanes(tile.sums[i][column + j], sums[i][j]);
  }
}

template <int kX, typename Rows>
void RunFewRows(const LinearTask& task, Tile& tile, Rows rows, int64_t row, int64_t out, int64_t out_end) {
  constexpr int kW = kX <= 2 ? 8 : kX <= 4 ? 4 : 2;
  constexpr int64_t kSize = sizeof(*rows.data);
  const int64_t segment_dim = task.in_dim / task.k_segments;
  const int num_out = static_cast<int>(out_end - out < kPanel ? out_end - out : kPanel);
  const int64_t rest = out_end - out - num_out;
  tile.next = {reinterpret_cast<const uint8_t*>(rows.At(num_out, 0)), rows.stride * kSize,
               static_cast<int>(rest < kPanel ? rest : kPanel), task.in_dim * kSize, 0};
  for (int segment = 0; segment < task.k_segments; ++segment) {
    const int64_t begin = segment * segment_dim, end = begin + segment_dim;
    // Piece by piece, so that x stays in the first-level cache for all rows of the panel.
    for (int64_t k = begin; k < end; k += kPiece) {
      const int64_t piece_end = end - k < kPiece ? end : k + kPiece;
      int column = 0;
      for (; column + kW <= num_out; column += kW) AddFewRows<kX, kW>(tile, rows, k, piece_end, k == begin, column);
      for (; column < num_out; ++column) AddFewRows<kX, 1>(tile, rows, k, piece_end, k == begin, column);
    }
    SumTile(tile, kX, tile.partials[segment]);
  }
  SumSegments(tile, kX, task.k_segments);
  StoreTile(task, tile, row, kX, out, num_out);
}

template <typename Rows>
void RunFewRows(const LinearTask& task, Tile& tile, const Rows& rows, int64_t row, int num_rows, int64_t out,
                int64_t out_end) {
  switch (num_rows) {
    case 1:
      return RunFewRows<1>(task, tile, rows, row, out, out_end);
    case 2:
      return RunFewRows<2>(task, tile, rows, row, out, out_end);
    case 3:
      return RunFewRows<3>(task, tile, rows, row, out, out_end);
    case 4:
      return RunFewRows<4>(task, tile, rows, row, out, out_end);
    case 5:
      return RunFewRows<5>(task, tile, rows, row, out, out_end);
    case 6:
      return RunFewRows<6>(task, tile, rows, row, out, out_end);
    case 7:
      return RunFewRows<7>(task, tile, rows, row, out, out_end);
    default:
      return RunFewRows<8>(task, tile, rows, row, out, out_end);
  }
}

// False where the panels have to do it.
bool RunIfFewRows(const LinearTask& task, Tile& tile, int64_t row, int num_rows, int64_t out, int64_t out_end) {
  if (num_rows > kFewRows || task.x_scale != nullptr || task.in_dim / task.k_segments % kFewStep != 0) return false;
  if (task.w_bf16 != nullptr) {
    RunFewRows(task, tile, Bf16Rows{task.w_bf16 + out * task.w_stride, task.w_stride}, row, num_rows, out, out_end);
    return true;
  }
#if defined(__AVX512VBMI__)
  const float* scales = task.w_scale + out / 128 * task.w_scale_stride;
  RunFewRows(task, tile, E4m3Rows{tile.decoder, task.w_e4m3 + out * task.w_stride, task.w_stride, scales}, row,
             num_rows, out, out_end);
  return true;
#else
  return false;
#endif
}

}  // namespace

void Linear(const LinearTask& task, int64_t row, int64_t row_end, int64_t out, int64_t out_end) {
  Tile tile;
  for (; row < row_end; row += kTileRows) {
    const int num_rows = static_cast<int>(row_end - row < kTileRows ? row_end - row : kTileRows);
    for (int i = 0; i < num_rows; ++i) {
      const int64_t x_row = task.x_rows == nullptr ? row + i : task.x_rows[row + i];
      tile.x[i] = task.x + x_row * task.x_stride;
      if (task.x_scale != nullptr) tile.x_scale[i] = task.x_scale + x_row * task.x_scale_stride;
    }
    for (int64_t o = out; o < out_end; o += kPanel) {
      if (!RunIfFewRows(task, tile, row, num_rows, o, out_end)) RunTile(task, tile, row, num_rows, o, out_end);
    }
  }
}

void Dequantize(const uint8_t* codes, const float* scales, int64_t count, uint16_t* target) {
  E4m3Decoder decoder;
  for (int64_t k = 0; k < count; k += 128) {
    const float scale = scales == nullptr ? 1.0f : scales[k / 128];
    E4m3Decoder::DecodeGroup(decoder.TablesOf(scale), codes + k, target + k);
  }
}

}  // namespace TANDEM_LEVEL
}  // namespace tandem::kernels::cpu
