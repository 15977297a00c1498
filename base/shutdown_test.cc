// Each case runs in a child process, since signals and their mask belong to the whole process.
#include "base/shutdown.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

namespace tandem::base {
namespace {

TEST(ShutdownDeathTest, TheFirstSignalEndsTheWait) {
  for (const int signal_number : {SIGTERM, SIGINT}) {
    EXPECT_EXIT(
        {
          ShutdownSignal shutdown;
          shutdown.Started();
          kill(getpid(), signal_number);
          shutdown.Wait();
          _exit(42);
        },
        ::testing::ExitedWithCode(42), "asked to stop signal=");
  }
}

TEST(ShutdownDeathTest, ASignalDuringTheStartEndsTheProcessAtOnceAndCleanly) {
  for (const int signal_number : {SIGTERM, SIGINT}) {
    EXPECT_EXIT(
        {
          ShutdownSignal shutdown;
          kill(getpid(), signal_number);
          for (;;) pause();
        },
        ::testing::ExitedWithCode(0), "stopped during the start signal=");
  }
}

TEST(ShutdownDeathTest, TheSecondSignalEndsTheProcessAtOnce) {
  EXPECT_EXIT(
      {
        ShutdownSignal shutdown;
        shutdown.Started();
        kill(getpid(), SIGTERM);
        shutdown.Wait();
        kill(getpid(), SIGTERM);
        for (;;) pause();
      },
      ::testing::ExitedWithCode(1), "further signal while draining");
}

TEST(ShutdownDeathTest, TheSecondSignalCallsWhoeverHasSomebodyToTellAndTheThirdEndsTheProcess) {
  EXPECT_EXIT(
      {
        ShutdownSignal shutdown;
        shutdown.Started();
        kill(getpid(), SIGTERM);
        shutdown.Wait();
        absl::Notification hurried;
        shutdown.OnSecond([&] { hurried.Notify(); });
        kill(getpid(), SIGTERM);
        hurried.WaitForNotification();
        kill(getpid(), SIGTERM);
        for (;;) pause();
      },
      ::testing::ExitedWithCode(1), "signals=3");
}

TEST(ShutdownDeathTest, GoesAwayWithoutASignal) {
  EXPECT_EXIT(
      {
        { ShutdownSignal shutdown; }
        _exit(7);
      },
      ::testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace tandem::base
