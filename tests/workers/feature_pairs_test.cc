// Proves that every pair of features, each on and off, gives the same answers: tokens, log-probabilities and likeliest
// tokens, bit for bit, of both workers with the trained tandem-tiny. A table of a few settings meets every pair in all
// four ways; pairs that do not go together are a closed list and say why at the start. Index Cache, the cache's
// format and dense contexts change answers: there, settings are compared with the plain one of the same three.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/credit.h"
#include "tests/workers/covering_rows.h"
#include "tests/workers/two_workers_fixture.h"

namespace tandem {
namespace {

using tests::Meeting;
using tests::SwitchRow;

enum Feature {
  kDrafts,
  kHiSparse,
  kPrefixCache,
  kIndexCache,    // changes answers
  kBf16Kv,        // changes answers
  kDenseContext,  // changes answers: rows of short contexts attend to all of it
  kDataParallelDecode,
  kTensorParallelDecode,
  kSpreadExperts,
  kContextParallelPrefill,
  kSmallChunks,
  kPriority,
  kPageFamine,
  kRetractionToHost,
  kGeneratedPages,
  kTcpLane,
  kNumFeatures,
};
constexpr const char* kNames[kNumFeatures] = {
    "drafts",      "hisparse",           "prefix_cache",    "index_cache", "bf16_kv",      "dense",
    "decode_dp",   "decode_tp",          "experts",         "prefill_cp",  "small_chunks", "priority",
    "page_famine", "retraction_to_host", "generated_pages", "tcp_lane"};

struct Refusal {
  Meeting meeting;
  const char* text;
};
const std::vector<Refusal>& Refusals() {
  static const auto* refusals = new std::vector<Refusal>{
      {{kHiSparse, kDataParallelDecode, true, true},
       "process.hisparse.enabled with 2 ranks: device buffers are one rank's"},
      {{kHiSparse, kTensorParallelDecode, true, true},
       "process.hisparse.enabled with 2 ranks: device buffers are one rank's"},
      {{kDataParallelDecode, kTensorParallelDecode, true, true},
       "process.data_parallel_size 2 with process.tensor_parallel_size 2: a worker's ranks divide its work in one way"},
      {{kPrefixCache, kGeneratedPages, false, true},
       "process.prefix_cache_generated_tokens with process.prefix_cache: false, which keeps no pages"},
  };
  return *refusals;
}
std::vector<Meeting> RefusedMeetings() {
  std::vector<Meeting> meetings;
  for (const Refusal& refusal : Refusals()) meetings.push_back(refusal.meeting);
  return meetings;
}

// TANDEM_DEVICE=cuda:0 runs the table there, without the switches that make several ranks.
std::string Device() {
  const char* const device = std::getenv("TANDEM_DEVICE");
  return device == nullptr ? "cpu" : device;
}
SwitchRow OnDevice(SwitchRow on) {
  if (Device() == "cpu") return on;
  for (const Feature of_ranks : {kDataParallelDecode, kTensorParallelDecode, kSpreadExperts, kContextParallelPrefill}) {
    on[of_ranks] = false;
  }
  return on;
}

void Apply(const SwitchRow& on, worker_shell::WorkerConfig& config) {
  config.device = Device();
  config.cluster.model_path = "checkpoints/tandem-tiny";  // index_topk 128, five layers
  config.cluster.context_length = 512;
  config.cluster.kv_cache_dtype = on[kBf16Kv] ? "bfloat16" : "fp8_e4m3";
  config.cluster.dense_attention_max_context = on[kDenseContext] ? 192 : 0;
  config.cluster.index_topk_pattern = on[kIndexCache] ? "FFSFS" : "";
  config.cluster.speculative.num_steps = on[kDrafts] ? 3 : 0;
  config.prefix_cache = on[kPrefixCache];
  config.kv_cache_tokens = 8192;
}
void Apply(const SwitchRow& on, prefill::PrefillConfig& config) {
  Apply(on, static_cast<worker_shell::WorkerConfig&>(config));
  config.chunked_prefill_size = on[kSmallChunks] ? 48 : 512;
  config.schedule_policy = on[kPriority] ? "priority" : "fcfs";
  config.context_parallel_size = on[kContextParallelPrefill] ? 2 : 1;
  // Experts are spread over ranks that are there anyway, or over two of data parallelism.
  if (on[kSpreadExperts] && config.num_ranks() == 1) config.data_parallel_size = 2;
  config.expert_parallel_size = on[kSpreadExperts] ? config.num_ranks() : 1;
}
constexpr int64_t kScarceTokens = 18 * 64;
void Apply(const SwitchRow& on, decode::DecodeConfig& config) {
  Apply(on, static_cast<worker_shell::WorkerConfig&>(config));
  config.data_parallel_size = on[kDataParallelDecode] ? 2 : 1;
  config.tensor_parallel_size = on[kTensorParallelDecode] ? 2 : 1;
  config.expert_parallel_size =
      on[kSpreadExperts] ? std::max(config.data_parallel_size, config.tensor_parallel_size) : 1;
  config.hisparse = {
      .enabled = on[kHiSparse], .device_buffer_size = on[kDenseContext] ? 192 : 128, .host_to_device_ratio = 2};
  config.prefix_cache_generated_tokens = on[kGeneratedPages];
  config.retraction_host_tokens = on[kRetractionToHost] ? 8192 : 0;
  if (on[kPageFamine]) config.kv_cache_tokens = on[kHiSparse] ? kScarceTokens / 2 : kScarceTokens;
}

struct AskedFor {
  std::vector<uint32_t> prompt;
  proto::GenerateHead head;
};

// The checkpoint's own ids: a sentence, said so many times, and a question behind it.
std::vector<uint32_t> Asking(int num_sentences, const std::vector<uint32_t>& question) {
  static constexpr uint32_t kSentence[] = {287,  2111, 2112, 2064, 2007, 2078, 2021, 2007, 2122, 2092, 16,
                                           2116, 2081, 2082, 2007, 2118, 2039, 2083, 2108, 16,   223};
  std::vector<uint32_t> prompt = {0, 2555};  // beginning of the text, user
  for (int i = 0; i < num_sentences; ++i) prompt.insert(prompt.end(), std::begin(kSentence), std::end(kSentence));
  prompt.insert(prompt.end(), question.begin(), question.end());
  return prompt;
}
// "Solve this problem step by step: What is 37% of 2496?", then another two numbers, then "Who are you?"
const std::vector<uint32_t> kPercent = {883, 2066, 2176, 2148, 2156, 2148, 28, 2168, 2008, 223,  21,
                                        25,  7,    2009, 223,  20,   22,   27, 24,   33,   2556, 2558};
const std::vector<uint32_t> kOther = {883, 2066, 2176, 2148, 2156, 2148, 28, 2168, 2008, 223,  24,
                                      22,  7,    2009, 223,  25,   21,   26, 23,   33,   2556, 2558};
const std::vector<uint32_t> kWho = {57, 1087, 2016, 2150, 33, 2556, 2558};
constexpr uint32_t kEndOfSentence = 1;

// Words of lower-case letters with a space behind each, to the end of the answer.
proto::Constraint Words() {
  proto::Constraint constraint;
  for (const auto& [first, last] : {std::pair{'a', 'z'}, std::pair{' ', ' '}}) {
    constraint.add_char_sets()->add_bounds(static_cast<uint32_t>(first));
    constraint.mutable_char_sets()->rbegin()->add_bounds(static_cast<uint32_t>(last));
  }
  const auto add_step = [](proto::Constraint::State* state, uint32_t what, uint32_t to) {
    state->add_chars(what);
    state->add_chars(to);
  };
  add_step(constraint.add_states(), 0, 1);
  add_step(constraint.add_states(), 0, 1);
  add_step(constraint.mutable_states(1), 1, 0);
  constraint.mutable_states(0)->set_is_accepting(true);
  constraint.add_end_tokens(kEndOfSentence);
  return constraint;
}

constexpr int kNumRequests = 8;  // the last is a second turn: its prompt has the first one's answer in it
constexpr int kNumHeld = 5;      // of them the first have credit for their first token alone where all are to be there
AskedFor RequestOf(int number, const std::vector<uint32_t>& first_answer = {}) {
  AskedFor request;
  proto::GenerateHead& head = request.head;
  proto::Sampling& sampling = *head.mutable_sampling();
  sampling.set_top_p(1);
  sampling.set_seed(500 + number);
  head.set_num_choices(1);
  head.set_priority(number % 3 - 1);
  head.mutable_stopping()->set_max_new_tokens(130);
  switch (number) {
    case 0:  // alone before the others: its prompt is what prefix caches have
      request.prompt = Asking(14, kPercent);
      head.mutable_stopping()->set_max_new_tokens(40);
      sampling.set_wants_logprobs(true);
      break;
    case 1:
      request.prompt = Asking(14, kOther);
      head.set_num_choices(2);
      sampling.set_temperature(1);
      break;
    case 2:
      request.prompt = Asking(0, kPercent);
      sampling.set_temperature(0.8f);
      sampling.set_repetition_penalty(1.1f);
      sampling.set_frequency_penalty(0.4f);
      sampling.set_top_p(0.95f);
      sampling.set_wants_logprobs(true);
      sampling.set_num_top_logprobs(3);
      break;
    case 3:
      request.prompt = Asking(3, kWho);
      sampling.set_temperature(1.5f);
      *sampling.mutable_constraint() = Words();
      break;
    case 4:
      request.prompt = Asking(14, kPercent);
      sampling.set_temperature(0.9f);
      break;
    case 5:  // two pages to the last token
      request.prompt = Asking(6, {});
      sampling.set_wants_logprobs(true);
      break;
    case 6:
      request.prompt = Asking(0, kOther);
      head.mutable_stopping()->add_stop_token_ids(kEndOfSentence);
      break;
    default:
      request.prompt = Asking(14, kPercent);
      request.prompt.insert(request.prompt.end(), first_answer.begin(), first_answer.end());
      request.prompt.insert(request.prompt.end(), kOther.begin(), kOther.end());
      head.mutable_stopping()->set_max_new_tokens(60);
  }
  return request;
}

struct ChoiceBits {
  std::vector<uint32_t> tokens;
  std::vector<float> logprobs;
  std::vector<std::string> top_logprobs;
  bool operator==(const ChoiceBits&) const = default;
};
using Answers = std::map<std::pair<uint64_t, uint32_t>, ChoiceBits>;  // by request and choice

class FeaturePairsTest : public TwoWorkersFixture, public ::testing::WithParamInterface<SwitchRow> {
 protected:
  void Change(prefill::PrefillConfig& config) override { Apply(on_, config); }
  void Change(decode::DecodeConfig& config) override { Apply(on_, config); }

