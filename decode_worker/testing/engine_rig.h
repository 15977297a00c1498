// For tests: a decode engine on the hash model, one prefill worker's contract and one router, joined by queues that the
// test drains; answers are kept by choice and compared with the oracle's. Where ENGINE_RIG_DRAFTS says so, engines
// draft as many tokens with the MTP layer, and every test that uses the rig must come out alike.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "decode_worker/engine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvcache/kv_layout.h"
#include "proto/credit.h"
#include "tests/sim/hisparse_model.h"
#include "tests/sim/mirror_model.h"
#include "tests/sim/oracle.h"
#include "tests/sim/pool_memory.h"
#include "tests/sim/sim_vocabulary.h"
#include "tests/sim/whole_prompt_prefill.h"

namespace tandem::decode {

struct ChoiceAnswer {
  std::vector<uint32_t> tokens;
  std::vector<float> logprobs;
  std::vector<proto::TopLogprobs> top_logprobs;
  proto::FinishReason finish_reason = proto::FINISH_REASON_UNSPECIFIED;
};

inline SpeculativeOptions RigSpeculation() {
  const char* const drafts = std::getenv("ENGINE_RIG_DRAFTS");
  return {.num_steps = drafts == nullptr ? 0 : std::atoi(drafts), .is_adaptive = false};
}

struct RigAnswer {
  std::map<uint32_t, ChoiceAnswer> choices;
  std::vector<proto::Ended> ended;
};

class EngineRig final : public Outbox {
 public:
  static constexpr uint64_t kDecode = 0xD, kPrefill = 0xF, kRouter = 0xA;
  static constexpr char kPeer[] = "prefill:8998";
  static constexpr sim::HashModelOptions kModel{.vocab_size = 97, .weights_seed = 42};
  static constexpr int kNumLayers = 2, kPrefillPages = 64;  // without the MTP layer
  static constexpr uint32_t kStopToken = 3;

  EngineRig(int num_pages, int num_sequences_max, int64_t context_length_max, const sim::HiSparseOptions& hisparse)
      : EngineRig(num_pages, num_sequences_max, context_length_max, RigSpeculation(), hisparse) {}
  explicit EngineRig(int num_pages, int num_sequences_max = 8, int64_t context_length_max = 320,
                     const SpeculativeOptions& speculative = RigSpeculation(),
                     const sim::HiSparseOptions& hisparse = {}, int num_kept_pages = 0,
                     bool keeps_generated_pages = false,
                     worker_shell::SchedulePolicy schedule_policy = worker_shell::SchedulePolicy::kFcfs)
      : num_layers_(kNumLayers + (speculative.num_steps > 0 ? 1 : 0)),
        model_options_({.vocab_size = kModel.vocab_size,
                        .weights_seed = kModel.weights_seed,
                        .has_mtp = speculative.num_steps > 0}),
        context_length_max_(std::min<int64_t>(context_length_max, num_pages * kvcache::kPageTokens)),
        memory_({.num_layers = num_layers_, .num_pages = num_pages}),
        kept_memory_({.num_layers = num_layers_, .num_pages = std::max(1, num_kept_pages)}),
        model_(
            BuildModel(memory_.pool(), model_options_, num_sequences_max * (1 + speculative.num_steps) + 16, hisparse)),
        prefill_({.num_layers = num_layers_, .num_pages = kPrefillPages}, model_options_, kPrefill, clock_),
        engine_({.batch = {.num_sequences_max = num_sequences_max,
                           .num_rows_max = num_sequences_max * (1 + speculative.num_steps) + 16,
                           .num_kept_pages_max = hisparse.num_kept_pages_max},
                 .num_waiting_max = 16,
                 .schedule_policy = schedule_policy,
                 .context_length_max = context_length_max_,
                 .speculative = speculative,
                 .vocabulary = sim::SimVocabulary(kModel.vocab_size),
                 .transfer = {.incarnation = kDecode, .layout = memory_.pool().layout(), .lane_policy = {}},
                 .num_device_pages = hisparse.num_device_pages,
                 .prefix_cache = kvcache::PrefixIndexOptions(),
                 .keeps_generated_pages = keeps_generated_pages,
                 .retraction_pool = num_kept_pages > 0 ? std::optional(kept_memory_.pool()) : std::nullopt},
                clock_, *model_, memory_.pool(), *this) {
    AttachRouter(1);
    proto::RouterMessage set;
    set.mutable_prefill_set()->add_bootstrap_addresses(kPeer);
    engine_.RouterMessage(1, set);
    BringLinkUp();
  }
  // A stream whose router has said hello and nothing else.
  void OpenStream(uint64_t stream_id, uint64_t incarnation = kRouter) {
    proto::Identity router;
    router.set_instance("router");
    router.set_incarnation(incarnation);
    router.set_role("router");
    engine_.RouterAttached(stream_id, router);
  }
  // What the router has of every choice of these requests.
  void SayPositions(uint64_t stream_id, const std::vector<RequestKey>& keys) {
    proto::RouterMessage message;
    for (const RequestKey& key : keys) {
      for (uint32_t choice = 0; choice < num_choices(key); ++choice) {
        const auto known = answers_[key].choices.find(choice);
        proto::Reattach::Position& position = *message.mutable_reattach()->add_positions();
        *position.mutable_key() = key.ToProto();
        position.set_choice(choice);
        if (known != answers_[key].choices.end()) {
          position.set_next_position(static_cast<uint32_t>(known->second.tokens.size()));
        }
      }
    }
    message.mutable_reattach()->set_is_last(true);
    engine_.RouterMessage(stream_id, message);
  }
  // As the router does: positions of its requests that have not ended for it.
  void AttachRouter(uint64_t stream_id, uint64_t incarnation = kRouter) {
    OpenStream(stream_id, incarnation);
    std::vector<RequestKey> living;
    for (const auto& [key, answer] : answers_) {
      if (key.router_incarnation == incarnation && answer.ended.empty()) living.push_back(key);
    }
    SayPositions(stream_id, living);
  }

