// Proves the life of a request in the decode engine against a prefill worker's contract: right tokens under batching,
// famine, replay and retry; exactly one Ended, after everything is given back on both sides.
// Threads, sockets and faults of several workers at once are //tests/sim's and the services' tests' business.
#include "decode_worker/engine.h"

#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvcache/kv_layout.h"
#include "tests/sim/hash_model.h"
#include "tests/sim/oracle.h"
#include "tests/sim/pool_memory.h"
#include "tests/sim/whole_prompt_prefill.h"

namespace tandem::decode {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint64_t kDecode = 0xD, kPrefill = 0xF, kRouter = 0xA;
constexpr char kPeer[] = "prefill:8998";
constexpr sim::HashModelOptions kModel{.vocab_size = 97, .weights_seed = 42};
constexpr int kNumLayers = 2;
constexpr int64_t kContextMax = 320;

struct Answer {
  std::vector<uint32_t> tokens;
  proto::FinishReason finish_reason = proto::FINISH_REASON_UNSPECIFIED;
  std::vector<proto::Ended> ended;
};

// A decode engine, one prefill and one router, joined by queues that the test drains.
class EngineTest : public ::testing::Test, public Outbox {
 protected:
  void Start(int num_pages, int num_sequences_max = 8) {
    const kvcache::KvLayout layout{.num_layers = kNumLayers, .num_pages = num_pages};
    const kvcache::KvLayout prefill_layout{.num_layers = kNumLayers, .num_pages = 64};
    memory_ = std::make_unique<sim::PoolMemory>(layout);
    model_ = std::make_unique<sim::HashModel>(memory_->pool(), kModel);
    prefill_ = std::make_unique<sim::WholePromptPrefill>(prefill_layout, kModel, kPrefill, clock_);
    engine_ = std::make_unique<Engine>(
        EngineOptions{.batch = {.num_sequences_max = num_sequences_max, .num_rows_max = num_sequences_max + 16},
                      .num_waiting_max = 16,
                      .context_length_max = std::min<int64_t>(kContextMax, num_pages * 64),
                      .transfer = {.incarnation = kDecode, .layout = layout, .lane_policy = {}}},
        clock_, *model_, memory_->pool(), *this);
    AttachRouter(1, kRouter);
    proto::RouterMessage set;
    set.mutable_prefill_set()->add_bootstrap_addresses(kPeer);
    engine_->RouterMessage(1, set);
    BringPeerUp();
  }
  void BringPeerUp() {
    ++session_;
    prefill_->LinkUp(kDecode);
    engine_->PeerUp(kPeer, {.incarnation = kPrefill,
                            .session = session_,
                            .num_pages = 64,
                            .lanes = {{.kind = "loopback", .bytes_per_second = 1e9}, {.kind = "other"}}});
  }
  void AttachRouter(uint64_t stream_id, uint64_t incarnation) {
    proto::Identity router;
    router.set_instance("router");
    router.set_incarnation(incarnation);
    router.set_role("router");
    engine_->RouterAttached(stream_id, router);
    if (!says_positions_) return;
    // As the router does: what it has of every request that has not ended for it.
    proto::RouterMessage message;
    for (const auto& [key, answer] : answers_) {
      if (key.router_incarnation != incarnation || !answer.ended.empty() || given_up_.contains(key)) continue;
      proto::Reattach::Position& position = *message.mutable_reattach()->add_positions();
      *position.mutable_key() = key.ToProto();
      position.set_next_position(static_cast<uint32_t>(answer.tokens.size()));
    }
    message.mutable_reattach()->set_is_last(true);
    engine_->RouterMessage(stream_id, message);
  }

  // ---- Outbox ----
  void ToRouter(uint64_t stream_id, proto::WorkerMessage message) override {
    for (const proto::SequenceTokens& tokens : message.tokens().sequences()) {
      Answer& answer = answers_[RequestKey::From(tokens.key())];
      // As the router does: the next position is taken, an equal duplicate is dropped.
      ASSERT_LE(tokens.first_position(), answer.tokens.size());
      for (int i = 0; i < tokens.tokens_size(); ++i) {
        const size_t position = tokens.first_position() + i;
        if (position < answer.tokens.size()) {
          ASSERT_EQ(answer.tokens[position], tokens.tokens(i));
        } else {
          answer.tokens.push_back(tokens.tokens(i));
        }
      }
      answer.finish_reason = tokens.finish_reason();
    }
    if (message.has_ended()) answers_[RequestKey::From(message.ended().key())].ended.push_back(message.ended());
    if (message.has_peer_status()) peer_statuses_.push_back(message.peer_status());
  }
  void ToPeer(kvtransfer::SendMessage message) override {
    if (message.session == session_ && !is_link_cut_) prefill_->Receive(kDecode, message.message);
  }
  void Fetch(kvtransfer::StartFetch fetch) override { fetches_.push_back(std::move(fetch)); }
  void Cancel(kvtransfer::CancelFetches cancel) override {}
  void Reset(kvtransfer::ResetPeer reset) override {}
  void LinkWith(const std::vector<std::string>& addresses) override { linked_ = addresses; }

