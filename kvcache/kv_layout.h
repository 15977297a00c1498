// The bytes of the KV cache: the one place that knows a size or an offset of it. docs/kv_layout.md draws it.
//
// A page holds 64 tokens of one layer, as two kinds of records. The index page is DeepGEMM's page-grouped 132-byte
// index key; the latent page has the format that cluster.kv_cache_dtype names (fp8_e4m3: FlashMLA's 656-byte record):
//   latent page, fp8_e4m3  64 x [512 B e4m3 latent | 4 x f32 scale, one per 128 dims | 64 x bf16 rotary key]
//   latent page, bfloat16  64 x [512 x bf16 latent | 64 x bf16 rotary key]
//   index page             64 x 128 B e4m3 key, then 64 x f32 scale                  (not interleaved per token)
// The pool is layer-major: for each layer all latent pages, then all index pages, so that a layer's pages form the
// [num_pages, 64, record] tensors that kernels read and contiguous page ids are contiguous bytes.
// Tested by kv_layout_test.cc.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace tandem::kvcache {

inline constexpr int kPageTokens = 64;
inline constexpr int kLatentDim = 512;
inline constexpr int kLatentTile = 128;  // dims that share one scale
inline constexpr int kRopeDim = 64;
inline constexpr int kIndexDim = 128;

// What latents are cached as. The rotary key is BF16 and the index key FP8 in either.
enum class KvCacheDtype : uint8_t { kFp8E4m3 = 0, kBfloat16 = 1 };
// The values of cluster.kv_cache_dtype, by KvCacheDtype.
inline constexpr absl::string_view kKvCacheDtypeNames[] = {"fp8_e4m3", "bfloat16"};

constexpr absl::string_view KvCacheDtypeName(KvCacheDtype dtype) { return kKvCacheDtypeNames[static_cast<int>(dtype)]; }
// None where no format has that name.
inline std::optional<KvCacheDtype> KvCacheDtypeOf(absl::string_view name) {
  for (const KvCacheDtype dtype : {KvCacheDtype::kFp8E4m3, KvCacheDtype::kBfloat16}) {
    if (name == KvCacheDtypeName(dtype)) return dtype;
  }
  return std::nullopt;
}

inline constexpr int kLatentScaleOffset = kLatentDim;  // 512, of fp8_e4m3 records only
constexpr int LatentRopeOffset(KvCacheDtype dtype) {
  return dtype == KvCacheDtype::kFp8E4m3 ? kLatentScaleOffset + kLatentDim / kLatentTile * 4  // 528
                                         : kLatentDim * 2;                                    // 1,024
}
constexpr int LatentRecordBytes(KvCacheDtype dtype) { return LatentRopeOffset(dtype) + kRopeDim * 2; }  // 656 or 1,152
constexpr int64_t LatentPageBytes(KvCacheDtype dtype) { return int64_t{kPageTokens} * LatentRecordBytes(dtype); }

inline constexpr int kIndexRecordBytes = kIndexDim + 4;            // 132
inline constexpr int kIndexScaleOffset = kPageTokens * kIndexDim;  // of token 0, within an index page
inline constexpr int64_t kIndexPageBytes = int64_t{kPageTokens} * kIndexRecordBytes;  // 8,448

static_assert(LatentPageBytes(KvCacheDtype::kFp8E4m3) == 41984 && LatentPageBytes(KvCacheDtype::kBfloat16) == 73728 &&
              kIndexPageBytes == 8448);

enum class RecordKind : uint8_t { kLatent = 0, kIndex = 1 };

constexpr int64_t PageBytes(RecordKind kind, KvCacheDtype dtype) {
  return kind == RecordKind::kLatent ? LatentPageBytes(dtype) : kIndexPageBytes;
}

constexpr int PagesForTokens(int64_t num_tokens) {
  return static_cast<int>((num_tokens + kPageTokens - 1) / kPageTokens);
}

// Where things lie in one pool of num_layers x num_pages. A layer id of num_hidden_layers is the MTP layer.
struct KvLayout {
  int num_layers = 0;
  int64_t num_pages = 0;
  KvCacheDtype kv_cache_dtype = KvCacheDtype::kFp8E4m3;

  constexpr int64_t PageBytes(RecordKind kind) const { return kvcache::PageBytes(kind, kv_cache_dtype); }
  // Of one page of one layer, both kinds together.
  constexpr int64_t page_bytes() const { return PageBytes(RecordKind::kLatent) + PageBytes(RecordKind::kIndex); }
  constexpr int64_t layer_bytes() const { return num_pages * page_bytes(); }
  constexpr int64_t pool_bytes() const { return num_layers * layer_bytes(); }
  constexpr int64_t LatentOffset(int layer, int64_t page) const {
    return layer * layer_bytes() + page * PageBytes(RecordKind::kLatent);
  }
  constexpr int64_t IndexOffset(int layer, int64_t page) const {
    return layer * layer_bytes() + num_pages * PageBytes(RecordKind::kLatent) + page * PageBytes(RecordKind::kIndex);
  }
  constexpr int64_t PageOffset(RecordKind kind, int layer, int64_t page) const {
    return kind == RecordKind::kLatent ? LatentOffset(layer, page) : IndexOffset(layer, page);
  }
  bool operator==(const KvLayout&) const = default;
};

}  // namespace tandem::kvcache
