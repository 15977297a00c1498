// Proves token_residency against a plain model of what may be where (maps, and CLOCK written down a second time), over
// random rows: tokens of a window are resident together, in slots of their own, a slot's token is the one that was
// brought there last, hits move nothing, a row that is refused changes nothing, and the replacement is CLOCK's.
#include "kvcache/token_residency.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::kvcache {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<int32_t> RandomRow(std::mt19937& random, int context, int count) {
  std::set<int32_t> row;
  while (static_cast<int>(row.size()) < std::min(count, context)) row.insert(random() % context);
  return {row.begin(), row.end()};
}

// The same promises, kept with maps and long loops.
class PlainModel final {
 public:
  explicit PlainModel(int num_slots) : token_(num_slots, -1), referenced_(num_slots), pinned_(num_slots) {}

  void Grow(int num_slots) {
    token_.resize(num_slots, -1);
    referenced_.resize(num_slots);
    pinned_.resize(num_slots);
  }
  void BeginWindow() { std::fill(pinned_.begin(), pinned_.end(), false); }
  void Forget(int64_t position) {
    for (size_t s = 0; s < token_.size(); ++s) {
      if (token_[s] >= position) token_[s] = -1, referenced_[s] = false, pinned_[s] = false;
    }
  }
  // Nothing where the row does not fit.
  bool Pin(const std::vector<int32_t>& row, int64_t newest_begin, std::vector<int32_t>& slots,
           std::vector<SwapIn>& missing) {
    std::set<int> together;
    int num_missing = 0;
    for (size_t s = 0; s < token_.size(); ++s) {
      if (pinned_[s]) together.insert(s);
    }
    for (int32_t p : row) {
      if (p >= newest_begin) continue;
      const auto at = std::find(token_.begin(), token_.end(), p);
      if (at == token_.end()) {
        ++num_missing;
      } else {
        together.insert(at - token_.begin());
      }
    }
    if (together.size() + num_missing > token_.size()) return false;
    for (int s : together) {
      if (token_[s] < newest_begin && std::find(row.begin(), row.end(), token_[s]) != row.end()) referenced_[s] = true;
      pinned_[s] = true;
    }
    slots.clear();
    for (int32_t p : row) {
      if (p >= newest_begin) {
        slots.push_back(p % 64);
        continue;
      }
      auto at = std::find(token_.begin(), token_.end(), p);
      if (at == token_.end()) {
        while (pinned_[hand_] || (token_[hand_] >= 0 && referenced_[hand_])) {
          if (!pinned_[hand_]) referenced_[hand_] = false;
          hand_ = (hand_ + 1) % token_.size();
        }
        token_[hand_] = p;
        referenced_[hand_] = false;
        pinned_[hand_] = true;
        missing.push_back({p, static_cast<int32_t>(64 + hand_)});
        slots.push_back(64 + hand_);
        hand_ = (hand_ + 1) % token_.size();
      } else {
        slots.push_back(64 + (at - token_.begin()));
      }
    }
    return true;
  }
  int num_resident() const { return token_.size() - std::count(token_.begin(), token_.end(), -1); }

 private:
  std::vector<int32_t> token_;
  std::vector<bool> referenced_, pinned_;
  size_t hand_ = 0;
};

TEST(TokenResidencyTest, DoesWhatThePlainModelDoes) {
  int64_t num_refused_all = 0, num_hits_all = 0;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    const int k = 1 + random() % 24;
    int num_slots = k + random() % 40;
    TokenResidency residency;
    residency.GrowTo(num_slots);
    PlainModel plain(num_slots);
    int context = 1 + random() % 200;
    int num_refused = 0, num_hits = 0;
    for (int step = 0; step < 400; ++step) {
      switch (random() % 12) {
        case 0:
          residency.BeginWindow();
          plain.BeginWindow();
          break;
        case 1:
          context += random() % 9;
          break;
        case 2:
          if (random() % 4 == 0) {
            num_slots += random() % 5;
            residency.GrowTo(num_slots);
            plain.Grow(num_slots);
          }
          break;
        case 3:
          if (random() % 8 == 0) {
            const int from = random() % (context + 4);
            residency.BeginWindow();  // nobody forgets what a window still reads
            plain.BeginWindow();
            residency.ForgetFrom(from);
            plain.Forget(from);
          }
          break;
        default: {
          const std::vector<int32_t> row = RandomRow(random, context, k);
          const int64_t newest_begin = context - std::min<int>(random() % 3 == 0 ? random() % 64 : 0, context);
          std::vector<int32_t> slots(row.size(), -7), expected_slots;
          std::vector<SwapIn> missing, expected_missing;
          const bool fits = residency.Pin(row, newest_begin, slots, missing);
          ASSERT_EQ(plain.Pin(row, newest_begin, expected_slots, expected_missing), fits) << "seed " << seed;
          if (!fits) {
            ++num_refused;
            EXPECT_THAT(missing, IsEmpty());
            residency.BeginWindow();
            plain.BeginWindow();
            break;
          }
          ASSERT_EQ(slots, expected_slots) << "seed " << seed << ", step " << step;
          ASSERT_EQ(missing, expected_missing) << "seed " << seed << ", step " << step;
          num_hits += row.size() - missing.size();
        }
      }
      ASSERT_EQ(residency.num_resident(), plain.num_resident());
    }
    num_refused_all += num_refused;
    num_hits_all += num_hits;
  }
  EXPECT_GT(num_refused_all, 100);
  EXPECT_GT(num_hits_all, 10'000);
}

