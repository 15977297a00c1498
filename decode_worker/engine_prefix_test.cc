// Proves that pages which decode keeps of earlier prompts change what is fetched and nothing else: answers are the
// oracle's with several choices, under famine, retraction, resumption, eviction, wrong sums and flushes.
#include <random>
#include <vector>

#include "decode_worker/testing/engine_rig.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::decode {
namespace {

// A request whose prompt begins with the first `num_shared` tokens of the group's.
GenerateRequest Sharing(uint64_t id, int num_shared, int num_tokens, uint32_t max_new_tokens, uint32_t num_choices = 1,
                        unsigned group = 1) {
  GenerateRequest request = EngineRig::MakeEndless(id, num_tokens, max_new_tokens, num_choices);
  std::mt19937 rng(5000 + group);
  for (int i = 0; i < std::min(num_shared, num_tokens); ++i) {
    request.prompt_tokens[i] = rng() % EngineRig::kModel.vocab_size;
  }
  return request;
}

TEST(EnginePrefixTest, WhatIsHereIsNotFetchedAgain) {
  EngineRig rig(32);
  const RequestKey first = rig.Submit(Sharing(1, 150, 160, 10));
  rig.Settle();
  const int64_t page_bytes = rig.engine().transfer().counters().fetched_bytes / 3;
  EXPECT_GT(page_bytes, 0);
  const RequestKey second = rig.Submit(Sharing(2, 150, 200, 10, 3));
  rig.Settle();
  EXPECT_EQ(rig.engine().transfer().counters().fetched_bytes, (3 + 2) * page_bytes) << "two of four pages";
  EXPECT_EQ(rig.engine().counters().prefix_hits, 1);
  EXPECT_EQ(rig.engine().counters().held_prompt_tokens, 128);
  rig.ExpectFinished(first);
  rig.ExpectFinished(second);
  rig.ExpectNothingHeld();
  EXPECT_EQ(rig.engine().load().kv_pages_free(), 32u) << "idle pages are room";
  EXPECT_EQ(rig.engine().load().cached_prompt_tokens(), 128u);
  EXPECT_EQ(rig.engine().load().transferred_kv_bytes(), 5u * page_bytes);
  EXPECT_EQ(rig.engine().load().generated_tokens(), 10u + 3 * 10u);
}

TEST(EnginePrefixTest, PromptsOfEveryLengthAroundAPage) {
  for (const int length : {1, 63, 64, 65, 127, 128, 129, 192, 193}) {
    EngineRig rig(32);
    std::vector<RequestKey> keys;
    for (uint64_t id = 1; id <= 3; ++id) {
      keys.push_back(rig.Submit(Sharing(id, length, length, 70, id == 2 ? 2 : 1)));
      rig.Settle();
    }
    for (const RequestKey& key : keys) rig.ExpectFinished(key);
    EXPECT_EQ(rig.engine().counters().held_prompt_tokens, 2 * ((length - 1) / 64 * 64)) << length;
    rig.ExpectNothingHeld();
  }
}

TEST(EnginePrefixTest, EqualPromptsAtOnceKeepTheirOwnPagesAndOneOfEachStays) {
  EngineRig rig(64);
  std::vector<RequestKey> keys;
  for (uint64_t id = 1; id <= 4; ++id) keys.push_back(rig.Submit(Sharing(id, 250, 260, 30, 2)));
  rig.CancelChoice(keys[1], 0);
  rig.Settle();
  for (const size_t whole : {0, 2, 3}) rig.ExpectFinished(keys[whole]);
  rig.ExpectChoice(keys[1], 1);
  rig.ExpectNothingHeld();
  EXPECT_LE(rig.engine().prefix_cache()->num_pages(), 4 + 3) << "250 tokens and where they part";
}

TEST(EnginePrefixTest, SaltsShareNothingAndAFlushForgets) {
  EngineRig rig(32);
  GenerateRequest salted = Sharing(1, 150, 160, 5);
  salted.head.set_cache_salt("tenant");
  std::vector<RequestKey> keys = {rig.Submit(salted)};
  rig.Settle();
  keys.push_back(rig.Submit(Sharing(2, 150, 160, 5)));
  rig.Settle();
  EXPECT_EQ(rig.engine().counters().prefix_hits, 0);
  proto::RouterMessage flush;
  flush.mutable_flush_prefix_cache();
  rig.engine().RouterMessage(1, flush);
  EXPECT_EQ(rig.engine().prefix_cache()->num_pages(), 0);
  keys.push_back(rig.Submit(Sharing(3, 150, 160, 5)));
  rig.Settle();
  EXPECT_EQ(rig.engine().counters().prefix_hits, 0);
  for (const RequestKey& key : keys) rig.ExpectFinished(key);
  rig.ExpectNothingHeld();
}

TEST(EnginePrefixTest, AResumedRequestJoinsThePagesOfItsEarlierAttempt) {
  EngineRig rig(32);
  rig.ExpectResumesAt(Sharing(1, 150, 160, 40), {1, 20, -1});
  EXPECT_EQ(rig.engine().counters().held_prompt_tokens, 3 * 128);
}

TEST(EnginePrefixTest, WrongSumsOfTheRestAreTriedAgainWithWhatIsHere) {
  EngineRig rig(32);
  const RequestKey first = rig.Submit(Sharing(1, 150, 160, 10));
  rig.Settle();
  rig.prefill().CorruptNextPrompts(1);  // its first page, which is here
  const RequestKey second = rig.Submit(Sharing(2, 150, 200, 10));
  rig.Settle();
  rig.ExpectFinished(first);
  rig.ExpectFinished(second);
  EXPECT_EQ(rig.engine().transfer().counters().wrong_sums, 0) << "nobody read it";
  rig.ExpectNothingHeld();
}

TEST(EnginePrefixTest, TheIndexGivesWayToRequests) {
  EngineRig rig(6, 8, 384);
  for (uint64_t id = 1; id <= 5; ++id) {
    const RequestKey key = rig.Submit(Sharing(id, 300, 310, 70, 1, static_cast<unsigned>(id)));
    rig.Settle();
    rig.ExpectFinished(key);
    rig.ExpectNothingHeld();
  }
  EXPECT_GT(rig.engine().prefix_cache()->counters().pages_evicted, 10);
}

// The oldest goes on, others are retracted, pages are shared between all of them: what is planned to come free must.
TEST(EnginePrefixTest, FamineAmongRequestsThatShareTheirBeginnings) {
  int64_t num_retractions = 0, num_held = 0;
  for (unsigned seed = 0; seed < 12; ++seed) {
    std::mt19937 random(seed);
    EngineRig rig(7 + static_cast<int>(random() % 6), 8, 448);
    std::vector<RequestKey> keys;
    uint64_t id = 0;
    for (int wave = 0; wave < 4; ++wave) {
      for (unsigned i = 1 + random() % 4; i > 0; --i) {
        const int num_tokens = 1 + static_cast<int>(random() % 200);
        keys.push_back(rig.Submit(Sharing(++id, static_cast<int>(random() % 260), num_tokens, 1 + random() % 150,
                                          1 + random() % 2, random() % 2)));
      }
      for (unsigned steps = random() % 60; steps > 0; --steps) {
        rig.engine().Step();
        rig.DeliverOnce();
      }
    }
    rig.Settle();
    for (const RequestKey& key : keys) rig.ExpectFinished(key);
    rig.ExpectNothingHeld();
    num_retractions += rig.engine().counters().retractions;
    num_held += rig.engine().counters().held_prompt_tokens;
    if (::testing::Test::HasFailure()) FAIL() << "seed " << seed;
  }
  EXPECT_GT(num_retractions, 8);
  EXPECT_GT(num_held, 64 * 20);
}

}  // namespace
}  // namespace tandem::decode
