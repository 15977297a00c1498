// Proves that a prompt arrives whole however it was cut and interleaved, and that a bad part ends one request alone.
#include "decode_worker/generate_assembler.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace tandem::decode {
namespace {

constexpr AssemblerLimits kLimits{.num_partial_requests_max = 3, .num_tokens_max = 1000};

proto::GeneratePart Part(uint64_t id, uint32_t index, std::vector<uint32_t> tokens, bool is_last) {
  proto::GeneratePart part;
  part.mutable_key()->set_request_id(id);
  part.set_part_index(index);
  part.set_is_last(is_last);
  part.mutable_prompt_tokens()->Add(tokens.begin(), tokens.end());
  return part;
}
proto::GeneratePart First(uint64_t id, uint32_t num_tokens, std::vector<uint32_t> tokens, bool is_last) {
  proto::GeneratePart part = Part(id, 0, std::move(tokens), is_last);
  part.mutable_head()->set_num_prompt_tokens(num_tokens);
  part.mutable_head()->set_prefill_address("p:8998");
  return part;
}

TEST(GenerateAssemblerTest, APromptInOnePartIsWholeAtOnce) {
  GenerateAssembler assembler(kLimits);
  const auto request = assembler.Add(First(7, 2, {5, 6}, true));
  ASSERT_TRUE(request.ok() && request->has_value());
  EXPECT_EQ((*request)->key.request_id, 7u);
  EXPECT_EQ((*request)->prompt_tokens, (std::vector<uint32_t>{5, 6}));
  EXPECT_EQ((*request)->head.prefill_address(), "p:8998");
  EXPECT_EQ(assembler.num_partial_requests(), 0);
}

TEST(GenerateAssemblerTest, WhatWasGeneratedBeforeFollowsThePromptAcrossParts) {
  GenerateAssembler assembler(kLimits);
  proto::GeneratePart first = First(7, 3, {1, 2}, false);
  first.mutable_head()->set_num_choices(3);
  for (const uint32_t num_tokens : {2, 0, 3}) first.mutable_head()->add_resumed()->set_num_tokens(num_tokens);
  first.mutable_head()->mutable_resumed(1)->set_has_ended(true);
  proto::GeneratePart second = Part(7, 1, {3}, false);
  second.mutable_generated_tokens()->Add(11);
  proto::GeneratePart third = Part(7, 2, {}, true);
  for (const uint32_t token : {12, 31, 32, 33}) third.mutable_generated_tokens()->Add(token);
  EXPECT_FALSE(assembler.Add(first)->has_value());
  EXPECT_FALSE(assembler.Add(second)->has_value());
  const auto request = assembler.Add(third);
  ASSERT_TRUE(request.ok() && request->has_value());
  EXPECT_EQ((*request)->prompt_tokens, (std::vector<uint32_t>{1, 2, 3}));
  EXPECT_EQ((*request)->generated_tokens, (std::vector<uint32_t>{11, 12, 31, 32, 33}));
  EXPECT_EQ((*request)->num_brought(2), 3);
  EXPECT_TRUE((*request)->HasEnded(1));
  EXPECT_FALSE((*request)->HasEnded(2));
}

TEST(GenerateAssemblerTest, RefusesGeneratedTokensBeyondWhatTheHeadSaysOrTheContextHolds) {
  const auto head_of = [](uint32_t num_tokens) {
    proto::GeneratePart part = First(7, 1, {1}, false);
    part.mutable_head()->add_resumed()->set_num_tokens(num_tokens);
    return part;
  };
  GenerateAssembler assembler(kLimits);
  proto::GeneratePart many = head_of(1);
  many.mutable_generated_tokens()->Add(5);
  many.mutable_generated_tokens()->Add(6);
  EXPECT_EQ(assembler.Add(many).status().code(), absl::StatusCode::kInvalidArgument);
  proto::GeneratePart few = head_of(1);
  few.set_is_last(true);
  EXPECT_EQ(assembler.Add(few).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(assembler.Add(head_of(1000)).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(assembler.Add(head_of(~0u)).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(assembler.Add(head_of(999)).ok());
  proto::GeneratePart choices = First(8, 1, {1}, false);
  for (int i = 0; i < 129; ++i) choices.mutable_head()->add_resumed();
  EXPECT_EQ(assembler.Add(choices).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(assembler.num_partial_requests(), 1);
}

TEST(GenerateAssemblerTest, AnyCutAndAnyInterleavingGivesThePromptsBack) {
  std::mt19937 rng(1);
  for (int round = 0; round < 300; ++round) {
    std::vector<uint32_t> prompt(1 + rng() % 200);
    std::iota(prompt.begin(), prompt.end(), round);
    // Each request's parts in order; the requests alternate at random.
    std::vector<std::vector<proto::GeneratePart>> queues(3);
    for (uint64_t id = 0; id < queues.size(); ++id) {
      size_t begin = 0;
      while (begin < prompt.size()) {
        const size_t end = std::min(prompt.size(), begin + 1 + rng() % 60);
        std::vector<uint32_t> tokens(prompt.begin() + begin, prompt.begin() + end);
        const bool is_last = end == prompt.size();
        const auto index = static_cast<uint32_t>(queues[id].size());
        queues[id].push_back(index == 0 ? First(id, prompt.size(), tokens, is_last) : Part(id, index, tokens, is_last));
        begin = end;
      }
      std::reverse(queues[id].begin(), queues[id].end());
    }
    GenerateAssembler assembler(kLimits);
    int num_whole = 0;
    while (num_whole < 3) {
      auto& queue = queues[rng() % queues.size()];
      if (queue.empty()) continue;
      const auto request = assembler.Add(queue.back());
      queue.pop_back();
      ASSERT_TRUE(request.ok()) << request.status();
      EXPECT_EQ(request->has_value(), queue.empty());
      if (!request->has_value()) continue;
      EXPECT_EQ((*request)->prompt_tokens, prompt);
      ++num_whole;
    }
    EXPECT_EQ(assembler.num_partial_requests(), 0);
  }
}

TEST(GenerateAssemblerTest, AMissingPartEndsItsRequestAndWhatStillComesOfItIsIgnored) {
  GenerateAssembler assembler(kLimits);
  ASSERT_TRUE(assembler.Add(First(1, 6, {1, 2}, false)).ok());
  ASSERT_TRUE(assembler.Add(First(2, 2, {1}, false)).ok());
  EXPECT_EQ(assembler.Add(Part(1, 2, {5, 6}, true)).status().code(), absl::StatusCode::kInvalidArgument);
  const auto ignored = assembler.Add(Part(1, 3, {7}, true));
  ASSERT_TRUE(ignored.ok());
  EXPECT_FALSE(ignored->has_value());
  const auto other = assembler.Add(Part(2, 1, {2}, true));
  ASSERT_TRUE(other.ok());
  EXPECT_TRUE(other->has_value());
}

TEST(GenerateAssemblerTest, RefusesWhatContradictsItself) {
  GenerateAssembler assembler(kLimits);
  const auto code = [&](proto::GeneratePart part) { return assembler.Add(std::move(part)).status().code(); };
  EXPECT_EQ(code(Part(1, 0, {1}, true)), absl::StatusCode::kInvalidArgument);       // no head
  EXPECT_EQ(code(First(1, 3, {1}, true)), absl::StatusCode::kInvalidArgument);      // too few tokens
  EXPECT_EQ(code(First(1, 1, {1, 2}, false)), absl::StatusCode::kInvalidArgument);  // too many tokens
  EXPECT_EQ(code(First(1, 1001, {1}, false)), absl::StatusCode::kInvalidArgument);  // too long
  EXPECT_EQ(assembler.num_partial_requests(), 0);
}

TEST(GenerateAssemblerTest, BoundsTheRequestsUnderWay) {
  GenerateAssembler assembler(kLimits);
  for (uint64_t id = 0; id < 3; ++id) ASSERT_TRUE(assembler.Add(First(id, 2, {1}, false)).ok());
  EXPECT_EQ(assembler.Add(First(3, 2, {1}, false)).status().code(), absl::StatusCode::kResourceExhausted);
  ASSERT_TRUE(assembler.Add(Part(0, 1, {2}, true)).ok());
  EXPECT_TRUE(assembler.Add(First(4, 2, {1}, false)).ok());
}

}  // namespace
}  // namespace tandem::decode
