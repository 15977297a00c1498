// Proves that what the two workers answer is, bit for bit, what the model alone answers in one process: every choice's
// tokens, log-probabilities and likeliest tokens, for every chunk size, every lane, and batches of 1 to 16 in any mix.
#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/credit.h"
#include "tests/workers/two_workers_fixture.h"
#include "tools/generate/generate.h"
#include "worker_shell/sampling.h"

namespace tandem {
namespace {

constexpr int kNumRequests = 16;

struct WholeRequest {
  std::vector<uint32_t> prompt;
  proto::GenerateHead head;
};

// Requests that differ in everything: prompts around pages and chunks, 1 to 3 choices, sampling options, logprobs.
WholeRequest RequestOf(int number) {
  constexpr int kLengths[kNumRequests] = {1, 63, 64, 65, 99, 100, 101, 128, 200, 333, 511, 512, 513, 700, 40, 7};
  WholeRequest request;
  request.prompt = Prompt(kLengths[number]);
  proto::GenerateHead& head = request.head;
  head.set_num_choices(1 + number % 3);
  proto::Sampling& sampling = *head.mutable_sampling();
  sampling.set_seed(1000 + number);
  sampling.set_temperature(number % 4 == 0 ? 0.0f : 0.3f * static_cast<float>(number % 5 + 1));
  sampling.set_top_p(number % 2 == 0 ? 1.0f : 0.9f);
  sampling.set_top_k(number % 3 == 0 ? 20 : 0);
  sampling.set_min_p(number % 5 == 0 ? 0.02f : 0.0f);
  sampling.set_repetition_penalty(number % 4 == 1 ? 1.3f : 1.0f);
  sampling.set_frequency_penalty(number % 4 == 2 ? 0.5f : 0.0f);
  sampling.set_presence_penalty(number % 4 == 3 ? -0.4f : 0.0f);
  sampling.set_wants_logprobs(number % 8 != 7);
  if (sampling.wants_logprobs()) sampling.set_num_top_logprobs(number % 6);
  proto::Stopping& stopping = *head.mutable_stopping();
  stopping.set_max_new_tokens(6 + number % 4);
  stopping.set_min_new_tokens(number % 3);
  for (uint32_t token = 0; token < 40; ++token) stopping.add_stop_token_ids(token);
  return request;
}

// The executor and the sampler alone, one choice after the other; made once, it is the same for every test.
const generate::Generated& Expected(int number, uint32_t choice) {
  static auto* known = new std::map<std::pair<int, uint32_t>, generate::Generated>;
  const auto [it, is_new] = known->try_emplace({number, choice});
  if (is_new) {
    const WholeRequest request = RequestOf(number);
    const proto::Stopping& stopping = request.head.stopping();
    model::TestModel model(model::MakeTestCheckpoint("v32-micro", 1), {.num_rows_max = 1024});
    auto generated =
        generate::Generate(model.model(), std::vector<int32_t>(request.prompt.begin(), request.prompt.end()),
                           {.sampling = worker_shell::SamplingFrom(request.head.sampling()),
                            .max_new_tokens = static_cast<int>(stopping.max_new_tokens()),
                            .chunk_size = 1024,
                            .min_new_tokens = static_cast<int>(stopping.min_new_tokens()),
                            .stop_token_ids = {stopping.stop_token_ids().begin(), stopping.stop_token_ids().end()},
                            .choice = choice});
    EXPECT_TRUE(generated.ok()) << generated.status();
    it->second = *std::move(generated);
  }
  return it->second;
}

void ExpectRight(int number, const tests::Answer& answer) {
  SCOPED_TRACE(absl::StrCat("request ", number));
  EXPECT_FALSE(answer.ended.has_error()) << answer.ended.error().message();
  const proto::GenerateHead head = RequestOf(number).head;
  ASSERT_EQ(answer.choices.size(), head.num_choices());
  for (const auto& [choice, got] : answer.choices) {
    SCOPED_TRACE(absl::StrCat("choice ", choice));
    const generate::Generated& expected = Expected(number, choice);
    EXPECT_EQ(got.tokens, std::vector<uint32_t>(expected.tokens.begin(), expected.tokens.end()));
    ASSERT_EQ(got.logprobs.size(), expected.logprobs.size());
    const int num_top = static_cast<int>(head.sampling().num_top_logprobs());
    ASSERT_EQ(got.top_logprobs.size(), num_top == 0 ? 0 : expected.logprobs.size());
    for (size_t i = 0; i < got.logprobs.size(); ++i) {
      const model::TokenLogprobs& bits = expected.logprobs[i];
      EXPECT_EQ(got.logprobs[i], bits.logprob) << "position " << i;
      if (num_top == 0) continue;
      ASSERT_EQ(got.top_logprobs[i].tokens_size(), num_top);
      for (int place = 0; place < num_top; ++place) {
        EXPECT_EQ(got.top_logprobs[i].tokens(place), static_cast<uint32_t>(bits.top_tokens[place]));
        EXPECT_EQ(got.top_logprobs[i].logprobs(place), bits.top_logprobs[place]);
      }
    }
  }
}

class WorkerNumericsTest : public TwoWorkersFixture {
 protected:
  WorkerNumericsTest() { kv_tokens_ = 8192; }
};

class EveryChunkSizeAndLaneTest : public WorkerNumericsTest,
                                  public ::testing::WithParamInterface<std::tuple<int, const char*>> {};

TEST_P(EveryChunkSizeAndLaneTest, EveryChoiceIsTheModelsBitForBit) {
  const auto [chunk_size, lane] = GetParam();
  ASSERT_NO_FATAL_FAILURE(StartPrefill({lane}, chunk_size));
  ASSERT_NO_FATAL_FAILURE(StartDecode({lane}));
  ASSERT_EQ(router_->AwaitPeer(true).lane(), lane);
  for (int number = 0; number < kNumRequests; ++number) {
    WholeRequest request = RequestOf(number);
    router_->Generate(number, request.prompt, std::move(request.head));
  }
  for (const auto& [number, answer] : router_->Collect(kNumRequests)) ExpectRight(static_cast<int>(number), answer);
}

INSTANTIATE_TEST_SUITE_P(All, EveryChunkSizeAndLaneTest,
                         ::testing::Combine(::testing::Values(64, 100, 512, 2048),
                                            ::testing::Values("ucx_shm", "tcp", "ucx_am")),
                         [](const auto& info) {
                           return absl::StrCat("Chunk", std::get<0>(info.param), "Over", std::get<1>(info.param));
                         });

// Random weights draft badly, so that most windows end early; a few drafts come true.
TEST_F(WorkerNumericsTest, DraftsOfTheMtpLayerChangeNoBit) {
  num_drafts_ = 3;
  ASSERT_NO_FATAL_FAILURE(StartPrefill({"ucx_shm"}, /*chunked_prefill_size=*/100));
  ASSERT_NO_FATAL_FAILURE(StartDecode({"ucx_shm"}));
  ASSERT_EQ(router_->AwaitPeer(true).lane(), "ucx_shm");
  for (int number = 0; number < kNumRequests; ++number) {
    WholeRequest request = RequestOf(number);
    router_->Generate(number, request.prompt, std::move(request.head));
  }
  for (const auto& [number, answer] : router_->Collect(kNumRequests)) ExpectRight(static_cast<int>(number), answer);
  EXPECT_EQ(AwaitMetric(decode_->admin_port(), "tandem_num_running_reqs", 0), 0);
  EXPECT_GT(Metric(decode_->admin_port(), "tandem_spec_windows_total"), 0);
}

// Each batch is gathered before it starts: every choice has credit for its first token only, then all get the rest.
TEST_F(WorkerNumericsTest, BatchesOf1To16InAnyMixChangeNoBit) {
  ASSERT_NO_FATAL_FAILURE(StartPrefill({"ucx_shm"}));
  ASSERT_NO_FATAL_FAILURE(StartDecode({"ucx_shm"}));
  ASSERT_EQ(router_->AwaitPeer(true).lane(), "ucx_shm");
  std::mt19937 rng(16);
  std::vector<int> numbers(kNumRequests);
  for (int i = 0; i < kNumRequests; ++i) numbers[i] = i;
  uint64_t next_id = 0;
  for (int batch = 1; batch <= kNumRequests; ++batch) {
    std::shuffle(numbers.begin(), numbers.end(), rng);
    const uint64_t first_id = next_id;
    for (int i = 0; i < batch; ++i) {
      WholeRequest request = RequestOf(numbers[i]);
      request.head.set_credit_bytes(proto::CreditBytesOfToken(request.head.sampling()));
      router_->Generate(next_id++, request.prompt, std::move(request.head));
    }
    for (int pass = 0; pass < 2; ++pass) {  // first tokens of all, then credit for all
      for (int i = 0; i < batch; ++i) {
        for (uint32_t choice = 0; choice < RequestOf(numbers[i]).head.num_choices(); ++choice) {
          if (pass == 0) {
            router_->AwaitFirstToken(first_id + i, choice);
          } else {
            router_->Grant(first_id + i, choice, uint64_t{1} << 20);
          }
        }
      }
    }
    auto answers = router_->Collect(static_cast<int>(next_id));
    for (int i = 0; i < batch; ++i) ExpectRight(numbers[i], answers[first_id + i]);
  }
  EXPECT_EQ(Metric(decode_->admin_port(), "tandem_replay_mismatches_total"), 0);
  EXPECT_EQ(AwaitMetric(decode_->admin_port(), "tandem_kv_pages_used", 0), 0);
}

}  // namespace
}  // namespace tandem
