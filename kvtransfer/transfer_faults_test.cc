// What a transfer does when something breaks: each fault once, over real pools, with the exact order of what both sides
// then say. Lost messages: transfer_loss_test.cc. That no combination does harm: transfer_enumeration_test.cc.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvtransfer/transfer_rig.h"

namespace tandem::kvtransfer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Begun, accepted, computed and sampled; everything was said, nothing is fetched yet.
uint64_t BeginAndCompute(TransferRig& rig, int num_tokens = 64) {
  const uint64_t epoch = rig.Begin(rig.Request(num_tokens));
  rig.Deliver();
  rig.Accept(epoch);
  rig.Compute(epoch, 0, rig.options.num_layers, 0, kvcache::PagesForTokens(num_tokens));
  rig.Sample(epoch, 0, 42);
  rig.Deliver();
  rig.lines.clear();
  return epoch;
}

// ---- Sums ----

TEST(TransferFaultsTest, AWrongPageIsFetchedAgainByTheOtherLane) {
  TransferRig rig;
  const uint64_t epoch = BeginAndCompute(rig, 128);
  EXPECT_EQ(rig.fetches.front().lane, 0);
  rig.CompleteFetch(absl::OkStatus(), /*corrupts=*/true);  // one bit in one page of the piece
  ASSERT_FALSE(rig.fetches.empty());
  EXPECT_EQ(rig.fetches.back().lane, 1);
  rig.CompleteFetches();
  rig.Deliver();
  EXPECT_TRUE(rig.HoldsPrompt(epoch));
  EXPECT_THAT(rig.lines, ElementsAre(HasSubstr("wrong sum: layer 0 page "), "ready 1", "end 1 OK", "closed 1"));
  EXPECT_EQ(rig.target.counters().wrong_sums, rig.target.counters().refetched_pages);
  EXPECT_GE(rig.target.counters().refetched_pages, 1);
  EXPECT_LE(rig.target.counters().refetched_pages, 2);  // not the whole prompt
  EXPECT_TRUE(rig.IsAtRest());
}

TEST(TransferFaultsTest, APageThatIsWrongTwiceIsDataLossThatNamesItsPlace) {
  TransferRig rig({.num_layers = 1});
  BeginAndCompute(rig);
  rig.CompleteFetch(absl::OkStatus(), /*corrupts=*/true);
  rig.CompleteFetch(absl::OkStatus(), /*corrupts=*/true);
  const std::string place = "layer 0 page 0 of rank 0 by lane lane";
  EXPECT_THAT(rig.lines, ElementsAre("wrong sum: " + place + "0",
                                     "failed 1 DATA_LOSS: the sum is wrong after the refetch of " + place + "1",
                                     "wrong sum: " + place + "1", "released 1"));
  ASSERT_THAT(rig.to_source, SizeIs(1));
  EXPECT_EQ(rig.to_source.front().abort().lane(), "lane1");
  EXPECT_EQ(rig.to_source.front().abort().rank(), 0u);
  rig.Deliver();
  EXPECT_EQ(rig.lines.back(), "closed 1");
  EXPECT_TRUE(rig.IsAtRest());
}

TEST(TransferFaultsTest, PagesThatPrefillOverwroteAreNeverReady) {
  TransferRig rig({.num_layers = 1});
  BeginAndCompute(rig);
  std::span<std::byte> page = rig.source_pools[0].pool().Page(kvcache::RecordKind::kLatent, 0, 0);
  page[17] ^= std::byte{4};  // another tenant writes before the fetch
  rig.CompleteFetches();
  EXPECT_THAT(rig.lines, testing::Contains(HasSubstr("failed 1 DATA_LOSS")));
}

TEST(TransferFaultsTest, ALaneWithTwoWrongSumsInAMinuteIsQuarantinedForAMinute) {
  TransferRig rig({.num_layers = 1, .num_lanes = 1});
  for (int i = 0; i < 2; ++i) {
    BeginAndCompute(rig);
    rig.CompleteFetch(absl::OkStatus(), /*corrupts=*/true);
    rig.CompleteFetches();
    rig.Deliver();
    rig.Advance(absl::Seconds(30));
  }
  EXPECT_THAT(rig.lines, testing::Contains("quarantined lane 0"));
  EXPECT_EQ(rig.target.Begin(kPeer, rig.Request(64)).status().message(),
            "prefill prefill:8998 has no lane that may be used");
  rig.Advance(absl::Seconds(31));
  EXPECT_TRUE(rig.target.Begin(kPeer, rig.Request(64)).ok());
}

