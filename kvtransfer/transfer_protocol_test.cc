// What a transfer does when nobody breaks the rules: both machines over real pools, real sums and real byte runs.
// Faults are in transfer_faults_test.cc, all interleavings in transfer_enumeration_test.cc.
#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvtransfer/transfer_rig.h"

namespace tandem::kvtransfer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int64_t kCellBytes = kvcache::LatentPageBytes(kvcache::KvCacheDtype::kFp8E4m3) + kvcache::kIndexPageBytes;

int64_t BytesOf(const StartFetch& fetch) {
  int64_t bytes = 0;
  for (const ByteRun& run : fetch.runs) bytes += static_cast<int64_t>(run.num_bytes);
  return bytes;
}

TEST(TransferProtocolTest, BringsAPromptOverAndComesToRest) {
  TransferRig rig;
  const uint64_t epoch = rig.Begin(rig.Request(200));
  rig.Deliver();
  rig.Accept(epoch);
  rig.Compute(epoch, 0, 2, 0, 4);
  rig.Sample(epoch, 0, 42);
  rig.Deliver();
  rig.CompleteFetches();
  EXPECT_TRUE(rig.HoldsPrompt(epoch));
  EXPECT_TRUE(rig.readable.IsReadable({.target_incarnation = kDecode, .epoch = epoch}));
  rig.Deliver();
  EXPECT_THAT(rig.lines, ElementsAre("admit 1", "token 42 for choice 0 of 1", "ready 1", "end 1 OK", "closed 1"));
  EXPECT_TRUE(rig.IsAtRest());
  EXPECT_EQ(rig.target.counters().fetched_bytes, 2 * 4 * kCellBytes);
  EXPECT_EQ(rig.source.counters().announced_bytes, 2 * 4 * kCellBytes);
}

TEST(TransferProtocolTest, TellsWhenItCameHowFar) {
  TransferRig rig;
  const auto seconds = [&] {
    rig.clock.Advance(absl::Milliseconds(100));
    return rig.clock.Now();
  };
  const absl::Duration started = seconds();
  const uint64_t epoch = rig.Begin(rig.Request(200));
  rig.Deliver();
  const absl::Duration accepted = seconds();
  rig.Accept(epoch);
  rig.Deliver();
  const absl::Duration first_layer = seconds();
  rig.Compute(epoch, 0, 1, 0, 2);
  rig.Deliver();
  const absl::Duration first_chunk = seconds();
  rig.Compute(epoch, 1, 2, 0, 2);
  rig.Deliver();
  const absl::Duration second_chunk = seconds();
  rig.Compute(epoch, 0, 2, 2, 4);
  rig.Sample(epoch, 0, 42);
  rig.Deliver();
  const absl::Duration ready = seconds();
  rig.CompleteFetches();
  const TransferTimes& times = rig.last_times;
  EXPECT_EQ(times.started, started);
  EXPECT_EQ(times.accepted, accepted);
  EXPECT_EQ(times.first_announced, first_layer);
  EXPECT_EQ(times.first_token, second_chunk);
  EXPECT_EQ(times.ready, ready);
  ASSERT_EQ(times.chunks.size(), 2u);
  EXPECT_EQ(times.chunks[0].num_pages, 2);
  EXPECT_EQ(times.chunks[0].at, first_chunk);
  EXPECT_EQ(times.chunks[1].num_pages, 4);
  EXPECT_EQ(times.chunks[1].at, second_chunk);
}

TEST(TransferProtocolTest, BothSidesTellWhatTheyHoldForWhomAndUntilWhen) {
  TransferRig rig({.lease = absl::Seconds(2)});
  TransferRequest request = rig.Request(200);
  request.remaining_time = absl::Minutes(4);
  const uint64_t epoch = rig.Begin(std::move(request));
  rig.Deliver();
  EXPECT_THAT(rig.source.Describe(),
              HasSubstr("000000000000000a/0 in_line 0 0 decode-0/0000000000000064 decode says Done, "
                        "else the deadline in 4m"));
  rig.Accept(epoch);
  rig.Compute(epoch, 0, 1, 0, 4);
  rig.Deliver();
  rig.clock.Advance(absl::Milliseconds(300));
  EXPECT_THAT(rig.source.Describe(), HasSubstr("4/8_announced 4 300ms"));
  EXPECT_THAT(rig.target.Describe(), HasSubstr("arriving 4 "));
  EXPECT_THAT(rig.target.Describe(), HasSubstr("300ms prefill:8998 pages and sums, else the deadline in 3m59.7s"));
  EXPECT_EQ(rig.source.OldestEpochAge(), absl::Milliseconds(300));
  EXPECT_EQ(rig.target.OldestEpochAge(), absl::Milliseconds(300));
  rig.source.LinkDown(kDecode);
  rig.clock.Advance(absl::Milliseconds(500));
  EXPECT_THAT(rig.source.Describe(), HasSubstr("its lease lapses in 1.5s: decode is gone"));
  rig.Advance(absl::Milliseconds(1500));
  EXPECT_EQ(rig.source.OldestEpochAge(), absl::ZeroDuration());
}

