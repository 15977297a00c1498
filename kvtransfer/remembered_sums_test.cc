// Proves that a sum is that of the bytes when it was first asked for, per kind, layer and page, until it is forgotten.
#include "kvtransfer/remembered_sums.h"

#include <map>
#include <tuple>

#include "gtest/gtest.h"

namespace tandem::kvtransfer {
namespace {

constexpr kvcache::KvLayout kLayout{.num_layers = 3, .num_pages = 4};

// Pages that are one number each.
class Numbers final : public PageMemory {
 public:
  uint64_t ContentSum(kvcache::RecordKind kind, int layer, int32_t page) const override {
    ++num_sums;
    return values.at({kind, layer, page});
  }
  void ZeroTokensFrom(int layer, int32_t page, int) override {
    for (const auto kind : {kvcache::RecordKind::kLatent, kvcache::RecordKind::kIndex}) values[{kind, layer, page}] = 0;
  }
  std::map<std::tuple<kvcache::RecordKind, int, int32_t>, uint64_t> values;
  mutable int num_sums = 0;
};

TEST(RememberedSumsTest, EachSumIsMadeOnceForEachTenant) {
  Numbers memory;
  uint64_t value = 100;
  const auto fill = [&](int32_t page) {
    for (const auto kind : {kvcache::RecordKind::kLatent, kvcache::RecordKind::kIndex}) {
      for (int layer = 0; layer < kLayout.num_layers; ++layer) memory.values[{kind, layer, page}] = ++value;
    }
  };
  for (int32_t page = 0; page < kLayout.num_pages; ++page) fill(page);
  RememberedSums sums(memory, kLayout);
  const auto before = memory.values;
  for (int round = 0; round < 2; ++round) {
    for (const auto& [cell, expected] : before) {
      const auto [kind, layer, page] = cell;
      EXPECT_EQ(sums.ContentSum(kind, layer, page), expected);
    }
    for (int32_t page = 0; page < kLayout.num_pages; ++page) fill(page);  // unseen: nobody has forgotten
  }
  EXPECT_EQ(memory.num_sums, 24);

  const int32_t forgotten[] = {0, 3};
  sums.Forget(forgotten);
  for (const auto& [cell, changed] : memory.values) {
    const auto [kind, layer, page] = cell;
    const bool is_new = page == 0 || page == 3;
    EXPECT_EQ(sums.ContentSum(kind, layer, page), is_new ? changed : before.at(cell)) << page << " " << layer;
  }
  sums.ZeroTokensFrom(1, 2, 0);
  EXPECT_EQ(sums.ContentSum(kvcache::RecordKind::kIndex, 1, 2), 0u);
  EXPECT_EQ(sums.ContentSum(kvcache::RecordKind::kIndex, 2, 2), before.at({kvcache::RecordKind::kIndex, 2, 2}));
}

}  // namespace
}  // namespace tandem::kvtransfer
