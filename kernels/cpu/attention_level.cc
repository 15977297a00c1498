// Attention in latent space at one level. Per block of 64 list entries the records become BF16 once for all heads, as
// rows in BF16 for the scores and in FP32 for the values; heads go four at a time.
#include <cstddef>

#include "kernels/cpu/e4m3_decoder.h"
#include "kernels/cpu/level.h"
#include "kernels/cpu/outer_product.h"
#include "kernels/lane_math.h"
#include "kernels/lanes.h"
#include "kvcache/kv_layout.h"

namespace tandem::kernels::cpu {
namespace TANDEM_LEVEL {
namespace {

constexpr int kBlock = 64;
constexpr int kLatentDim = kvcache::kLatentDim;
constexpr int kKeyDim = kLatentDim + kvcache::kRopeDim;  // 576
constexpr int kPairStep = 2 * kLanes;
constexpr int kHeadsMax = kSparseMlaHeadsMax;
static_assert(kKeyDim % kPairStep == 0);

#if defined(__AVX512F__)
constexpr int kTileHeads = 4;
constexpr int kTileKeys = 4;
#elif defined(__AVX2__)
constexpr int kTileHeads = 2;
constexpr int kTileKeys = 2;
#else
constexpr int kTileHeads = 1;
constexpr int kTileKeys = 2;
#endif

struct RowState {
  alignas(64) uint16_t keys[kBlock][kKeyDim];
  alignas(64) float values[kBlock][kLatentDim];
  alignas(64) uint16_t queries[kHeadsMax][kKeyDim];
  alignas(64) float scores[kHeadsMax][kBlock];  // then p
  alignas(64) float accumulators[kHeadsMax][kLatentDim];
  float maxima[kHeadsMax];
  float sums[kHeadsMax];
  float factors[kHeadsMax];
  E4m3Decoder decoder;
};

// Entries beyond count are zeros.
void LoadBlock(const SparseMlaTask& task, const int32_t* positions, int count, RowState& state) {
  for (int j = 0; j < kBlock; ++j) {
    uint16_t* key = state.keys[j];
    if (j >= count) {
      __builtin_memset(key, 0, sizeof(state.keys[j]));
      continue;
    }
    const auto record_of = [&](int32_t position) {
      const int64_t page = task.page_table[position / kvcache::kPageTokens];
      return task.latent_pages + page * task.page_stride + position % kvcache::kPageTokens * int64_t{task.record_bytes};
    };
    const uint8_t* record = record_of(positions[j]);
    if (j + 4 < count) {  // records are anywhere in the pool
      const uint8_t* later = record_of(positions[j + 4]);
      for (int line = 0; line < task.record_bytes; line += 64) __builtin_prefetch(later + line);
    }
    if (task.is_bf16) {
      __builtin_memcpy(key, record, kLatentDim * sizeof(uint16_t));
    } else {
      float scales[kLatentDim / kvcache::kLatentTile];
      __builtin_memcpy(scales, record + kvcache::kLatentScaleOffset, sizeof(scales));
      for (int d = 0; d < kLatentDim; d += kvcache::kLatentTile) {
        E4m3Decoder::DecodeGroup(state.decoder.TablesOf(scales[d / kvcache::kLatentTile]), record + d, key + d);
      }
    }
    __builtin_memcpy(key + kLatentDim, record + task.rope_offset, kvcache::kRopeDim * sizeof(uint16_t));
    for (int d = 0; d < kLatentDim; d += kLanes) StoreLanes(state.values[j] + d, LoadBf16Lanes(key + d));
  }
}

template <int kHeads, int kKeys>
TANDEM_LANES_INLINE void ScoreTile(RowState& state, int head, int key) {
  Lanes sums[kLanes] = {};
  for (int d = 0; d < kKeyDim; d += kPairStep) {
    PairLanes keys[kKeys];
    for (int j = 0; j < kKeys; ++j) keys[j] = LoadPairs(state.keys[key + j] + d);
    for (int i = 0; i < kHeads; ++i) {
      const PairLanes query = LoadPairs(state.queries[head + i] + d);
      for (int j = 0; j < kKeys; ++j) sums[i * kKeys + j] = AddDotOfPairs(sums[i * kKeys + j], query, keys[j]);
    }
  }
  if constexpr (kHeads * kKeys == kLanes) {
    alignas(64) float totals[kLanes];
    StoreLanes(totals, SumSixteenLanes(sums));
    for (int i = 0; i < kHeads; ++i) __builtin_memcpy(&state.scores[head + i][key], totals + i * kKeys, kKeys * 4);
  } else {
    for (int i = 0; i < kHeads; ++i) {
      for (int j = 0; j < kKeys; ++j) state.scores[head + i][key + j] = SumLanes(sums[i * kKeys + j]);
    }
  }
}

void ScoreBlock(RowState& state, int num_heads, int count) {
  int head = 0;
  for (; head + kTileHeads <= num_heads; head += kTileHeads) {
    for (int key = 0; key < count; key += kTileKeys) ScoreTile<kTileHeads, kTileKeys>(state, head, key);
  }
  for (; head < num_heads; ++head) {
    for (int key = 0; key < count; key += kTileKeys) ScoreTile<1, kTileKeys>(state, head, key);
  }
}

// Turns a head's scores of one block into p, and says by what the head's accumulators shrink.
void SoftmaxBlock(float softmax_scale, int count, int head, RowState& state) {
  float* scores = state.scores[head];
  for (int j = count; j < kBlock; ++j) scores[j] = -__builtin_inff();
  const Lanes scale = BroadcastLanes(softmax_scale);
  Lanes largest = BroadcastLanes(state.maxima[head]);
  for (int j = 0; j < kBlock; j += kLanes) {
    const Lanes scaled = LoadLanes(scores + j) * scale;
    StoreLanes(scores + j, scaled);
    largest = MaxLanes(largest, scaled);
  }
  const float maximum = MaxLane(largest);
  const Lanes shift = BroadcastLanes(maximum);
  Lanes weight_sums = {};
  for (int j = 0; j < kBlock; j += kLanes) {
    const Lanes weights = ExpLanes(LoadLanes(scores + j) - shift);
    StoreLanes(scores + j, weights);
    weight_sums += weights;
  }
  const float factor = ExpLanes(BroadcastLanes(state.maxima[head] - maximum))[0];
  state.sums[head] = state.sums[head] * factor + SumLanes(weight_sums);
  state.maxima[head] = maximum;
  state.factors[head] = factor;
}

}  // namespace

void SparseMla(const SparseMlaTask& task) {
  RowState state;
  for (int head = 0; head < task.num_heads; ++head) {
    uint16_t* query = state.queries[head];
    __builtin_memcpy(query, task.q_latent + head * task.q_latent_stride, kLatentDim * sizeof(uint16_t));
    __builtin_memcpy(query + kLatentDim, task.q_rope + head * task.q_rope_stride, kvcache::kRopeDim * sizeof(uint16_t));
    state.maxima[head] = -__builtin_inff();
    state.sums[head] = 0;
  }
  __builtin_memset(state.accumulators, 0, sizeof(state.accumulators[0]) * static_cast<size_t>(task.num_heads));
  for (int64_t first = 0; first < task.num_positions; first += kBlock) {
    const int64_t rest = task.num_positions - first;
    const int count = static_cast<int>(rest < kBlock ? rest : kBlock);
    LoadBlock(task, task.positions + first, count, state);
    ScoreBlock(state, task.num_heads, count);
    for (int head = 0; head < task.num_heads; ++head) SoftmaxBlock(task.softmax_scale, count, head, state);
    for (int d = 0; d < kLatentDim; d += kOuterColumns) {
      AddOuterFloats(state.scores[0], kBlock, state.values[0] + d, kLatentDim, count, state.factors, task.num_heads,
                     state.accumulators[0] + d, kLatentDim);
    }
  }
  for (int head = 0; head < task.num_heads; ++head) {
    const Lanes sum = BroadcastLanes(task.num_positions == 0 ? 1.0f : state.sums[head]);
    uint16_t* out = task.out + head * task.out_stride;
    for (int d = 0; d < kLatentDim; d += kLanes) {
      StoreBf16Lanes(out + d, LoadLanes(state.accumulators[head] + d) / sum);
    }
  }
}

void MlaAbsorb(const MlaAbsorbTask& task, int64_t column, int64_t column_end) {
  constexpr int kTileRows = 64;
  constexpr int kTileNope = 128;
  alignas(64) uint32_t w[kTileNope / 2][kOuterColumns];
  alignas(64) uint32_t q[kTileRows][kTileNope / 2];
  alignas(64) float y[kTileRows][kOuterColumns];
  for (; column < column_end; column += kOuterColumns) {
    for (int64_t row = 0; row < task.num_rows; row += kTileRows) {
      const int64_t rows = task.num_rows - row < kTileRows ? task.num_rows - row : kTileRows;
      __builtin_memset(y, 0, sizeof(y[0]) * static_cast<size_t>(rows));
      for (int64_t d = 0; d < task.nope_dim; d += kTileNope) {
        const int depth = static_cast<int>(task.nope_dim - d < kTileNope ? task.nope_dim - d : kTileNope);
        for (int t = 0; t < depth; t += 2) {
          const uint16_t* even = task.w + (d + t) * task.w_stride + column;
          InterleaveRows(even, even + task.w_stride, kOuterColumns, w[t / 2]);
        }
        for (int64_t i = 0; i < rows; ++i) {
          __builtin_memcpy(q[i], task.q + (row + i) * task.q_stride + d, static_cast<size_t>(depth) * sizeof(uint16_t));
        }
        AddOuterPairs(q[0], kTileNope / 2, w[0], kOuterColumns, depth / 2, rows, y[0], kOuterColumns);
      }
      for (int64_t i = 0; i < rows; ++i) {
        for (int c = 0; c < kOuterColumns; c += kLanes) {
          StoreBf16Lanes(task.y + (row + i) * task.y_stride + column + c, LoadLanes(y[i] + c));
        }
      }
    }
  }
}

}  // namespace TANDEM_LEVEL
}  // namespace tandem::kernels::cpu
