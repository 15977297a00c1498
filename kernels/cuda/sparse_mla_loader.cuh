// The loader of sparse attention: a warpgroup that gathers listed records into tiles of shared memory as BF16.
//
// A block of 64 entries is loaded in four quarters of 16, each warp 4 entries of a quarter; two quarters are under way
// in registers while a third is converted and stored. The page table is read a block ahead: lane l < 16 of a warp knows
// the record of entry l % 4 of quarter l / 4. Entries beyond the list are zeros. What a thread loads is chosen so that
// 8 neighbouring lanes write 8 different 16-byte banks: of FP8 records, 2 entries x 4 chunks of 16 codes; of BF16 ones,
// 8 chunks of one entry.
#pragma once

#include <cstdint>

#include "kernels/cuda/ptx_attention.cuh"
#include "kvcache/kv_layout.h"

namespace tandem::kernels::cuda {

inline constexpr int kEntryBlock = 64;
inline constexpr int kSubtiles = 9;  // of 64 dims: 8 latent, 1 rotary

// Four e4m3 codes as BF16 values times 2^-120: low has codes 0 and 1, high 2 and 3.
__device__ __forceinline__ void PlaceE4m3(uint32_t codes, uint32_t& low, uint32_t& high) {
  const uint32_t first = ptx::BytePermute(codes, 0, 0x1404), second = ptx::BytePermute(codes, 0, 0x3424);
  low = (first & 0x80008000u) | (first >> 4 & 0x07f007f0u);
  high = (second & 0x80008000u) | (second >> 4 & 0x07f007f0u);
}

__device__ __forceinline__ float E4m3ToFloat(uint32_t code) {
  if ((code & 0x7fu) == 0x7fu) return __uint_as_float(0x7fc00000u);
  return __uint_as_float((code & 0x80u) << 24 | (code & 0x7fu) << 20) * 0x1p120f;
}

// True where some code of the word is NaN.
__device__ __forceinline__ bool HasNanCode(uint32_t codes) {
  return (((codes & 0x7f7f7f7fu) + 0x01010101u) & 0x80808080u) != 0;
}

// bf16(code * scale) of 16 codes: two chunks of 8 values. The whole warp takes the short way, or none.
__device__ __forceinline__ void Dequantize(const uint4& codes, float scale, uint4 (&chunks)[2]) {
  const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
  const uint32_t scale_bits = __float_as_uint(scale), exponent = scale_bits >> 23;  // with the sign: out of range
  const bool is_plain = (scale_bits & 0x7fffffu) == 0 && exponent >= 27 && exponent <= 134;
  const bool has_nan = HasNanCode(words[0]) || HasNanCode(words[1]) || HasNanCode(words[2]) || HasNanCode(words[3]);
  uint32_t values[8];
  if (__all_sync(0xffffffffu, is_plain && !has_nan)) {
    const uint32_t factor = (exponent + 120) << 7 | (exponent + 120) << 23;
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      uint32_t low, high;
      PlaceE4m3(words[w], low, high);
      values[2 * w] = ptx::MultiplyBf16x2(low, factor);
      values[2 * w + 1] = ptx::MultiplyBf16x2(high, factor);
    }
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const uint32_t pair = words[i / 2] >> (i % 2 * 16);
      values[i] = ptx::PackBf16(E4m3ToFloat(pair & 0xff) * scale, E4m3ToFloat(pair >> 8 & 0xff) * scale);
    }
  }
  chunks[0] = {values[0], values[1], values[2], values[3]};
  chunks[1] = {values[4], values[5], values[6], values[7]};
}

inline constexpr uint32_t kNoRecord = 0xffffffffu;

// page * 64 + slot.
__device__ __forceinline__ uint32_t RecordOf(const int32_t* table, int32_t position) {
  const uint32_t at = static_cast<uint32_t>(position);
  return static_cast<uint32_t>(table[at / kvcache::kPageTokens]) * kvcache::kPageTokens + at % kvcache::kPageTokens;
}

template <int kRecordBytes>
__device__ __forceinline__ const uint8_t* RecordAt(const uint8_t* pages, int64_t page_stride, uint32_t record) {
  return pages + static_cast<int64_t>(record / kvcache::kPageTokens) * page_stride +
         record % kvcache::kPageTokens * kRecordBytes;
}

template <bool kIsBf16>
class RecordLoader {
 public:
  // pages: of one layer; table: of the row's sequence; thread: of the warpgroup. Blocks first_block, first_block +
  // block_step, ... of the list are loaded.
  __device__ RecordLoader(const uint8_t* pages, int64_t page_stride, const int32_t* table, const int32_t* list,
                          int count, int first_block, int block_step, int thread)
      : pages_(pages),
        page_stride_(page_stride),
        table_(table),
        list_(list),
        count_(count),
        first_block_(first_block),
        block_step_(block_step),
        lane_(thread % 32),
        warp_(thread / 32) {}

