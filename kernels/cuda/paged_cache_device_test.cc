// The cache writers on the device leave the CPU's bytes in the pages, and touch no other.
#include "kernels/cuda/device_testing.h"
#include "kernels/cuda/ops.h"
#include "kernels/op_testing.h"
#include "kernels/ops.h"

namespace tandem::kernels::cuda {
namespace {

using kvcache::KvCacheDtype;

constexpr Placement kPlacements[] = {{}, {.row_gap = 64}, {.row_gap = 3, .offset = 1}};
constexpr int kNumPages = 12;

// Rows of three sequences at distinct positions: first and last slots of pages, and what lies between.
struct Rows {
  Rows() : paged({1, 64, 65, 190, 2, 128, 100, 63}, {0, 0, 0, 0, 1, 1, 2, 2}, {7, 3, 11, 0, 9, 4, 2, 10, 5}) {}
  PagedFixture paged;
  static constexpr int64_t kCount = 8;
};

class PagedCacheDeviceTest : public DeviceTest {
 protected:
  struct DeviceRows {
    DeviceTensor<int32_t, 2> page_tables;
    DeviceTensor<int32_t, 1> sequence, context_length;
    PagedRows rows() const {
      return {.page_tables = page_tables, .sequence = sequence, .context_length = context_length};
    }
  };
  DeviceRows UploadRows(Rows& rows) {
    return {Upload(rows.paged.page_tables, {.row_gap = 2}), Upload(rows.paged.sequence),
            Upload(rows.paged.context_length)};
  }
  // Pages full of poison on both sides.
  static Tensor<uint8_t, 2> Poisoned(int64_t page_bytes) {
    Tensor<uint8_t, 2> pages({kNumPages, page_bytes});
    std::fill(pages.values().begin(), pages.values().end(), kPoison);
    return pages;
  }
};

TEST_F(PagedCacheDeviceTest, LatentRecordsAreTheCpus) {
  Source source(1);
  Rows rows;
  const DeviceRows device_rows = UploadRows(rows);
  Tensor<Bf16, 2> latent = source.NormalBf16<2>({Rows::kCount, 512}),
                  rope_key = source.NormalBf16<2>({Rows::kCount, 64});
  latent.at(3, 130) = Bf16{0xffc0};
  rope_key.at(4, 63) = Bf16{0x7fc1};
  for (const KvCacheDtype dtype : {KvCacheDtype::kFp8E4m3, KvCacheDtype::kBfloat16}) {
    for (const ScaleFormat format : {ScaleFormat::kUe8m0, ScaleFormat::kFloat32}) {
      const int64_t page_bytes = kvcache::LatentPageBytes(dtype);
      Tensor<uint8_t, 2> expected = Poisoned(page_bytes);
      ASSERT_TRUE(kernels::WriteLatent({.latent = latent,
                                        .rope_key = rope_key,
                                        .scale_format = format,
                                        .rows = rows.paged.rows(),
                                        .kv_cache_dtype = dtype,
                                        .latent_pages = expected})
                      .ok());
      for (const Placement& placement : kPlacements) {
        auto device_latent = Upload(latent, placement);
        auto device_rope_key = Upload(rope_key, placement);
        auto pages = Output<uint8_t, 2>({kNumPages, page_bytes}, placement);
        RunOp(WriteLatent(stream(), {.latent = device_latent,
                                     .rope_key = device_rope_key,
                                     .scale_format = format,
                                     .rows = device_rows.rows(),
                                     .kv_cache_dtype = dtype,
                                     .latent_pages = pages}));
        ExpectSameBytes(absl::StrCat("WriteLatent ", std::string(KvCacheDtypeName(dtype)), " gap ", placement.row_gap),
                        pages.Download(), expected);
      }
    }
  }
}

TEST_F(PagedCacheDeviceTest, IndexRecordsAreTheCpus) {
  Source source(2);
  Rows rows;
  const DeviceRows device_rows = UploadRows(rows);
  Tensor<E4m3, 2> key = source.NormalE4m3<2>({Rows::kCount, 128});
  Tensor<float, 2> scale = source.NormalF32<2>({Rows::kCount, 1});
  Tensor<uint8_t, 2> expected = Poisoned(kvcache::kIndexPageBytes);
  ASSERT_TRUE(
      kernels::WriteIndexKey({.key = key, .scale = scale, .rows = rows.paged.rows(), .index_pages = expected}).ok());
  for (const Placement& placement : kPlacements) {
    auto device_key = Upload(key, placement);
    auto device_scale = Upload(scale, placement);
    auto pages = Output<uint8_t, 2>({kNumPages, kvcache::kIndexPageBytes}, placement);
    RunOp(WriteIndexKey(stream(),
                        {.key = device_key, .scale = device_scale, .rows = device_rows.rows(), .index_pages = pages}));
    ExpectSameBytes(absl::StrCat("WriteIndexKey gap ", placement.row_gap), pages.Download(), expected);
  }
}

TEST_F(PagedCacheDeviceTest, ZeroRowsWriteNothing) {
  auto latent = Output<Bf16, 2>({0, 512}), rope_key = Output<Bf16, 2>({0, 64});
  auto page_tables = Output<int32_t, 2>({1, 1});
  auto none = Output<int32_t, 1>({0});
  auto pages = Output<uint8_t, 2>({2, kvcache::LatentPageBytes(KvCacheDtype::kFp8E4m3)});
  RunOp(WriteLatent(stream(), {.latent = latent,
                               .rope_key = rope_key,
                               .rows = {.page_tables = page_tables, .sequence = none, .context_length = none},
                               .latent_pages = pages}));
  Tensor<uint8_t, 2> expected({2, kvcache::LatentPageBytes(KvCacheDtype::kFp8E4m3)});
  std::fill(expected.values().begin(), expected.values().end(), kPoison);
  ExpectSameBytes("WriteLatent of nothing", pages.Download(), expected);
}

TEST_F(PagedCacheDeviceTest, RefusesPagesOfTheOtherFormat) {
  auto latent = Output<Bf16, 2>({1, 512}), rope_key = Output<Bf16, 2>({1, 64});
  auto page_tables = Output<int32_t, 2>({1, 1});
  auto one = Output<int32_t, 1>({1});
  auto pages = Output<uint8_t, 2>({2, kvcache::LatentPageBytes(KvCacheDtype::kFp8E4m3)});
  EXPECT_EQ(WriteLatent(stream(), {.latent = latent,
                                   .rope_key = rope_key,
                                   .rows = {.page_tables = page_tables, .sequence = one, .context_length = one},
                                   .kv_cache_dtype = KvCacheDtype::kBfloat16,
                                   .latent_pages = pages})
                .message(),
            "WriteLatent: latent_pages is [2, 41984], must be [2, 73728]");
}

}  // namespace
}  // namespace tandem::kernels::cuda
