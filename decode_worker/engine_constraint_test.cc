// Proves that constrained answers are the oracle's through prefill, decode, page famine, resumption and lost streams,
// each choice at a place of its own, and that what cannot go on says so with the engine alive.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "decode_worker/testing/engine_rig.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::decode {
namespace {

constexpr uint32_t IdOf(char c) { return static_cast<uint32_t>(c - '!'); }

void AddStep(google::protobuf::RepeatedField<uint32_t>* steps, uint32_t what, uint32_t to) {
  steps->Add(what);
  steps->Add(to);
}

// value = letter letter+ | ( value value* ), of letters A to Z; ends with the stop token.
proto::Constraint Lists() {
  proto::Constraint constraint;
  for (const auto& [first, last] : {std::pair{'(', '('}, std::pair{')', ')'}, std::pair{'A', 'Z'}}) {
    proto::Constraint::CharSet* set = constraint.add_char_sets();
    set->add_bounds(static_cast<uint32_t>(first));
    set->add_bounds(static_cast<uint32_t>(last));
  }
  for (int i = 0; i < 7; ++i) constraint.add_states();
  AddStep(constraint.mutable_states(0)->mutable_calls(), 2, 1);
  constraint.mutable_states(1)->set_is_accepting(true);
  AddStep(constraint.mutable_states(2)->mutable_chars(), 2, 3);
  AddStep(constraint.mutable_states(2)->mutable_chars(), 0, 5);
  AddStep(constraint.mutable_states(3)->mutable_chars(), 2, 4);
  AddStep(constraint.mutable_states(4)->mutable_chars(), 2, 4);
  constraint.mutable_states(4)->set_is_accepting(true);
  AddStep(constraint.mutable_states(5)->mutable_calls(), 2, 6);
  AddStep(constraint.mutable_states(6)->mutable_calls(), 2, 6);
  AddStep(constraint.mutable_states(6)->mutable_chars(), 1, 4);
  constraint.add_end_tokens(EngineRig::kStopToken);
  return constraint;
}

GenerateRequest Constrained(uint64_t id, int num_prompt_tokens, uint32_t max_new_tokens, uint32_t num_choices = 1) {
  GenerateRequest request = EngineRig::MakeRequest(id, num_prompt_tokens, max_new_tokens, num_choices);
  *request.head.mutable_sampling()->mutable_constraint() = Lists();
  request.head.mutable_sampling()->set_temperature(1.5f);
  return request;
}

bool IsOfLists(const std::vector<uint32_t>& tokens) {
  int depth = 0;
  for (const uint32_t token : tokens) {
    if (token == EngineRig::kStopToken) return depth == 0;
    if (token == IdOf('(')) ++depth;
    if (token == IdOf(')') && --depth < 0) return false;
    const bool is_letter = token >= IdOf('A') && token <= IdOf('Z');
    if (!is_letter && token != IdOf('(') && token != IdOf(')')) return false;
  }
  return true;
}

TEST(EngineConstraintTest, EveryChoiceFollowsItFromTheFirstTokenOn) {
  EngineRig rig(64);
  std::vector<RequestKey> keys;
  for (int id = 1; id <= 10; ++id) {
    GenerateRequest request = Constrained(id, 20 * id, 60, 1 + id % 3);
    request.head.mutable_sampling()->set_wants_logprobs(true);
    request.head.mutable_sampling()->set_num_top_logprobs(3);
    if (id % 4 == 0) request.head.mutable_sampling()->set_repetition_penalty(1.3f);
    keys.push_back(rig.Submit(request));
  }
  rig.Settle();
  for (const RequestKey& key : keys) {
    rig.ExpectFinished(key);
    for (const auto& [choice, answer] : rig.answer(key).choices) EXPECT_TRUE(IsOfLists(answer.tokens));
  }
  rig.ExpectNothingHeld();
}

TEST(EngineConstraintTest, PageFamineAndResumptionFindTheirPlaceAgain) {
  EngineRig rig(7);
  std::vector<RequestKey> keys;
  for (int id = 1; id <= 4; ++id) {
    GenerateRequest request = Constrained(id, 60 + id, 180, 2);
    request.head.mutable_stopping()->set_min_new_tokens(150);
    keys.push_back(rig.Submit(request));
  }
  rig.Settle();
  for (const RequestKey& key : keys) rig.ExpectFinished(key);
  EXPECT_GT(rig.engine().counters().retractions, 3);
  EXPECT_EQ(rig.engine().counters().replay_mismatches, 0);
  rig.ExpectNothingHeld();
}

TEST(EngineConstraintTest, AResumedAnswerGoesOnFromWhatItBrings) {
  EngineRig rig(64);
  GenerateRequest request = Constrained(5, 70, 60);
  request.head.mutable_stopping()->set_min_new_tokens(50);
  rig.ExpectResumesAt(request, {1, 20, -1});
}

TEST(EngineConstraintTest, BroughtTokensThatDoNotFitAreAnErrorInBand) {
  EngineRig rig(64);
  GenerateRequest request = Constrained(1, 40, 60);
  EngineRig::Bring({std::vector<uint32_t>{IdOf('('), IdOf('x')}}, request);
  const RequestKey key = rig.Submit(request);
  rig.Settle();
  rig.ExpectError(key, absl::StatusCode::kInternal,
                  absl::StrCat("token ", IdOf('x'), " may not stand at place 1 of the constrained answer"));
  rig.ExpectNothingHeld();
}

TEST(EngineConstraintTest, WhereNothingIsLeftTheRequestSaysSoAndOthersGoOn) {
  EngineRig rig(64);
  GenerateRequest banned = Constrained(1, 40, 200);
  for (char c = 'A'; c <= 'Z'; ++c) {
    proto::LogitBias& entry = *banned.head.mutable_sampling()->add_logit_bias();
    entry.set_token(IdOf(c));
    entry.set_bias(-100);
  }
  const RequestKey key = rig.Submit(banned);
  const RequestKey other = rig.Submit(Constrained(2, 40, 60));
  rig.Settle();
  // Only ( is left, until its depth is used up.
  rig.ExpectError(key, absl::StatusCode::kInvalidArgument, "leave none");
  rig.ExpectFinished(other);
  rig.ExpectNothingHeld();
}

// An answer that is over ends, though min_new_tokens asks for more: nothing else may follow.
TEST(EngineConstraintTest, AnAnswerThatIsOverEndsBeforeTheLeastNumberOfTokens) {
  EngineRig rig(64);
  GenerateRequest request = EngineRig::MakeRequest(3, 40, 60);
  proto::Constraint& constraint = *request.head.mutable_sampling()->mutable_constraint();
  constraint.add_char_sets()->add_bounds('A');
  constraint.mutable_char_sets(0)->add_bounds('A');
  for (int i = 0; i < 3; ++i) constraint.add_states();
  AddStep(constraint.mutable_states(0)->mutable_chars(), 0, 1);
  AddStep(constraint.mutable_states(1)->mutable_chars(), 0, 2);
  constraint.mutable_states(2)->set_is_accepting(true);
  constraint.add_end_tokens(EngineRig::kStopToken);
  request.head.mutable_stopping()->set_min_new_tokens(30);
  const RequestKey key = rig.Submit(request);
  rig.Settle();
  rig.ExpectFinished(key);
  EXPECT_EQ(rig.answer(key).choices[0].tokens, (std::vector<uint32_t>{IdOf('A'), IdOf('A'), EngineRig::kStopToken}));
}

TEST(EngineConstraintTest, WhatIsNoConstraintIsRefusedByName) {
  EngineRig rig(64);
  GenerateRequest request = Constrained(1, 40, 60);
  request.head.mutable_sampling()->mutable_constraint()->set_first_state(99);
  const RequestKey key = rig.Submit(request);
  rig.Settle();
  rig.ExpectError(key, absl::StatusCode::kInvalidArgument, "constraint: its first state is none of its states");
  rig.ExpectNothingHeld();
}

}  // namespace
}  // namespace tandem::decode
