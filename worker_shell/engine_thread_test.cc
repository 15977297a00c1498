// Proves the loop's promises with an engine that only counts: order, wake-ups, refusal, a last step at the end.
#include "worker_shell/engine_thread.h"

#include <memory>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::worker_shell {
namespace {

using ::testing::ElementsAre;

struct CountingEngine {
  void Step() { ++num_steps; }
  absl::Duration NextWake() const { return next_wake; }

  std::vector<int> inputs;
  int num_steps = 0;
  absl::Duration next_wake = absl::InfiniteDuration();
};

TEST(EngineThreadTest, MessagesRunInOrderAndEachIsFollowedByAStep) {
  CountingEngine engine;
  EngineThread<CountingEngine> thread(engine, base::RealClock(), 8, [](const CountingEngine&) {});
  thread.Start();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(thread.Post([i](CountingEngine& e) { e.inputs.push_back(i); }));
  }
  thread.PostReserved([](CountingEngine& e) { e.inputs.push_back(3); });
  thread.Stop();
  EXPECT_THAT(engine.inputs, ElementsAre(0, 1, 2, 3));
  EXPECT_GE(engine.num_steps, 1);
}

TEST(EngineThreadTest, AnEngineWithWorkStepsWithoutInput) {
  CountingEngine engine;
  engine.next_wake = absl::ZeroDuration();
  absl::Notification enough;
  EngineThread<CountingEngine> thread(engine, base::RealClock(), 8, [&](const CountingEngine& e) {
    if (e.num_steps == 100) enough.Notify();
  });
  thread.Start();
  EXPECT_TRUE(enough.WaitForNotificationWithTimeout(absl::Minutes(2)));
}

TEST(EngineThreadTest, AFullMailboxRefusesWorkButNotReleases) {
  CountingEngine engine;
  EngineThread<CountingEngine> thread(engine, base::RealClock(), 1, [](const CountingEngine&) {});
  ASSERT_TRUE(thread.Post([](CountingEngine& e) { e.inputs.push_back(1); }));
  EXPECT_FALSE(thread.Post([](CountingEngine& e) { e.inputs.push_back(2); }));
  thread.PostReserved([](CountingEngine& e) { e.inputs.push_back(3); });
  thread.Start();
  thread.Stop();
  EXPECT_THAT(engine.inputs, ElementsAre(1, 3));
}

TEST(EngineThreadTest, AHungStepShowsItsAge) {
  CountingEngine engine;
  base::FakeClock clock;
  absl::Notification entered, leave;
  EngineThread<CountingEngine> thread(engine, clock, 8, [](const CountingEngine&) {});
  thread.Start();
  thread.PostReserved([&](CountingEngine&) {
    entered.Notify();
    leave.WaitForNotification();
  });
  entered.WaitForNotification();
  clock.Advance(absl::Seconds(7));
  EXPECT_EQ(thread.StepAge(), absl::Seconds(7));
  leave.Notify();
  thread.Stop();
  EXPECT_EQ(thread.StepAge(), absl::ZeroDuration());
}

}  // namespace
}  // namespace tandem::worker_shell