  // Of all requests; the workers have ended when it returns.
  Answers Ask(const SwitchRow& on) {
    on_ = on;
    const std::vector<std::string> lanes = {on[kTcpLane] ? "tcp" : "ucx_shm"};
    StartPrefill(lanes);
    if (HasFatalFailure()) return {};
    StartDecode(lanes);
    if (HasFatalFailure()) return {};
    router_->AwaitPeer(true);
    router_->Generate(0, RequestOf(0).prompt, RequestOf(0).head);
    const std::vector<uint32_t> first_answer = router_->Collect(1)[0].tokens();
    // So that pages run out for certain: those that fit all have their pages before any of them goes on.
    const bool holds_back = on[kPageFamine] && !on[kHiSparse];
    for (int number = 1; number < kNumRequests; ++number) {
      AskedFor request = RequestOf(number, first_answer);
      if (holds_back && number < kNumHeld) {
        request.head.set_credit_bytes(proto::CreditBytesOfToken(request.head.sampling()));
      }
      router_->Generate(number, request.prompt, std::move(request.head));
    }
    for (const bool is_granting : {false, true}) {
      for (int number = 1; holds_back && number < kNumHeld; ++number) {
        for (uint32_t choice = 0; choice < RequestOf(number).head.num_choices(); ++choice) {
          if (is_granting) {
            router_->Grant(number, choice, uint64_t{1} << 20);
          } else {
            router_->AwaitFirstToken(number, choice);
          }
        }
      }
    }
    Answers answers;
    for (const auto& [number, answer] : router_->Collect(kNumRequests)) {
      EXPECT_FALSE(answer.ended.has_error()) << "request " << number << ": " << answer.ended.error().message();
      for (const auto& [choice, of_choice] : answer.choices) {
        ChoiceBits& bits = answers[{number, choice}];
        bits.tokens = of_choice.tokens;
        bits.logprobs = of_choice.logprobs;
        for (const proto::TopLogprobs& top : of_choice.top_logprobs)
          bits.top_logprobs.push_back(top.SerializeAsString());
      }
    }
    AwaitMetric(decode_->admin_port(), "tandem_num_running_reqs", 0);
    ExpectFeaturesAtWork();
    TearDown();
    return answers;
  }

