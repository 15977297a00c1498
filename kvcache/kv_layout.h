// The bytes of the KV cache: the one place that knows a size or an offset of it. docs/kv_layout.md draws it.
//
// A page holds 64 tokens of one layer, as two kinds of records (specification: FlashMLA's 656-byte latent record and
// DeepGEMM's page-grouped 132-byte index key):
//   latent page  64 x [512 B e4m3 latent | 4 x f32 scale, one per 128 dims | 64 x bf16 rotary key]
//   index page   64 x 128 B e4m3 key, then 64 x f32 scale                  (not interleaved per token)
// The pool is layer-major: for each layer all latent pages, then all index pages, so that a layer's pages form the
// [num_pages, 64, record] tensors that kernels read and contiguous page ids are contiguous bytes.
// Tested by kv_layout_test.cc.
#pragma once

#include <cstdint>

namespace tandem::kvcache {

inline constexpr int kPageTokens = 64;
inline constexpr int kLatentDim = 512;
inline constexpr int kLatentTile = 128;  // dims that share one scale
inline constexpr int kRopeDim = 64;
inline constexpr int kIndexDim = 128;

inline constexpr int kLatentScaleOffset = kLatentDim;                                        // 512
inline constexpr int kLatentRopeOffset = kLatentScaleOffset + kLatentDim / kLatentTile * 4;  // 528
inline constexpr int kLatentRecordBytes = kLatentRopeOffset + kRopeDim * 2;                  // 656
inline constexpr int kIndexRecordBytes = kIndexDim + 4;                                      // 132
inline constexpr int kIndexScaleOffset = kPageTokens * kIndexDim;  // of token 0, within an index page

inline constexpr int64_t kLatentPageBytes = int64_t{kPageTokens} * kLatentRecordBytes;  // 41,984
inline constexpr int64_t kIndexPageBytes = int64_t{kPageTokens} * kIndexRecordBytes;    // 8,448
static_assert(kLatentRecordBytes == 656 && kLatentPageBytes == 41984 && kIndexPageBytes == 8448);

enum class RecordKind : uint8_t { kLatent = 0, kIndex = 1 };

constexpr int64_t PageBytes(RecordKind kind) {
  return kind == RecordKind::kLatent ? kLatentPageBytes : kIndexPageBytes;
}

constexpr int PagesForTokens(int64_t num_tokens) {
  return static_cast<int>((num_tokens + kPageTokens - 1) / kPageTokens);
}

// Where things lie in one pool of num_layers x num_pages. A layer id of num_hidden_layers is the MTP layer.
struct KvLayout {
  int num_layers = 0;
  int64_t num_pages = 0;

  constexpr int64_t layer_bytes() const { return num_pages * (kLatentPageBytes + kIndexPageBytes); }
  constexpr int64_t pool_bytes() const { return num_layers * layer_bytes(); }
  constexpr int64_t LatentOffset(int layer, int64_t page) const {
    return layer * layer_bytes() + page * kLatentPageBytes;
  }
  constexpr int64_t IndexOffset(int layer, int64_t page) const {
    return layer * layer_bytes() + num_pages * kLatentPageBytes + page * kIndexPageBytes;
  }
  constexpr int64_t PageOffset(RecordKind kind, int layer, int64_t page) const {
    return kind == RecordKind::kLatent ? LatentOffset(layer, page) : IndexOffset(layer, page);
  }
  bool operator==(const KvLayout&) const = default;
};

}  // namespace tandem::kvcache
