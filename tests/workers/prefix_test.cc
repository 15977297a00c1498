// Proves that what both workers keep of earlier requests changes no bit of an answer: turns of chats, whose prompts are
// the turns before with their answers, asked of two real workers with prefix caches that keep generated pages, too,
// give the tokens and log-probabilities that they give where nothing is kept; one after the other, and all at once
// with cancelled requests, flushes and evictions in the middle. With and without drafts and device buffers.
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/workers/two_workers_fixture.h"

namespace tandem {
namespace {

constexpr int kChats = 3, kTurns = 3, kAnswerTokens = 90;
constexpr uint64_t kCreditBytes = 512;  // of a request that is to be cancelled: some tokens, far from its end

struct Asked {
  std::vector<uint32_t> prompt;
  uint64_t id = 0;  // chat * kTurns + turn: its seed, too
};

struct Bits {
  std::vector<uint32_t> tokens;
  std::vector<float> logprobs;
  bool operator==(const Bits&) const = default;
};

struct Setting {
  int num_drafts = 0;
  bool has_buffers = false;
};

class PrefixTest : public TwoWorkersFixture, public ::testing::WithParamInterface<Setting> {
 protected:
  void SetUp() override { num_drafts_ = GetParam().num_drafts; }
  void Change(prefill::PrefillConfig& config) override {
    config.prefix_cache = keeps_;
    config.prefix_cache_tokens_max = prefill_cache_tokens_;
  }
  void Change(decode::DecodeConfig& config) override {
    config.prefix_cache = config.prefix_cache_generated_tokens = keeps_;
    config.hisparse = {.enabled = GetParam().has_buffers, .device_buffer_size = 64, .host_to_device_ratio = 2};
  }
  void Start(bool keeps) {
    keeps_ = keeps;
    ASSERT_NO_FATAL_FAILURE(StartPrefill({"ucx_shm"}, /*chunked_prefill_size=*/100));
    ASSERT_NO_FATAL_FAILURE(StartDecode({"ucx_shm"}));
    router_->AwaitPeer(true);
  }
  static proto::GenerateHead HeadOf(uint64_t id) {
    proto::GenerateHead head;
    head.mutable_sampling()->set_temperature(id % 2 == 0 ? 0.0f : 0.8f);
    head.mutable_sampling()->set_top_p(1);
    head.mutable_sampling()->set_seed(id);
    head.mutable_sampling()->set_wants_logprobs(true);
    head.mutable_stopping()->set_max_new_tokens(kAnswerTokens);
    return head;
  }
  void Ask(const Asked& asked, uint64_t as_id) { router_->Generate(as_id, asked.prompt, HeadOf(asked.id)); }
  static Bits BitsOf(tests::Answer& answer) {
    EXPECT_FALSE(answer.ended.has_error()) << answer.ended.error().message();
    return {answer.tokens(), answer.choices[0].logprobs};
  }
  // Every turn of every chat where nothing is kept, and what is answered.
  void AskWithoutCaches() {
    ASSERT_NO_FATAL_FAILURE(Start(false));
    int num_asked = 0;
    for (int chat = 0; chat < kChats; ++chat) {
      std::vector<uint32_t> text = Prompt(70 + 50 * chat);
      for (int turn = 0; turn < kTurns; ++turn) {
        const Asked asked{text, static_cast<uint64_t>(chat * kTurns + turn)};
        Ask(asked, asked.id);
        auto answers = router_->Collect(++num_asked);
        asked_.push_back(asked);
        expected_.push_back(BitsOf(answers[asked.id]));
        EXPECT_EQ(expected_.back().tokens.size(), size_t{kAnswerTokens});
        text.insert(text.end(), expected_.back().tokens.begin(), expected_.back().tokens.end());
        for (int i = 0; i < 20; ++i) text.push_back(static_cast<uint32_t>(100 + 17 * i + turn));
      }
    }
    EXPECT_EQ(AwaitMetric(decode_->admin_port(), "tandem_prefix_cache_generated_pages_total", 0), 0);
    TearDown();
  }

  bool keeps_ = false;
  int64_t prefill_cache_tokens_ = 0;
  std::vector<Asked> asked_;
  std::vector<Bits> expected_;
};

TEST_P(PrefixTest, TurnsFindTheAnswersBeforeThemAndAnswerAsIfNothingWereKept) {
  ASSERT_NO_FATAL_FAILURE(AskWithoutCaches());
  ASSERT_NO_FATAL_FAILURE(Start(true));
  double held = 0;
  for (size_t i = 0; i < asked_.size(); ++i) {
    Ask(asked_[i], asked_[i].id);
    auto answers = router_->Collect(static_cast<int>(i) + 1);
    EXPECT_TRUE(BitsOf(answers[asked_[i].id]) == expected_[i]) << "chat " << i / kTurns << " turn " << i % kTurns;
    if (i % kTurns == 0) continue;
    // All of the turn before but for its last token, in whole pages.
    held += static_cast<double>((asked_[i - 1].prompt.size() + kAnswerTokens - 1) / 64 * 64);
  }
  AwaitMetric(decode_->admin_port(), "tandem_num_running_reqs", 0);
  EXPECT_EQ(Metric(decode_->admin_port(), "tandem_held_prompt_tokens_total"), held);
  EXPECT_GT(Metric(decode_->admin_port(), "tandem_prefix_cache_generated_pages_total"), 0);
}

TEST_P(PrefixTest, CancelsFlushesAndEvictionsInTheMiddleChangeNoBit) {
  ASSERT_NO_FATAL_FAILURE(AskWithoutCaches());
  kv_tokens_ = 1024;  // three long prompts or so: what is kept gives way
  prefill_cache_tokens_ = 512;
  ASSERT_NO_FATAL_FAILURE(Start(true));
  uint64_t as_id = 0;
  std::map<uint64_t, size_t> place_of;  // of those that are to be answered whole
  std::vector<uint64_t> held_back;
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 0; i < asked_.size(); ++i) {
      const size_t place = (i * 5 + static_cast<size_t>(round)) % asked_.size();  // turns of all chats mixed
      place_of[as_id] = place;
      Ask(asked_[place], as_id++);
      if (i % 3 == 0) {
        router_->Generate(as_id, asked_[place].prompt, 400, 0.0f, kCreditBytes);
        held_back.push_back(as_id++);
      }
      if (i % 4 == 2) router_->FlushPrefixCache();
    }
    for (const uint64_t id : held_back) router_->Cancel(id);
    held_back.clear();
    router_->Collect(static_cast<int>(as_id));
  }
  auto answers = router_->Collect(static_cast<int>(as_id));
  for (const auto& [id, place] : place_of) {
    EXPECT_TRUE(BitsOf(answers[id]) == expected_[place]) << "request " << id << ", turn " << place % kTurns;
  }
  EXPECT_EQ(AwaitMetric(decode_->admin_port(), "tandem_num_running_reqs", 0), 0);
  EXPECT_EQ(Metric(decode_->admin_port(), "tandem_prefix_cache_flushes_total"), 6);
  EXPECT_EQ(Metric(decode_->admin_port(), "tandem_replay_mismatches_total"), 0);
}

INSTANTIATE_TEST_SUITE_P(All, PrefixTest,
                         ::testing::Values(Setting{}, Setting{.num_drafts = 2}, Setting{.has_buffers = true},
                                           Setting{.num_drafts = 2, .has_buffers = true}),
                         [](const auto& info) {
                           return absl::StrCat(info.param.num_drafts, "_drafts_",
                                               info.param.has_buffers ? "buffers" : "no_buffers");
                         });

}  // namespace
}  // namespace tandem
