// Proves what other threads see of an engine: its last word, text no more often than it may cost, and the drain.
#include "worker_shell/engine_status.h"

#include <thread>

#include "gtest/gtest.h"

namespace tandem::worker_shell {
namespace {

struct FakeEngine {
  proto::Load load() const { return current_load; }
  bool is_draining() const { return draining; }
  bool IsAtRest() const { return at_rest; }
  absl::Duration NextWake() const { return next_wake; }
  std::string Describe() const {
    ++num_descriptions;
    return absl::StrCat("description ", num_descriptions);
  }

  proto::Load current_load;
  bool draining = false;
  bool at_rest = true;
  absl::Duration next_wake = absl::ZeroDuration();  // there is work
  mutable int num_descriptions = 0;
};

TEST(EngineStatusTest, TellsWhatTheEngineLastSaid) {
  FakeEngine engine;
  EngineStatus status;
  engine.current_load.set_running_sequences(1);
  status.Publish(engine, absl::Seconds(1));
  engine.current_load.set_running_sequences(2);
  status.Publish(engine, absl::Seconds(2));
  const WorkerVitals vitals = status.Vitals(absl::Milliseconds(5));
  EXPECT_EQ(vitals.load.running_sequences(), 2u);
  EXPECT_EQ(vitals.engine_steps, 2u);
  EXPECT_EQ(vitals.oldest_work_age, absl::Milliseconds(5));
}

TEST(EngineStatusTest, ABusyEngineDescribesItselfNowAndThen) {
  FakeEngine engine;
  EngineStatus status;
  for (int step = 0; step < 100; ++step) status.Publish(engine, absl::Milliseconds(10) * step);
  EXPECT_EQ(engine.num_descriptions, 5);  // one in 200 ms
}

TEST(EngineStatusTest, AnEngineThatFallsAsleepHasDescribedItsLastState) {
  FakeEngine engine;
  EngineStatus status;
  status.Publish(engine, absl::Milliseconds(1));
  engine.next_wake = absl::InfiniteDuration();
  status.Publish(engine, absl::Milliseconds(2));
  EXPECT_EQ(status.description(), "description 2");
}

TEST(EngineStatusTest, DrainedIsDrainingAndAtRest) {
  FakeEngine engine;
  EngineStatus status;
  status.Publish(engine, absl::Seconds(1));
  EXPECT_TRUE(absl::IsDeadlineExceeded(status.AwaitDrained(absl::ZeroDuration())));  // at rest, but it may take more
  engine.draining = true;
  engine.at_rest = false;
  status.Publish(engine, absl::Seconds(2));
  EXPECT_TRUE(status.is_draining());
  EXPECT_TRUE(absl::IsDeadlineExceeded(status.AwaitDrained(absl::ZeroDuration())));
  std::thread last_step([&] {
    engine.at_rest = true;
    status.Publish(engine, absl::Seconds(3));
  });
  EXPECT_TRUE(status.AwaitDrained(absl::InfiniteDuration()).ok());
  last_step.join();
}

}  // namespace
}  // namespace tandem::worker_shell