  // ---- The test's hand ----
  RequestKey Submit(uint64_t id, std::vector<uint32_t> prompt, uint32_t max_new_tokens, float temperature = 0.8f,
                    std::vector<uint32_t> generated = {}, uint32_t attempt = 1) {
    GenerateRequest request;
    request.key = {.router_incarnation = kRouter, .request_id = id, .attempt = attempt};
    request.prompt_tokens = std::move(prompt);
    request.head.set_prefill_address(kPeer);
    request.head.mutable_sampling()->set_temperature(temperature);
    request.head.mutable_sampling()->set_top_p(0.9f);
    request.head.mutable_sampling()->set_seed(id * 77);
    request.head.mutable_stopping()->set_max_new_tokens(max_new_tokens);
    if (!is_endless_) request.head.mutable_stopping()->add_stop_token_ids(3);
    request.head.set_credit_bytes(credit_tokens_ * 8);
    request.head.mutable_generated_tokens()->Add(generated.begin(), generated.end());
    requests_[request.key] = request;
    answers_[request.key].tokens = generated;
    engine_->Generate(request);
    return request.key;
  }
  void Grant(const RequestKey& key, uint64_t num_tokens) {  // in all
    proto::RouterMessage message;
    *message.mutable_credit()->mutable_key() = key.ToProto();
    message.mutable_credit()->set_granted_bytes(num_tokens * 8);
    engine_->RouterMessage(1, message);
  }
  void CancelRequest(const RequestKey& key) {
    proto::RouterMessage message;
    *message.mutable_cancel()->mutable_key() = key.ToProto();
    engine_->RouterMessage(1, message);
  }
  bool DeliverOnce() {
    bool moved = false;
    if (!is_link_cut_) {
      for (kvtransfer::SendToTarget& message : prefill_->Run()) {
        engine_->PeerMessage(kPeer, message.message);
        moved = true;
      }
    }
    for (auto fetches = std::exchange(fetches_, {}); kvtransfer::StartFetch & fetch : fetches) {
      for (const kvtransfer::ByteRun& run : fetch.runs) {
        std::memcpy(memory_->bytes().data() + run.target_offset, prefill_->pool().bytes().data() + run.source_offset,
                    run.num_bytes);
      }
      engine_->FetchDone(fetch.fetch_id, absl::OkStatus());
      moved = true;
    }
    return moved;
  }
  // Until nothing moves at this point of time.
  void Settle() {
    for (int i = 0; i < 100'000; ++i) {
      const bool moved = DeliverOnce();
      const bool has_work = engine_->NextWake() <= clock_.Now();
      if (moved || has_work) engine_->Step();  // as the worker's thread does
      if (!moved && !has_work) return;
    }
    FAIL() << "the engine never comes to rest";
  }
  void Advance(absl::Duration by) {
    clock_.Advance(by);
    Settle();
  }
  // The engine knows of an input only in its next step.
  void StepAndSettle() {
    engine_->Step();
    Settle();
  }

  std::vector<uint32_t> Expected(const RequestKey& key) const {
    const GenerateRequest& request = requests_.at(key);
    return sim::OracleTokens({request.prompt_tokens, request.head.sampling(), request.head.stopping()}, kModel,
                             kNumLayers, std::min<int64_t>(kContextMax, memory_->pool().layout().num_pages * 64));
  }
  void ExpectFinished(const RequestKey& key) {
    const Answer& answer = answers_[key];
    EXPECT_EQ(answer.tokens, Expected(key)) << key.ToString();
    EXPECT_NE(answer.finish_reason, proto::FINISH_REASON_UNSPECIFIED);
    ASSERT_THAT(answer.ended, SizeIs(1)) << key.ToString();
    EXPECT_FALSE(answer.ended[0].has_error()) << answer.ended[0].error().message();
    EXPECT_FALSE(answer.ended[0].is_cancelled());
  }
  void ExpectError(const RequestKey& key, absl::StatusCode code) {
    ASSERT_THAT(answers_[key].ended, SizeIs(1));
    EXPECT_EQ(answers_[key].ended[0].error().code(), static_cast<int>(code))
        << answers_[key].ended[0].error().message();
  }
  void ExpectNothingHeld() {
    EXPECT_TRUE(engine_->IsAtRest());
    EXPECT_EQ(engine_->pages().num_used(), 0);
    EXPECT_EQ(engine_->transfer().ledger(), kvtransfer::TargetLedger());
    EXPECT_EQ(prefill_->num_pages_used(), 0);
    EXPECT_EQ(prefill_->transfer().ledger(), kvtransfer::SourceLedger());
  }