TEST(TransferFaultsTest, WrongSumsFarApartQuarantineNothing) {
  TransferRig rig({.num_layers = 1, .num_lanes = 1});
  for (int i = 0; i < 3; ++i) {
    BeginAndCompute(rig);
    rig.CompleteFetch(absl::OkStatus(), /*corrupts=*/true);
    rig.CompleteFetches();
    rig.Deliver();
    EXPECT_THAT(rig.lines, testing::Not(testing::Contains("quarantined lane 0")));
    rig.Advance(absl::Seconds(61));
  }
}

// ---- Lanes ----

TEST(TransferFaultsTest, AFetchThatFailsIsTriedOnceOnAnotherLane) {
  TransferRig rig({.num_layers = 1});
  const uint64_t epoch = BeginAndCompute(rig);
  rig.CompleteFetch(absl::UnavailableError("lane broke"));
  ASSERT_THAT(rig.fetches, SizeIs(1));
  EXPECT_EQ(rig.fetches.front().lane, 1);
  rig.CompleteFetches();
  rig.Deliver();
  EXPECT_TRUE(rig.HoldsPrompt(epoch));
  EXPECT_TRUE(rig.IsAtRest());
}

TEST(TransferFaultsTest, AFetchThatFailsOnBothLanesFailsTheTransfer) {
  TransferRig rig({.num_layers = 1});
  BeginAndCompute(rig);
  rig.CompleteFetch(absl::UnavailableError("lane broke"));
  rig.CompleteFetch(absl::UnavailableError("so did this"));
  EXPECT_THAT(rig.lines,
              ElementsAre("failed 1 UNAVAILABLE: lane lane1 to prefill rank 0 failed: so did this", "released 1"));
}

TEST(TransferFaultsTest, ALaneThatSaysThatTheEpochIsGoneIsBelieved) {
  TransferRig rig({.num_layers = 1});
  BeginAndCompute(rig);
  rig.CompleteFetch(absl::AbortedError("epoch 1 is not readable"));
  EXPECT_THAT(rig.lines.front(), HasSubstr("failed 1 ABORTED"));
}

TEST(TransferFaultsTest, LanesThatHangTakeThePeerDown) {
  TransferRig rig({.num_layers = 1});
  BeginAndCompute(rig);
  rig.Advance(absl::Milliseconds(3999));
  EXPECT_THAT(rig.lines, IsEmpty());
  rig.Advance(absl::Milliseconds(1));
  EXPECT_THAT(rig.lines, ElementsAre("failed 1 UNAVAILABLE: prefill prefill:8998: no fetch has completed for 4s",
                                     "reset session 1"));
  EXPECT_FALSE(rig.target.IsUp(kPeer));
  EXPECT_EQ(rig.target.ledger().held_pages, 1);  // the fetch may still store
  rig.CompleteFetch(absl::CancelledError("lane closed"));
  EXPECT_EQ(rig.lines.back(), "closed 1");
  EXPECT_EQ(rig.target.ledger(), TargetLedger{});
}

TEST(TransferFaultsTest, APeerWithoutAnyLaneIsUpAndOfNoUse) {
  TransferRig rig({.num_lanes = 0});
  EXPECT_TRUE(rig.target.IsUp(kPeer));
  EXPECT_EQ(rig.target.Begin(kPeer, rig.Request(64)).status().code(), absl::StatusCode::kUnavailable);
  rig.Advance(absl::Seconds(10));
  EXPECT_TRUE(rig.IsAtRest());
}

// ---- Aborts ----