TEST(TransferProtocolTest, BringsBf16RecordsOverByteForByte) {
  TransferRig rig({.kv_cache_dtype = kvcache::KvCacheDtype::kBfloat16});
  const uint64_t epoch = rig.Begin(rig.Request(200));
  rig.Deliver();
  rig.Accept(epoch);
  rig.Compute(epoch, 0, 2, 0, 4);
  rig.Sample(epoch, 0, 42);
  rig.Deliver();
  rig.CompleteFetches();
  EXPECT_TRUE(rig.HoldsPrompt(epoch));
  rig.Deliver();
  EXPECT_TRUE(rig.IsAtRest());
  constexpr int64_t kBf16CellBytes = 64 * (1152 + 132);
  EXPECT_EQ(rig.target.counters().fetched_bytes, 2 * 4 * kBf16CellBytes);
  EXPECT_EQ(rig.source.counters().announced_bytes, 2 * 4 * kBf16CellBytes);
}

TEST(TransferProtocolTest, StartCarriesEverythingThatPrefillNeeds) {
  TransferRig rig;
  TransferRequest request = rig.Request(130);
  request.sampling.set_seed(77);
  request.stopping.set_max_new_tokens(9);
  request.num_choices = 3;
  request.num_prefix_tokens_held = 64;
  request.remaining_time = absl::Seconds(4);
  request.key.set_attempt(2);
  const uint64_t epoch = rig.Begin(request);
  rig.Deliver();
  const StartRequest& start = rig.admitted.at(epoch);
  EXPECT_EQ(start.prompt_tokens, request.prompt_tokens);
  EXPECT_EQ(start.sampling.seed(), 77u);
  EXPECT_EQ(start.stopping.max_new_tokens(), 9u);
  EXPECT_EQ(start.num_choices, 3);
  EXPECT_EQ(start.num_prefix_tokens_held, 64);
  EXPECT_EQ(start.deadline, rig.clock.Now() + absl::Seconds(4));
  EXPECT_EQ(start.key.attempt(), 2u);
}

TEST(TransferProtocolTest, FetchesALayerWhileTheNextIsComputed) {
  TransferRig rig;
  const uint64_t epoch = rig.Begin(rig.Request(128));
  rig.Deliver();
  rig.Accept(epoch);
  rig.Compute(epoch, 0, 1, 0, 2);
  rig.Deliver();
  ASSERT_THAT(rig.fetches, SizeIs(1));
  EXPECT_EQ(BytesOf(rig.fetches.front()), 2 * kCellBytes);
  EXPECT_EQ(rig.target.ledger().announced_unfetched_bytes, 2 * kCellBytes);
  rig.CompleteFetches();
  EXPECT_EQ(rig.target.ledger().announced_unfetched_bytes, 0);
  EXPECT_THAT(rig.lines, ElementsAre("admit 1"));  // half of the prompt is not the prompt
  rig.Compute(epoch, 1, 2, 0, 2);
  rig.Deliver();
  EXPECT_EQ(BytesOf(rig.fetches.front()), 2 * kCellBytes);
}

