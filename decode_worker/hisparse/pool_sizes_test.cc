// Proves that the pools of HiSparse fit the device memory of the pool without it, for models of both formats and with
// the MTP layer, by adding the bytes up from the layout's own; and what each bad setting is told.
#include "decode_worker/hisparse/pool_sizes.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::decode {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr KvShape kTiny{.index_topk = 128, .num_main_layers = 5};
constexpr KvShape kV32{.index_topk = 2048, .num_main_layers = 61, .has_mtp = true};

// Bytes on the device, from the layout alone.
int64_t DeviceBytes(const KvShape& shape, const PoolSizes& sizes) {
  const kvcache::KvLayout main{
      .num_layers = shape.num_main_layers, .num_pages = sizes.num_tokens / 64, .kv_cache_dtype = shape.kv_cache_dtype};
  const kvcache::KvLayout mtp{
      .num_layers = shape.has_mtp ? 1 : 0, .num_pages = sizes.num_tokens / 64, .kv_cache_dtype = shape.kv_cache_dtype};
  return main.num_layers * (main.num_pages * kvcache::kIndexPageBytes +
                            sizes.num_device_pages * main.PageBytes(kvcache::RecordKind::kLatent)) +
         mtp.pool_bytes();
}

int64_t WholePoolBytes(const KvShape& shape, int64_t num_tokens) {
  return kvcache::KvLayout{.num_layers = shape.num_main_layers + (shape.has_mtp ? 1 : 0),
                           .num_pages = num_tokens / 64,
                           .kv_cache_dtype = shape.kv_cache_dtype}
      .pool_bytes();
}

TEST(PoolSizesTest, OffIsThePoolItself) {
  const auto sizes = PlanPools({}, kTiny, 1000);
  ASSERT_TRUE(sizes.ok());
  EXPECT_EQ(*sizes, (PoolSizes{.num_tokens = 960, .device_bytes = WholePoolBytes(kTiny, 960)}));
}

TEST(PoolSizesTest, FillTheDeviceMemoryOfThePoolWithoutIt) {
  for (const bool has_mtp : {false, true}) {
    for (const auto dtype : {kvcache::KvCacheDtype::kFp8E4m3, kvcache::KvCacheDtype::kBfloat16}) {
      for (KvShape shape : {kTiny, kV32}) {
        shape.has_mtp = has_mtp;
        shape.kv_cache_dtype = dtype;
        for (const double ratio : {1.0, 2.0, 2.5, 3.0}) {
          const auto sizes = PlanPools({.enabled = true, .host_to_device_ratio = ratio}, shape, 400'000);
          ASSERT_TRUE(sizes.ok()) << sizes.status();
          EXPECT_EQ(sizes->num_tokens, static_cast<int64_t>(400'000 / 64 * ratio) * 64);
          EXPECT_EQ(sizes->num_kept_pages_max, 2 * shape.index_topk / 64);
          const int64_t whole = WholePoolBytes(shape, 400'000);
          const int64_t one_page = shape.num_main_layers * kvcache::LatentPageBytes(dtype);
          EXPECT_EQ(sizes->device_bytes, whole);
          EXPECT_LE(DeviceBytes(shape, *sizes), whole);
          EXPECT_GT(DeviceBytes(shape, *sizes), whole - one_page) << "as many pages as fit";
          EXPECT_GE(sizes->num_device_pages, 1 + sizes->num_kept_pages_max);
        }
      }
    }
  }
}

TEST(PoolSizesTest, ABufferHoldsTheLongestListOfARow) {
  KvShape shape = kTiny;
  shape.dense_context_max = 500;
  const auto sizes = PlanPools({.enabled = true}, shape, 400'000);
  ASSERT_TRUE(sizes.ok()) << sizes.status();
  EXPECT_EQ(sizes->num_kept_pages_max, 8);  // 500 tokens in whole pages
  EXPECT_EQ(
      PlanPools({.enabled = true, .device_buffer_size = 256}, shape, 400'000).status().message(),
      "process.hisparse.device_buffer_size 256, allowed at least cluster.dense_attention_max_context 500: rows up "
      "to it attend to their whole context");
  shape.dense_context_max = 130;  // twice top_k is more
  EXPECT_EQ(PlanPools({.enabled = true}, shape, 400'000)->num_kept_pages_max, 4);
}

TEST(PoolSizesTest, TheLargestRatioThatIsNamedFits) {
  const HiSparseSettings settings{.enabled = true, .host_to_device_ratio = 50};
  const auto refused = PlanPools(settings, kTiny, 100'000);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(std::string(refused.status().message()),
              StartsWith("process.hisparse.host_to_device_ratio 50, allowed at most "));
  double largest = 0;
  ASSERT_EQ(sscanf(std::string(refused.status().message()).c_str(),
                   "process.hisparse.host_to_device_ratio 50, allowed at most %lf", &largest),
            1);
  EXPECT_GT(largest, 5.5);
  EXPECT_LT(largest, 788.0 / 132);
  EXPECT_TRUE(PlanPools({.enabled = true, .host_to_device_ratio = largest}, kTiny, 100'000).ok());
  EXPECT_FALSE(PlanPools({.enabled = true, .host_to_device_ratio = largest + 0.02}, kTiny, 100'000).ok());
}

TEST(PoolSizesTest, BadSettingsAreRefusedWithFieldValueAndRule) {
  const auto message = [](const HiSparseSettings& settings, int64_t kv_cache_tokens = 16384) {
    const auto sizes = PlanPools(settings, kTiny, kv_cache_tokens);
    EXPECT_EQ(sizes.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(sizes.status().message());
  };
  EXPECT_EQ(message({.enabled = true, .top_k = 64}),
            "process.hisparse.top_k 64, allowed the model's index_topk 128, or 0 for it");
  EXPECT_EQ(message({.enabled = true, .device_buffer_size = 64}),
            "process.hisparse.device_buffer_size 64, allowed at least top_k 128: a row's selected tokens are on the "
            "device together");
  EXPECT_EQ(message({.enabled = true, .device_buffer_size = 200}),
            "process.hisparse.device_buffer_size 200, allowed multiples of a page's 64 tokens");
  EXPECT_THAT(message({.enabled = true}, 256), HasSubstr("process.kv_cache_tokens 256 gives 1008640 bytes"));
  EXPECT_TRUE(PlanPools({.enabled = true, .top_k = 128, .device_buffer_size = 128}, kTiny, 16384).ok());
}

}  // namespace
}  // namespace tandem::decode
