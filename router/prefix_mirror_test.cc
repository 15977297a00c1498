// Proves that a mirror knows exactly what it was told, and that whatever is lost, doubled or changed on the way makes
// it ask for a snapshot and count nothing until that has come.
#include "router/prefix_mirror.h"

#include <algorithm>
#include <random>
#include <set>

#include "gtest/gtest.h"
#include "proto/page_key.h"

namespace tandem::router {
namespace {

// A worker's side of it.
class Teller {
 public:
  explicit Teller(unsigned seed) : random_(seed) {}
  proto::PrefixUpdate Change() {
    proto::PrefixUpdate update;
    if (!keys_.empty() && random_() % 2 == 0) {
      const uint64_t key = *keys_.begin();
      keys_.erase(keys_.begin());
      update.add_removed(key);
    }
    for (unsigned i = random_() % 3; i > 0; --i) {
      const uint64_t key = random_() % 50 + 1;
      keys_.insert(key);
      update.add_added(key);
    }
    return Sealed(std::move(update));
  }
  proto::PrefixUpdate Snapshot() {
    proto::PrefixUpdate update;
    update.set_is_snapshot_begin(true);
    update.mutable_added()->Add(keys_.begin(), keys_.end());
    return Sealed(std::move(update));
  }
  const std::multiset<uint64_t>& keys() const { return keys_; }

 private:
  proto::PrefixUpdate Sealed(proto::PrefixUpdate update) {
    update.set_number(++number_);
    update.set_is_complete(true);
    update.set_num_keys(keys_.size());
    uint64_t sum = 0;
    for (const uint64_t key : keys_) sum += key;
    update.set_key_sum(sum);
    return update;
  }
  std::mt19937_64 random_;
  std::multiset<uint64_t> keys_;
  uint64_t number_ = 0;
};

void ExpectEqual(const PrefixMirror& mirror, const Teller& teller) {
  ASSERT_TRUE(mirror.is_sound());
  ASSERT_EQ(mirror.num_keys(), teller.keys().size());
  for (uint64_t key = 1; key <= 50; ++key) {
    ASSERT_EQ(mirror.NumCached({key}), static_cast<int>(teller.keys().contains(key))) << key;
  }
}

TEST(PrefixMirrorTest, KnowsWhatItWasTold) {
  Teller teller(1);
  PrefixMirror mirror;
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(mirror.Take(teller.Change())) << "before a snapshot nothing is expected";
  EXPECT_EQ(mirror.NumCached({*teller.keys().begin()}), 0);
  EXPECT_TRUE(mirror.Take(teller.Snapshot()));
  for (int i = 0; i < 500; ++i) {
    ExpectEqual(mirror, teller);
    ASSERT_TRUE(mirror.Take(teller.Change()));
  }
}

TEST(PrefixMirrorTest, WhatIsLostDoubledOrChangedIsNoticedAtOnceAndMendedByASnapshot) {
  std::mt19937 random(2);
  for (int fault = 0; fault < 3; ++fault) {
    Teller teller(3);
    PrefixMirror mirror;
    mirror.Take(teller.Snapshot());
    for (int i = 0; i < 200; ++i) {
      proto::PrefixUpdate update = teller.Change();
      if (random() % 10 == 0) {
        bool is_noticed = false;
        if (fault == 0) {  // lost: the next one shows it
          is_noticed = !mirror.Take(teller.Change());
        } else if (fault == 1) {
          EXPECT_TRUE(mirror.Take(update));
          is_noticed = !mirror.Take(update);
        } else {
          update.add_added(77);
          is_noticed = !mirror.Take(update);
        }
        ASSERT_TRUE(is_noticed) << "fault " << fault;
        ASSERT_FALSE(mirror.is_sound());
        ASSERT_EQ(mirror.NumCached({*teller.keys().begin()}), 0);
        EXPECT_TRUE(mirror.Take(teller.Change())) << "it was said once";
        ASSERT_TRUE(mirror.Take(teller.Snapshot()));
      } else {
        ASSERT_TRUE(mirror.Take(update));
      }
      ExpectEqual(mirror, teller);
    }
  }
}

TEST(PrefixMirrorTest, ASnapshotInPartsCountsWithItsLast) {
  PrefixMirror mirror;
  proto::PrefixUpdate part;
  part.set_number(1);
  part.set_is_snapshot_begin(true);
  part.add_added(5);
  EXPECT_TRUE(mirror.Take(part));
  EXPECT_EQ(mirror.NumCached({5}), 0);
  proto::PrefixUpdate rest;
  rest.set_number(2);
  rest.add_added(6);
  rest.set_is_complete(true);
  rest.set_num_keys(2);
  rest.set_key_sum(11);
  EXPECT_TRUE(mirror.Take(rest));
  EXPECT_EQ(mirror.NumCached({5, 6, 7}), 2);
  EXPECT_EQ(mirror.NumCached({7, 5, 6}), 0) << "from the first on";
}

TEST(PrefixMirrorTest, KeysAreThoseOfWholePagesBeforeTheLastToken) {
  std::vector<TokenId> prompt(200);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<TokenId>(i);
  const PageKeyRules rules{.domain = 9}, with_next{.domain = 9, .covers_next_token = true};
  EXPECT_EQ(PageKeysOf(prompt, "", rules).size(), 3u);
  EXPECT_EQ(PageKeysOf(absl::MakeConstSpan(prompt).first(192), "", rules).size(), 2u);
  EXPECT_EQ(PageKeysOf(absl::MakeConstSpan(prompt).first(64), "", rules).size(), 0u);
  EXPECT_NE(PageKeysOf(prompt, "a", rules)[0], PageKeysOf(prompt, "", rules)[0]);
  const uint64_t first = proto::PageKey(proto::RootPageKey(9, ""), absl::MakeConstSpan(prompt).first(64),
                                        proto::kAllPromptTokens, /*next_token=*/64);
  EXPECT_EQ(PageKeysOf(prompt, "", with_next)[0], first);
  EXPECT_NE(PageKeysOf(prompt, "", rules)[0], first);
}

}  // namespace
}  // namespace tandem::router
