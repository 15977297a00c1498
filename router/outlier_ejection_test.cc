// Proves when a worker is ejected and for how long, that one request at a time tries it afterwards, and, over random
// histories, that nothing else ever ejects.
#include "router/outlier_ejection.h"

#include <random>

#include "gtest/gtest.h"

namespace tandem::router {
namespace {

using Outcome = OutlierEjection::Outcome;
constexpr absl::Duration kStart = absl::Hours(10);
constexpr int kMax = OutlierEjection::kFailuresMax;

// True where the last of the failures, all at one time, ejects.
bool Fail(OutlierEjection& worker, int count, absl::Duration now) {
  bool ejects = false;
  for (int i = 0; i < count; ++i) ejects = worker.OnEnd(Outcome::kFailure, /*is_trial=*/false, now);
  return ejects;
}

TEST(OutlierEjectionTest, FailuresInARowEject) {
  OutlierEjection worker;
  EXPECT_FALSE(Fail(worker, kMax - 1, kStart));
  EXPECT_FALSE(worker.is_out(kStart));
  EXPECT_TRUE(Fail(worker, 1, kStart));
  EXPECT_TRUE(worker.is_out(kStart));
  EXPECT_TRUE(worker.is_out(kStart + OutlierEjection::kTimeMin - absl::Nanoseconds(1)));
  EXPECT_FALSE(worker.is_out(kStart + OutlierEjection::kTimeMin));
}

TEST(OutlierEjectionTest, ASuccessBetweenStartsTheCountAnewAndNothingDoesNot) {
  OutlierEjection worker;
  for (int round = 0; round < 20; ++round) {
    EXPECT_FALSE(Fail(worker, kMax - 1, kStart));
    worker.OnEnd(Outcome::kSuccess, false, kStart);
  }
  EXPECT_FALSE(Fail(worker, kMax - 1, kStart));
  worker.OnEnd(Outcome::kNothing, false, kStart);
  EXPECT_TRUE(Fail(worker, 1, kStart));
}

TEST(OutlierEjectionTest, OneRequestAtATimeTriesAnEjectedWorkerAndDecides) {
  OutlierEjection worker;
  ASSERT_TRUE(Fail(worker, kMax, kStart));
  absl::Duration now = kStart + OutlierEjection::kTimeMin;
  ASSERT_TRUE(worker.OnStart(now));
  EXPECT_TRUE(worker.is_out(now)) << "the trial runs: nobody else";
  EXPECT_FALSE(worker.OnStart(now)) << "one trial at a time";
  worker.OnEnd(Outcome::kNothing, true, now);
  EXPECT_FALSE(worker.is_out(now)) << "its client left: the next may try";
  ASSERT_TRUE(worker.OnStart(now));
  EXPECT_TRUE(worker.OnEnd(Outcome::kFailure, true, now)) << "a failure on trial ejects at once";
  EXPECT_EQ(worker.time(), 2 * OutlierEjection::kTimeMin);
  now += worker.time();
  ASSERT_TRUE(worker.OnStart(now));
  worker.OnEnd(Outcome::kSuccess, true, now);
  EXPECT_FALSE(worker.OnStart(now));
  EXPECT_FALSE(worker.is_out(now)) << "in service again, for everybody";
  EXPECT_FALSE(Fail(worker, kMax - 1, now)) << "and its failures are counted from none";
}

TEST(OutlierEjectionTest, EachEjectionLastsTwiceAsLongUpToALimitAndGoodServiceIsRemembered) {
  OutlierEjection worker;
  absl::Duration now = kStart, expected = OutlierEjection::kTimeMin;
  ASSERT_TRUE(Fail(worker, kMax, now));
  for (int round = 0; round < 20; ++round) {
    EXPECT_EQ(worker.time(), expected) << round;
    now += worker.time();
    ASSERT_TRUE(worker.OnStart(now));
    ASSERT_TRUE(worker.OnEnd(Outcome::kFailure, true, now));
    expected = std::min(expected * 2, OutlierEjection::kTimeMax);
  }
  now += worker.time() + OutlierEjection::kForgetAfter + absl::Seconds(1);
  ASSERT_TRUE(worker.OnStart(now));
  worker.OnEnd(Outcome::kSuccess, true, now);
  ASSERT_TRUE(Fail(worker, kMax, now));
  EXPECT_EQ(worker.time(), OutlierEjection::kTimeMin);
}

TEST(OutlierEjectionTest, WhatBeganBeforeAnEjectionSaysNothingAfterIt) {
  OutlierEjection worker;
  ASSERT_TRUE(Fail(worker, kMax, kStart));
  worker.OnEnd(Outcome::kSuccess, false, kStart);
  EXPECT_TRUE(worker.is_out(kStart));
  EXPECT_FALSE(Fail(worker, 100, kStart));
  const absl::Duration over = kStart + OutlierEjection::kTimeMin;
  EXPECT_FALSE(worker.is_out(over)) << "they do not make it longer";
  ASSERT_TRUE(worker.OnStart(over));
  EXPECT_FALSE(Fail(worker, 1, over));
  worker.OnEnd(Outcome::kSuccess, false, over);
  EXPECT_TRUE(worker.is_out(over)) << "the trial still runs";
}

TEST(OutlierEjectionTest, NothingEjectsButARunOfFailuresOrAFailedTrialAndForNoLongerThanTheLimit) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    OutlierEjection worker;
    absl::Duration now = kStart;
    int failures_in_a_row = 0, trials = 0;
    for (int step = 0; step < 500; ++step) {
      now += absl::Milliseconds(random() % 2000);
      if (random() % 2 == 0) {
        if (!worker.is_out(now) && worker.OnStart(now)) ++trials;
        ASSERT_LE(trials, 1);
        continue;
      }
      const bool is_trial = trials == 1 && random() % 2 == 0;
      const Outcome outcome = static_cast<Outcome>(random() % 3);
      if (is_trial) trials = 0;
      failures_in_a_row = outcome == Outcome::kFailure   ? failures_in_a_row + 1
                          : outcome == Outcome::kSuccess ? 0
                                                         : failures_in_a_row;
      if (!worker.OnEnd(outcome, is_trial, now)) continue;
      EXPECT_EQ(outcome, Outcome::kFailure);
      EXPECT_TRUE(is_trial || failures_in_a_row >= kMax) << "seed " << seed << ", step " << step;
      EXPECT_TRUE(worker.is_out(now));
      EXPECT_FALSE(worker.is_out(now + OutlierEjection::kTimeMax));
    }
  }
}

}  // namespace
}  // namespace tandem::router