TEST(TransferFaultsTest, PagesAreReleasedOnlyWhenNoFetchIsOutstanding) {
  TransferRig rig({.num_layers = 2});
  const uint64_t epoch = BeginAndCompute(rig);
  ASSERT_THAT(rig.fetches, SizeIs(2));
  rig.target.Abort(epoch, absl::CancelledError("client left"));
  rig.target.Abort(epoch, absl::CancelledError("client left"));
  rig.Drain();
  EXPECT_THAT(rig.lines, ElementsAre("cancel fetches of 1"));
  rig.Deliver();
  EXPECT_THAT(rig.lines, ElementsAre("cancel fetches of 1", "end 1 CANCELLED: client left"));
  rig.CompleteFetch(absl::CancelledError("cancelled"));
  EXPECT_THAT(rig.lines, SizeIs(2));
  rig.CompleteFetch();
  EXPECT_THAT(rig.lines, ElementsAre("cancel fetches of 1", "end 1 CANCELLED: client left", "released 1", "closed 1"));
  EXPECT_TRUE(rig.IsAtRest());
}

TEST(TransferFaultsTest, AnAbortByPrefillIsAcknowledgedOnlyWhenNoFetchIsOutstanding) {
  TransferRig rig({.num_layers = 1});
  const uint64_t epoch = BeginAndCompute(rig);
  rig.source.Fail(rig.Id(epoch), absl::ResourceExhaustedError("evicted"));
  rig.Drain();
  rig.Deliver();
  EXPECT_THAT(rig.lines, ElementsAre("end 1 RESOURCE_EXHAUSTED: evicted", "failed 1 RESOURCE_EXHAUSTED: evicted",
                                     "cancel fetches of 1"));
  EXPECT_EQ(rig.source.ledger().open_epochs, 1);
  EXPECT_EQ(rig.source.ledger().pinned_pages, 0);
  rig.CompleteFetch();
  EXPECT_THAT(rig.to_source, SizeIs(1));
  EXPECT_EQ(NameOf(rig.to_source.front()), "abort_ack");
  rig.Deliver();
  EXPECT_TRUE(rig.IsAtRest());
}

TEST(TransferFaultsTest, AnAbortThatOvertakesItsStartLeavesATombstone) {
  TransferRig rig;
  const uint64_t epoch = rig.Begin(rig.Request(64));
  rig.target.Abort(epoch, absl::CancelledError("client left"));
  rig.Drain();
  ASSERT_THAT(rig.to_source, SizeIs(2));
  std::swap(rig.to_source[0], rig.to_source[1]);
  rig.Deliver();
  EXPECT_THAT(rig.lines, ElementsAre("released 1", "closed 1"));  // prefill's engine never heard of it
  EXPECT_EQ(rig.source.counters().refused_starts, 1);
  EXPECT_TRUE(rig.IsAtRest());
}

TEST(TransferFaultsTest, AnAbortAfterTheEndChangesNothing) {
  TransferRig rig;
  const uint64_t epoch = BeginAndCompute(rig);
  rig.CompleteFetches();
  rig.target.Abort(epoch, absl::CancelledError("too late"));
  rig.Drain();
  rig.Deliver();
  EXPECT_THAT(rig.lines, ElementsAre("ready 1", "end 1 OK", "closed 1"));
  rig.target.Abort(epoch, absl::CancelledError("much too late"));
  rig.source.Fail(rig.Id(epoch), absl::InternalError("much too late"));
  rig.Drain();
  EXPECT_TRUE(rig.IsAtRest());
}

TEST(TransferFaultsTest, PrefillRefusesWithItsOwnReason) {
  TransferRig rig;
  const uint64_t epoch = rig.Begin(rig.Request(64));
  rig.Deliver();
  rig.source.Fail(rig.Id(epoch), absl::ResourceExhaustedError("prompt needs 1 page, the pool has 0"));
  rig.Drain();
  rig.Deliver();
  EXPECT_THAT(rig.lines, testing::Contains("failed 1 RESOURCE_EXHAUSTED: prompt needs 1 page, the pool has 0"));
  EXPECT_TRUE(rig.IsAtRest());
}

// ---- Deaths ----