  static std::vector<uint32_t> Prompt(int num_tokens, int seed = 1) {
    std::mt19937 rng(seed);
    std::vector<uint32_t> prompt(num_tokens);
    for (uint32_t& token : prompt) token = rng() % kModel.vocab_size;
    return prompt;
  }

  base::FakeClock clock_;
  std::unique_ptr<sim::PoolMemory> memory_;
  std::unique_ptr<sim::HashModel> model_;
  std::unique_ptr<sim::WholePromptPrefill> prefill_;
  std::unique_ptr<Engine> engine_;
  bool says_positions_ = true;  // when a router attaches
  std::set<RequestKey> given_up_;
  std::deque<kvtransfer::StartFetch> fetches_;
  std::map<RequestKey, GenerateRequest> requests_;
  std::map<RequestKey, Answer> answers_;
  std::vector<proto::PeerStatus> peer_statuses_;
  std::vector<std::string> linked_;
  uint64_t session_ = 0;
  bool is_link_cut_ = false;
  uint64_t credit_tokens_ = 0;  // that requests come with; 0 = no bound
  bool is_endless_ = false;     // requests without stop tokens
};

TEST_F(EngineTest, OneRequestGivesTheOraclesTokensAndEverythingBack) {
  Start(16);
  const RequestKey key = Submit(1, Prompt(100), 40);
  StepAndSettle();
  ExpectFinished(key);
  ExpectNothingHeld();
  EXPECT_EQ(engine_->counters().requests_finished, 1);
}

TEST_F(EngineTest, PromptsOfEveryLengthAroundAPageAreRight) {
  Start(16);
  std::vector<RequestKey> keys;
  for (const int length : {1, 2, 63, 64, 65, 127, 128, 129, 200}) keys.push_back(Submit(length, Prompt(length), 20));
  StepAndSettle();
  for (const RequestKey& key : keys) ExpectFinished(key);
  ExpectNothingHeld();
}

TEST_F(EngineTest, TheFirstTokenIsSentBeforeThePagesHaveArrived) {
  Start(16);
  prefill_->HoldAnnouncements(true);
  const RequestKey key = Submit(1, Prompt(100), 40);
  StepAndSettle();
  EXPECT_THAT(answers_[key].tokens, SizeIs(1));
  EXPECT_THAT(answers_[key].ended, IsEmpty());
  prefill_->HoldAnnouncements(false);
  Settle();
  ExpectFinished(key);
  ExpectNothingHeld();
}

TEST_F(EngineTest, AFirstTokenThatEndsTheRequestAbortsTheTransfer) {
  Start(16);
  prefill_->HoldAnnouncements(true);
  const RequestKey key = Submit(1, Prompt(100), 1);
  StepAndSettle();
  ExpectFinished(key);
  EXPECT_EQ(answers_[key].finish_reason, proto::FINISH_REASON_LENGTH);
  EXPECT_EQ(engine_->transfer().counters().epochs_aborted, 1);
  ExpectNothingHeld();
}

TEST_F(EngineTest, TheContextsEndFinishesByLength) {
  Start(2);  // 128 tokens
  const RequestKey key = Submit(1, Prompt(120), 500, /*temperature=*/0.0f);
  StepAndSettle();
  ExpectFinished(key);
  EXPECT_LE(answers_[key].tokens.size(), 8u);
  ExpectNothingHeld();
}

TEST_F(EngineTest, PageFamineRetractsTheYoungestAndNobodysTokensChange) {
  Start(5, 4);
  is_endless_ = true;
  std::vector<RequestKey> keys;
  for (int id = 1; id <= 4; ++id) keys.push_back(Submit(id, Prompt(58 + id, id), 200, 1.0f));
  StepAndSettle();
  for (const RequestKey& key : keys) ExpectFinished(key);
  EXPECT_GT(engine_->counters().retractions, 0);
  EXPECT_GT(engine_->counters().tokens_replayed, 0);
  EXPECT_EQ(engine_->counters().replay_mismatches, 0);
  ExpectNothingHeld();
}

TEST_F(EngineTest, ARequestResumedWithItsTokensGoesOnFromThem) {
  Start(16);
  const RequestKey whole = Submit(5, Prompt(70), 60);
  StepAndSettle();
  ExpectFinished(whole);
  std::vector<uint32_t> accepted = answers_[whole].tokens;
  ASSERT_GT(accepted.size(), 4u) << "choose another seed";
  accepted.resize(accepted.size() / 2);
  const RequestKey resumed = Submit(5, Prompt(70), 60, 0.8f, accepted, /*attempt=*/2);
  StepAndSettle();
  ExpectFinished(resumed);
  EXPECT_EQ(engine_->counters().replay_mismatches, 0);
  EXPECT_EQ(engine_->counters().tokens_replayed, static_cast<int64_t>(accepted.size()) - 1);
  ExpectNothingHeld();
}

TEST_F(EngineTest, BadBytesArePrefilledOnceMoreAndCounted) {
  Start(16);
  prefill_->CorruptNextPrompts(1);  // the refetch, over the other lane, reads the same bad bytes
  const RequestKey key = Submit(1, Prompt(100), 30);
  StepAndSettle();
  ExpectFinished(key);
  EXPECT_EQ(engine_->counters().data_loss_retries, 1);
  EXPECT_EQ(engine_->transfer().counters().refetched_pages, 1);
  // The first token of the first try was a fact: the second prefill drew none.
  EXPECT_THAT(prefill_->generated_of_starts(), ElementsAre(IsEmpty(), SizeIs(1)));
  ExpectNothingHeld();
}

TEST_F(EngineTest, AStaleEpochIsTriedAgainOnceAndOnlyOnce) {
  Start(16);
  prefill_->RefuseNext(absl::AbortedError("epoch is gone"));
  const RequestKey lucky = Submit(1, Prompt(100), 30);
  StepAndSettle();
  ExpectFinished(lucky);
  EXPECT_EQ(engine_->counters().stale_retries, 1);
  prefill_->RefuseNext(absl::AbortedError("epoch is gone"));
  prefill_->RefuseNext(absl::AbortedError("epoch is gone"));
  const RequestKey unlucky = Submit(2, Prompt(100), 30);
  StepAndSettle();
  ExpectError(unlucky, absl::StatusCode::kAborted);
  ExpectNothingHeld();
}

TEST_F(EngineTest, PrefillsRefusalReachesTheRouter) {
  Start(16);
  prefill_->RefuseNext(absl::ResourceExhaustedError("prompts in line: 8, at most 8"));
  const RequestKey key = Submit(1, Prompt(100), 30);
  StepAndSettle();
  ExpectError(key, absl::StatusCode::kResourceExhausted);
  ExpectNothingHeld();
}

TEST_F(EngineTest, ALostPeerEndsItsTransfersAndLeavesRunningSequencesAlone) {
  Start(16);
  const RequestKey running = Submit(1, Prompt(100), 60, 0.0f);
  engine_->Step();
  while (answers_[running].tokens.size() < 3) {
    DeliverOnce();
    engine_->Step();
  }
  prefill_->HoldAnnouncements(true);
  const RequestKey transferring = Submit(2, Prompt(100), 60);
  engine_->Step();
  DeliverOnce();
  is_link_cut_ = true;
  prefill_->LinkDown(kDecode);
  engine_->PeerDown(kPeer, absl::UnavailableError("silent for 750 ms"));
  Settle();
  ExpectError(transferring, absl::StatusCode::kUnavailable);
  ExpectFinished(running);
  const RequestKey too_late = Submit(3, Prompt(10), 5);
  StepAndSettle();
  ExpectError(too_late, absl::StatusCode::kUnavailable);
  EXPECT_FALSE(peer_statuses_.back().is_usable());
  is_link_cut_ = false;
  Advance(absl::Seconds(3));  // the lease at prefill
  ExpectNothingHeld();
}

TEST_F(EngineTest, CancelIsConfirmedOnceInEveryPhase) {
  Start(4, 2);
  const RequestKey running = Submit(1, Prompt(60), 200, 0.0f);
  engine_->Step();
  while (answers_[running].tokens.size() < 2) {
    DeliverOnce();
    engine_->Step();
  }
  prefill_->HoldAnnouncements(true);
  const RequestKey transferring = Submit(2, Prompt(60), 200);
  engine_->Step();
  const RequestKey waiting = Submit(3, Prompt(60), 200);
  engine_->Step();
  for (const RequestKey& key : {running, transferring, waiting}) {
    CancelRequest(key);
    CancelRequest(key);
  }
  Settle();
  for (const RequestKey& key : {running, transferring, waiting}) {
    ASSERT_FALSE(answers_[key].ended.empty());
    EXPECT_TRUE(answers_[key].ended[0].is_cancelled());
    for (const proto::Ended& ended : answers_[key].ended) EXPECT_TRUE(ended.is_cancelled());
  }
  ExpectNothingHeld();
}

TEST_F(EngineTest, ACancelThatOvertakesItsGenerateIsRemembered) {
  Start(16);
  const RequestKey key{.router_incarnation = kRouter, .request_id = 9, .attempt = 1};
  CancelRequest(key);
  ASSERT_THAT(answers_[key].ended, SizeIs(1));
  Submit(9, Prompt(10), 5);
  StepAndSettle();
  EXPECT_THAT(answers_[key].ended, SizeIs(1));
  EXPECT_THAT(answers_[key].tokens, IsEmpty());
  ExpectNothingHeld();
}

TEST_F(EngineTest, ALaterAttemptEndsTheEarlierOne) {
  Start(16);
  prefill_->HoldAnnouncements(true);
  const RequestKey first = Submit(1, Prompt(80), 10);
  engine_->Step();
  const RequestKey second = Submit(1, Prompt(80), 10, 0.8f, {}, /*attempt=*/2);
  const RequestKey stale = Submit(1, Prompt(80), 10, 0.8f, {}, /*attempt=*/0);
  prefill_->HoldAnnouncements(false);
  StepAndSettle();
  ExpectError(first, absl::StatusCode::kAborted);
  ExpectError(stale, absl::StatusCode::kAborted);
  ExpectFinished(second);
  ExpectNothingHeld();
}

TEST_F(EngineTest, ADeadlineEndsARequestWhereverItIs) {
  Start(16);
  prefill_->HoldAnnouncements(true);
  GenerateRequest request;
  request.key = {.router_incarnation = kRouter, .request_id = 1, .attempt = 1};
  request.prompt_tokens = Prompt(80);
  request.head.set_prefill_address(kPeer);
  request.head.mutable_sampling()->set_top_p(1.0f);
  request.head.mutable_stopping()->set_max_new_tokens(5);
  request.head.set_remaining_time_us(1'000'000);
  engine_->Generate(request);
  StepAndSettle();
  EXPECT_THAT(answers_[request.key].ended, IsEmpty());
  Advance(absl::Milliseconds(1001));
  engine_->Step();
  Settle();
  ExpectError(request.key, absl::StatusCode::kDeadlineExceeded);
  ExpectNothingHeld();
}

TEST_F(EngineTest, RefusesWhatItCannotServe) {
  Start(4);
  ExpectError(Submit(1, Prompt(256), 5), absl::StatusCode::kInvalidArgument);        // no room for a token
  ExpectError(Submit(2, {}, 5), absl::StatusCode::kInvalidArgument);                 // no prompt
  ExpectError(Submit(3, {97}, 5), absl::StatusCode::kInvalidArgument);               // outside the vocabulary
  ExpectError(Submit(4, {1}, 2, 1.0f, {5, 6}), absl::StatusCode::kInvalidArgument);  // nothing left to generate
  ExpectError(Submit(5, {1}, 9, 1.0f, {500}), absl::StatusCode::kInvalidArgument);
  engine_->Drain();
  ExpectError(Submit(6, {1}, 5), absl::StatusCode::kUnavailable);
  ExpectNothingHeld();
  EXPECT_EQ(engine_->transfer().counters().epochs_begun, 0);  // prefill has heard of none
}

TEST_F(EngineTest, TheLineIsBounded) {
  Start(16, 1);
  std::vector<RequestKey> keys;
  for (int id = 1; id <= 17; ++id) keys.push_back(Submit(id, Prompt(5), 2));
  ExpectError(keys[16], absl::StatusCode::kResourceExhausted);
  StepAndSettle();
  for (int i = 0; i < 16; ++i) ExpectFinished(keys[i]);
  ExpectNothingHeld();
}

TEST_F(EngineTest, ARouterThatComesBackInTimeMissesNothing) {
  Start(16);
  const RequestKey key = Submit(1, Prompt(70), 50, 0.0f);
  engine_->Step();
  while (answers_[key].tokens.size() < 2) {
    DeliverOnce();
    engine_->Step();
  }
  answers_[key].tokens.resize(1);  // the stream swallowed the last token
  engine_->RouterLost(1);
  Settle();  // it ends while nobody listens
  EXPECT_THAT(answers_[key].ended, IsEmpty());
  AttachRouter(2, kRouter);
  Settle();
  ExpectFinished(key);
  EXPECT_EQ(answers_[key].ended[0].number(), 1u);
  EXPECT_EQ(engine_->counters().reattached_routers, 1);
  EXPECT_EQ(engine_->counters().tokens_said_again, static_cast<int64_t>(Expected(key).size()) - 1);
  ExpectNothingHeld();
}

TEST_F(EngineTest, TheStreamMayBreakAtAnyTokenAndNoneIsLostOrSentTwice) {
  is_endless_ = true;
  for (const size_t cut_at : {0, 1, 2, 7, 19, 20}) {  // 20: after the last one
    for (const size_t swallowed : {0, 1, 3}) {        // of them, those that never arrived
      Start(16);
      answers_.clear();
      const RequestKey key = Submit(1, Prompt(70), 20);
      for (int i = 0; i < 1000 && answers_[key].tokens.size() < cut_at; ++i) {
        DeliverOnce();
        engine_->Step();
      }
      Answer& answer = answers_[key];
      ASSERT_GE(answer.tokens.size(), cut_at);
      answer.ended.clear();  // the end was swallowed, too
      answer.tokens.resize(answer.tokens.size() - std::min(swallowed, answer.tokens.size()));
      const size_t num_received = answer.tokens.size();
      engine_->RouterLost(1);
      for (int i = 0; i < 3; ++i) {
        DeliverOnce();
        engine_->Step();
      }
      EXPECT_EQ(answer.tokens.size(), num_received) << "nobody listens";
      AttachRouter(2, kRouter);
      Settle();
      ExpectFinished(key);
      ExpectNothingHeld();
    }
  }
}

TEST_F(EngineTest, NothingIsSentToARouterThatHasNotNamedItsPositions) {
  Start(16);
  prefill_->HoldAnnouncements(true);
  const RequestKey key = Submit(1, Prompt(70), 20, 0.0f);
  StepAndSettle();
  const size_t num_received = answers_[key].tokens.size();
  says_positions_ = false;
  AttachRouter(2, kRouter);
  prefill_->HoldAnnouncements(false);
  Settle();
  EXPECT_EQ(answers_[key].tokens.size(), num_received);
  EXPECT_THAT(answers_[key].ended, IsEmpty());
  says_positions_ = true;
  AttachRouter(3, kRouter);
  Settle();
  ExpectFinished(key);
}

TEST_F(EngineTest, WhatAReturningRouterDoesNotNameIsCancelledButNotWhatCameOnItsNewStream) {
  Start(16);
  is_endless_ = true;
  prefill_->HoldAnnouncements(true);
  const RequestKey given_up = Submit(1, Prompt(70), 20);
  const RequestKey kept = Submit(2, Prompt(40), 20);
  StepAndSettle();
  engine_->RouterLost(1);
  given_up_.insert(given_up);
  says_positions_ = false;
  AttachRouter(2, kRouter);
  const RequestKey newer = Submit(3, Prompt(30), 20);  // overtakes the positions on the other connection
  given_up_.insert(newer);
  says_positions_ = true;
  proto::RouterMessage message;
  proto::Reattach::Position& position = *message.mutable_reattach()->add_positions();
  *position.mutable_key() = kept.ToProto();
  position.set_next_position(static_cast<uint32_t>(answers_[kept].tokens.size()));
  message.mutable_reattach()->set_is_last(true);
  engine_->RouterMessage(2, message);
  prefill_->HoldAnnouncements(false);
  Settle();
  ASSERT_THAT(answers_[given_up].ended, SizeIs(1));
  EXPECT_TRUE(answers_[given_up].ended[0].is_cancelled());
  ExpectFinished(kept);
  ExpectFinished(newer);
  ExpectNothingHeld();
}

TEST_F(EngineTest, WhatARequestGeneratedBeforeThePositionsThatItOvertookIsSaidOnceTheyHaveCome) {
  Start(16);
  is_endless_ = true;
  engine_->RouterLost(1);
  says_positions_ = false;
  AttachRouter(2, kRouter);
  const RequestKey ended = Submit(1, Prompt(70), 1);
  credit_tokens_ = 4;
  const RequestKey living = Submit(2, Prompt(30), 20);
  const RequestKey refused = Submit(3, {}, 20);
  StepAndSettle();
  for (const RequestKey& key : {ended, living, refused}) {
    EXPECT_THAT(answers_[key].tokens, SizeIs(0));
    EXPECT_THAT(answers_[key].ended, SizeIs(0));
  }
  proto::RouterMessage message;
  message.mutable_reattach()->set_is_last(true);
  engine_->RouterMessage(2, message);
  EXPECT_THAT(answers_[living].tokens, SizeIs(4));
  ExpectFinished(ended);
  ExpectError(refused, absl::StatusCode::kInvalidArgument);
  Grant(living, 1000);
  StepAndSettle();
  ExpectFinished(living);
  ExpectNothingHeld();
}

TEST_F(EngineTest, ARequestThatWasLostWithItsStreamIsAnsweredAndItsLateGenerateDropped) {
  Start(16);
  const RequestKey key{.router_incarnation = kRouter, .request_id = 1, .attempt = 1};
  answers_[key];  // the router has sent it; it is still under way
  AttachRouter(2, kRouter);
  Settle();
  ExpectError(key, absl::StatusCode::kUnavailable);
  EXPECT_EQ(engine_->counters().requests_not_known, 1);
  Submit(1, Prompt(70), 20);
  Settle();
  EXPECT_EQ(engine_->counters().requests_dropped, 1);
  ExpectNothingHeld();
}

TEST_F(EngineTest, NoTokenIsMadeThatTheReaderHasNoRoomFor) {
  Start(16);
  is_endless_ = true;
  credit_tokens_ = 10;
  const RequestKey slow = Submit(1, Prompt(70), 50);
  credit_tokens_ = 0;
  const RequestKey other = Submit(2, Prompt(40), 50);
  StepAndSettle();
  EXPECT_THAT(answers_[slow].tokens, SizeIs(10));
  ExpectFinished(other);
  EXPECT_EQ(engine_->num_without_credit(), 1);
  Grant(slow, 9);  // late, or repeated: never less than before
  StepAndSettle();
  EXPECT_THAT(answers_[slow].tokens, SizeIs(10));
  Grant(slow, 13);
  StepAndSettle();
  EXPECT_THAT(answers_[slow].tokens, SizeIs(13));
  Grant(slow, 1000);
  StepAndSettle();
  ExpectFinished(slow);
  EXPECT_EQ(engine_->counters().credit_retractions, 0);
  ExpectNothingHeld();
}

TEST_F(EngineTest, AReaderWithoutRoomForLongLosesItsPagesAndGoesOnExactlyWhenItReads) {
  Start(16);
  is_endless_ = true;
  credit_tokens_ = 10;
  const RequestKey key = Submit(1, Prompt(70), 50);
  StepAndSettle();
  Advance(absl::Milliseconds(1999));
  EXPECT_GT(engine_->pages().num_used(), 0);
  Advance(absl::Milliseconds(2));
  EXPECT_EQ(engine_->pages().num_used(), 0);
  EXPECT_EQ(engine_->num_parked(), 1);
  EXPECT_EQ(engine_->counters().credit_retractions, 1);
  EXPECT_EQ(engine_->counters().retractions, 0);
  EXPECT_FALSE(engine_->IsAtRest()) << "it lives";
  Grant(key, 12);  // not worth a prefill
  StepAndSettle();
  EXPECT_EQ(engine_->num_parked(), 1);
  Grant(key, 15);
  StepAndSettle();
  EXPECT_EQ(engine_->num_parked(), 0);
  EXPECT_THAT(answers_[key].tokens, SizeIs(15));
  Grant(key, 1000);
  StepAndSettle();
  ExpectFinished(key);
  EXPECT_EQ(engine_->counters().replay_mismatches, 0);
  ExpectNothingHeld();
}

TEST_F(EngineTest, AParkedRequestCanBeCancelledAndRunsOutOfTime) {
  Start(16);
  is_endless_ = true;
  credit_tokens_ = 4;
  const RequestKey cancelled = Submit(1, Prompt(70), 50);
  const RequestKey kept = Submit(2, Prompt(30), 50);
  StepAndSettle();
  Advance(absl::Seconds(3));
  EXPECT_EQ(engine_->num_parked(), 2);
  CancelRequest(cancelled);
  StepAndSettle();
  ASSERT_THAT(answers_[cancelled].ended, SizeIs(1));
  EXPECT_TRUE(answers_[cancelled].ended[0].is_cancelled());
  EXPECT_EQ(engine_->num_parked(), 1);
  Grant(kept, 1000);
  StepAndSettle();
  ExpectFinished(kept);
  ExpectNothingHeld();
}

TEST_F(EngineTest, CreditThatWasLostWithTheStreamComesWithThePosition) {
  Start(16);
  is_endless_ = true;
  credit_tokens_ = 4;
  const RequestKey key = Submit(1, Prompt(70), 50);
  StepAndSettle();
  EXPECT_THAT(answers_[key].tokens, SizeIs(4));
  says_positions_ = false;
  AttachRouter(2, kRouter);
  proto::RouterMessage message;
  proto::Reattach::Position& position = *message.mutable_reattach()->add_positions();
  *position.mutable_key() = key.ToProto();
  position.set_next_position(4);
  position.set_granted_bytes(1000 * 8);
  message.mutable_reattach()->set_is_last(true);
  engine_->RouterMessage(2, message);
  StepAndSettle();
  ExpectFinished(key);
}

TEST_F(EngineTest, ManySlowReadersDoNotKeepThePoolFromOthers) {
  Start(10);
  is_endless_ = true;
  credit_tokens_ = 4;
  std::vector<RequestKey> slow;
  for (uint64_t id = 1; id <= 6; ++id) slow.push_back(Submit(id, Prompt(60, static_cast<int>(id)), 50));
  StepAndSettle();
  credit_tokens_ = 0;
  const RequestKey quick = Submit(7, Prompt(250), 60);  // wants half of the pool
  StepAndSettle();
  Advance(absl::Seconds(3));
  ExpectFinished(quick);
  for (const RequestKey& key : slow) {
    EXPECT_THAT(answers_[key].tokens, SizeIs(4));
    Grant(key, 1000);
  }
  StepAndSettle();
  for (const RequestKey& key : slow) ExpectFinished(key);
  ExpectNothingHeld();
}

TEST_F(EngineTest, EndsAreKeptUntilTheyAreConfirmed) {
  Start(16);
  for (uint64_t id = 1; id <= 3; ++id) Submit(id, Prompt(10), 5);
  StepAndSettle();
  EXPECT_EQ(engine_->num_unconfirmed_ends(), 3u);
  proto::RouterMessage message;
  message.mutable_ended_received()->set_number(2);
  engine_->RouterMessage(1, message);
  EXPECT_EQ(engine_->num_unconfirmed_ends(), 1u);
  AttachRouter(2, kRouter + 1);  // restarted: there is nobody left to tell
  EXPECT_EQ(engine_->num_unconfirmed_ends(), 0u);
}

TEST_F(EngineTest, ARouterThatIsGoneLosesItsRequests) {
  Start(16);
  prefill_->HoldAnnouncements(true);
  const RequestKey key = Submit(1, Prompt(70), 50);
  StepAndSettle();
  engine_->RouterLost(1);
  Advance(absl::Milliseconds(1999));
  EXPECT_FALSE(engine_->IsAtRest());
  Advance(absl::Milliseconds(2));
  engine_->Step();
  Settle();
  ExpectNothingHeld();
  EXPECT_THAT(answers_[key].ended, IsEmpty());
  EXPECT_EQ(engine_->counters().requests_cancelled, 1);
  EXPECT_THAT(linked_, IsEmpty());
}

TEST_F(EngineTest, ARestartedRouterLosesTheOldOnesRequestsAtOnce) {
  Start(16);
  prefill_->HoldAnnouncements(true);
  Submit(1, Prompt(70), 50);
  StepAndSettle();
  AttachRouter(2, kRouter + 1);
  Settle();
  ExpectNothingHeld();
}

TEST_F(EngineTest, RoutersNamePrefillPeersAndHearOfThem) {
  Start(16);
  EXPECT_THAT(linked_, ElementsAre(kPeer));
  ASSERT_THAT(peer_statuses_, SizeIs(1));
  EXPECT_TRUE(peer_statuses_[0].is_usable());
  EXPECT_EQ(peer_statuses_[0].lane(), "loopback");
  EXPECT_THAT(engine_->Describe(), HasSubstr(absl::StrCat(kPeer, " yes loopback")));
  AttachRouter(2, kRouter);  // a new stream hears of everything again
  EXPECT_THAT(peer_statuses_, SizeIs(2));
}

}  // namespace
}  // namespace tandem::decode
