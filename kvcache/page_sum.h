// A 64-bit sum over the bytes of a KV page, by which decode knows that what arrived is what prefill wrote.
//
// The sum adds mix(word xor key(index)) over the page's 128-bit words, modulo 2^64. Addition has no order, so one core,
// any SIMD loop, any CUDA grid and any split of the page give the same value; the key makes a word's place count.
//   key(i)    = ((i + 1) * kKeyLow, (i + 1) * kKeyHigh xor kKeyTwist)                     both modulo 2^64
//   mix(l, h) = low half xor high half of the 128-bit product l * h
// Words are little-endian. A changed word keeps the sum with probability about 2^-64.
//
// The content sum depends on the bytes alone, so a cached page is summed once. What travels is the bound sum: content,
// then kind, layer, logical page, decode's incarnation, and the epoch last. So a page of another place, of another
// request or of a decode that has restarted cannot agree. Binding is bijective in each of its values.
// Tested by page_sum_test.cc, which also fixes vectors for other implementations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kvcache/kv_layout.h"

namespace tandem::kvcache {

inline constexpr size_t kSumWordBytes = 16;
static_assert(LatentPageBytes(KvCacheDtype::kFp8E4m3) % kSumWordBytes == 0 &&
              LatentPageBytes(KvCacheDtype::kBfloat16) % kSumWordBytes == 0 && kIndexPageBytes % kSumWordBytes == 0);

// What a page's sum is bound to.
struct SumBinding {
  RecordKind kind = RecordKind::kLatent;
  uint32_t layer = 0;
  uint32_t logical_page = 0;  // position in the request's prompt, in pages: not a page id of either pool
  uint64_t incarnation = 0;   // of the decode worker
  uint64_t epoch = 0;
};

// Content sum of whole words, the first of which is word `first_word` of its page: sums of the parts of a page add up
// to the sum of the page. The size is a multiple of kSumWordBytes; any alignment.
uint64_t ContentSum(std::span<const std::byte> bytes, uint64_t first_word = 0);

uint64_t BindSum(uint64_t content_sum, const SumBinding& binding);

}  // namespace tandem::kvcache
