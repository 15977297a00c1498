// Index logits at one level. A page's 64 keys become BF16 pairs with the keys side by side, once for all rows and
// heads: then a lane is a key, each score is one accumulator, and no sum over lanes is needed.
#include <cstddef>

#include "kernels/cpu/e4m3_decoder.h"
#include "kernels/cpu/level.h"
#include "kernels/lanes.h"
#include "kvcache/kv_layout.h"

namespace tandem::kernels::cpu {
namespace TANDEM_LEVEL {
namespace {

constexpr int kDim = kvcache::kIndexDim;
constexpr int kKeys = kvcache::kPageTokens;
constexpr int kVectors = kKeys / kLanes;
constexpr int kHeadsMax = 128;

#if defined(__AVX512F__)
constexpr int kTileHeads = 4;
constexpr int kTileVectors = 4;
#elif defined(__AVX2__)
constexpr int kTileHeads = 2;
constexpr int kTileVectors = 2;
#else
constexpr int kTileHeads = 1;
constexpr int kTileVectors = 1;
#endif

struct Tiles {
  alignas(64) uint32_t keys[kDim / 2][kKeys];  // pair p of the dims, key by key
  alignas(64) uint16_t rows[kKeys][kDim];
  alignas(64) uint16_t queries[kHeadsMax][kDim];
  alignas(64) float sums[kKeys];
  E4m3Decoder decoder;
};

#if defined(__AVX512F__)
// Sixteen rows of sixteen pairs, source_stride halves apart, to columns target_stride pairs apart.
TANDEM_LANES_INLINE void TransposePairs(const uint16_t* source, int64_t source_stride, uint32_t* target,
                                        int64_t target_stride) {
  NativeUint a[16], b[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) a[i] = LoadPairs(source + i * source_stride).part[0];
    // Each step merges rows at a distance of 1, 2, 4, 8: afterwards register i holds column i.
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    b[i] = __builtin_shufflevector(a[i], a[i + 1], 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30);
    b[i + 1] = __builtin_shufflevector(a[i], a[i + 1], 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 16; ++i) {
    if ((i & 2) != 0) continue;
    a[i] = __builtin_shufflevector(b[i], b[i + 2], 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
    a[i + 2] = __builtin_shufflevector(b[i], b[i + 2], 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 16; ++i) {
    if ((i & 4) != 0) continue;
    b[i] = __builtin_shufflevector(a[i], a[i + 4], 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27);
    b[i + 4] = __builtin_shufflevector(a[i], a[i + 4], 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    a[i] = __builtin_shufflevector(b[i], b[i + 8], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
    a[i + 8] = __builtin_shufflevector(b[i], b[i + 8], 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) StorePairs(target + i * target_stride, {{a[i]}});
}
#else
TANDEM_LANES_INLINE void TransposePairs(const uint16_t* source, int64_t source_stride, uint32_t* target,
                                        int64_t target_stride) {
  for (int i = 0; i < 16; ++i) {
    for (int p = 0; p < 16; ++p)
      __builtin_memcpy(target + p * target_stride + i, source + i * source_stride + 2 * p, 4);
  }
}
#endif

void LoadKeys(const uint8_t* page, Tiles& tiles) {
  const E4m3Decoder::Tables tables = tiles.decoder.TablesOf(1.0f);
  for (int key = 0; key < kKeys; ++key) E4m3Decoder::DecodeGroup(tables, page + key * kDim, tiles.rows[key]);
  for (int key = 0; key < kKeys; key += 16) {
    for (int pair = 0; pair < kDim / 2; pair += 16) {
      TransposePairs(tiles.rows[key] + 2 * pair, kDim, tiles.keys[pair] + key, kKeys);
    }
  }
}

// A NaN score stays NaN, so that top-k sees it.
TANDEM_LANES_INLINE Lanes Relu(const Lanes& score) {
  return MakeLanes([&](int p) { return score.part[p] < 0.0f ? NativeFloat{} : score.part[p]; });
}

// sums += relu(scores) * weight, head by head, for kHeadsOfTile heads and kTileVectors registers of keys.
template <int kHeadsOfTile>
TANDEM_LANES_INLINE void AddHeads(Tiles& tiles, const float* weights, int head, int vector) {
  Lanes scores[kHeadsOfTile][kTileVectors] = {};
  for (int pair = 0; pair < kDim / 2; ++pair) {
    PairLanes keys[kTileVectors];
    for (int v = 0; v < kTileVectors; ++v) keys[v] = LoadPairs(tiles.keys[pair] + (vector + v) * kLanes);
    for (int i = 0; i < kHeadsOfTile; ++i) {
      const PairLanes query = BroadcastPair(tiles.queries[head + i] + 2 * pair);
      for (int v = 0; v < kTileVectors; ++v) scores[i][v] = AddDotOfPairs(scores[i][v], query, keys[v]);
    }
  }
  for (int v = 0; v < kTileVectors; ++v) {
    float* sums = tiles.sums + (vector + v) * kLanes;
    Lanes sum = LoadLanes(sums);
    for (int i = 0; i < kHeadsOfTile; ++i) {
      sum = FusedMultiplyAdd(Relu(scores[i][v]), BroadcastLanes(weights[head + i]), sum);
    }
    StoreLanes(sums, sum);
  }
}

void AddAllHeads(Tiles& tiles, const float* weights, int num_heads) {
  int head = 0;
  for (; head + kTileHeads <= num_heads; head += kTileHeads) {
    for (int v = 0; v < kVectors; v += kTileVectors) AddHeads<kTileHeads>(tiles, weights, head, v);
  }
  for (; head < num_heads; ++head) {
    for (int v = 0; v < kVectors; v += kTileVectors) AddHeads<1>(tiles, weights, head, v);
  }
}

}  // namespace

void IndexLogits(const IndexLogitsTask& task, int64_t page, int64_t page_end) {
  Tiles tiles;
  for (; page < page_end; ++page) {
    const uint8_t* bytes = task.index_pages + task.page_table[page] * task.page_stride;
    LoadKeys(bytes, tiles);
    float scales[kKeys];
    __builtin_memcpy(scales, bytes + kvcache::kIndexScaleOffset, sizeof(scales));
    const int64_t first = page * kKeys;
    for (int64_t row = 0; row < task.num_rows; ++row) {
      const int64_t count = task.contexts[row] - first;
      if (count <= 0) continue;
      const E4m3Decoder::Tables tables = tiles.decoder.TablesOf(1.0f);
      for (int head = 0; head < task.num_heads; ++head) {
        E4m3Decoder::DecodeGroup(tables, task.q + row * task.q_row_stride + head * task.q_head_stride,
                                 tiles.queries[head]);
      }
      for (float& sum : tiles.sums) sum = 0;
      AddAllHeads(tiles, task.weights + row * task.weights_stride, task.num_heads);
      for (int key = 0; key < kKeys; key += kLanes) {
        StoreLanes(tiles.sums + key, LoadLanes(tiles.sums + key) * LoadLanes(scales + key));
      }
      const int64_t valid = count < kKeys ? count : kKeys;
      __builtin_memcpy(task.logits + row * task.logits_stride + first, tiles.sums,
                       static_cast<size_t>(valid) * sizeof(float));
    }
  }
}

}  // namespace TANDEM_LEVEL
}  // namespace tandem::kernels::cpu