TEST(TokenResidencyTest, TokensOfAWindowAreResidentTogetherAndNowhereTwice) {
  std::mt19937 random(7);
  TokenResidency residency;
  residency.GrowTo(40);
  std::map<int32_t, int32_t> token_in;  // what bytes lie where, by the swap-ins alone
  std::map<int32_t, int32_t> window;    // slot to token, of this window
  for (int step = 0; step < 5000; ++step) {
    const std::vector<int32_t> row = RandomRow(random, 300, 16);
    std::vector<int32_t> slots(row.size());
    std::vector<SwapIn> missing;
    if (!residency.Pin(row, 280, slots, missing)) {
      residency.BeginWindow();
      window.clear();
      ASSERT_TRUE(residency.Pin(row, 280, slots, missing)) << "a row alone always fits";
    }
    for (const SwapIn& swap_in : missing) {
      ASSERT_FALSE(window.contains(swap_in.slot)) << "evicts a token that the window reads";
      token_in[swap_in.slot] = swap_in.position;
    }
    for (size_t i = 0; i < row.size(); ++i) {
      if (row[i] >= 280) {
        ASSERT_EQ(slots[i], row[i] % 64);
        continue;
      }
      ASSERT_GE(slots[i], 64);
      ASSERT_LT(slots[i], 64 + 40);
      ASSERT_EQ(token_in.at(slots[i]), row[i]);
      ASSERT_EQ(residency.KeptSlotOf(row[i]), slots[i]);
      window[slots[i]] = row[i];
    }
  }
}

TEST(TokenResidencyTest, ARowThatDoesNotFitChangesNothing) {
  TokenResidency residency;
  residency.GrowTo(4);
  std::vector<int32_t> slots(3);
  std::vector<SwapIn> missing;
  ASSERT_TRUE(residency.Pin(std::vector<int32_t>{1, 2, 3}, 100, slots, missing));
  EXPECT_THAT(slots, ElementsAre(64, 65, 66));
  missing.clear();
  std::vector<int32_t> untouched = {-9, -9, -9};
  EXPECT_FALSE(residency.Pin(std::vector<int32_t>{3, 4, 5}, 100, untouched, missing));
  EXPECT_THAT(untouched, ElementsAre(-9, -9, -9));
  EXPECT_THAT(missing, IsEmpty());
  EXPECT_EQ(residency.num_resident(), 3);
  residency.BeginWindow();
  EXPECT_TRUE(residency.Pin(std::vector<int32_t>{3, 4, 5}, 100, untouched, missing));
  EXPECT_EQ(untouched[0], 66) << "still where it was";
}

TEST(TokenResidencyTest, ForgetsWhatIsWrittenAgain) {
  TokenResidency residency;
  residency.GrowTo(8);
  std::vector<int32_t> slots(4);
  std::vector<SwapIn> missing;
  ASSERT_TRUE(residency.Pin(std::vector<int32_t>{5, 6, 7, 8}, 100, slots, missing));
  residency.BeginWindow();
  residency.ForgetFrom(7);
  EXPECT_EQ(residency.num_resident(), 2);
  EXPECT_GE(residency.KeptSlotOf(6), 64);
  EXPECT_EQ(residency.KeptSlotOf(7), -1);
  EXPECT_EQ(residency.KeptSlotOf(1000), -1);
  missing.clear();
  ASSERT_TRUE(residency.Pin(std::vector<int32_t>{5, 6, 7, 8}, 100, slots, missing));
  EXPECT_EQ(missing.size(), 2u) << "7 and 8 are brought again";
  residency.ForgetAll();
  EXPECT_EQ(residency.num_resident(), 0);
}

}  // namespace
}  // namespace tandem::kvcache
