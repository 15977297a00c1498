// Proves the life of a request in the prefill engine against decode's real transfer machine: whatever the chunk size
// and the company, decode gets exactly the KV bytes and the first token of a prompt computed alone and whole.
#include "prefill_worker/testing/engine_fixture.h"

namespace tandem::prefill {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST_F(EngineTest, OnePromptArrivesWholeWithItsFirstToken) {
  Start(8, 100);
  const uint64_t epoch = Begin(200);
  Settle();
  ExpectServed(epoch);
  EXPECT_THAT(model_->rows_per_step, ElementsAre(100, 100));
  ExpectNothingHeld();
}

TEST_F(EngineTest, AnyChunkSizeGivesTheSameBytes) {
  for (const int chunk : {1, 7, 63, 64, 65, 100, 512}) {
    transfers_.clear();
    next_decode_page_ = 0;
    Start(16, chunk);
    std::vector<uint64_t> epochs;
    for (const int length : {1, 64, 65, 130, 200}) epochs.push_back(Begin(length));
    Settle();
    for (const uint64_t epoch : epochs) ExpectServed(epoch);
    ExpectNothingHeld();
  }
}

TEST_F(EngineTest, TheMtpLayersRecordsAndTheLastHiddenStateArriveWhateverTheChunks) {
  model_options_.has_mtp = true;
  for (const int chunk : {1, 7, 63, 64, 65, 100, 512}) {
    transfers_.clear();
    next_decode_page_ = 0;
    Start(16, chunk);
    std::vector<uint64_t> epochs;
    for (const int length : {1, 2, 64, 65, 128, 129, 130}) epochs.push_back(Begin(length));
    epochs.push_back(Begin(100, /*generated=*/{5, 6}));
    Settle();
    for (size_t i = 0; i + 1 < epochs.size(); ++i) ExpectServed(epochs[i]);
    ExpectArrivedWhole(epochs.back());
    ExpectNothingHeld();
  }
}

TEST_F(EngineTest, TheFirstTokenDoesNotWaitForTheMtpLayerWhoseFailureEndsTheRequest) {
  model_options_.has_mtp = true;
  Start(8, 512);
  const uint64_t epoch = Begin(130);
  Deliver();
  model_->next_mtp_error = absl::InternalError("the MTP layer is broken");
  engine_->Step();
  Settle();
  EXPECT_EQ(transfers_[epoch].first_tokens.size(), 1u);
  EXPECT_EQ(transfers_[epoch].failure.message(), "the MTP layer is broken");
  ExpectNothingHeld();
}

// A prompt whose first token cannot be drawn ends between the layers and the MTP layer, the others of the step go on.
TEST_F(EngineTest, APromptThatEndsWithItsFirstTokenLeavesTheOthersTheirMtpLayer) {
  model_options_.has_mtp = true;
  Start(16, 512);
  Transfer none_left = MakeTransfer(70);
  for (uint32_t token = 0; token < static_cast<uint32_t>(kModel.vocab_size); ++token) {
    proto::LogitBias& bias = *none_left.sampling.add_logit_bias();
    bias.set_token(token);
    bias.set_bias(-100);
  }
  const uint64_t before = Begin(65), broken = Begin(std::move(none_left)), behind = Begin(130);
  Settle();
  ExpectServed(before);
  ExpectServed(behind);
  EXPECT_EQ(transfers_[broken].failure.code(), absl::StatusCode::kInvalidArgument);
  ExpectNothingHeld();
}

TEST_F(EngineTest, ALayerIsAnnouncedBeforeTheNextIsComputed) {
  Start(8, 512);
  Begin(130);
  Deliver();
  std::vector<std::vector<uint32_t>> announced_by_layer;
  model_->after_layer = [&](int layer) {
    std::vector<uint32_t> announced;
    for (const proto::TransferMessage& message : to_decode_) {
      if (message.has_announce()) announced.push_back(message.announce().layer_begin());
    }
    announced_by_layer.push_back(announced);
  };
  engine_->Step();
  EXPECT_THAT(announced_by_layer, ElementsAre(ElementsAre(0), ElementsAre(0, 1), ElementsAre(0, 1, 2)));
}

TEST_F(EngineTest, TheFirstTokenIsSentAtOnceThoughNoPageWasFetched) {
  Start(8, 512);
  Begin(130);
  Deliver();
  engine_->Step();
  EXPECT_TRUE(std::any_of(to_decode_.begin(), to_decode_.end(),
                          [](const proto::TransferMessage& message) { return message.has_first_token(); }));
}

TEST_F(EngineTest, EveryChoiceHasItsOwnFirstTokenUnderEveryOption) {
  Start(16, 100);
  std::vector<uint64_t> epochs;
  for (const int length : {1, 64, 100, 130}) {
    Transfer transfer = MakeTransfer(length);
    transfer.num_choices = 5;
    proto::Sampling& sampling = transfer.sampling;
    sampling.set_min_p(0.01f);
    sampling.set_repetition_penalty(1.6f);
    sampling.set_frequency_penalty(2);  // of nothing: no token of the prompt is one of the answer
    sampling.add_logit_bias()->set_token(7);
    sampling.mutable_logit_bias(0)->set_bias(5);
    sampling.set_wants_logprobs(true);
    sampling.set_num_top_logprobs(6);
    transfer.stopping.set_min_new_tokens(1);
    for (uint32_t token = 0; token < 50; ++token) transfer.stopping.add_stop_token_ids(token);
    epochs.push_back(Begin(transfer));
  }
  Settle();
  for (const uint64_t epoch : epochs) {
    ExpectServed(epoch);
    for (const proto::FirstToken& first : transfers_[epoch].first_tokens) EXPECT_GE(first.token(), 50u);
  }
  EXPECT_EQ(engine_->counters().first_tokens, 20);
  ExpectNothingHeld();
}

// What the whole model says in one place of token `position` of the prompt under all before it. The bias makes it draw
// that token; logprobs are those of the logits without it.
model::TokenLogprobs OracleLogprob(const std::vector<uint32_t>& prompt, size_t position, int num_top) {
  sim::OracleRequest request;
  request.prompt_tokens.assign(prompt.begin(), prompt.begin() + static_cast<ptrdiff_t>(position));
  request.sampling.set_wants_logprobs(true);
  request.sampling.set_num_top_logprobs(static_cast<uint32_t>(num_top));
  proto::LogitBias* bias = request.sampling.add_logit_bias();
  bias->set_token(prompt[position]);
  bias->set_bias(100);
  request.stopping.set_max_new_tokens(1);
  const sim::OracleAnswer answer = sim::AskOracle(request, kModel, kNumLayers, 1 << 20);
  EXPECT_EQ(answer.tokens.at(0), prompt[position]);
  return answer.logprobs.at(0);
}

TEST_F(EngineTest, PromptLogprobsAreThoseOfTheLogitsWhateverTheChunks) {
  constexpr int kNumTokens = 150, kNumTop = 2;
  for (const int chunked_prefill_size : {1, 7, 64, 512}) {
    for (const uint32_t begin : {1u, 70u, 149u}) {
      transfers_.clear();
      Start(64, chunked_prefill_size);
      Transfer asking = MakeTransfer(kNumTokens);
      asking.sampling.set_wants_logprobs(true);
      asking.sampling.set_num_top_logprobs(kNumTop);
      asking.sampling.set_prompt_logprobs_begin(begin);
      asking.num_choices = 2;
      const uint64_t epoch = Begin(asking);
      const uint64_t company = Begin(40);
      Settle();
      ExpectArrivedWhole(epoch);
      ExpectArrivedWhole(company);
      const proto::PromptLogprobs& told = transfers_[epoch].first_tokens.at(0).prompt_logprobs();
      ASSERT_EQ(told.logprobs_size(), kNumTokens - static_cast<int>(begin));
      ASSERT_EQ(told.top_logprobs_size(), told.logprobs_size());
      for (int i = 0; i < told.logprobs_size(); i += 13) {
        const model::TokenLogprobs expected = OracleLogprob(transfers_[epoch].prompt, begin + i, kNumTop);
        ASSERT_EQ(told.logprobs(i), expected.logprob) << "token " << begin + i << " chunk " << chunked_prefill_size;
        ASSERT_EQ(told.top_logprobs(i).tokens(1), static_cast<uint32_t>(expected.top_tokens[1]));
        ASSERT_EQ(told.top_logprobs(i).logprobs(1), expected.top_logprobs[1]);
      }
      EXPECT_FALSE(transfers_[epoch].first_tokens.at(1).has_prompt_logprobs()) << "once is enough";
      EXPECT_FALSE(transfers_[company].first_tokens.at(0).has_prompt_logprobs());
    }
  }
}

TEST_F(EngineTest, PromptLogprobsAreBoundedInOneStepAndInAll) {
  Start(64, 512);
  Transfer asking = MakeTransfer(400);
  asking.sampling.set_wants_logprobs(true);
  asking.sampling.set_prompt_logprobs_begin(1);
  Begin(asking);
  Begin(asking);
  Settle();
  for (const int num_rows : model_->rows_per_step) EXPECT_LE(num_rows, 128) << "each row costs its logits";
  Start(1024, 4096);
  Transfer greedy = MakeTransfer(3000);
  greedy.sampling.set_wants_logprobs(true);
  greedy.sampling.set_num_top_logprobs(20);
  greedy.sampling.set_prompt_logprobs_begin(1);
  const uint64_t epoch = Begin(greedy);
  Settle();
  EXPECT_EQ(transfers_[epoch].failure.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(transfers_[epoch].failure.message(), "logprobs of 2999 prompt tokens are asked for, at most 2730");
}

TEST_F(EngineTest, APromptWithNoTokenToDrawEndsWithAReasonAndAlone) {
  Start(16, 100);
  Transfer banned = MakeTransfer(100);
  for (int token = 0; token < kModel.vocab_size; ++token) {
    proto::LogitBias& entry = *banned.sampling.add_logit_bias();
    entry.set_token(token);
    entry.set_bias(-100);
  }
  const uint64_t epoch = Begin(banned);
  const uint64_t other = Begin(90);
  Settle();
  EXPECT_EQ(transfers_[epoch].failure.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(transfers_[epoch].failure.message()),
              ::testing::HasSubstr("leave no token to draw at position 100"));
  ExpectServed(other);
  ExpectNothingHeld();
}

TEST_F(EngineTest, AShortPromptOvertakesALongOne) {
  Start(32, 64);
  const uint64_t long_one = Begin(1000);
  Deliver();
  engine_->Step();
  const uint64_t short_one = Begin(20);
  Settle();
  EXPECT_THAT(first_token_order_, ElementsAre(short_one, long_one));
  ExpectServed(short_one);
  ExpectServed(long_one);
  ExpectNothingHeld();
}

TEST_F(EngineTest, PromptsWaitInLineForPagesAndAllAreServed) {
  Start(4, 64);
  std::vector<uint64_t> epochs;
  for (const int length : {250, 30, 200, 100, 256}) epochs.push_back(Begin(length));
  Settle();
  for (const uint64_t epoch : epochs) ExpectServed(epoch);
  EXPECT_EQ(first_token_order_, epochs);
  ExpectNothingHeld();
}

TEST_F(EngineTest, RefusesWhatCannotBeServed) {
  Start(2, 64, /*num_waiting_max=*/1);
  const uint64_t larger_than_the_pool = Begin(129);
  Settle();
  EXPECT_EQ(transfers_[larger_than_the_pool].failure.code(), absl::StatusCode::kInvalidArgument);
  Transfer many_choices = MakeTransfer(10);
  many_choices.num_choices = 129;
  const uint64_t too_many_choices = Begin(many_choices);
  Transfer no_sense = MakeTransfer(10);
  no_sense.sampling.set_min_p(2);
  const uint64_t refused = Begin(no_sense);
  Settle();
  EXPECT_EQ(transfers_[too_many_choices].failure.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(transfers_[refused].failure.message()), ::testing::HasSubstr("min_p is 2"));
  Begin(128);
  Begin(1);
  const uint64_t one_too_many = Begin(1);
  Deliver();
  EXPECT_EQ(transfers_[one_too_many].failure.code(), absl::StatusCode::kResourceExhausted);
  Settle();
  engine_->Drain();
  const uint64_t too_late = Begin(1);
  Settle();
  EXPECT_EQ(transfers_[too_late].failure.code(), absl::StatusCode::kUnavailable);
  ExpectNothingHeld();
}

TEST_F(EngineTest, WhereTokensAreKnownNothingIsSampled) {
  Start(8, 64);
  const uint64_t epoch = Begin(100, {5, 6, 7});
  Settle();
  ExpectArrivedWhole(epoch);
  EXPECT_THAT(transfers_[epoch].first_tokens, IsEmpty());
  EXPECT_EQ(engine_->counters().first_tokens, 0);
  ExpectNothingHeld();
}

TEST_F(EngineTest, AnAbortStopsTheComputationAndGivesThePagesBack) {
  Start(16, 64);
  const uint64_t epoch = Begin(1000);
  Deliver();
  engine_->Step();
  decode_->Abort(epoch, absl::CancelledError("the client left"));
  Settle();
  EXPECT_LT(model_->rows_per_step.size(), 4u);
  ExpectNothingHeld();
}

TEST_F(EngineTest, ADecodeWorkerThatIsGoneKeepsItsPagesForALeaseOnly) {
  Start(8, 512);
  Begin(130);
  Deliver();
  engine_->Step();
  engine_->TargetDown(kDecode);
  clock_.Advance(absl::Milliseconds(1900));
  engine_->Step();
  EXPECT_GT(engine_->pages().num_used(), 0);
  clock_.Advance(absl::Milliseconds(200));
  ASSERT_LE(engine_->NextWake(), clock_.Now());
  engine_->Step();
  EXPECT_EQ(engine_->pages().num_used(), 0);
  EXPECT_TRUE(engine_->IsAtRest());
}

TEST_F(EngineTest, AForwardPassThatFailsIsToldToDecode) {
  Start(8, 512);
  const uint64_t epoch = Begin(130);
  Deliver();
  model_->next_error = absl::InternalError("no kernel");
  Settle();
  EXPECT_EQ(transfers_[epoch].failure.code(), absl::StatusCode::kInternal);
  ExpectNothingHeld();
  const uint64_t next = Begin(130);
  Settle();
  ExpectServed(next);
}

TEST_F(EngineTest, HigherPrioritiesGoFirstWhereThePolicySaysSo) {
  for (const worker_shell::SchedulePolicy policy :
       {worker_shell::SchedulePolicy::kFcfs, worker_shell::SchedulePolicy::kPriority}) {
    schedule_policy_ = policy;
    Start(4, 64);  // one prompt at a time
    first_token_order_.clear();
    std::vector<uint64_t> epochs;
    for (const int priority : {0, -2, 7, 0, 7}) {
      Transfer transfer = MakeTransfer(250);
      transfer.priority = priority;
      epochs.push_back(Begin(transfer));
    }
    Settle();
    for (const uint64_t epoch : epochs) ExpectServed(epoch);
    if (policy == worker_shell::SchedulePolicy::kFcfs) {
      EXPECT_EQ(first_token_order_, epochs);
    } else {
      EXPECT_THAT(first_token_order_, ElementsAre(epochs[2], epochs[4], epochs[0], epochs[3], epochs[1]));
    }
    ExpectNothingHeld();
  }
}

}  // namespace
}  // namespace tandem::prefill