  // A feature that is on and does nothing would prove nothing.
  void ExpectFeaturesAtWork() {
    const std::string page = tests::HttpGet(decode_->admin_port(), "/metrics");
    EXPECT_EQ(Sum(page, "tandem_replay_mismatches_total"), 0);
    EXPECT_EQ(Sum(page, "tandem_spec_accepted_tokens_total") > 0, on_[kDrafts]);
    EXPECT_EQ(Sum(page, "tandem_hisparse_misses_total") > 0, on_[kHiSparse]);
    EXPECT_EQ(Sum(page, "tandem_prefix_cache_generated_pages_total") > 0, on_[kGeneratedPages]);
    EXPECT_EQ(Sum(page, "tandem_collective_calls_total") > 0, on_[kDataParallelDecode] || on_[kTensorParallelDecode]);
    if (!on_[kPageFamine]) {
      EXPECT_EQ(Sum(page, "tandem_held_prompt_tokens_total") > 0, on_[kPrefixCache]);
      EXPECT_EQ(Sum(page, "tandem_retracted_reqs_total"), 0);
    } else if (!on_[kHiSparse]) {
      EXPECT_GT(Sum(page, "tandem_retracted_reqs_total"), 0);
      EXPECT_EQ(Sum(page, "tandem_resumed_from_host_reqs_total") > 0, on_[kRetractionToHost]);
    }
    const std::string of_prefill = tests::HttpGet(prefill_->admin_port(), "/metrics");
    EXPECT_EQ(Sum(of_prefill, "tandem_collective_calls_total") > 0,
              on_[kContextParallelPrefill] || on_[kSpreadExperts]);
    EXPECT_EQ(Sum(of_prefill, "tandem_prefix_cache_hits_total") > 0, on_[kPrefixCache]);
  }
  // Over all labels.
  static double Sum(const std::string& page, const std::string& name) {
    double sum = 0;
    for (size_t at = page.find(absl::StrCat("\n", name, "{")); at != std::string::npos;
         at = page.find(absl::StrCat("\n", name, "{"), at + 1)) {
      sum += std::stod(page.substr(page.find("} ", at) + 2));
    }
    return sum;
  }