  // ---- Outbox ----
  void ToRouter(uint64_t stream_id, proto::WorkerMessage message) override {
    for (const proto::SequenceTokens& tokens : message.tokens().sequences()) Take(tokens);
    if (message.has_ended()) {
      const RequestKey key = RequestKey::From(message.ended().key());
      answers_[key].ended.push_back(message.ended());
      ended_order_.push_back(key);
    }
    if (message.has_peer_status()) peer_statuses_.push_back(message.peer_status());
  }
  void ToPeer(kvtransfer::SendMessage message) override {
    if (!is_link_cut_ && message.session == session_) prefill_.Receive(kDecode, message.message);
  }
  void Fetch(kvtransfer::StartFetch fetch) override { fetches_.push_back(std::move(fetch)); }
  void Cancel(kvtransfer::CancelFetches cancel) override {}
  void Reset(kvtransfer::ResetPeer reset) override {}
  void LinkWith(const std::vector<std::string>& addresses) override { linked_ = addresses; }

  // ---- The test's hand ----

  // A request that draws at temperature 0.8 and ends at kStopToken; to be changed before Submit.
  static GenerateRequest MakeRequest(uint64_t id, int num_prompt_tokens, uint32_t max_new_tokens,
                                     uint32_t num_choices = 1) {
    GenerateRequest request;
    request.key = {.router_incarnation = kRouter, .request_id = id, .attempt = 1};
    std::mt19937 rng(static_cast<uint32_t>(id));
    for (int i = 0; i < num_prompt_tokens; ++i) request.prompt_tokens.push_back(rng() % kModel.vocab_size);
    request.head.set_prefill_address(kPeer);
    request.head.set_num_choices(num_choices);
    request.head.mutable_sampling()->set_temperature(0.8f);
    request.head.mutable_sampling()->set_top_p(0.9f);
    request.head.mutable_sampling()->set_seed(id * 77);
    request.head.mutable_stopping()->set_max_new_tokens(max_new_tokens);
    request.head.mutable_stopping()->add_stop_token_ids(kStopToken);
    return request;
  }
  // The same without a stop token, so that its length is known.
  static GenerateRequest MakeEndless(uint64_t id, int num_prompt_tokens, uint32_t max_new_tokens,
                                     uint32_t num_choices = 1) {
    GenerateRequest request = MakeRequest(id, num_prompt_tokens, max_new_tokens, num_choices);
    request.head.mutable_stopping()->clear_stop_token_ids();
    return request;
  }
  static GenerateRequest Greedy(GenerateRequest request) {
    request.head.mutable_sampling()->set_temperature(0);
    return request;
  }
  // What the router has of each choice from earlier attempts; nullopt: it has ended.
  static void Bring(const std::vector<std::optional<std::vector<uint32_t>>>& choices, GenerateRequest& request) {
    request.head.clear_resumed();
    request.generated_tokens.clear();
    for (const std::optional<std::vector<uint32_t>>& tokens : choices) {
      proto::ResumedChoice& resumed = *request.head.add_resumed();
      resumed.set_has_ended(!tokens.has_value());
      if (!tokens.has_value()) continue;
      resumed.set_num_tokens(static_cast<uint32_t>(tokens->size()));
      request.generated_tokens.insert(request.generated_tokens.end(), tokens->begin(), tokens->end());
    }
  }
  RequestKey Submit(GenerateRequest request) {
    const RequestKey key = request.key;
    requests_[key] = request;
    auto brought = request.generated_tokens.begin();
    for (int choice = 0; choice < request.head.resumed_size(); ++choice) {
      const auto end = brought + request.num_brought(choice);
      if (!request.HasEnded(choice)) answers_[key].choices[choice].tokens.assign(brought, end);
      brought = end;
    }
    engine_.Generate(std::move(request));
    return key;
  }
  void CancelRequest(const RequestKey& key) {
    proto::RouterMessage message;
    *message.mutable_cancel()->mutable_key() = key.ToProto();
    engine_.RouterMessage(1, message);
  }
  void CancelChoice(const RequestKey& key, uint32_t choice) {
    proto::RouterMessage message;
    *message.mutable_cancel()->mutable_key() = key.ToProto();
    message.mutable_cancel()->set_choice(choice);
    engine_.RouterMessage(1, message);
  }
  // So many tokens in all.
  void Grant(const RequestKey& key, uint64_t num_tokens) {
    proto::RouterMessage message;
    *message.mutable_credit()->mutable_key() = key.ToProto();
    message.mutable_credit()->set_granted_bytes(num_tokens * proto::kTokenCreditBytes);
    engine_.RouterMessage(1, message);
  }
  // A new session; that of a link which was cut is over.
  void BringLinkUp() {
    is_link_cut_ = false;
    ++session_;
    prefill_.LinkUp(kDecode);
    engine_.PeerUp(kPeer, {.incarnation = kPrefill,
                           .session = session_,
                           .num_pages = kPrefillPages,
                           .lanes = {{.kind = "loopback", .bytes_per_second = 1e9}, {.kind = "other"}}});
  }
  // Both sides notice.
  void CutLink(const absl::Status& cause) {
    is_link_cut_ = true;
    prefill_.LinkDown(kDecode);
    engine_.PeerDown(kPeer, cause);
  }
  bool DeliverOnce() {
    bool moved = false;
    for (kvtransfer::SendToTarget& message : prefill_.Run()) {
      if (is_link_cut_) continue;
      engine_.PeerMessage(kPeer, message.message);
      moved = true;
    }
    for (auto fetches = std::exchange(fetches_, {}); kvtransfer::StartFetch & fetch : fetches) {
      for (const kvtransfer::ByteRun& run : fetch.runs) {
        std::memcpy(memory_.bytes().data() + run.target_offset, prefill_.pool().bytes().data() + run.source_offset,
                    run.num_bytes);
      }
      engine_.FetchDone(fetch.fetch_id, absl::OkStatus());
      moved = true;
    }
    return moved;
  }
  // Until nothing moves at this point of time.
  void Settle() {
    engine_.Step();  // an input is dealt with in the step after it
    for (int i = 0; i < 100'000; ++i) {
      const bool moved = DeliverOnce();
      const bool has_work = engine_.NextWake() <= clock_.Now();
      if (moved || has_work) engine_.Step();
      if (!moved && !has_work) return;
    }
    FAIL() << "the engine never comes to rest";
  }
  void Advance(absl::Duration by) {
    clock_.Advance(by);
    Settle();
  }
  // Until the choice has so many tokens.
  void RunTo(const RequestKey& key, uint32_t choice, size_t num_tokens) {
    for (int i = 0; i < 100'000 && answers_[key].choices[choice].tokens.size() < num_tokens; ++i) {
      engine_.Step();
      DeliverOnce();
    }
    ASSERT_GE(answers_[key].choices[choice].tokens.size(), num_tokens) << "choose another seed";
  }

