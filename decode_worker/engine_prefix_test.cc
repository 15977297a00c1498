// Proves that pages which decode keeps of earlier prompts change what is fetched and nothing else: answers are the
// oracle's with several choices, under famine, retraction, resumption, eviction, wrong sums and flushes.
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
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

TEST(EnginePrefixTest, EqualPromptsAtOnceShareTheirPagesOnceTheyAreThere) {
  EngineRig rig(64);
  std::vector<RequestKey> keys;
  for (uint64_t id = 1; id <= 4; ++id) keys.push_back(rig.Submit(Sharing(id, 250, 260, 30, 2)));
  rig.RunTo(keys[3], 1, 2);
  EXPECT_EQ(rig.engine().pages().num_used(), 3 + 4 + 8) << "of 250 tokens; where prompts part; where choices part";
  rig.CancelChoice(keys[1], 0);
  rig.Settle();
  for (const size_t whole : {0, 2, 3}) rig.ExpectFinished(keys[whole]);
  rig.ExpectChoice(keys[1], 1);
  rig.ExpectNothingHeld();
  EXPECT_LE(rig.engine().prefix_cache()->num_pages(), 4 + 3) << "250 tokens and where they part";
}

// Two prompts alike, at once, in a pool that only just holds one of them with its answer: what the other's page was
// must not stay behind with it, or it could neither grow nor give way to anybody.
TEST(EnginePrefixTest, TheLastOneInAFullPoolGrowsThoughItsPromptCameTwice) {
  EngineRig rig(5);
  const RequestKey first = rig.Submit(Sharing(1, 79, 79, 240));
  const RequestKey second = rig.Submit(Sharing(2, 79, 79, 240));
  rig.Settle();
  rig.ExpectFinished(first);
  rig.ExpectFinished(second);
  EXPECT_GT(rig.engine().counters().retractions, 0);
  rig.ExpectNothingHeld();
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

// Turns of a chat: each prompt is the one before, its answer and a question. What is held is what turns before have
// left, whatever drafts and device buffers there are, and answers are the oracle's.
TEST(EnginePrefixTest, PagesThatAnAnswerFilledServeTheNextTurn) {
  constexpr int kAnswer = 100, kTurns = 3;
  for (const int num_drafts : {0, 3}) {
    for (const bool has_buffers : {false, true}) {
      for (const bool keeps : {false, true}) {
        SCOPED_TRACE(absl::StrCat(num_drafts, " drafts, buffers ", has_buffers, ", keeps ", keeps));
        sim::HiSparseOptions buffers;
        if (has_buffers) buffers = {.num_device_pages = 12, .num_kept_pages_max = 2};
        EngineRig rig(40, 2, 1024, {.num_steps = num_drafts, .is_adaptive = false}, buffers,
                      /*num_kept_pages=*/0, keeps);
        std::vector<uint32_t> text = Sharing(9, 70, 70, 1).prompt_tokens;
        int64_t expected_held = 0, num_of_prompt = 0;
        for (uint64_t turn = 1; turn <= kTurns; ++turn) {
          GenerateRequest request = EngineRig::MakeEndless(turn, 1, kAnswer);
          request.prompt_tokens = text;
          const int64_t num_written = static_cast<int64_t>(text.size()) - 31;  // all before the last answer's end
          if (turn > 1) expected_held += (keeps ? num_written : num_of_prompt - 1) / 64 * 64;
          num_of_prompt = static_cast<int64_t>(text.size());
          const RequestKey key = rig.Submit(std::move(request));
          rig.Settle();
          rig.ExpectFinished(key);
          const std::vector<uint32_t> answer = rig.tokens(key);
          text.insert(text.end(), answer.begin(), answer.end());
          for (uint32_t i = 0; i < 30; ++i) text.push_back((i * 7 + static_cast<uint32_t>(turn)) % 90);
        }
        EXPECT_EQ(rig.engine().counters().held_prompt_tokens, expected_held);
        EXPECT_EQ(rig.engine().counters().generated_pages_kept > 0, keeps);
        rig.ExpectNothingHeld();
      }
    }
  }
}

// Famine, cancels, choices that end apart and flushes while answers' pages come and go.
TEST(EnginePrefixTest, AnswersPagesComeAndGoUnderFamineCancelsAndFlushes) {
  int64_t num_kept = 0, num_held = 0, num_retractions = 0;
  for (unsigned seed = 0; seed < 8; ++seed) {
    std::mt19937 random(seed);
    const int num_drafts = seed % 2 == 0 ? 0 : 2;
    sim::HiSparseOptions buffers;
    if (seed % 4 >= 2) buffers = {.num_device_pages = 14, .num_kept_pages_max = 2};
    EngineRig rig(9 + static_cast<int>(random() % 6), 8, 448, {.num_steps = num_drafts, .is_adaptive = false}, buffers,
                  /*num_kept_pages=*/seed % 3 == 0 ? 6 : 0, /*keeps_generated_pages=*/true);
    std::vector<RequestKey> keys, cancelled;
    uint64_t id = 0;
    for (int wave = 0; wave < 4; ++wave) {
      for (unsigned i = 1 + random() % 3; i > 0; --i) {
        GenerateRequest request = Sharing(++id, 260, 1 + static_cast<int>(random() % 150), 1 + random() % 150,
                                          1 + random() % 2, random() % 2);
        if (!keys.empty() && random() % 2 == 0) {  // a turn behind an answer that is over
          const RequestKey& before = keys[random() % keys.size()];
          std::vector<uint32_t> text = rig.prompt(before);
          const std::vector<uint32_t>& answer = rig.answer(before).choices[0].tokens;
          text.insert(text.end(), answer.begin(), answer.end());
          text.push_back(static_cast<uint32_t>(id % 90));
          if (text.size() < 250) request.prompt_tokens = std::move(text);
        }
        const RequestKey key = rig.Submit(std::move(request));
        (random() % 5 == 0 ? cancelled : keys).push_back(key);
      }
      for (unsigned steps = random() % 90; steps > 0; --steps) {
        rig.engine().Step();
        rig.DeliverOnce();
      }
      for (const RequestKey& key : cancelled) rig.CancelRequest(key);
      cancelled.clear();
      if (random() % 4 == 0) {
        proto::RouterMessage flush;
        flush.mutable_flush_prefix_cache();
        rig.engine().RouterMessage(1, flush);
      }
      if (random() % 2 == 0) rig.Settle();
    }
    rig.Settle();
    for (const RequestKey& key : keys) rig.ExpectFinished(key);
    rig.ExpectNothingHeld();
    num_kept += rig.engine().counters().generated_pages_kept;
    num_held += rig.engine().counters().held_prompt_tokens;
    num_retractions += rig.engine().counters().retractions;
    if (::testing::Test::HasFailure()) FAIL() << "seed " << seed;
  }
  EXPECT_GT(num_kept, 8);
  EXPECT_GT(num_held, 64 * 8);
  EXPECT_GT(num_retractions, 1);
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
