// E4M3 codes with a scale to BF16: bf16(code * scale), rounded once, exact where the scale is a power of two.
//
// With byte permutations (AVX-512 VBMI) a group of 128 codes goes through two tables of 128 bytes, the high and the low
// bytes of the 128 magnitudes times the scale. Tables are kept for the scales met last: real weights have a handful.
// Included by *_level.cc alone, hence always_inline. Tested by levels_test.cc.
#pragma once

#include <cstdint>

#include "kernels/lanes.h"

namespace tandem::kernels::cpu {
#if defined(__AVX512VBMI__)
inline namespace vbmi {

class E4m3Decoder final {
 public:
  TANDEM_LANES_INLINE E4m3Decoder() {
    for (int i = 0; i < kTables; ++i) keys_[i] = kNoKey;
  }

  // What Decode needs of a scale; good until the next call.
  struct Tables {
    __m512i high0, high1, low0, low1;
  };
  TANDEM_LANES_INLINE Tables TablesOf(float scale) {
    const uint32_t key = __builtin_bit_cast(uint32_t, scale);
    const int slot = static_cast<int>((key >> 23) ^ (key >> 9)) & (kTables - 1);
    if (keys_[slot] != key) {
      Fill(slot, scale);
      keys_[slot] = key;
    }
    const uint8_t* table = tables_[slot];
    return {_mm512_load_si512(table), _mm512_load_si512(table + 64), _mm512_load_si512(table + 128),
            _mm512_load_si512(table + 192)};
  }

  // 64 codes, as two registers of 32 values.
  struct Values {
    PairLanes first, second;
  };
  static TANDEM_LANES_INLINE Values Decode(const Tables& tables, const uint8_t* codes) {
    // Unpacking interleaves within 128 bits: the quarters' halves change places first.
    const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
    const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
    const __m512i code = _mm512_permutexvar_epi64(order, _mm512_loadu_si512(codes));
    const __m512i low = _mm512_permutex2var_epi8(tables.low0, code, tables.low1);
    __m512i high = _mm512_permutex2var_epi8(tables.high0, code, tables.high1);
    high = _mm512_ternarylogic_epi32(high, code, sign, 0xf8);  // high | (code & sign)
    return {{{__builtin_bit_cast(NativeUint, _mm512_unpacklo_epi8(low, high))}},
            {{__builtin_bit_cast(NativeUint, _mm512_unpackhi_epi8(low, high))}}};
  }

  // 128 codes.
  static TANDEM_LANES_INLINE void DecodeGroup(const Tables& tables, const uint8_t* codes, uint16_t* target) {
#pragma GCC unroll 2
    for (int k = 0; k < 128; k += 64) {
      const Values values = Decode(tables, codes + k);
      StorePairs(target + k, values.first);
      StorePairs(target + k + 32, values.second);
    }
  }

 private:
  static constexpr int kTables = 32;
  static constexpr uint32_t kNoKey = 0xffffffffu;  // a NaN that no scale is

  __attribute__((noinline)) void Fill(int slot, float scale) {
    const Lanes scales = BroadcastLanes(scale);
    for (int c = 0; c < 128; c += kLanes) {
      uint8_t codes[kLanes];
      for (int l = 0; l < kLanes; ++l) codes[l] = static_cast<uint8_t>(c + l);
      uint16_t values[kLanes];
      StoreBf16Lanes(values, LoadE4m3Lanes(codes) * scales);
      for (int l = 0; l < kLanes; ++l) {
        tables_[slot][c + l] = static_cast<uint8_t>(values[l] >> 8);
        tables_[slot][128 + c + l] = static_cast<uint8_t>(values[l] & 0xff);
      }
    }
  }

  alignas(64) uint8_t tables_[kTables][256];
  uint32_t keys_[kTables];
};

}  // namespace vbmi
#else
inline namespace lanes {

class E4m3Decoder final {
 public:
  using Tables = Lanes;
  static TANDEM_LANES_INLINE Tables TablesOf(float scale) { return BroadcastLanes(scale); }
  static TANDEM_LANES_INLINE void DecodeGroup(const Tables& scale, const uint8_t* codes, uint16_t* target) {
    for (int k = 0; k < 128; k += kLanes) StoreBf16Lanes(target + k, LoadE4m3Lanes(codes + k) * scale);
  }
};

}  // namespace lanes
#endif
}  // namespace tandem::kernels::cpu