  // wait_empty(i): until the i-th loaded block may be written to tile_at(i). full(i): it has been. Who reads the tile
  // by products puts a proxy fence before them; one here would wait for all loads that are under way.
  template <typename WaitEmpty, typename TileAt, typename Full>
  __device__ __forceinline__ void Run(const WaitEmpty& wait_empty, const TileAt& tile_at, const Full& full) const {
    if (first_block_ * kEntryBlock >= count_) return;
    uint32_t records = RecordFor(PositionFor(0)), next_records = RecordFor(PositionFor(1));
    int32_t next_position = PositionFor(2);  // loads that depend on each other are issued a block apart
    Quarter under_way[2];
    Load(records, 0, under_way[0]);
    Load(records, 1, under_way[1]);
    for (int i = 0; (first_block_ + i * block_step_) * kEntryBlock < count_; ++i) {
      wait_empty(i);
      uint8_t* tile = tile_at(i);
#pragma unroll
      for (int quarter = 0; quarter < 4; ++quarter) {
        Store(under_way[quarter % 2], quarter, tile);
        if (quarter == 2) {
          records = next_records;
          next_records = RecordFor(next_position);
          next_position = PositionFor(i + 3);
        }
        Load(records, (quarter + 2) % 4, under_way[quarter % 2]);
      }
      full(i);
    }
  }

 private:
  static constexpr auto kDtype = kIsBf16 ? kvcache::KvCacheDtype::kBfloat16 : kvcache::KvCacheDtype::kFp8E4m3;
  static constexpr int kRecordBytes = kvcache::LatentRecordBytes(kDtype);
  static constexpr int kRopeOffset = kvcache::LatentRopeOffset(kDtype);
  static constexpr int kLatentLoads = kIsBf16 ? 8 : 4;  // 16-byte chunks of a thread and quarter
  static constexpr int kSubtileBytes = kEntryBlock * 128;

  struct Quarter {
    uint4 latent[kLatentLoads];
    float scale[kIsBf16 ? 1 : kLatentLoads];
    uint4 rope;
  };

  // Lane l < 16: the position of entry l % 4 of quarter l / 4 of this warp's share of the block, -1 beyond the list.
  __device__ __forceinline__ int32_t PositionFor(int i) const {
    const int entry = (first_block_ + i * block_step_) * kEntryBlock + lane_ % 16 / 4 * 16 + warp_ * 4 + lane_ % 4;
    return entry < count_ ? list_[entry] : -1;
  }
  __device__ __forceinline__ uint32_t RecordFor(int32_t position) const {
    return position >= 0 ? RecordOf(table_, position) : kNoRecord;
  }

  // Of load u: which of the warp's four entries, and where the chunk lies in the latent's 8 subtiles. FP8: 4 lanes have
  // the 64 codes of a subtile.
  __device__ __forceinline__ int EntryOf(int u) const { return kIsBf16 ? u / 2 : u / 2 * 2 + lane_ / 4 % 2; }
  __device__ __forceinline__ int SubtileOf(int u) const { return lane_ / 8 + u % 2 * 4; }

  __device__ __forceinline__ void Load(uint32_t records, int quarter, Quarter& to) const {
#pragma unroll
    for (int u = 0; u < kLatentLoads; ++u) {
      const uint32_t record = __shfl_sync(0xffffffffu, records, quarter * 4 + EntryOf(u));
      to.latent[u] = {0, 0, 0, 0};
      if constexpr (!kIsBf16) to.scale[u] = 1.0f;
      if (record == kNoRecord) continue;
      const uint8_t* from = RecordAt<kRecordBytes>(pages_, page_stride_, record);
      if constexpr (kIsBf16) {
        to.latent[u] = ptx::LoadStream(from + SubtileOf(u) * 128 + lane_ % 8 * 16);
      } else {
        to.latent[u] = ptx::LoadStream(from + SubtileOf(u) * 64 + lane_ % 4 * 16);
        to.scale[u] = __ldg(reinterpret_cast<const float*>(from + kvcache::kLatentScaleOffset) + SubtileOf(u) / 2);
      }
    }
    const uint32_t record = __shfl_sync(0xffffffffu, records, quarter * 4 + lane_ / 8);
    to.rope = {0, 0, 0, 0};
    if (record == kNoRecord) return;
    to.rope = ptx::LoadStream(RecordAt<kRecordBytes>(pages_, page_stride_, record) + kRopeOffset + lane_ % 8 * 16);
  }

  __device__ __forceinline__ void Store(const Quarter& from, int quarter, uint8_t* tile) const {
    const int first_row = quarter * 16 + warp_ * 4;
#pragma unroll
    for (int u = 0; u < kLatentLoads; ++u) {
      uint8_t* subtile = tile + SubtileOf(u) * kSubtileBytes;
      const int row = first_row + EntryOf(u);
      if constexpr (kIsBf16) {
        *reinterpret_cast<uint4*>(subtile + ptx::SwizzledOffset(row, lane_ % 8)) = from.latent[u];
      } else {
        uint4 chunks[2];
        Dequantize(from.latent[u], from.scale[u], chunks);
        *reinterpret_cast<uint4*>(subtile + ptx::SwizzledOffset(row, lane_ % 4 * 2)) = chunks[0];
        *reinterpret_cast<uint4*>(subtile + ptx::SwizzledOffset(row, lane_ % 4 * 2 + 1)) = chunks[1];
      }
    }
    uint8_t* rope = tile + (kSubtiles - 1) * kSubtileBytes;
    *reinterpret_cast<uint4*>(rope + ptx::SwizzledOffset(first_row + lane_ / 8, lane_ % 8)) = from.rope;
  }

  const uint8_t* pages_;
  int64_t page_stride_;
  const int32_t* table_;
  const int32_t* list_;
  int count_;
  int first_block_, block_step_;
  int lane_, warp_;
};

}  // namespace tandem::kernels::cuda
