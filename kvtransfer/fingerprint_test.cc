#include "kvtransfer/fingerprint.h"

#include <functional>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::kvtransfer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

FingerprintFields Fields() {
  return {.model_hash = "m",
          .kv_cache_dtype = "fp8_e4m3",
          .kv_layout = KvLayoutName(kvcache::KvCacheDtype::kFp8E4m3),
          .page_size = 64,
          .num_layers = 62,
          .has_mtp = true,
          .index_cache_pattern = "all",
          .dense_threshold = 2048,
          .numerics_id = "cpu-avx2"};
}

TEST(FingerprintTest, EqualSidesHaveNoDifferences) {
  EXPECT_THAT(ListDifferences(BuildFingerprint(Fields()), BuildFingerprint(Fields())), IsEmpty());
  EXPECT_EQ(FingerprintHash(BuildFingerprint(Fields())), FingerprintHash(BuildFingerprint(Fields())));
}

TEST(FingerprintTest, EveryFieldCountsAndIsNamed) {
  const std::vector<std::pair<std::string, std::function<void(FingerprintFields&)>>> changes = {
      {"model_hash", [](auto& f) { f.model_hash = "n"; }},
      {"kv_cache_dtype", [](auto& f) { f.kv_cache_dtype = "bfloat16"; }},
      {"kv_layout", [](auto& f) { f.kv_layout = "other"; }},
      {"page_size", [](auto& f) { f.page_size = 32; }},
      {"num_layers", [](auto& f) { f.num_layers = 61; }},
      {"has_mtp", [](auto& f) { f.has_mtp = false; }},
      {"index_cache_pattern", [](auto& f) { f.index_cache_pattern = "every 4"; }},
      {"dense_threshold", [](auto& f) { f.dense_threshold = 0; }},
      {"numerics_id", [](auto& f) { f.numerics_id = "cpu-avx512"; }},
  };
  const proto::Fingerprint own = BuildFingerprint(Fields());
  std::set<uint64_t> hashes = {FingerprintHash(own)};
  for (const auto& [name, change] : changes) {
    FingerprintFields fields = Fields();
    change(fields);
    const proto::Fingerprint other = BuildFingerprint(fields);
    EXPECT_THAT(ListDifferences(own, other), ElementsAre(HasSubstr(name + ": decode has \""))) << name;
    hashes.insert(FingerprintHash(other));
  }
  EXPECT_EQ(hashes.size(), changes.size() + 1);
  EXPECT_EQ(own.fields_size(), static_cast<int>(changes.size()) + 1);  // and the protocol version
  EXPECT_EQ(own.fields(0).name(), "protocol_version");
}

TEST(FingerprintTest, ALayoutNameHoldsTheBytesOfItsFormat) {
  EXPECT_EQ(KvLayoutName(kvcache::KvCacheDtype::kFp8E4m3),
            "latent=656,index=132,latent_page=41984,index_page=8448,layer_major");
  EXPECT_EQ(KvLayoutName(kvcache::KvCacheDtype::kBfloat16),
            "latent=1152,index=132,latent_page=73728,index_page=8448,layer_major");
}

TEST(FingerprintTest, AFieldThatOnlyOneSideKnowsIsADifference) {
  const proto::Fingerprint own = BuildFingerprint(Fields());
  proto::Fingerprint newer = own;
  newer.add_fields()->set_name("rope");
  newer.mutable_fields(newer.fields_size() - 1)->set_value("yarn");
  EXPECT_THAT(ListDifferences(own, newer), ElementsAre("rope: decode has nothing, prefill has \"yarn\""));
  EXPECT_THAT(ListDifferences(newer, own), ElementsAre("rope: decode has \"yarn\", prefill has nothing"));
}

TEST(FingerprintTest, TheHashKeepsNamesAndValuesApart) {
  proto::Fingerprint a;
  a.add_fields()->set_name("ab");
  a.mutable_fields(0)->set_value("c");
  proto::Fingerprint b;
  b.add_fields()->set_name("a");
  b.mutable_fields(0)->set_value("bc");
  EXPECT_NE(FingerprintHash(a), FingerprintHash(b));
}

}  // namespace
}  // namespace tandem::kvtransfer
