#include "router/discovery/discovery.h"

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace tandem::router {
namespace {

TEST(DiscoveryTest, LooksBeforeItReturnsAndAgainUntilItEnds) {
  WorkerDirectory directory;
  absl::Mutex mutex;
  int num_looks = 0;
  const auto look = [&]() -> absl::StatusOr<WorkerLists> {
    absl::MutexLock lock(&mutex);
    ++num_looks;
    if (num_looks == 2) return absl::UnavailableError("away");
    return WorkerLists{{"p0:1"}, {absl::StrCat("d", num_looks, ":1")}};
  };
  {
    Discovery discovery({{"test", look}}, absl::Milliseconds(1), &directory);
    EXPECT_FALSE(directory.lists().decode.empty());
    absl::MutexLock lock(&mutex);
    const auto has_looked = [&] { return num_looks >= 5; };
    mutex.Await(absl::Condition(&has_looked));
  }
  const int num_looks_at_end = num_looks;  // the thread is joined: nobody writes any more
  EXPECT_EQ(directory.lists(), (WorkerLists{{"p0:1"}, {absl::StrCat("d", num_looks_at_end, ":1")}}));
}

TEST(DiscoveryTest, WithoutSourcesNothingRuns) {
  WorkerDirectory directory;
  Discovery discovery({}, absl::Milliseconds(1), &directory);
  EXPECT_EQ(directory.lists(), WorkerLists());
}

}  // namespace
}  // namespace tandem::router
