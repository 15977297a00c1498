// Proves that the prefix cache changes what is computed and nothing else: decode gets the bytes and the first tokens of
// a prompt computed alone, whole and cold, whatever was cached, in whatever chunks, under eviction, flushes and lies.
#include <set>

#include "prefill_worker/testing/engine_fixture.h"

namespace tandem::prefill {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class EnginePrefixTest : public EngineTest {
 protected:
  // A prompt of `num_shared` tokens that all of `group` have in common, and others.
  Transfer Sharing(int num_shared, int num_tokens, unsigned group = 1) const {
    Transfer transfer = MakeTransfer(num_tokens);
    std::mt19937 rng(1000 + group);
    for (int i = 0; i < std::min(num_shared, num_tokens); ++i) transfer.prompt[i] = rng() % kModel.vocab_size;
    return transfer;
  }
  int64_t Cached(uint64_t epoch) { return transfers_[epoch].first_tokens.at(0).num_cached_tokens(); }
  int NumRows() const { return std::accumulate(model_->rows_per_step.begin(), model_->rows_per_step.end(), 0); }
  // Served as if nothing had been cached. Decode's pages of all that was before are used again.
  void ExpectServedAndForget(const std::vector<uint64_t>& epochs) {
    for (const uint64_t epoch : epochs) ExpectServed(epoch);
    next_decode_page_ = 0;
  }
};

TEST_F(EnginePrefixTest, WhatWasComputedIsNotComputedAgain) {
  Start(16, 512);
  const uint64_t cold = Begin(Sharing(200, 230));
  Settle();
  const uint64_t warm = Begin(Sharing(200, 300));
  Settle();
  ExpectServedAndForget({cold, warm});
  EXPECT_EQ(Cached(cold), 0);
  EXPECT_EQ(Cached(warm), 192) << "three whole pages of 200 tokens";
  EXPECT_THAT(model_->rows_per_step, ElementsAre(230, 108));
  EXPECT_EQ(engine_->counters().prefix_hits, 1);
  EXPECT_EQ(engine_->counters().cached_prompt_tokens, 192);
  EXPECT_EQ(engine_->counters().prompt_tokens, 338);
  ExpectNothingHeld();
}

TEST_F(EnginePrefixTest, TheLastTokenIsAlwaysComputed) {
  for (const int length : {1, 63, 64, 65, 127, 128, 129, 192}) {
    Start(16, 512);
    const uint64_t first = Begin(Sharing(length, length));
    Settle();
    const uint64_t again = Begin(Sharing(length, length));
    Settle();
    ExpectServedAndForget({first, again});
    EXPECT_EQ(Cached(again), (length - 1) / 64 * 64) << length;
    ExpectNothingHeld();
  }
}

TEST_F(EnginePrefixTest, AnyChunksAndAnySharedLengthsGiveTheBytesOfAColdRun) {
  for (const bool has_mtp : {false, true}) {
    model_options_.has_mtp = has_mtp;
    for (const int chunk : {7, 64, 100, 512}) {
      Start(32, chunk);
      int64_t num_cached = 0;
      for (const int num_shared : {200, 64, 63, 65, 192}) {
        std::vector<uint64_t> epochs;
        for (const int length : {200, 128, 260}) epochs.push_back(Begin(Sharing(num_shared, length)));
        Settle();
        ExpectServedAndForget(epochs);
        for (const uint64_t epoch : epochs) num_cached += Cached(epoch);
        ExpectNothingHeld();
      }
      EXPECT_GT(num_cached, 500) << "chunk " << chunk;
    }
  }
}

TEST_F(EnginePrefixTest, CachedPagesAreAnnouncedBeforeAnythingIsComputed) {
  Start(16, 512);
  Begin(Sharing(200, 230));
  Settle();
  Begin(Sharing(200, 300));
  Deliver();
  std::vector<std::string> announced;
  model_->after_layer = [&](int layer) {
    if (layer != 0) return;
    for (const proto::TransferMessage& message : to_decode_) {
      if (!message.has_announce()) continue;
      const proto::Announce& a = message.announce();
      announced.push_back(
          absl::StrCat("layers ", a.layer_begin(), "-", a.layer_end(), " pages ", a.page_begin(), "-", a.page_end()));
    }
  };
  engine_->Step();
  EXPECT_THAT(announced, ElementsAre("layers 0-3 pages 0-3", "layers 0-1 pages 3-5"));
}

TEST_F(EnginePrefixTest, WholePagesAreSharedWhileTheirRequestIsUnderWay) {
  Start(32, 64);
  const uint64_t first = Begin(Sharing(400, 1000));
  Deliver();
  for (int step = 0; step < 4; ++step) engine_->Step();
  const uint64_t second = Begin(Sharing(400, 420));
  Settle();
  EXPECT_EQ(Cached(second), 256) << "as far as the first had come";
  ExpectServedAndForget({first, second});
  ExpectNothingHeld();
}

TEST_F(EnginePrefixTest, EqualPromptsAtOnceAreEachServed) {
  Start(64, 100);
  std::vector<uint64_t> epochs;
  for (int i = 0; i < 6; ++i) epochs.push_back(Begin(Sharing(400, 410)));
  Settle();
  ExpectServedAndForget(epochs);
  ExpectNothingHeld();
  EXPECT_EQ(engine_->prefix_cache()->num_pages(), 6) << "of each page one is kept";
}

TEST_F(EnginePrefixTest, APageHeldByDecodeIsNeitherAnnouncedNorFetched) {
  Start(16, 512);
  const uint64_t cold = Begin(Sharing(200, 230));
  Settle();
  Transfer warm = Sharing(200, 300);
  warm.num_prefix_tokens_held = 128;
  const int64_t announced_before = engine_->transfer().counters().announced_bytes;
  const uint64_t epoch = Begin(warm);
  // What decode holds, it has from before.
  for (int layer = 0; layer < kNumLayers; ++layer) {
    for (int page = 0; page < 2; ++page) {
      for (const auto kind : {kvcache::RecordKind::kLatent, kvcache::RecordKind::kIndex}) {
        std::ranges::copy(decode_memory_->pool().Page(kind, layer, transfers_[cold].pages[page]),
                          decode_memory_->pool().Page(kind, layer, transfers_[epoch].pages[page]).begin());
      }
    }
  }
  Settle();
  ExpectServedAndForget({epoch});
  EXPECT_EQ(Cached(epoch), 192);
  EXPECT_EQ(engine_->transfer().counters().announced_bytes - announced_before,
            3 * kNumLayers * memory_->pool().layout().page_bytes());
  ExpectNothingHeld();
}

TEST_F(EnginePrefixTest, SaltsAndTheSwitchKeepPromptsApart) {
  Start(32, 512);
  Transfer first = Sharing(200, 230), other = Sharing(200, 230), same = Sharing(200, 230);
  first.cache_salt = same.cache_salt = "tenant a";
  other.cache_salt = "tenant b";
  std::vector<uint64_t> epochs;
  for (const Transfer& transfer : {first, other, same}) {
    epochs.push_back(Begin(transfer));
    Settle();
  }
  ExpectServedAndForget(epochs);
  EXPECT_EQ(Cached(epochs[1]), 0);
  EXPECT_EQ(Cached(epochs[2]), 192);

  prefix_cache_.reset();
  Start(16, 512);
  epochs = {Begin(first)};
  Settle();
  epochs.push_back(Begin(first));
  Settle();
  ExpectServedAndForget(epochs);
  EXPECT_EQ(Cached(epochs[1]), 0);
  EXPECT_EQ(engine_->pages().num_free(), 16);
}

TEST_F(EnginePrefixTest, PromptLogprobsComputeWhatTheyNeedAndNoMore) {
  const auto ask = [&](uint32_t begin) {
    Transfer asking = Sharing(330, 330);
    asking.sampling.set_seed(5);
    asking.sampling.set_wants_logprobs(true);
    asking.sampling.set_prompt_logprobs_begin(begin);
    return Begin(asking);
  };
  for (const uint32_t begin : {1u, 64u, 65u, 66u, 129u, 300u}) {
    Start(32, 100);
    const uint64_t cold = ask(begin);
    Settle();
    const uint64_t warm = ask(begin);
    Settle();
    ExpectServedAndForget({cold, warm});
    EXPECT_EQ(Cached(warm), (begin - 1) / 64 * 64);
    EXPECT_EQ(transfers_[warm].first_tokens.at(0).prompt_logprobs().SerializeAsString(),
              transfers_[cold].first_tokens.at(0).prompt_logprobs().SerializeAsString());
    EXPECT_EQ(transfers_[warm].first_tokens.at(0).prompt_logprobs().logprobs_size(), 330 - static_cast<int>(begin));
  }
}

TEST_F(EnginePrefixTest, ConversationsInASmallPoolAreServedUnderEviction) {
  Start(9, 100);
  std::mt19937 random(3);
  std::vector<std::vector<uint32_t>> conversations(4);
  int64_t num_cached = 0;
  for (int round = 0; round < 20; ++round) {
    std::vector<uint64_t> epochs;
    for (int i = 0; i < 2; ++i) {
      std::vector<uint32_t>& conversation = conversations[random() % conversations.size()];
      if (conversation.size() > 260) conversation.clear();
      for (unsigned more = 30 + random() % 80; more > 0; --more) conversation.push_back(random() % kModel.vocab_size);
      Transfer turn = MakeTransfer(1);
      turn.prompt = conversation;
      epochs.push_back(Begin(turn));
    }
    Settle();
    for (const uint64_t epoch : epochs) num_cached += Cached(epoch);
    ExpectServedAndForget(epochs);
    ExpectNothingHeld();
    if (HasFailure()) FAIL() << "round " << round;
  }
  EXPECT_GT(num_cached, 1000);
  EXPECT_GT(engine_->prefix_cache()->counters().pages_evicted, 20);
}

TEST_F(EnginePrefixTest, APromptAsLargeAsThePoolGetsItAll) {
  Start(8, 512);
  std::vector<uint64_t> epochs;
  for (unsigned group = 0; group < 4; ++group) {
    epochs = {Begin(Sharing(500, 512, group))};
    Settle();
    ExpectServedAndForget(epochs);
  }
  EXPECT_EQ(engine_->load().kv_pages_free(), 8u) << "idle pages are room";
  EXPECT_EQ(engine_->load().prompt_tokens(), 4u * 512);
  EXPECT_EQ(engine_->load().cached_prompt_tokens(), 0u);
  EXPECT_EQ(engine_->load().transferred_kv_bytes(),
            static_cast<uint64_t>(engine_->transfer().counters().announced_bytes));
  ExpectNothingHeld();
}

TEST_F(EnginePrefixTest, AFlushForgetsAndLetsRequestsGoOn) {
  Start(32, 64);
  Begin(Sharing(200, 230));
  Settle();
  const uint64_t under_way = Begin(Sharing(200, 600));
  Deliver();
  engine_->Step();
  engine_->FlushPrefixCache();
  EXPECT_EQ(engine_->prefix_cache()->num_pages(), 0);
  EXPECT_EQ(engine_->pages().num_idle(), 0);
  Settle();
  ExpectServed(under_way);
  const uint64_t later = Begin(Sharing(200, 230));
  Settle();
  EXPECT_EQ(Cached(later), 192) << "of the one that was under way";
  ExpectServedAndForget({later});
  ExpectNothingHeld();
}

TEST_F(EnginePrefixTest, WhatAnAbortedRequestHadComputedIsUsed) {
  Start(32, 64);
  const uint64_t aborted = Begin(Sharing(600, 700));
  Deliver();
  for (int step = 0; step < 3; ++step) engine_->Step();
  decode_->Abort(aborted, absl::CancelledError("the client left"));
  Settle();
  const uint64_t next = Begin(Sharing(600, 620));
  Settle();
  EXPECT_GE(Cached(next), 192);
  ExpectServedAndForget({next});
  ExpectNothingHeld();
}

TEST_F(EnginePrefixTest, AStepThatFailsCachesNothing) {
  Start(32, 512);
  Begin(Sharing(200, 230));
  Deliver();
  model_->next_error = absl::InternalError("no kernel");
  Settle();
  EXPECT_EQ(engine_->prefix_cache()->num_pages(), 0);
  ExpectNothingHeld();
}

TEST_F(EnginePrefixTest, ACachedPageWhoseBytesHaveChangedIsFoundAndDropped) {
  Start(32, 512);
  Begin(Sharing(200, 230));
  const uint64_t of_others = Begin(Sharing(200, 230, /*group=*/2));
  Settle();
  // A bit of a cached page flips.
  const std::vector<uint32_t> prompt = Sharing(200, 230).prompt;
  const auto cached = engine_->prefix_cache()->Match({.tokens = prompt, .num_prompt_tokens = 230}, 229);
  ASSERT_EQ(cached.size(), 3u);
  memory_->pool().Page(kvcache::RecordKind::kLatent, 1, cached[1])[100] ^= std::byte{4};
  const uint64_t poisoned = Begin(Sharing(200, 300));
  Settle();
  EXPECT_EQ(transfers_[poisoned].failure.code(), absl::StatusCode::kDataLoss) << transfers_[poisoned].failure;
  EXPECT_EQ(engine_->counters().prefix_distrusts, 1);
  clock_.Advance(absl::Minutes(10));  // of the lane's quarantine
  next_decode_page_ = 0;
  const uint64_t again = Begin(Sharing(200, 300));
  Settle();
  ExpectServedAndForget({again});
  EXPECT_EQ(Cached(again), 0);
  const uint64_t others_again = Begin(Sharing(200, 230, /*group=*/2));
  Settle();
  ExpectServedAndForget({others_again});
  EXPECT_EQ(Cached(others_again), 192) << "other prefixes stay";
  EXPECT_EQ(Cached(of_others), 0);
  ExpectNothingHeld();
}

TEST_F(EnginePrefixTest, TheStatusPageTellsWhatIsCached) {
  Start(16, 512);
  Begin(Sharing(200, 230));
  Settle();
  Begin(Sharing(200, 230));
  Settle();
  EXPECT_THAT(
      engine_->Describe(),
      HasSubstr("prefix cache: 3 pages, 3 of them idle; 192 of 460 prompt tokens were cached; 0 pages evicted"));
}

}  // namespace
}  // namespace tandem::prefill
