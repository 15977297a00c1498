// Proves that drafts change no token: every answer is the oracle's, which drafts nothing, whatever ends a window:
// lengths, stop tokens, penalties, constraints, credits, missing pages, retraction, resumes. And that the MTP layer's
// records are the ones that drafting from scratch would write: the same drafts come true.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "decode_worker/testing/engine_rig.h"
#include "model/sampler.h"
#include "worker_shell/sampling.h"

namespace tandem::decode {
namespace {

using kernels::Bf16;

constexpr SpeculativeOptions kThreeDrafts{.num_steps = 3, .is_adaptive = false};

// What windows bring, by a model of one sequence that computes everything anew for each window, in one pool.
struct Windows {
  int64_t count = 0, drafted = 0, accepted = 0;
};

// Of one choice, whose first num_known tokens are there when drafting begins: windows of num_steps drafts.
Windows WindowsFromScratch(const EngineRig& rig, const RequestKey& key, uint32_t choice, int num_steps,
                           size_t num_known = 1) {
  const GenerateRequest& request = rig.request(key);
  const std::vector<uint32_t> answer = rig.Expected(key, choice).tokens;
  std::vector<int32_t> tokens(request.prompt_tokens.begin(), request.prompt_tokens.end());
  const size_t num_prompt = tokens.size();
  tokens.insert(tokens.end(), answer.begin(), answer.end());
  const worker_shell::DrawRules draws =
      worker_shell::DrawRulesFrom(request.head.sampling(), request.head.stopping(), static_cast<int64_t>(num_prompt));
  model::Sampler sampler(EngineRig::kModel.vocab_size);
  const int num_pages = kvcache::PagesForTokens(static_cast<int64_t>(tokens.size()) + num_steps);
  std::vector<int32_t> table(num_pages);
  std::iota(table.begin(), table.end(), 0);

  Windows windows;
  while (num_known < answer.size()) {
    sim::PoolMemory memory({.num_layers = rig.num_layers(), .num_pages = num_pages});
    sim::HashModel model(memory.pool(), rig.model_options());
    const size_t newest = num_prompt + num_known - 1;  // position of the last known token
    const model::Segment segment{
        .row_begin = 0, .num_rows = static_cast<int>(newest), .first_position = 0, .page_table = table};
    std::vector<Bf16> hidden(newest * model.hidden_size());
    const auto ignore = [](int) {};
    EXPECT_TRUE(model
                    .ForwardWithHidden({.tokens = absl::MakeConstSpan(tokens).first(newest), .segments = {&segment, 1}},
                                       ignore, {}, absl::MakeSpan(hidden))
                    .ok());
    std::vector<int32_t> drafts;
    std::vector<Bf16> chained(model.hidden_size());
    std::vector<float> logits(model.vocab_size());
    const auto num_left = static_cast<int64_t>(request.head.stopping().max_new_tokens() - num_known);
    while (static_cast<int64_t>(drafts.size()) < std::min<int64_t>(num_steps, num_left - 1)) {
      model::Segment rows = segment;
      std::vector<int32_t> next(tokens.begin() + 1, tokens.begin() + static_cast<ptrdiff_t>(newest) + 1);
      if (!drafts.empty()) {
        rows = {.row_begin = 0,
                .num_rows = 1,
                .first_position = static_cast<int64_t>(newest + drafts.size()) - 1,
                .page_table = table};
        next = {drafts.back()};
        hidden = chained;
      }
      const int32_t last = rows.num_rows - 1;
      EXPECT_TRUE(model
                      .RunMtp({.tokens = next, .segments = {&rows, 1}, .logits_rows = {&last, 1}}, hidden, ignore,
                              absl::MakeSpan(logits), absl::MakeSpan(chained))
                      .ok());
      model::TokenCounts counts(request.prompt_tokens, answer.size() + num_steps);
      for (size_t i = 0; i < num_known; ++i) counts.Add(static_cast<int32_t>(answer[i]));
      for (const int32_t draft : drafts) counts.Add(draft);
      const auto position = static_cast<int64_t>(newest + 1 + drafts.size());
      const auto drawn = sampler.Sample({.logits = logits,
                                         .params = draws.params,
                                         .counts = counts,
                                         .masked_tokens = draws.MaskedAt(position),
                                         .choice = choice,
                                         .position = position});
      EXPECT_TRUE(drawn.ok());
      if (std::find(draws.stop_tokens.begin(), draws.stop_tokens.end(), drawn->token) != draws.stop_tokens.end()) break;
      drafts.push_back(drawn->token);
    }
    size_t accepted = 0;
    while (accepted < drafts.size() && num_known + accepted < answer.size() &&
           static_cast<uint32_t>(drafts[accepted]) == answer[num_known + accepted]) {
      ++accepted;
    }
    ++windows.count;
    windows.drafted += static_cast<int64_t>(drafts.size());
    windows.accepted += static_cast<int64_t>(accepted);
    num_known += accepted + 1;
  }
  return windows;
}

void ExpectWindows(const EngineRig& rig, const Windows& expected) {
  const SpeculativeCounters& counters = rig.engine().speculation().counters();
  EXPECT_EQ(counters.windows, expected.count);
  EXPECT_EQ(counters.num_drafted(), expected.drafted);
  EXPECT_EQ(counters.num_accepted(), expected.accepted);
}

TEST(EngineMtpTest, DraftsAreThoseOfAModelThatComputesEverythingAnew) {
  for (const int num_steps : {1, 3, 7}) {
    EngineRig rig(20, 8, 320, {.num_steps = num_steps, .is_adaptive = false});
    Windows expected;
    uint64_t id = 0;
    for (const int num_prompt_tokens : {1, 64, 65, 127}) {
      GenerateRequest request = EngineRig::MakeEndless(++id, num_prompt_tokens, 40);
      if (id % 2 == 0) request = EngineRig::Greedy(std::move(request));
      const RequestKey key = rig.Submit(std::move(request));
      rig.Settle();
      rig.ExpectFinished(key);
      const Windows windows = WindowsFromScratch(rig, key, 0, num_steps);
      EXPECT_GT(windows.accepted, 0);
      EXPECT_LT(windows.accepted, windows.drafted) << "some drafts are wrong";
      expected.count += windows.count;
      expected.drafted += windows.drafted;
      expected.accepted += windows.accepted;
      ExpectWindows(rig, expected);
    }
    rig.ExpectNothingHeld();
  }
}

TEST(EngineMtpTest, TogetherTheyDraftAsEachAlone) {
  EngineRig rig(40, 8, 320, kThreeDrafts);
  Windows expected;
  std::vector<RequestKey> keys;
  for (int i = 0; i < 4; ++i)
    keys.push_back(rig.Submit(EngineRig::MakeEndless(10 + i, 50 + 17 * i, 40 + i, 1 + i % 3)));
  rig.Settle();
  for (const RequestKey& key : keys) {
    rig.ExpectFinished(key);
    for (uint32_t choice = 0; choice < rig.num_choices(key); ++choice) {
      const Windows windows = WindowsFromScratch(rig, key, choice, 3);
      expected.count += windows.count;
      expected.drafted += windows.drafted;
      expected.accepted += windows.accepted;
    }
  }
  ExpectWindows(rig, expected);
  rig.ExpectNothingHeld();
}

// The first token's record is each choice's own, also where the prompt fills its last page.
TEST(EngineMtpTest, ChoicesDraftFromTheirOwnFirstTokens) {
  for (const int num_prompt_tokens : {63, 64, 65}) {
    EngineRig rig(20, 8, 320, kThreeDrafts);
    const RequestKey key = rig.Submit(EngineRig::MakeEndless(5, num_prompt_tokens, 30, 4));
    rig.Settle();
    rig.ExpectFinished(key);
    Windows expected;
    for (uint32_t choice = 0; choice < 4; ++choice) {
      const Windows windows = WindowsFromScratch(rig, key, choice, 3);
      expected.count += windows.count;
      expected.drafted += windows.drafted;
      expected.accepted += windows.accepted;
    }
    ExpectWindows(rig, expected);
  }
}

// Tokens that are brought are replayed, and the MTP layer takes in what the replay brings.
TEST(EngineMtpTest, AResumeDraftsAsIfNothingHadHappened) {
  for (const int num_brought : {1, 5, 40}) {
    EngineRig rig(20, 8, 320, kThreeDrafts);
    GenerateRequest request = EngineRig::MakeEndless(21, 70, 70);
    EngineRig whole(20, 8, 320, kThreeDrafts);
    const RequestKey first = whole.Submit(request);
    whole.Settle();
    const std::vector<uint32_t> tokens = whole.tokens(first);
    EngineRig::Bring({std::vector<uint32_t>(tokens.begin(), tokens.begin() + num_brought)}, request);
    const RequestKey key = rig.Submit(request);
    rig.Settle();
    rig.ExpectFinished(key);
    EXPECT_EQ(rig.engine().counters().replay_mismatches, 0);
    // The replay's last row draws a token more; one token is no replay but a window of its own.
    const size_t num_known = num_brought == 1 ? 1 : static_cast<size_t>(num_brought) + 1;
    ExpectWindows(rig, WindowsFromScratch(rig, key, 0, 3, num_known));
  }
}

TEST(EngineMtpTest, EveryLengthAndStopTokenEndsTheAnswerInsideOfAWindowToo) {
  EngineRig rig(20, 8, 320, {.num_steps = 5, .is_adaptive = false});
  uint64_t id = 100;
  for (uint32_t max_new_tokens = 1; max_new_tokens <= 14; ++max_new_tokens) {
    for (const bool may_stop : {false, true}) {
      GenerateRequest request = EngineRig::MakeEndless(++id, 60, max_new_tokens);
      if (may_stop) {
        for (uint32_t token = 0; token < 20; ++token) request.head.mutable_stopping()->add_stop_token_ids(token);
        request.head.mutable_stopping()->set_min_new_tokens(std::min<uint32_t>(4, max_new_tokens));
      }
      const RequestKey key = rig.Submit(std::move(request));
      rig.Settle();
      rig.ExpectFinished(key);
    }
  }
  EXPECT_GT(rig.engine().speculation().counters().num_accepted(), 0);
  rig.ExpectNothingHeld();
}

TEST(EngineMtpTest, TheContextsEndIsInsideOfAWindowToo) {
  for (int num_prompt_tokens = 116; num_prompt_tokens < 128; ++num_prompt_tokens) {
    EngineRig rig(2, 8, 128, {.num_steps = 7, .is_adaptive = false});
    const RequestKey key = rig.Submit(EngineRig::MakeEndless(9, num_prompt_tokens, 100));
    rig.Settle();
    rig.ExpectFinished(key);
    rig.ExpectNothingHeld();
  }
}

TEST(EngineMtpTest, EveryPenaltyBiasAndFilterSeesTheDraftsBefore) {
  EngineRig rig(40, 8, 320, {.num_steps = 4, .is_adaptive = false});
  std::vector<RequestKey> keys;
  for (uint64_t id = 200; id < 216; ++id) {
    GenerateRequest request = EngineRig::MakeEndless(id, 30 + static_cast<int>(id % 40), 40, 1 + id % 3);
    proto::Sampling& sampling = *request.head.mutable_sampling();
    sampling.set_temperature(id % 4 == 0 ? 0.0f : 0.5f + 0.2f * static_cast<float>(id % 3));
    sampling.set_repetition_penalty(id % 2 == 0 ? 1.4f : 1.0f);
    sampling.set_frequency_penalty(id % 3 == 0 ? 1.5f : 0.0f);
    sampling.set_presence_penalty(id % 5 == 0 ? -1.0f : 0.0f);
    sampling.set_min_p(id % 3 == 1 ? 0.05f : 0.0f);
    sampling.set_top_k(id % 4 == 1 ? 10 : 0);
    sampling.add_logit_bias()->set_token(static_cast<uint32_t>(id % 90));
    sampling.mutable_logit_bias(0)->set_bias(id % 2 == 0 ? 3.0f : -100.0f);
    sampling.set_wants_logprobs(id % 2 == 1);
    sampling.set_num_top_logprobs(id % 2 == 1 ? static_cast<uint32_t>(id % 6) : 0);
    keys.push_back(rig.Submit(std::move(request)));
  }
  rig.Settle();
  for (const RequestKey& key : keys) rig.ExpectFinished(key);
  EXPECT_GT(rig.engine().speculation().counters().num_accepted(), 0);
  rig.ExpectNothingHeld();
}

// No more tokens come than the reader has room for, though windows are longer.
TEST(EngineMtpTest, AWindowStaysWithinItsReadersCredit) {
  EngineRig rig(20, 8, 320, {.num_steps = 7, .is_adaptive = false});
  GenerateRequest request = EngineRig::MakeEndless(31, 40, 60);
  request.head.set_credit_bytes(5 * proto::kTokenCreditBytes);
  const RequestKey key = rig.Submit(std::move(request));
  for (uint64_t granted = 5; granted < 60; granted += 1 + granted % 4) {
    rig.Grant(key, granted);
    rig.Settle();
    EXPECT_EQ(rig.tokens(key).size(), granted);
  }
  rig.Grant(key, 1000);
  rig.Settle();
  rig.ExpectFinished(key);
  rig.ExpectNothingHeld();
}

// Sequences that do not fit together retract each other, and drafts retract nobody: the pool of the same requests
// without drafts retracts as often or more.
TEST(EngineMtpTest, RetractedSequencesGoOnExactly) {
  EngineRig rig(9, 8, 320, kThreeDrafts);
  std::vector<RequestKey> keys;
  for (uint64_t id = 40; id < 46; ++id) keys.push_back(rig.Submit(EngineRig::MakeEndless(id, 90, 120, 1 + id % 2)));
  rig.Settle();
  for (const RequestKey& key : keys) rig.ExpectFinished(key);
  EXPECT_GT(rig.engine().counters().retractions, 0);
  EXPECT_EQ(rig.engine().counters().replay_mismatches, 0);
  EXPECT_GT(rig.engine().speculation().counters().num_accepted(), 0);
  rig.ExpectNothingHeld();
}

TEST(EngineMtpTest, AdaptiveWindowsChangeNoTokenEither) {
  EngineRig rig(40, 8, 320, {.num_steps = 6});
  std::vector<RequestKey> keys;
  for (uint64_t id = 60; id < 66; ++id) keys.push_back(rig.Submit(EngineRig::MakeEndless(id, 20, 200)));
  rig.Settle();
  for (const RequestKey& key : keys) rig.ExpectFinished(key);
  rig.ExpectNothingHeld();
}

// One window brings several tokens; they leave in one piece.
TEST(EngineMtpTest, TheTokensOfAWindowAreOneMessage) {
  EngineRig rig(20, 8, 320, kThreeDrafts);
  const RequestKey key = rig.Submit(EngineRig::MakeEndless(70, 20, 100));
  rig.Settle();
  rig.ExpectFinished(key);
  // The first token, then one piece a window.
  EXPECT_EQ(rig.num_pieces(), 1 + rig.engine().speculation().counters().windows);
  EXPECT_EQ(rig.engine().counters().steps, rig.engine().speculation().counters().windows);
}

}  // namespace
}  // namespace tandem::decode
