// Proves that penalties, biases, filters, least lengths and log-probabilities are the oracle's through prefill, decode,
// page famine and resumption, and that what makes no sense is refused by name with the engine alive.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "decode_worker/testing/engine_rig.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::decode {
namespace {

using ::testing::SizeIs;

void AddBias(proto::Sampling& sampling, uint32_t token, float bias) {
  proto::LogitBias& entry = *sampling.add_logit_bias();
  entry.set_token(token);
  entry.set_bias(bias);
}

// Everything at once.
GenerateRequest Demanding(uint64_t id, int num_prompt_tokens, uint32_t max_new_tokens, uint32_t num_choices = 1) {
  GenerateRequest request = EngineRig::MakeRequest(id, num_prompt_tokens, max_new_tokens, num_choices);
  proto::Sampling& sampling = *request.head.mutable_sampling();
  sampling.set_min_p(0.01f);
  sampling.set_repetition_penalty(1.4f);
  sampling.set_frequency_penalty(0.6f);
  sampling.set_presence_penalty(0.9f);
  AddBias(sampling, 10, 3);
  AddBias(sampling, 11, -100);
  AddBias(sampling, EngineRig::kStopToken, 2);
  sampling.set_wants_logprobs(true);
  sampling.set_num_top_logprobs(4);
  request.head.mutable_stopping()->set_min_new_tokens(max_new_tokens / 2);
  return request;
}

TEST(EngineSamplingTest, EveryOptionIsTheOracles) {
  EngineRig rig(64);
  std::vector<RequestKey> keys;
  for (int id = 1; id <= 12; ++id) {
    GenerateRequest request = Demanding(id, 20 * id, 60, 1 + id % 3);
    if (id % 4 == 0) request.head.mutable_sampling()->set_temperature(0);
    keys.push_back(rig.Submit(request));
  }
  rig.Settle();
  for (const RequestKey& key : keys) {
    rig.ExpectFinished(key);
    for (const auto& [choice, answer] : rig.answer(key).choices) {
      EXPECT_GE(answer.tokens.size(), 30u);
      EXPECT_THAT(answer.tokens, ::testing::Not(::testing::Contains(11)));
    }
  }
  rig.ExpectNothingHeld();
}

TEST(EngineSamplingTest, PenaltiesAndLogprobsSurvivePageFamine) {
  EngineRig rig(7);
  std::vector<RequestKey> keys;
  for (int id = 1; id <= 4; ++id) {
    GenerateRequest request = Demanding(id, 60 + id, 180, 2);
    request.head.mutable_stopping()->clear_stop_token_ids();
    keys.push_back(rig.Submit(request));
  }
  rig.Settle();
  for (const RequestKey& key : keys) rig.ExpectFinished(key);
  EXPECT_GT(rig.engine().counters().retractions, 3);
  EXPECT_EQ(rig.engine().counters().replay_mismatches, 0);
  rig.ExpectNothingHeld();
}

TEST(EngineSamplingTest, AResumedRequestsPenaltiesSeeWhatItBrings) {
  EngineRig rig(64);
  GenerateRequest request = Demanding(5, 70, 60);
  request.head.mutable_stopping()->clear_stop_token_ids();
  rig.ExpectResumesAt(request, {1, 20, 59});
  EXPECT_EQ(rig.engine().counters().tokens_replayed, 0 + 19 + 58);
}

TEST(EngineSamplingTest, AStreamMayBreakAtAnyTokenOfAnyChoiceAndNothingIsLost) {
  for (const size_t cut_at : {1, 12, 25}) {
    for (const size_t num_swallowed : {0, 1, 12}) {
      for (const bool ends_meanwhile : {false, true}) {
        EngineRig rig(64);
        const RequestKey key = rig.Submit(Demanding(1, 70, 50, 3));
        rig.RunTo(key, 2, cut_at);
        if (ends_meanwhile) rig.Settle();
        RigAnswer& answer = rig.answer(key);
        answer.ended.clear();
        for (auto& [choice, received] : answer.choices) {
          const size_t num_left = received.tokens.size() - std::min(num_swallowed + choice, received.tokens.size());
          received.tokens.resize(num_left);
          received.logprobs.resize(num_left);
          received.top_logprobs.resize(num_left);
        }
        rig.engine().RouterLost(1);
        rig.AttachRouter(2);
        rig.Settle();
        rig.ExpectFinished(key);
        rig.ExpectNothingHeld();
      }
    }
  }
}

TEST(EngineSamplingTest, RefusesByNameWhatMakesNoSenseAndLivesOn) {
  EngineRig rig(64);
  const std::pair<std::function<void(proto::GenerateHead&)>, std::string> cases[] = {
      {[](auto& head) { AddBias(*head.mutable_sampling(), 97, 1); },
       "logit_bias names token 97, outside the vocabulary of 97"},
      {[](auto& head) { AddBias(*head.mutable_sampling(), ~0u, 1); }, "logit_bias names token 4294967295"},
      {[](auto& head) { AddBias(*head.mutable_sampling(), 5, 101); }, "logit_bias of token 5 is 101"},
      {[](auto& head) {
         head.mutable_sampling()->set_wants_logprobs(true);
         head.mutable_sampling()->set_num_top_logprobs(21);
       },
       "num_top_logprobs is 21, allowed 0 to 20"},
      {[](auto& head) { head.mutable_sampling()->set_min_p(1.5f); }, "min_p is 1.5, allowed 0 to 1"},
      {[](auto& head) { head.mutable_sampling()->set_repetition_penalty(-1); }, "repetition_penalty is -1"},
      {[](auto& head) { head.mutable_sampling()->set_frequency_penalty(3); }, "frequency_penalty is 3"},
      {[](auto& head) { head.mutable_sampling()->set_presence_penalty(-3); }, "presence_penalty is -3"},
      {[](auto& head) { head.mutable_stopping()->add_stop_token_ids(500); }, "stop_token_ids names token 500"},
      {[](auto& head) { head.mutable_stopping()->set_min_new_tokens(31); },
       "min_new_tokens is 31, at most max_new_tokens 30"},
      {[](auto& head) { head.set_num_choices(9); }, "num_choices is 9, at most 8"},
  };
  uint64_t id = 1;
  for (const auto& [spoil, message] : cases) {
    GenerateRequest request = EngineRig::MakeRequest(id++, 20, 30);
    spoil(request.head);
    rig.ExpectError(rig.Submit(request), absl::StatusCode::kInvalidArgument, message);
  }
  const RequestKey key = rig.Submit(EngineRig::MakeRequest(id, 20, 30));
  rig.Settle();
  rig.ExpectFinished(key);
  rig.ExpectNothingHeld();
}

TEST(EngineSamplingTest, ARequestWithNoTokenLeftToDrawEndsWithAReasonAndAlone) {
  EngineRig rig(64);
  GenerateRequest banned = EngineRig::MakeRequest(1, 70, 30, 2);
  for (uint32_t token = 0; token < EngineRig::kModel.vocab_size; ++token) {
    AddBias(*banned.head.mutable_sampling(), token, -100);
  }
  banned.head.set_num_choices(1);
  EngineRig::Bring({std::vector<uint32_t>{5}}, banned);  // prefill draws nothing: decode finds it
  const RequestKey at_decode = rig.Submit(banned);
  const RequestKey other = rig.Submit(EngineRig::MakeRequest(2, 70, 30, 2));
  rig.Settle();
  rig.ExpectError(at_decode, absl::StatusCode::kInvalidArgument, "leave no token to draw at position 71");
  rig.ExpectFinished(other);
  rig.ExpectNothingHeld();
}

}  // namespace
}  // namespace tandem::decode