  // The request of one choice whole, then as further attempts that bring so many tokens of it; negative: but for so
  // many. All end alike.
  void ExpectResumesAt(GenerateRequest request, const std::vector<int>& nums_brought) {
    const RequestKey whole = Submit(request);
    Settle();
    ExpectFinished(whole);
    const std::vector<uint32_t> tokens = this->tokens(whole);
    for (const int num : nums_brought) {
      request.key.attempt++;
      const auto end = (num < 0 ? tokens.end() : tokens.begin()) + num;
      Bring({std::vector<uint32_t>(tokens.begin(), end)}, request);
      const RequestKey resumed = Submit(request);
      Settle();
      ExpectFinished(resumed);
    }
    EXPECT_EQ(engine_.counters().replay_mismatches, 0);
    ExpectNothingHeld();
  }

  // ---- What must be ----

  sim::OracleAnswer Expected(const RequestKey& key, uint32_t choice) const {
    const GenerateRequest& request = requests_.at(key);
    return sim::AskOracle({request.prompt_tokens, request.head.sampling(), request.head.stopping()}, model_options_,
                          num_layers_, context_length_max_, choice);
  }
  uint32_t num_choices(const RequestKey& key) const {
    const auto request = requests_.find(key);
    return request == requests_.end() ? 1 : std::max<uint32_t>(1, request->second.head.num_choices());
  }
  void ExpectChoice(const RequestKey& key, uint32_t choice) {
    const ChoiceAnswer& answer = answers_[key].choices[choice];
    const sim::OracleAnswer expected = Expected(key, choice);
    EXPECT_EQ(answer.tokens, expected.tokens) << key.ToString() << " choice " << choice;
    EXPECT_NE(answer.finish_reason, proto::FINISH_REASON_UNSPECIFIED) << key.ToString() << " choice " << choice;
    const auto num_brought = static_cast<size_t>(requests_.at(key).num_brought(static_cast<int>(choice)));
    if (!requests_.at(key).head.sampling().wants_logprobs()) {
      EXPECT_TRUE(answer.logprobs.empty() && answer.top_logprobs.empty());
      return;
    }
    ASSERT_EQ(answer.logprobs.size() + num_brought, expected.tokens.size());
    const int num_top = static_cast<int>(requests_.at(key).head.sampling().num_top_logprobs());
    for (size_t i = 0; i < answer.logprobs.size(); ++i) {
      const model::TokenLogprobs& bits = expected.logprobs[num_brought + i];
      EXPECT_EQ(answer.logprobs[i], bits.logprob);
      if (num_top == 0) continue;
      ASSERT_EQ(answer.top_logprobs.size(), answer.logprobs.size());
      ASSERT_EQ(answer.top_logprobs[i].tokens_size(), num_top);
      for (int place = 0; place < num_top; ++place) {
        EXPECT_EQ(answer.top_logprobs[i].tokens(place), static_cast<uint32_t>(bits.top_tokens[place]));
        EXPECT_EQ(answer.top_logprobs[i].logprobs(place), bits.top_logprobs[place]);
      }
    }
  }
  void ExpectEnded(const RequestKey& key) {
    ASSERT_THAT(answers_[key].ended, ::testing::SizeIs(1)) << key.ToString();
    EXPECT_FALSE(answers_[key].ended[0].has_error()) << answers_[key].ended[0].error().message();
    EXPECT_FALSE(answers_[key].ended[0].is_cancelled());
  }
  void ExpectFinished(const RequestKey& key) {
    size_t num_wanted = 0;
    for (uint32_t choice = 0; choice < num_choices(key); ++choice) {
      if (requests_.at(key).HasEnded(static_cast<int>(choice))) continue;
      ++num_wanted;
      ExpectChoice(key, choice);
    }
    EXPECT_EQ(answers_[key].choices.size(), num_wanted);
    ExpectEnded(key);
  }
  void ExpectError(const RequestKey& key, absl::StatusCode code, const std::string& part = "") {
    ASSERT_THAT(answers_[key].ended, ::testing::SizeIs(1)) << part;
    const proto::Error& error = answers_[key].ended[0].error();
    EXPECT_EQ(error.code(), static_cast<int>(code)) << error.message();
    EXPECT_THAT(error.message(), ::testing::HasSubstr(part));
  }
  void ExpectNothingHeld() {
    EXPECT_TRUE(engine_.IsAtRest());
    EXPECT_EQ(engine_.pages().num_used(), 0);
    EXPECT_EQ(engine_.device_pages().num_used(), 0);
    EXPECT_EQ(engine_.retracted_pages().pages().num_used(), 0);
    EXPECT_THAT(engine_.pages().Holders(), ::testing::IsEmpty());
    EXPECT_EQ(engine_.transfer().ledger(), kvtransfer::TargetLedger());
    EXPECT_EQ(prefill_.num_pages_used(), 0);
    EXPECT_EQ(prefill_.transfer().ledger(), kvtransfer::SourceLedger());
  }

