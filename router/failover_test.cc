// What becomes of a prompt whose workers fail: which failures are tried again, when, and where it ends.
#include "router/failover.h"

#include <optional>

#include "absl/strings/match.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace tandem::router {
namespace {

constexpr absl::Duration kWait = absl::Seconds(10);
constexpr absl::Duration kNow = absl::Seconds(100);
const absl::Status kGone = absl::UnavailableError("decode d0 is lost");
constexpr bool kMayBeBack = true;
constexpr bool kNobodyComes = false;
const absl::Status kNoPair = absl::UnavailableError("no usable pair");

TEST(FailoverTest, TheFirstFailureIsTriedAgainAtOnce) {
  for (const int64_t num_generated : {0, 7}) {
    for (const bool is_worker_lost : {false, true}) {
      Failover failover(kWait);
      const Failover::Decision decision = failover.OnFailure(kGone, is_worker_lost, num_generated, kNow);
      EXPECT_TRUE(decision.error.ok());
      EXPECT_EQ(decision.look_at, kNow);
    }
  }
}

TEST(FailoverTest, OnlyWhatIsTheWorkersFaultIsTriedAgain) {
  using Code = absl::StatusCode;
  for (const Code code : {Code::kUnavailable, Code::kAborted, Code::kDataLoss, Code::kInternal, Code::kUnknown}) {
    EXPECT_TRUE(Failover(kWait).OnFailure(absl::Status(code, "x"), false, 0, kNow).error.ok()) << code;
  }
  for (const Code code : {Code::kInvalidArgument, Code::kDeadlineExceeded, Code::kFailedPrecondition,
                          Code::kUnimplemented, Code::kCancelled, Code::kResourceExhausted}) {
    EXPECT_EQ(Failover(kWait).OnFailure(absl::Status(code, "x"), false, 0, kNow).error.code(), code);
  }
}

TEST(FailoverTest, AFullLineEndsANewRequestButNoStream) {
  const absl::Status full = absl::ResourceExhaustedError("requests in line: 48, at most 48");
  EXPECT_EQ(Failover(kWait).OnFailure(full, false, 0, kNow).error, full);
  EXPECT_TRUE(Failover(kWait).OnFailure(full, false, 1, kNow).error.ok());
}

TEST(FailoverTest, SwitchedOffEveryFailureIsTheClients) {
  EXPECT_EQ(Failover(std::nullopt).OnFailure(kGone, true, 5, kNow).error, kGone);
}

TEST(FailoverTest, ARequestThatLosesTwoWorkersWithoutATokenBetweenIsNotGivenToAThird) {
  Failover failover(kWait);
  EXPECT_TRUE(failover.OnFailure(kGone, true, 5, kNow).error.ok());
  const absl::Status error = failover.OnFailure(kGone, true, 5, kNow + absl::Seconds(1)).error;
  EXPECT_EQ(error.code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(absl::StrContains(error.message(), "2 workers")) << error;
  EXPECT_TRUE(absl::StrContains(error.message(), "decode d0 is lost")) << error;
}

TEST(FailoverTest, EveryTokenStartsTheCountAnew) {
  Failover failover(kWait);
  for (int64_t num_generated = 0; num_generated < 100; ++num_generated) {
    const Failover::Decision decision = failover.OnFailure(kGone, true, num_generated, kNow);
    EXPECT_TRUE(decision.error.ok());
    EXPECT_EQ(decision.look_at, kNow);
  }
  EXPECT_EQ(failover.num_failures(), 100);
}

TEST(FailoverTest, FailuresWithoutALossAreTriedLaterAndLaterAndEnd) {
  Failover failover(kWait);
  absl::Duration last = absl::ZeroDuration();
  for (int i = 1; i < Failover::kFailuresMax; ++i) {
    const Failover::Decision decision = failover.OnFailure(kGone, false, 5, kNow);
    ASSERT_TRUE(decision.error.ok()) << i;
    EXPECT_GE(decision.look_at - kNow, last * 2);
    EXPECT_EQ(decision.look_at == kNow, i == 1);
    last = decision.look_at - kNow;
  }
  const absl::Status error = failover.OnFailure(kGone, false, 5, kNow).error;
  EXPECT_EQ(error.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(absl::StrContains(error.message(), "decode d0 is lost")) << error;
}

TEST(FailoverTest, WhatHasGivenNothingDoesNotWaitForAPair) {
  Failover failover(kWait);
  ASSERT_TRUE(failover.OnFailure(kGone, true, 0, kNow).error.ok());
  EXPECT_EQ(failover.OnNoPair(kNoPair, kNobodyComes, kNow).error, kGone);
}

// The stream of the only worker broke: it is back within a moment, or lost.
TEST(FailoverTest, WhatHasGivenNothingWaitsForAWorkerThatMayBeBackAndForNoneElse) {
  for (const bool has_failed_before : {false, true}) {
    Failover failover(kWait);
    if (has_failed_before) {
      ASSERT_TRUE(failover.OnFailure(kGone, true, 0, kNow).error.ok());
    }
    const Failover::Decision first = failover.OnNoPair(kNoPair, kMayBeBack, kNow);
    ASSERT_TRUE(first.error.ok());
    EXPECT_EQ(first.look_at, kNow + Failover::kLookInterval);
    EXPECT_EQ(failover.OnNoPair(kNoPair, kNobodyComes, first.look_at).error, has_failed_before ? kGone : kNoPair);
  }
}

TEST(FailoverTest, TheWaitForAWorkerThatMayBeBackIsBounded) {
  Failover failover(kWait);
  absl::Duration now = kNow;
  Failover::Decision decision = failover.OnNoPair(kNoPair, kMayBeBack, now);
  while (decision.error.ok() && now < kNow + kWait) {
    now = decision.look_at;
    decision = failover.OnNoPair(kNoPair, kMayBeBack, now);
  }
  EXPECT_EQ(decision.error, kNoPair);
  EXPECT_GE(now - kNow, Failover::kReturnWaitMax);
  EXPECT_LE(now - kNow, Failover::kReturnWaitMax + Failover::kLookInterval);
}

TEST(FailoverTest, APromptTooLongForEveryPairWaitsForNobody) {
  Failover failover(kWait);
  const absl::Status too_long = absl::InvalidArgumentError("too long");
  EXPECT_EQ(failover.OnNoPair(too_long, kMayBeBack, kNow).error, too_long);
}

TEST(FailoverTest, AnAnswerThatHasBegunWaitsForAPairAndThenSaysBothReasons) {
  Failover failover(kWait);
  ASSERT_TRUE(failover.OnFailure(kGone, true, 3, kNow).error.ok());
  absl::Duration now = kNow;
  int num_looks = 0;
  for (;; ++num_looks) {
    const Failover::Decision decision = failover.OnNoPair(kNoPair, kNobodyComes, now);
    if (!decision.error.ok()) {
      EXPECT_EQ(decision.error.code(), absl::StatusCode::kUnavailable);
      EXPECT_TRUE(absl::StrContains(decision.error.message(), "decode d0 is lost")) << decision.error;
      EXPECT_TRUE(absl::StrContains(decision.error.message(), "no usable pair")) << decision.error;
      break;
    }
    ASSERT_GT(decision.look_at, now);
    now = decision.look_at;
  }
  EXPECT_GE(now - kNow, kWait);
  EXPECT_LE(now - kNow, kWait + Failover::kLookInterval);
}

// Other prompts went first for longer than the wait: it begins when this one may look.
TEST(FailoverTest, TheWaitForAPairCountsFromWhenItMayLook) {
  Failover failover(kWait);
  ASSERT_TRUE(failover.OnFailure(kGone, true, 3, kNow).error.ok());
  const absl::Duration turn = kNow + 2 * kWait;
  failover.LooksFrom(turn);
  EXPECT_TRUE(failover.OnNoPair(kNoPair, kNobodyComes, turn).error.ok());
  EXPECT_TRUE(failover.OnNoPair(kNoPair, kNobodyComes, turn + kWait - absl::Milliseconds(1)).error.ok());
  EXPECT_FALSE(failover.OnNoPair(kNoPair, kNobodyComes, turn + kWait).error.ok());
}

TEST(FailoverTest, AWaitOfZeroGoesOnOnlyWhereThereIsAPairAtOnce) {
  Failover failover(absl::ZeroDuration());
  ASSERT_TRUE(failover.OnFailure(kGone, true, 3, kNow).error.ok());
  EXPECT_FALSE(failover.OnNoPair(kNoPair, kNobodyComes, kNow).error.ok());
}

}  // namespace
}  // namespace tandem::router