  // Of the setting that has nothing on but what changes answers; asked for once in this process.
  const Answers& Plain(const SwitchRow& on) {
    static auto* known = new std::map<std::tuple<bool, bool, bool>, Answers>;
    const auto [it, is_new] = known->try_emplace({on[kIndexCache], on[kBf16Kv], on[kDenseContext]});
    if (is_new) {
      SwitchRow plain(kNumFeatures, false);
      plain[kIndexCache] = on[kIndexCache];
      plain[kBf16Kv] = on[kBf16Kv];
      plain[kDenseContext] = on[kDenseContext];
      it->second = Ask(plain);
    }
    return it->second;
  }

  SwitchRow on_;
};

std::vector<SwitchRow> Table() { return tests::CoveringRows(kNumFeatures, RefusedMeetings()); }

std::string NameOf(const SwitchRow& on) {
  std::vector<std::string> names;
  for (int feature = 0; feature < kNumFeatures; ++feature) {
    if (on[feature]) names.push_back(kNames[feature]);
  }
  return names.empty() ? "plain" : absl::StrJoin(names, "_");
}

TEST_P(FeaturePairsTest, GiveTheAnswersOfThePlainSetting) {
  const Answers& plain = Plain(GetParam());
  ASSERT_EQ(plain.size(), kNumRequests + 1u);
  const Answers answers = Ask(OnDevice(GetParam()));
  ASSERT_EQ(answers.size(), plain.size());
  for (const auto& [place, bits] : plain) {
    const ChoiceBits& got = answers.at(place);
    EXPECT_EQ(got.tokens, bits.tokens) << "request " << place.first << " choice " << place.second;
    EXPECT_TRUE(got == bits) << "log-probabilities of request " << place.first << " choice " << place.second;
  }
}

INSTANTIATE_TEST_SUITE_P(All, FeaturePairsTest, ::testing::ValuesIn(Table()),
                         [](const auto& info) { return NameOf(info.param); });

TEST(FeatureTableTest, MeetsEveryPairInEveryWayThatIsNotRefused) {
  std::set<Meeting> met;
  const std::vector<SwitchRow> table = Table();
  for (const SwitchRow& row : table) {
    for (const Meeting& meeting : tests::MeetingsOf(row)) met.insert(meeting);
  }
  const std::vector<Meeting> refused = RefusedMeetings();
  for (int a = 0; a < kNumFeatures; ++a) {
    for (int b = a + 1; b < kNumFeatures; ++b) {
      for (int way = 0; way < 4; ++way) {
        const Meeting meeting(a, b, way >= 2, way % 2 == 1);
        EXPECT_EQ(met.contains(meeting), std::count(refused.begin(), refused.end(), meeting) == 0)
            << kNames[a] << " and " << kNames[b] << ", way " << way;
      }
    }
  }
  EXPECT_LE(table.size(), 16u);
}

TEST(FeatureTableTest, WhatIsRefusedSaysWhyAndNothingElseIsRefused) {
  if (Device() != "cpu") GTEST_SKIP() << "several ranks run on the CPU only";
  for (const Refusal& refusal : Refusals()) {
    const auto [a, b, of_a, of_b] = refusal.meeting;
    SwitchRow on(kNumFeatures, false);
    on[a] = of_a;
    on[b] = of_b;
    decode::DecodeConfig config;
    Apply(on, config);
    EXPECT_EQ(decode::Validate(config).message(), refusal.text);
  }
  for (const SwitchRow& row : Table()) {  // whatever else meets is here
    decode::DecodeConfig decode;
    prefill::PrefillConfig prefill;
    Apply(row, decode);
    Apply(row, prefill);
    EXPECT_EQ(decode::Validate(decode).message(), "");
    EXPECT_EQ(prefill::Validate(prefill).message(), "");
  }
}

}  // namespace
}  // namespace tandem