  const std::vector<RequestKey>& ended_order() const { return ended_order_; }
  bool has_ended(const RequestKey& key) const {
    return std::find(ended_order_.begin(), ended_order_.end(), key) != ended_order_.end();
  }
  Engine& engine() { return engine_; }
  const Engine& engine() const { return engine_; }
  const GenerateRequest& request(const RequestKey& key) const { return requests_.at(key); }
  int num_layers() const { return num_layers_; }
  const sim::HashModelOptions& model_options() const { return model_options_; }
  int64_t num_pieces() const { return num_pieces_; }  // in which tokens have come
  sim::WholePromptPrefill& prefill() { return prefill_; }
  base::FakeClock& clock() { return clock_; }
  RigAnswer& answer(const RequestKey& key) { return answers_[key]; }
  const std::vector<uint32_t>& prompt(const RequestKey& key) const { return requests_.at(key).prompt_tokens; }
  std::vector<uint32_t>& tokens(const RequestKey& key) {
    return answers_[key].choices[0].tokens;
  }  // of the first choice
  const std::vector<proto::PeerStatus>& peer_statuses() const { return peer_statuses_; }
  const std::vector<std::string>& linked() const { return linked_; }  // whom it wants a link with

 private:
  static std::unique_ptr<model::ModelExecutor> BuildModel(const kvcache::KvPool& pool,
                                                          const sim::HashModelOptions& model, int num_rows_max,
                                                          const sim::HiSparseOptions& hisparse) {
    if (hisparse.num_device_pages == 0) return std::make_unique<sim::MirrorModel>(pool, model);
    return std::make_unique<sim::HiSparseModel>(pool, model, num_rows_max, hisparse);
  }
  // As the router does: the next position is taken, an equal duplicate is dropped.
  void Take(const proto::SequenceTokens& tokens) {
    ++num_pieces_;
    const RequestKey key = RequestKey::From(tokens.key());
    EXPECT_THAT(answers_[key].ended, ::testing::IsEmpty()) << "tokens after the end of " << key.ToString();
    ChoiceAnswer& answer = answers_[key].choices[tokens.choice()];
    ASSERT_LE(tokens.first_position(), answer.tokens.size());
    for (int i = 0; i < tokens.tokens_size(); ++i) {
      const size_t position = tokens.first_position() + i;
      if (position < answer.tokens.size()) {
        ASSERT_EQ(answer.tokens[position], tokens.tokens(i));
        continue;
      }
      answer.tokens.push_back(tokens.tokens(i));
      if (tokens.logprobs_size() > 0) answer.logprobs.push_back(tokens.logprobs(i));
      if (tokens.top_logprobs_size() > 0) answer.top_logprobs.push_back(tokens.top_logprobs(i));
    }
    answer.finish_reason = tokens.finish_reason();
  }

  base::FakeClock clock_;
  const int num_layers_;
  const sim::HashModelOptions model_options_;
  const int64_t context_length_max_;
  sim::PoolMemory memory_, kept_memory_;
  const std::unique_ptr<model::ModelExecutor> model_;
  sim::WholePromptPrefill prefill_;
  Engine engine_;
  std::deque<kvtransfer::StartFetch> fetches_;
  std::map<RequestKey, GenerateRequest> requests_;
  std::map<RequestKey, RigAnswer> answers_;
  std::vector<RequestKey> ended_order_;
  std::vector<proto::PeerStatus> peer_statuses_;
  std::vector<std::string> linked_;
  uint64_t session_ = 0;
  int64_t num_pieces_ = 0;
  bool is_link_cut_ = false;
};

}  // namespace tandem::decode
