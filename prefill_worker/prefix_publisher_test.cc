// Proves that whoever adds up what one stream is told has what the index holds, whenever it began to listen; that every
// stream's numbers have no gap; and that messages stay small.
#include "prefill_worker/prefix_publisher.h"

#include <random>
#include <set>

#include "gtest/gtest.h"

namespace tandem::prefill {
namespace {

struct Listener {
  std::multiset<uint64_t> keys;
  uint64_t next_number = 1;
  bool is_complete = false;
  uint64_t num_keys = 0, key_sum = 0;

  void Hear(const proto::PrefixUpdate& update) {
    EXPECT_EQ(update.number(), next_number++);
    EXPECT_LE(update.ByteSizeLong(), size_t{256} << 10);
    if (update.is_snapshot_begin()) keys.clear();
    for (const uint64_t key : update.removed()) {
      ASSERT_TRUE(keys.contains(key));
      keys.erase(keys.find(key));
    }
    keys.insert(update.added().begin(), update.added().end());
    is_complete = update.is_complete();
    if (!is_complete) return;
    uint64_t sum = 0;
    for (const uint64_t key : keys) sum += key;
    EXPECT_EQ(update.num_keys(), keys.size());
    EXPECT_EQ(update.key_sum(), sum);
  }
};

TEST(PrefixPublisherTest, WhoeverListensHasWhatTheIndexHolds) {
  std::mt19937 random(1);
  kvcache::PageAllocator pages(64);
  kvcache::PrefixIndex index({.records_changes = true}, pages);
  PrefixPublisher publisher;
  std::map<uint64_t, Listener> listeners;
  const auto hear = [&](const std::vector<PrefixPublisher::Told>& told) {
    for (const auto& [stream, update] : told) listeners[stream].Hear(update);
  };
  for (int step = 0; step < 400; ++step) {
    for (unsigned change = random() % 3; change > 0; --change) {
      const auto num_pages = static_cast<int64_t>(1 + random() % 6);
      std::vector<uint32_t> tokens;
      for (int64_t i = 0; i < num_pages; ++i) tokens.insert(tokens.end(), kvcache::kPageTokens, random() % 3);
      index.Evict(num_pages - pages.num_free());
      const auto taken = *pages.Allocate(num_pages, "request");
      index.Add({.tokens = tokens, .num_prompt_tokens = num_pages * kvcache::kPageTokens}, taken, "request");
      pages.ReleaseAll("request");
      if (random() % 40 == 0) index.Flush();
    }
    hear(publisher.Publish(index.TakeChanges()));
    if (step % 50 == 20) hear(publisher.Subscribe(static_cast<uint64_t>(step), index));
    if (step % 100 == 75) hear(publisher.Subscribe(static_cast<uint64_t>(step - 55), index));  // again
    if (step == 300) {
      publisher.Unsubscribe(20);
      listeners.erase(20);
    }
    const std::vector<uint64_t> keys = index.Keys();
    for (const auto& [stream, listener] : listeners) {
      ASSERT_TRUE(listener.is_complete);
      ASSERT_EQ(listener.keys, std::multiset<uint64_t>(keys.begin(), keys.end())) << "stream " << stream;
    }
  }
  EXPECT_EQ(listeners.size(), 7u);
}

TEST(PrefixPublisherTest, LargeCachesAreToldInParts) {
  constexpr int64_t kNumPages = 40'000;
  kvcache::PageAllocator pages(kNumPages);
  kvcache::PrefixIndex index({.records_changes = true}, pages);
  const std::vector<uint32_t> tokens(kNumPages * kvcache::kPageTokens, 7);
  const auto taken = *pages.Allocate(kNumPages, "request");
  index.Add({.tokens = tokens, .num_prompt_tokens = static_cast<int64_t>(tokens.size())}, taken, "request");
  pages.ReleaseAll("request");
  PrefixPublisher publisher;
  Listener late;
  publisher.Publish(index.TakeChanges());
  const auto parts = publisher.Subscribe(2, index);
  EXPECT_EQ(parts.size(), 3u);
  for (const auto& told : parts) late.Hear(told.update);
  EXPECT_EQ(late.keys.size(), static_cast<size_t>(kNumPages));
}

}  // namespace
}  // namespace tandem::prefill