TEST(TransferProtocolTest, HandsTheFirstTokenUpBeforeAnyPageHasLanded) {
  TransferRig rig;
  const uint64_t epoch = rig.Begin(rig.Request(64));
  rig.Deliver();
  rig.Accept(epoch);
  rig.Compute(epoch, 0, 2, 0, 1);
  rig.Sample(epoch, 0, 42);
  rig.Deliver();
  EXPECT_EQ(rig.target.counters().fetched_bytes, 0);
  EXPECT_EQ(rig.lines.back(), "token 42 for choice 0 of 1");
  ASSERT_EQ(rig.first_tokens.size(), 1u);
  EXPECT_EQ(rig.first_tokens[0].logprob(), -1.5f);
  EXPECT_THAT(rig.first_tokens[0].top_logprobs().tokens(), ElementsAre(42));
  EXPECT_THAT(rig.first_tokens[0].top_logprobs().logprobs(), ElementsAre(-1.5f));
}

TEST(TransferProtocolTest, IsNotReadyBeforeTheFirstTokenOfEveryChoice) {
  TransferRig rig;
  TransferRequest request = rig.Request(64);
  request.num_choices = 2;
  const uint64_t epoch = rig.Begin(request);
  rig.Deliver();
  rig.Accept(epoch);
  rig.Compute(epoch, 0, 2, 0, 1);
  rig.Sample(epoch, 1, 7);
  rig.Deliver();
  rig.CompleteFetches();
  EXPECT_EQ(rig.lines.back(), "token 7 for choice 1 of 1");
  rig.Sample(epoch, 0, 8);
  rig.Deliver();
  EXPECT_THAT(rig.lines, ElementsAre("admit 1", "token 7 for choice 1 of 1", "token 8 for choice 0 of 1", "ready 1",
                                     "end 1 OK", "closed 1"));
}

TEST(TransferProtocolTest, IsNotReadyBeforeThePromptsHiddenStateWhichTokensThatAreReplayedNeedToo) {
  TransferRig rig({.prompt_hidden_bytes = 4});
  TransferRequest request = rig.Request(64);
  request.generated_tokens = {5, 6, 7};
  const uint64_t epoch = rig.Begin(request);
  rig.Deliver();
  rig.Accept(epoch);
  rig.Compute(epoch, 0, 2, 0, 1);
  rig.Deliver();
  rig.CompleteFetches();
  rig.Deliver();
  EXPECT_THAT(rig.lines, ElementsAre("admit 1"));
  rig.source.PromptHidden(rig.Id(epoch), "\1\2xy");
  rig.Drain();
  rig.to_target.clear();  // lost
  rig.Advance(absl::Seconds(2));
  rig.Deliver();
  EXPECT_THAT(rig.lines, ElementsAre("admit 1", "ready 1 with hidden \1\2xy", "end 1 OK", "closed 1"));
}

TEST(TransferProtocolTest, AHiddenStateOfAnotherSizeFailsTheTransfer) {
  for (const int64_t num_bytes : {int64_t{0}, int64_t{6}}) {
    TransferRig rig({.prompt_hidden_bytes = num_bytes});
    const uint64_t epoch = rig.Begin(rig.Request(64));
    rig.Deliver();
    rig.Accept(epoch);
    rig.source.PromptHidden(rig.Id(epoch), "wxyz");
    rig.Drain();
    rig.Deliver();
    EXPECT_THAT(rig.lines,
                ::testing::Contains(absl::StrCat(
                    "failed 1 INTERNAL: prefill sent a hidden state of 4 bytes, decode waits for ", num_bytes)));
  }
}

TEST(TransferProtocolTest, GeneratedTokensAreReplayedAndNothingIsSampled) {
  TransferRig rig;
  TransferRequest request = rig.Request(64);
  request.generated_tokens = {5, 6, 7};
  const uint64_t epoch = rig.Begin(request);
  rig.Deliver();
  EXPECT_THAT(rig.admitted.at(epoch).generated_tokens, ElementsAre(5, 6, 7));
  rig.Accept(epoch);
  rig.Compute(epoch, 0, 2, 0, 1);
  rig.Deliver();
  rig.CompleteFetches();
  rig.Deliver();
  EXPECT_THAT(rig.lines, ElementsAre("admit 1", "ready 1", "end 1 OK", "closed 1"));
}

TEST(TransferProtocolTest, AFirstTokenThatEndsTheRequestAbortsTheTransfer) {
  TransferRig rig;
  const uint64_t epoch = rig.Begin(rig.Request(64));
  rig.Deliver();
  rig.Accept(epoch);
  rig.Sample(epoch, 0, 2);  // an end-of-sequence token, before the pages are complete
  rig.Deliver();
  rig.target.Abort(epoch, absl::CancelledError("the first token ended the request"));
  rig.Drain();
  rig.Deliver();
  EXPECT_THAT(rig.lines, ElementsAre("admit 1", "token 2 for choice 0 of 1", "released 1",
                                     "end 1 CANCELLED: the first token ended the request", "closed 1"));
  EXPECT_TRUE(rig.IsAtRest());
}