TEST(TransferFaultsTest, ADeadPrefillFailsItsTransfersAtOnce) {
  TransferRig rig({.num_layers = 1});
  BeginAndCompute(rig);
  rig.target.PeerDown(kPeer, absl::UnavailableError("no sign of life for 750ms"));
  rig.Drain();
  EXPECT_THAT(rig.lines, ElementsAre("failed 1 UNAVAILABLE: prefill prefill:8998: no sign of life for 750ms"));
  rig.CompleteFetch(absl::CancelledError("lane closed"));
  EXPECT_THAT(rig.lines, testing::ElementsAre(testing::_, "released 1", "closed 1"));
  EXPECT_THAT(rig.to_source, IsEmpty());
}

TEST(TransferFaultsTest, MessagesOfAnEarlierIncarnationAreIgnoredAndCounted) {
  TransferRig rig;
  rig.Begin(rig.Request(64));
  rig.Deliver();
  rig.Accept(1);
  const proto::TransferMessage stale = rig.to_target.front();
  rig.target.PeerUp(kPeer, {.incarnation = kPrefill + 1, .session = 2, .num_pages = 16, .lanes = {{.kind = "lane0"}}});
  rig.Drain();
  EXPECT_THAT(rig.lines, ElementsAre("admit 1", HasSubstr("failed 1 UNAVAILABLE"), "released 1", "closed 1"));
  rig.target.Receive(kPeer, stale);
  rig.Drain();
  EXPECT_EQ(rig.target.counters().stale_messages, 1);
  EXPECT_THAT(rig.to_source, IsEmpty());
}

TEST(TransferFaultsTest, MessagesForAnEarlierIncarnationOfDecodeAreIgnoredAndCounted) {
  TransferRig rig;
  rig.Begin(rig.Request(64));
  rig.Deliver();
  rig.Accept(1);
  rig.Compute(1, 0, 2, 0, 1);
  for (proto::TransferMessage& message : rig.to_target) message.set_receiver_incarnation(kDecode - 1);
  const auto num_messages = static_cast<int64_t>(rig.to_target.size());
  rig.Deliver();
  EXPECT_EQ(rig.target.counters().stale_messages, num_messages);
  EXPECT_THAT(rig.fetches, IsEmpty());
}

TEST(TransferFaultsTest, PagesOfADecodeThatIsGoneAreKeptForItsLease) {
  TransferRig rig({.lease = absl::Seconds(2)});
  BeginAndCompute(rig);
  rig.source.LinkDown(kDecode);
  EXPECT_EQ(rig.source.ledger().lapsing_leases, 1);
  rig.Advance(absl::Milliseconds(1999));
  EXPECT_TRUE(rig.source.IsReadable(rig.Id(1)));
  rig.Advance(absl::Milliseconds(1));
  EXPECT_FALSE(rig.source.IsReadable(rig.Id(1)));
  EXPECT_EQ(rig.readable.size(), 0u);
  EXPECT_EQ(rig.lines.back(), "end 1 UNAVAILABLE: decode decode-0 has been gone for 2s");
  EXPECT_EQ(rig.source.ledger(), SourceLedger{});
  EXPECT_EQ(rig.source.counters().leases_lapsed, 1);
}

TEST(TransferFaultsTest, ARestartedDecodeFreesWhatItsPredecessorHeldAtOnce) {
  TransferRig rig;
  BeginAndCompute(rig);
  rig.source.LinkUp(kDecode + 1, "decode-0");
  rig.Drain();
  EXPECT_EQ(rig.lines.back(), "end 1 UNAVAILABLE: decode decode-0 has restarted");
  EXPECT_EQ(rig.source.ledger(), SourceLedger{});
}

TEST(TransferFaultsTest, AStartForAnEarlierPrefillIsRefusedAtOnce) {
  TransferRig rig;
  rig.Begin(rig.Request(64));
  rig.to_source.front().set_receiver_incarnation(kPrefill - 1);
  rig.Deliver();
  EXPECT_THAT(rig.lines, ElementsAre("failed 1 ABORTED: prefill has restarted", "released 1", "closed 1"));
}

// ---- Attempts ----

