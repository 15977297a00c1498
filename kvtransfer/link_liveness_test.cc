#include "kvtransfer/link_liveness.h"

#include "gtest/gtest.h"

namespace tandem::kvtransfer {
namespace {

constexpr absl::Duration kStart = absl::Seconds(5);

proto::PeerHeartbeat Beat(uint64_t steps, absl::Duration oldest_work_age) {
  proto::PeerHeartbeat heartbeat;
  heartbeat.set_engine_steps(steps);
  heartbeat.set_oldest_work_age_us(absl::ToInt64Microseconds(oldest_work_age));
  return heartbeat;
}

// Looks every 50 ms, as links do, from `begin` to `end`; the first suspicion.
absl::Status LookUntil(LinkLiveness& liveness, absl::Duration begin, absl::Duration end) {
  for (absl::Duration now = begin; now < end; now += absl::Milliseconds(50)) {
    if (const absl::Status status = liveness.Check(now); !status.ok()) return status;
  }
  return liveness.Check(end);
}

TEST(LinkLivenessTest, SuspectsAfterExactlyTheSilenceThatIsAllowed) {
  LinkLiveness liveness({.silence_max = absl::Milliseconds(750)}, kStart);
  EXPECT_TRUE(LookUntil(liveness, kStart, kStart + absl::Milliseconds(749)).ok());
  EXPECT_EQ(liveness.NextDue(), kStart);  // its heartbeat was never sent
  EXPECT_EQ(liveness.Check(kStart + absl::Milliseconds(750)),
            absl::UnavailableError("no sign of life for 750ms, at most 750ms"));
}

TEST(LinkLivenessTest, AnyMessageIsASignOfLife) {
  LinkLiveness liveness({.silence_max = absl::Milliseconds(750)}, kStart);
  EXPECT_TRUE(LookUntil(liveness, kStart, kStart + absl::Milliseconds(700)).ok());
  liveness.Heard(kStart + absl::Milliseconds(720));
  EXPECT_TRUE(LookUntil(liveness, kStart + absl::Milliseconds(720), kStart + absl::Milliseconds(1469)).ok());
  EXPECT_FALSE(liveness.Check(kStart + absl::Milliseconds(1470)).ok());
}

TEST(LinkLivenessTest, AStallOfThisSideIsNotThePeersSilence) {
  LinkLiveness liveness({.silence_max = absl::Milliseconds(750), .look_max = absl::Milliseconds(200)}, kStart);
  const absl::Duration woken = kStart + absl::Seconds(10);  // stopped and resumed
  EXPECT_TRUE(liveness.Check(woken).ok());
  EXPECT_TRUE(LookUntil(liveness, woken, woken + absl::Milliseconds(549)).ok());
  EXPECT_FALSE(liveness.Check(woken + absl::Milliseconds(550)).ok());
}

TEST(LinkLivenessTest, BeatsAtOnceAndThenAtEachInterval) {
  LinkLiveness liveness({.heartbeat_interval = absl::Milliseconds(250)}, kStart);
  EXPECT_TRUE(liveness.IsHeartbeatDue(kStart));
  const proto::PeerHeartbeat first =
      liveness.NextHeartbeat(kStart, {.steps = 9, .oldest_work_age = absl::Milliseconds(3)});
  EXPECT_EQ(first.sequence(), 1u);
  EXPECT_EQ(first.engine_steps(), 9u);
  EXPECT_EQ(first.oldest_work_age_us(), 3000u);
  EXPECT_FALSE(liveness.IsHeartbeatDue(kStart + absl::Milliseconds(249)));
  EXPECT_TRUE(liveness.IsHeartbeatDue(kStart + absl::Milliseconds(250)));
  EXPECT_EQ(liveness.NextDue(), kStart + absl::Milliseconds(250));
  EXPECT_EQ(liveness.NextHeartbeat(kStart + absl::Milliseconds(250), {}).sequence(), 2u);
}

// Heartbeats go on arriving in all of these: only the engine behind them is in doubt.
absl::Status CheckAfterTenSeconds(bool makes_steps, absl::Duration work_age_growth) {
  LinkLiveness liveness({.engine_stall_max = absl::Seconds(8)}, kStart);
  for (int i = 1; i <= 100; ++i) {
    const absl::Duration now = kStart + i * absl::Milliseconds(100);
    liveness.HeardHeartbeat(now, Beat(makes_steps ? i : 7, i * work_age_growth));
  }
  return liveness.Check(kStart + absl::Seconds(10));
}

TEST(LinkLivenessTest, SuspectsAnEngineThatMakesNoStepAlthoughWorkWaits) {
  EXPECT_FALSE(CheckAfterTenSeconds(/*makes_steps=*/false, absl::Milliseconds(100)).ok());
  EXPECT_TRUE(CheckAfterTenSeconds(/*makes_steps=*/true, absl::Milliseconds(100)).ok());  // busy
  EXPECT_TRUE(CheckAfterTenSeconds(/*makes_steps=*/false, absl::ZeroDuration()).ok());    // idle
  EXPECT_TRUE(CheckAfterTenSeconds(/*makes_steps=*/false, absl::Milliseconds(50)).ok());  // not for long enough
}

TEST(BackoffTest, DoublesUpToItsLimitAndStartsAnewAfterAReset) {
  Backoff backoff(absl::Milliseconds(100), absl::Seconds(1));
  for (const int wait : {100, 200, 400, 800, 1000, 1000}) EXPECT_EQ(backoff.Next(), absl::Milliseconds(wait));
  backoff.Reset();
  EXPECT_EQ(backoff.Next(), absl::Milliseconds(100));
}

}  // namespace
}  // namespace tandem::kvtransfer
