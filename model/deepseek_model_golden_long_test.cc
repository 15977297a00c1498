// Proves the numbers of a context of 4,097 tokens against the NumPy float64 reference: 65 pages, beyond
// original_max_position_embeddings (4,096), each row choosing 64 of up to 4,097 positions. As in
// deepseek_model_golden_test.cc: each layer of v32-tiny alone, the whole of v32-tiny-calm, by the bounds of 1,000
// tokens.
#include "gtest/gtest.h"
#include "model/testing/golden_model.h"

namespace tandem::model {
namespace {

TEST(LongContextGoldenTest, EachLayerAloneMatchesTheReference) {
  GoldenModel({"v32-tiny-4097", "v32-tiny", {4097}, kvcache::KvCacheDtype::kFp8E4m3, "v32-tiny", 1000})
      .ExpectEachLayerAloneMatches();
}

TEST(LongContextGoldenTest, TheWholeModelMatchesTheReference) {
  GoldenModel({"v32-tiny-calm-4097", "v32-tiny-calm", {4097}, kvcache::KvCacheDtype::kFp8E4m3, "v32-tiny-calm", 1000})
      .ExpectTheWholeOfACalmModelMatches();
}

TEST(LongContextGoldenTest, TheWholeModelWithBf16RecordsMatchesTheReference) {
  GoldenModel({"v32-tiny-calm-bf16-4097",
               "v32-tiny-calm",
               {4097},
               kvcache::KvCacheDtype::kBfloat16,
               "v32-tiny-calm-bf16",
               1000})
      .ExpectTheWholeOfACalmModelMatches();
}

}  // namespace
}  // namespace tandem::model