TEST(TransferProtocolTest, APrefixThatDecodeHoldsIsNeitherAnnouncedNorFetched) {
  TransferRig rig;
  TransferRequest request = rig.Request(190);
  request.num_prefix_tokens_held = 128;
  const uint64_t epoch = rig.Begin(request);
  rig.Deliver();
  rig.Accept(epoch);
  rig.Compute(epoch, 0, 2, 0, 3);
  rig.Sample(epoch, 0, 42);
  rig.Deliver();
  rig.CompleteFetches();
  rig.Deliver();
  EXPECT_TRUE(rig.HoldsPrompt(epoch));
  EXPECT_EQ(rig.target.counters().fetched_bytes, 2 * kCellBytes);
  EXPECT_TRUE(rig.IsAtRest());
}

TEST(TransferProtocolTest, APromptThatDecodeHoldsWholeWaitsForItsFirstTokenOnly) {
  TransferRig rig;
  TransferRequest request = rig.Request(128);
  request.num_prefix_tokens_held = 128;
  const uint64_t epoch = rig.Begin(request);
  rig.Deliver();
  rig.Accept(epoch);
  rig.Compute(epoch, 0, 2, 0, 2);
  rig.Deliver();
  EXPECT_THAT(rig.lines, ElementsAre("admit 1"));
  rig.Sample(epoch, 0, 42);
  rig.Deliver();
  EXPECT_EQ(rig.target.counters().fetched_bytes, 0);
  EXPECT_TRUE(rig.IsAtRest());
}

TEST(TransferProtocolTest, EachSourceRankBringsItsOwnShare) {
  TransferRig rig({.num_source_ranks = 2});
  const uint64_t epoch = rig.Begin(rig.Request(128));
  rig.Deliver();
  rig.Accept(epoch);
  rig.Compute(epoch, 1, 2, 0, 2, /*rank=*/1);
  rig.Deliver();
  ASSERT_THAT(rig.fetches, SizeIs(1));
  EXPECT_EQ(rig.fetches.front().source_rank, 1);
  rig.Compute(epoch, 0, 1, 0, 2, /*rank=*/0);
  rig.Sample(epoch, 0, 42);
  rig.Deliver();
  rig.CompleteFetches();
  rig.Deliver();
  EXPECT_TRUE(rig.HoldsPrompt(epoch, 0, 1));
  EXPECT_TRUE(rig.IsAtRest());
}

TEST(TransferProtocolTest, RanksMayShareALayerPageByPage) {
  TransferRig rig({.num_layers = 1, .num_source_ranks = 2});
  const uint64_t epoch = rig.Begin(rig.Request(256));
  rig.Deliver();
  rig.Accept(epoch);
  for (int page = 0; page < 4; ++page) rig.Compute(epoch, 0, 1, page, page + 1, /*rank=*/page % 2);
  rig.Sample(epoch, 0, 42);
  rig.Deliver();
  rig.CompleteFetches();
  rig.Deliver();
  EXPECT_EQ(rig.target.counters().wrong_sums, 0);
  EXPECT_TRUE(rig.IsAtRest());
}

TEST(TransferProtocolTest, LongPromptsTravelInParts) {
  constexpr int kTokens = 60'000;
  TransferRig rig({.num_layers = 1, .num_source_pages = 1000, .num_target_pages = 2000});
  const uint64_t epoch = rig.Begin(rig.Request(kTokens));
  EXPECT_THAT(rig.to_source, SizeIs(2));
  for (const proto::TransferMessage& message : rig.to_source) EXPECT_LE(message.ByteSizeLong(), 256u << 10);
  rig.Deliver();
  ASSERT_THAT(rig.lines, ElementsAre("admit 1"));
  EXPECT_EQ(rig.admitted.at(epoch).prompt_tokens.size(), static_cast<size_t>(kTokens));
  EXPECT_EQ(rig.admitted.at(epoch).prompt_tokens.back(), 1000u + kTokens - 1);
}