TEST(TransferFaultsTest, ALaterAttemptSupersedesAndAnEarlierOneIsRefused) {
  TransferRig rig;
  TransferRequest request = rig.Request(64);
  request.key.set_attempt(1);
  rig.Begin(request);
  rig.Deliver();
  request.key.set_attempt(2);
  request.target_pages = {5};
  rig.Begin(request);
  rig.Deliver();
  EXPECT_THAT(rig.lines, ElementsAre("admit 1", "end 1 ABORTED: superseded by attempt 2", "admit 2",
                                     "failed 1 ABORTED: superseded by attempt 2", "released 1", "closed 1"));
  rig.lines.clear();
  request.key.set_attempt(1);
  request.target_pages = {7};
  rig.Begin(request);
  rig.Deliver();
  EXPECT_THAT(rig.lines,
              ElementsAre("failed 3 ABORTED: attempt 1 is stale: attempt 2 is under way", "released 3", "closed 3"));
}

// ---- Time and losses ----

TEST(TransferFaultsTest, TheDeadlineEndsBothSides) {
  TransferRig rig;
  TransferRequest request = rig.Request(64);
  request.remaining_time = absl::Milliseconds(300);
  rig.Begin(request);
  rig.Deliver();
  rig.Accept(1);
  rig.Deliver();
  rig.Advance(absl::Milliseconds(299));
  EXPECT_THAT(rig.lines, ElementsAre("admit 1"));
  rig.Advance(absl::Milliseconds(1));
  rig.Deliver();
  EXPECT_THAT(rig.lines, ElementsAre("admit 1", HasSubstr("failed 1 DEADLINE_EXCEEDED"), "released 1",
                                     HasSubstr("end 1 DEADLINE_EXCEEDED"), "closed 1"));
  EXPECT_TRUE(rig.IsAtRest());
}

