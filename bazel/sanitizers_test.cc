// Proves that a sanitizer's configuration catches what it is for, and that ThreadSanitizer knows Abseil's ways to hand
// over memory: a build that had lost its flags, or suppressed too much, would pass every other test.
// Under no sanitizer only the second half is compiled.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <thread>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"

namespace tandem {
namespace {

#if defined(__SANITIZE_ADDRESS__)

TEST(SanitizersDeathTest, AByteTooManyEndsTheProcess) {
  volatile int64_t past_the_end = 4;
  const auto four = std::make_unique<char[]>(4);
  EXPECT_DEATH({ four[past_the_end] = 1; }, "heap-buffer-overflow");
}

TEST(SanitizersDeathTest, UndefinedBehaviourEndsTheProcess) {
  volatile int32_t largest = INT32_MAX;
  EXPECT_DEATH({ largest = largest + 1; }, "signed integer overflow");
}

#endif
#if defined(__SANITIZE_THREAD__)

TEST(SanitizersDeathTest, ARaceFailsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  constexpr int kExitCode = 66;  // ThreadSanitizer's
  const auto race = [] {
    int64_t shared = 0;
    std::thread other([&shared] { ++shared; });
    ++shared;
    other.join();
    exit(0);
  };
  EXPECT_EXIT(race(), testing::ExitedWithCode(kExitCode), "data race");
}

#endif

// The accesses to `shared` are ordered by one thing alone, which ThreadSanitizer has to see.

TEST(SanitizersTest, AMutexOrdersItsHolders) {
  absl::Mutex mutex;
  int64_t shared = 0;
  const auto add = [&] {
    for (int i = 0; i < 1000; ++i) {
      absl::MutexLock lock(&mutex);
      ++shared;
    }
  };
  std::thread other(add);
  add();
  other.join();
  EXPECT_EQ(shared, 2000);
}

TEST(SanitizersTest, AConditionOrdersItsWaiter) {
  absl::Mutex mutex;
  bool is_set = false;
  int64_t shared = 0;
  std::thread other([&] {
    shared = 7;
    absl::MutexLock lock(&mutex);
    is_set = true;
  });
  {
    absl::MutexLock lock(&mutex);
    mutex.Await(absl::Condition(&is_set));
  }
  EXPECT_EQ(shared, 7);
  other.join();
}

TEST(SanitizersTest, AConditionVariableOrdersItsWaiter) {
  absl::Mutex mutex;
  absl::CondVar changed;
  int64_t shared = 0;
  std::thread other([&] {
    absl::MutexLock lock(&mutex);
    shared = 7;
    changed.Signal();
  });
  {
    absl::MutexLock lock(&mutex);
    while (shared == 0) changed.Wait(&mutex);
  }
  EXPECT_EQ(shared, 7);
  other.join();
}

TEST(SanitizersTest, ANotificationOrdersItsWaiter) {
  absl::Notification done;
  int64_t shared = 0;
  std::thread other([&] {
    shared = 7;
    done.Notify();
  });
  done.WaitForNotification();
  EXPECT_EQ(shared, 7);
  other.join();
}

TEST(SanitizersTest, ANotificationOrdersWhoeverAsks) {
  absl::Notification done;
  int64_t shared = 0;
  std::thread other([&] {
    shared = 7;
    done.Notify();
  });
  while (!done.HasBeenNotified()) std::this_thread::yield();
  EXPECT_EQ(shared, 7);
  other.join();
}

}  // namespace
}  // namespace tandem