// Every page has the sum of its own number: pools of this size would take a gigabyte.
class NumberedMemory final : public PageMemory {
 public:
  uint64_t ContentSum(kvcache::RecordKind, int layer, int32_t page) const override { return layer * 1000 + page; }
  void ZeroTokensFrom(int, int32_t, int) override {}
};

TEST(TransferProtocolTest, SumsOfLongPromptsStayBelowTheMessageLimit) {
  constexpr int kLayers = 61;
  constexpr int kPages = 2000;  // 128,000 tokens
  base::FakeClock clock;
  NumberedMemory memory;
  TransferSource source({.incarnation = kPrefill, .layout = {.num_layers = kLayers, .num_pages = kPages}}, {&memory},
                        &clock, nullptr);
  source.LinkUp(kDecode, "decode-0");
  TransferRequest request;
  request.prompt_tokens.assign(kPages * kvcache::kPageTokens, 1);
  for (const proto::Start& part : BuildStartParts(request)) {
    proto::TransferMessage message;
    message.set_sender_incarnation(kDecode);
    message.set_receiver_incarnation(kPrefill);
    message.set_epoch(1);
    *message.mutable_start() = part;
    source.Receive(kDecode, message);
  }
  std::vector<int32_t> pages(kPages);
  std::iota(pages.begin(), pages.end(), 0);
  source.Accept({.target_incarnation = kDecode, .epoch = 1}, {pages});
  source.Complete({.target_incarnation = kDecode, .epoch = 1}, 0, 0, kLayers, 0, kPages);

  std::vector<int> num_sums(kLayers);
  int num_lasts = 0;
  for (const SourceOutput& output : source.TakeOutputs()) {
    const auto* send = std::get_if<SendToTarget>(&output);
    if (send == nullptr) continue;
    EXPECT_LE(send->message.ByteSizeLong(), 256u << 10);
    const proto::SourceSums& sums = send->message.source_sums();
    EXPECT_EQ(num_lasts, 0);  // the last one is the last
    num_lasts += sums.is_last();
    for (uint32_t layer = sums.layer_begin(); layer < sums.layer_end(); ++layer) {
      num_sums[layer] += static_cast<int>(sums.page_end() - sums.page_begin());
    }
    EXPECT_EQ(sums.latent_sums_size(),
              static_cast<int>((sums.layer_end() - sums.layer_begin()) * (sums.page_end() - sums.page_begin())));
    EXPECT_EQ(sums.index_sums_size(), sums.latent_sums_size());
  }
  EXPECT_EQ(num_sums, std::vector<int>(kLayers, kPages));
  EXPECT_EQ(num_lasts, 1);
}

TEST(TransferProtocolTest, OutstandingBytesStayWithinTheWindowAndOlderRequestsComeFirst) {
  constexpr int64_t kWindow = 8 * kCellBytes;
  TransferRig rig({.num_source_pages = 16, .num_target_pages = 32, .window_bytes = kWindow});
  const uint64_t first = rig.Begin(rig.Request(300));
  const uint64_t second = rig.Begin(rig.Request(300, /*first_page=*/16));
  rig.Deliver();
  rig.Accept(first, 0);
  rig.Accept(second, 5);
  rig.Compute(second, 0, 2, 0, 5);
  rig.Deliver();
  rig.Compute(first, 0, 2, 0, 5);
  rig.Deliver();
  int64_t most = 0;
  std::vector<uint64_t> order;
  while (!rig.fetches.empty()) {
    most = std::max(most, rig.target.ledger().outstanding_bytes);
    order.push_back(rig.fetches.front().epoch);
    rig.CompleteFetch();
  }
  EXPECT_LE(most, kWindow);
  EXPECT_GE(most, kWindow / 2);
  const auto last_of_first = std::find(order.rbegin(), order.rend(), first);
  EXPECT_GT(std::count(order.rbegin(), last_of_first, second), 0);  // the older one did not wait for the younger
  rig.Sample(first, 0, 1);
  rig.Sample(second, 0, 2);
  rig.Deliver();
  EXPECT_TRUE(rig.HoldsPrompt(first) && rig.HoldsPrompt(second));
  EXPECT_TRUE(rig.IsAtRest());
}