TEST(TransferFaultsTest, ALostPartOfStartIsNoticedWithinARepeatInterval) {
  TransferRig rig({.num_layers = 1, .num_source_pages = 1000, .num_target_pages = 2000});
  rig.Begin(rig.Request(60'000));
  rig.to_source.erase(rig.to_source.begin() + 1);
  rig.Deliver();
  EXPECT_THAT(rig.lines, IsEmpty());
  rig.Advance(absl::Seconds(1));
  rig.Deliver();
  EXPECT_THAT(rig.lines, ElementsAre("failed 1 ABORTED: a part of start was lost", "released 1", "closed 1"));
  EXPECT_TRUE(rig.IsAtRest());
}

TEST(TransferFaultsTest, ALostDoneIsSaidAgain) {
  TransferRig rig;
  BeginAndCompute(rig);
  rig.CompleteFetches();
  rig.to_source.clear();
  rig.Advance(absl::Seconds(1));
  rig.Deliver();
  EXPECT_TRUE(rig.IsAtRest());
}

TEST(TransferFaultsTest, OfManyRepeatsThatFindTheEngineBusyOneIsAnswered) {
  TransferRig rig;
  rig.Begin(rig.Request(64));
  rig.Deliver();
  rig.Accept(1);
  rig.to_target.clear();  // Accepted is lost, and prefill computes one long step
  for (int second = 0; second < 30; ++second) rig.Advance(absl::Seconds(1));
  EXPECT_THAT(rig.to_source, SizeIs(30));
  while (!rig.to_source.empty()) {
    rig.source.Receive(kDecode, rig.to_source.front());
    rig.to_source.pop_front();
  }
  rig.Drain();
  EXPECT_THAT(rig.to_target, SizeIs(1));
  EXPECT_EQ(NameOf(rig.to_target.front()), "accepted");
}

// ---- A peer that talks nonsense ----

TEST(TransferFaultsTest, NonsenseFromPrefillFailsItsEpochAndNothingElse) {
  const auto outcome_of = [](auto&& spoil) {
    TransferRig rig;
    const uint64_t epoch = rig.Begin(rig.Request(64));
    rig.Deliver();
    proto::TransferMessage message;
    message.set_sender_incarnation(kPrefill);
    message.set_receiver_incarnation(kDecode);
    message.set_epoch(epoch);
    *message.mutable_key() = rig.Request(64).key;
    spoil(message);
    rig.lines.clear();
    rig.target.Receive(kPeer, message);
    rig.Drain();
    EXPECT_THAT(rig.fetches, IsEmpty());
    return rig.lines.empty() ? std::string("nothing") : rig.lines.front();
  };
  EXPECT_EQ(outcome_of([](auto& m) { m.mutable_accepted()->add_source_pages(16); }),
            "failed 1 INTERNAL: source page 16 is not in prefill's pool of 16");
  EXPECT_EQ(outcome_of([](auto& m) {
              m.mutable_accepted()->add_source_pages(1);
              m.mutable_accepted()->add_source_pages(2);
            }),
            "failed 1 INTERNAL: prefill accepted with 2 pages, the prompt has 1");
  EXPECT_EQ(outcome_of([](auto& m) {
              m.mutable_accepted()->set_source_rank(1);
              m.mutable_accepted()->add_source_pages(1);
            }),
            "failed 1 INTERNAL: source rank 1 of 1");
  EXPECT_EQ(outcome_of([](auto& m) {
              m.mutable_announce()->set_layer_end(3);
              m.mutable_announce()->set_page_end(1);
            }),
            "failed 1 INTERNAL: prefill rank 0 named layers [0, 3) and pages [0, 1) of 2 layers and 1 pages");
  EXPECT_EQ(outcome_of([](auto& m) {
              m.mutable_announce()->set_layer_end(2);
              m.mutable_announce()->set_page_end(0x80000000);
            }),
            "failed 1 INTERNAL: prefill rank 0 named layers [0, 2) and pages [0, -2147483648) of 2 layers and 1 pages");
  EXPECT_EQ(outcome_of([](auto& m) { m.mutable_first_token()->set_choice(1); }),
            "failed 1 INTERNAL: prefill sampled choice 1 of 1");
  EXPECT_EQ(outcome_of([](auto& m) {
              m.mutable_source_sums()->set_layer_end(1);
              m.mutable_source_sums()->set_page_end(1);
              m.mutable_source_sums()->add_latent_sums(1);
            }),
            "failed 1 INTERNAL: prefill sent 1 and 0 sums for 1 pages");
  EXPECT_EQ(outcome_of([](auto& m) { m.mutable_start(); }), "failed 1 INTERNAL: prefill sent a message of type 10");
  EXPECT_EQ(outcome_of([](auto& m) {
              m.mutable_abort();
              m.mutable_key()->set_request_id(99);  // ids match exactly
            }),
            "nothing");
}

TEST(TransferFaultsTest, NonsenseFromDecodeIsRefused) {
  const auto outcome_of = [](auto&& spoil) {
    TransferRig rig;
    rig.Begin(rig.Request(64));
    spoil(*rig.to_source.front().mutable_start());
    rig.Deliver();
    return rig.lines.empty() ? std::string("nothing") : rig.lines.front();
  };
  EXPECT_EQ(outcome_of([](proto::Start& start) { start.set_num_tokens(65); }),
            "failed 1 INVALID_ARGUMENT: start promised 65 prompt tokens and brought 64");
  EXPECT_EQ(outcome_of([](proto::Start& start) { start.set_num_tokens(63); }),
            "failed 1 INVALID_ARGUMENT: start promised 63 prompt tokens and brought 64");
  EXPECT_EQ(outcome_of([](proto::Start& start) { start.set_num_tokens(0xffffffff); }),
            "failed 1 INVALID_ARGUMENT: prompt of 4294967295 tokens, at most 1048576");
  EXPECT_EQ(outcome_of([](proto::Start& start) { start.set_num_prefix_tokens_held(128); }),
            "failed 1 INVALID_ARGUMENT: held prefix of 128 tokens is not whole pages of a prompt of 64");
  EXPECT_THAT(outcome_of([](proto::Start& start) { start.set_num_prefix_tokens_held(0x80000000); }),
              HasSubstr("INVALID_ARGUMENT: held prefix of -2147483648 tokens"));
  EXPECT_EQ(outcome_of([](proto::Start& start) {
              start.add_generated_tokens(1);
              start.set_num_choices(2);
            }),
            "failed 1 INVALID_ARGUMENT: generated tokens belong to one choice, got 2");
}

}  // namespace
}  // namespace tandem::kvtransfer
