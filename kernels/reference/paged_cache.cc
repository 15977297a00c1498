// WriteLatent and WriteIndexKey: the only writers of cached records. Tested by paged_cache_test.cc.
#include <cstring>

#include "base/status_macros.h"
#include "kernels/op_border.h"
#include "kernels/ops.h"
#include "kernels/paged_rows.h"
#include "kernels/reference/quantize_group.h"

namespace tandem::kernels {
namespace {

void WriteFp8Latent(const Bf16* latent, ScaleFormat scale_format, uint8_t* record) {
  static_assert(kvcache::kLatentTile == kQuantGroup);
  for (int tile = 0; tile < kvcache::kLatentDim / kvcache::kLatentTile; ++tile) {
    E4m3 codes[kQuantGroup];
    const int begin = tile * kvcache::kLatentTile;
    const float scale = QuantizeGroup(latent + begin, scale_format, codes);
    std::memcpy(record + begin, codes, sizeof(codes));
    std::memcpy(record + kvcache::kLatentScaleOffset + tile * sizeof(scale), &scale, sizeof(scale));
  }
}

}  // namespace

absl::Status WriteLatent(const WriteLatentArgs& args) {
  const int64_t num_rows = args.latent.shape[0];
  const int64_t num_pages = args.latent_pages.shape[0];
  OpBorder border("WriteLatent");
  border.Shape("latent", args.latent, {num_rows, kvcache::kLatentDim})
      .Shape("rope_key", args.rope_key, {num_rows, kvcache::kRopeDim})
      .Shape("latent_pages", args.latent_pages, {num_pages, kvcache::LatentPageBytes(args.kv_cache_dtype)});
  CheckPagedRows(border, args.rows, num_rows, num_pages);
  RETURN_IF_ERROR(border.status());
  const int record_bytes = kvcache::LatentRecordBytes(args.kv_cache_dtype);
  for (int64_t row = 0; row < num_rows; ++row) {
    const auto [page, slot] = SlotOf(args.rows, row, args.rows.context_length.data[row] - 1);
    uint8_t* record = args.latent_pages.Row(page) + slot * record_bytes;
    if (args.kv_cache_dtype == kvcache::KvCacheDtype::kFp8E4m3) {
      WriteFp8Latent(args.latent.Row(row), args.scale_format, record);
    } else {
      std::memcpy(record, args.latent.Row(row), kvcache::kLatentDim * sizeof(Bf16));
    }
    std::memcpy(record + kvcache::LatentRopeOffset(args.kv_cache_dtype), args.rope_key.Row(row),
                kvcache::kRopeDim * sizeof(Bf16));
  }
  return absl::OkStatus();
}

absl::Status WriteIndexKey(const WriteIndexKeyArgs& args) {
  const int64_t num_rows = args.key.shape[0];
  const int64_t num_pages = args.index_pages.shape[0];
  OpBorder border("WriteIndexKey");
  border.Shape("key", args.key, {num_rows, kvcache::kIndexDim})
      .Shape("scale", args.scale, {num_rows, 1})
      .Shape("index_pages", args.index_pages, {num_pages, kvcache::kIndexPageBytes});
  CheckPagedRows(border, args.rows, num_rows, num_pages);
  RETURN_IF_ERROR(border.status());
  for (int64_t row = 0; row < num_rows; ++row) {
    const auto [page, slot] = SlotOf(args.rows, row, args.rows.context_length.data[row] - 1);
    uint8_t* bytes = args.index_pages.Row(page);
    std::memcpy(bytes + slot * kvcache::kIndexDim, args.key.Row(row), kvcache::kIndexDim);
    std::memcpy(bytes + kvcache::kIndexScaleOffset + slot * sizeof(float), args.scale.Row(row), sizeof(float));
  }
  return absl::OkStatus();
}

}  // namespace tandem::kernels