TEST(TransferProtocolTest, TheWindowFollowsTheMeasuredRate) {
  TransferRig rig;
  TransferTarget target({.incarnation = kDecode,
                         .layout = rig.target_pool.pool().layout(),
                         .lane_policy = {.fetch_window = absl::Milliseconds(20),
                                         .window_bytes_min = kCellBytes,
                                         .window_bytes_max = 100 * kCellBytes}},
                        &rig.target_memory, &rig.clock);
  target.PeerUp(kPeer, {.incarnation = kPrefill,
                        .session = 1,
                        .num_pages = 16,
                        .lanes = {{.kind = "lane0", .bytes_per_second = 50.0 * 4 * kCellBytes}}});
  ASSERT_TRUE(target.Begin(kPeer, rig.Request(384)).ok());
  proto::TransferMessage message;
  message.set_sender_incarnation(kPrefill);
  message.set_receiver_incarnation(kDecode);
  message.set_epoch(1);
  *message.mutable_key() = rig.Request(384).key;
  for (uint32_t page = 0; page < 6; ++page) message.mutable_accepted()->add_source_pages(page);
  target.Receive(kPeer, message);
  message.mutable_announce()->set_layer_end(2);
  message.mutable_announce()->set_page_end(6);
  target.Receive(kPeer, message);
  EXPECT_EQ(target.ledger().outstanding_bytes, 4 * kCellBytes);  // 20 ms of 200 pages a second
  // The lane turns out to move one page in 10 ms: two in 20.
  for (int i = 0; i < 8; ++i) {
    for (const TargetOutput& output : target.TakeOutputs()) {
      if (const auto* fetch = std::get_if<StartFetch>(&output)) rig.fetches.push_back(*fetch);
    }
    rig.clock.Advance(absl::Milliseconds(10));
    target.FetchDone(rig.fetches.front().fetch_id, absl::OkStatus());
    rig.fetches.pop_front();
  }
  EXPECT_NEAR(target.LaneRate(kPeer, 0), 100.0 * kCellBytes, 5.0 * kCellBytes);
  EXPECT_LE(target.ledger().outstanding_bytes, 2 * kCellBytes);
}

TEST(TransferProtocolTest, TwoDecodeWorkersWithEqualEpochsDoNotMeet) {
  TransferRig rig;
  rig.source.LinkUp(101, "decode-1");
  const uint64_t epoch = rig.Begin(rig.Request(64));
  proto::TransferMessage other = rig.to_source.front();
  other.set_sender_incarnation(101);
  other.mutable_key()->set_request_id(99);
  rig.source.Receive(101, other);
  rig.Deliver();
  const EpochId mine = rig.Id(epoch);
  const EpochId theirs{.target_incarnation = 101, .epoch = epoch};
  rig.source.Accept(mine, {{0}});
  rig.source.Accept(theirs, {{1}});
  EXPECT_TRUE(rig.source.IsReadable(mine) && rig.source.IsReadable(theirs));
  rig.source.Fail(theirs, absl::ResourceExhaustedError("no room"));
  EXPECT_TRUE(rig.source.IsReadable(mine));
  EXPECT_FALSE(rig.source.IsReadable(theirs));
  EXPECT_FALSE(rig.readable.IsReadable({.target_incarnation = 101, .epoch = epoch}));
}

TEST(TransferProtocolTest, RequestsThatContradictThemselvesOpenNoEpoch) {
  TransferRig rig;
  TransferRequest request = rig.Request(65);
  request.target_pages.pop_back();
  EXPECT_EQ(rig.target.Begin(kPeer, request).status().message(), "a prompt of 65 tokens needs 2 target pages, got 1");
  request = rig.Request(65);
  request.num_prefix_tokens_held = 63;
  EXPECT_EQ(rig.target.Begin(kPeer, request).status().code(), absl::StatusCode::kInvalidArgument);
  request = rig.Request(65);
  request.generated_tokens = {1};
  request.num_choices = 2;
  EXPECT_EQ(rig.target.Begin(kPeer, request).status().code(), absl::StatusCode::kInvalidArgument);
  request = rig.Request(65);
  request.target_pages[1] = 12;
  EXPECT_EQ(rig.target.Begin(kPeer, request).status().message(), "target page 12 is not in the pool of 12");
  EXPECT_EQ(rig.target.Begin("elsewhere:1", rig.Request(65)).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(rig.to_source, IsEmpty());
  EXPECT_TRUE(rig.IsAtRest());
}

}  // namespace
}  // namespace tandem::kvtransfer
