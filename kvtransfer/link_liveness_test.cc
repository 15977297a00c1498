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

TEST(LinkLivenessTest, SuspectsAfterExactlyTheSilenceThatIsAllowed) {
  LinkLiveness liveness({.silence_max = absl::Milliseconds(750)}, kStart);
  EXPECT_TRUE(liveness.Check(kStart + absl::Milliseconds(749)).ok());
  EXPECT_EQ(liveness.Check(kStart + absl::Milliseconds(750)),
            absl::UnavailableError("no sign of life for 750ms, at most 750ms"));
}

TEST(LinkLivenessTest, AnyMessageIsASignOfLife) {
  LinkLiveness liveness({.silence_max = absl::Milliseconds(750)}, kStart);
  liveness.Heard(kStart + absl::Milliseconds(700));
  EXPECT_TRUE(liveness.Check(kStart + absl::Milliseconds(1449)).ok());
  EXPECT_FALSE(liveness.Check(kStart + absl::Milliseconds(1450)).ok());
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
