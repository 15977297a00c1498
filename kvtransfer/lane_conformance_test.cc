// Proves, for every kind of lane: the right bytes land at the right place and nowhere else, for sizes of 1 B to 16 MiB
// and their neighbours; `done` comes exactly once, whatever is cancelled, closed or refused; and nothing hangs.
// Not proved here: what happens when the source's process is killed (lane_process_test.cc).
#include <algorithm>
#include <cstring>
#include <random>
#include <thread>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"
#include "kvtransfer/lane_rig.h"

namespace tandem::kvtransfer {
namespace {

constexpr size_t kPoolBytes = (size_t{16} << 20) + 4096;
constexpr std::byte kUntouched{0xee};

class LaneConformanceTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    rig_ = MakeLaneRig(GetParam(), kPoolBytes);
    FillRandom(rig_->source(), 1);
    target_.assign(kPoolBytes, kUntouched);
    lane_ = rig_->Open(target_);
    ASSERT_NE(lane_, nullptr);
  }

  absl::Status FetchNow(uint64_t epoch, std::vector<ByteRun> runs) {
    FetchResults results;
    lane_->Fetch(epoch, std::move(runs), results.Expect());
    return results.Wait()[0];
  }
  bool HasLanded(const ByteRun& run) {
    return std::memcmp(target_.data() + run.target_offset, rig_->source().data() + run.source_offset, run.num_bytes) ==
           0;
  }
  bool IsUntouched(uint64_t begin, uint64_t end) {
    return std::all_of(target_.begin() + begin, target_.begin() + end, [](std::byte b) { return b == kUntouched; });
  }

  std::unique_ptr<LaneRig> rig_;
  std::vector<std::byte> target_;
  std::unique_ptr<FetchLane> lane_;
};

TEST_P(LaneConformanceTest, CopiesEverySizeAndNothingBeside) {
  for (int exponent = 0; exponent <= 24; ++exponent) {
    for (const int64_t delta : {-1, 0, 1}) {
      const int64_t num_bytes = (int64_t{1} << exponent) + delta;
      if (num_bytes < 1) continue;
      const ByteRun run = {.source_offset = 1001, .target_offset = 67, .num_bytes = static_cast<uint64_t>(num_bytes)};
      ASSERT_TRUE(FetchNow(1, {run}).ok()) << num_bytes;
      ASSERT_TRUE(HasLanded(run)) << num_bytes;
      ASSERT_TRUE(IsUntouched(0, 67) &&
                  IsUntouched(67 + num_bytes, std::min<size_t>(kPoolBytes, 67 + num_bytes + 4096)))
          << num_bytes;
      std::fill_n(target_.begin() + 67, num_bytes, kUntouched);
    }
  }
}

TEST_P(LaneConformanceTest, CopiesManyRunsOfManySizes) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<ByteRun> runs;
    uint64_t end = 0;
    while (runs.size() < 700) {
      const uint64_t num_bytes = 1 + (random() % 20 == 0 ? random() % 200'000 : random() % 10'000);
      const uint64_t begin = end + random() % 50;
      if (begin + num_bytes > kPoolBytes) break;
      runs.push_back({random() % (kPoolBytes - num_bytes), begin, num_bytes});
      end = begin + num_bytes;
    }
    std::shuffle(runs.begin(), runs.end(), random);
    ASSERT_TRUE(FetchNow(1, runs).ok());
    std::vector<std::byte> expected(kPoolBytes, kUntouched);
    for (const ByteRun& run : runs) {
      std::memcpy(expected.data() + run.target_offset, rig_->source().data() + run.source_offset, run.num_bytes);
    }
    ASSERT_EQ(std::memcmp(target_.data(), expected.data(), kPoolBytes), 0) << seed;
    std::fill(target_.begin(), target_.end(), kUntouched);
  }
}

TEST_P(LaneConformanceTest, EndsAFetchOfNothing) { EXPECT_TRUE(FetchNow(1, {}).ok()); }

TEST_P(LaneConformanceTest, ServesSeveralThreadsAtOnce) {
  constexpr int kThreads = 4;
  constexpr int kFetches = 100;
  constexpr uint64_t kShare = kPoolBytes / kThreads;
  FetchResults results[kThreads];
  std::vector<ByteRun> runs[kThreads];
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      for (int i = 0; i < kFetches; ++i) {
        const uint64_t num_bytes = 1 + random() % (kShare / kFetches);
        const ByteRun run = {random() % (kPoolBytes - num_bytes), t * kShare + i * (kShare / kFetches), num_bytes};
        runs[t].push_back(run);
        lane_->Fetch(1 + t, {run}, results[t].Expect());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int t = 0; t < kThreads; ++t) {
    for (const absl::Status& status : results[t].Wait()) EXPECT_TRUE(status.ok()) << status;
    for (const ByteRun& run : runs[t]) EXPECT_TRUE(HasLanded(run));
  }
}

TEST_P(LaneConformanceTest, RefusesRunsOutsideThePools) {
  EXPECT_EQ(FetchNow(1, {{kPoolBytes - 1, 0, 2}}).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(FetchNow(1, {{0, kPoolBytes - 1, 2}}).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(FetchNow(1, {{~uint64_t{0}, 0, 2}}).code(), absl::StatusCode::kOutOfRange);
  EXPECT_TRUE(IsUntouched(0, kPoolBytes));
  EXPECT_TRUE(FetchNow(1, {{0, 0, 2}}).ok());  // the lane lives
}

TEST_P(LaneConformanceTest, FailsFetchesOfAnUnknownEpochWithAborted) {
  if (!rig_->HasAnsweringSource()) GTEST_SKIP() << "the source of " << GetParam() << " takes no part in a fetch";
  EXPECT_EQ(FetchNow(101, {{0, 0, 100'000}}).code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(IsUntouched(0, kPoolBytes));
  EXPECT_TRUE(FetchNow(100, {{0, 0, 100'000}}).ok());
}

TEST_P(LaneConformanceTest, LetsTheWarmUpReadItsRegion) {
  EXPECT_TRUE(FetchNow(kWarmUpEpoch, {{0, 0, kWarmUpBytesMax}}).ok());
  EXPECT_TRUE(HasLanded({0, 0, kWarmUpBytesMax}));
}

TEST_P(LaneConformanceTest, CancelEndsOneEpochAndNoOther) {
  FetchResults results;
  absl::Notification is_held;
  absl::Notification may_go_on;
  const auto first_done = results.Expect();
  // Holds the lane's thread, so that what follows is certainly outstanding.
  lane_->Fetch(1, {{0, 0, 1}}, [&](absl::Status status) {
    is_held.Notify();
    may_go_on.WaitForNotification();
    first_done(std::move(status));
  });
  is_held.WaitForNotification();
  for (int i = 0; i < 8; ++i) lane_->Fetch(2 + i % 2, {{0, 0, kPoolBytes}}, results.Expect());
  lane_->Cancel(2);
  may_go_on.Notify();
  const std::vector<absl::Status> statuses = results.Wait();
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(statuses[1 + i].code(), i % 2 == 0 ? absl::StatusCode::kCancelled : absl::StatusCode::kOk) << i;
  }
  EXPECT_TRUE(FetchNow(2, {{0, 0, 1}}).ok());  // Cancel ends what is outstanding, not what comes later
}

TEST_P(LaneConformanceTest, CancelMayComeAtAnyMoment) {
  FetchResults results;
  std::mt19937_64 random(5);
  for (int i = 0; i < 200; ++i) {
    const uint64_t num_bytes = 1 + random() % 300'000;
    lane_->Fetch(1 + i % 3, {{0, random() % (kPoolBytes - num_bytes), num_bytes}}, results.Expect());
    if (random() % 4 == 0) lane_->Cancel(1 + random() % 4);
  }
  for (const absl::Status& status : results.Wait()) {
    EXPECT_TRUE(status.ok() || absl::IsCancelled(status)) << status;
  }
}

TEST_P(LaneConformanceTest, CloseEndsEverythingThatIsOutstanding) {
  FetchResults results;
  for (int i = 0; i < 50; ++i) lane_->Fetch(1, {{0, 0, kPoolBytes}}, results.Expect());
  std::thread other([&] { lane_->Close(); });  // twice, from two threads
  lane_->Close();
  const std::vector<std::byte> after_close = target_;
  FillRandom(rig_->source(), 2);
  for (const absl::Status& status : results.Wait()) {
    EXPECT_TRUE(status.ok() || absl::IsCancelled(status)) << status;
  }
  EXPECT_EQ(std::memcmp(after_close.data(), target_.data(), kPoolBytes), 0);
  EXPECT_EQ(FetchNow(1, {{0, 0, 1}}).code(), absl::StatusCode::kCancelled);
  lane_->Cancel(1);
  other.join();
}

TEST_P(LaneConformanceTest, MayBeUsedFromWithinDone) {
  FetchResults results;
  const auto last_done = results.Expect();
  lane_->Fetch(1, {{0, 0, 100}}, [&](absl::Status first) {
    EXPECT_TRUE(first.ok());
    lane_->Cancel(7);
    lane_->Fetch(1, {{100, 100, 100}}, last_done);
  });
  EXPECT_TRUE(results.Wait()[0].ok());
  EXPECT_TRUE(HasLanded({0, 0, 200}));
}

TEST_P(LaneConformanceTest, OutlivesItsSource) {
  FetchResults results;
  for (int i = 0; i < 20; ++i) lane_->Fetch(1, {{0, 0, kPoolBytes}}, results.Expect());
  rig_->StopSource();
  for (const absl::Status& status : results.Wait()) {
    EXPECT_TRUE(status.ok() || absl::IsUnavailable(status)) << status;
  }
  const absl::Status after = FetchNow(1, {{0, 0, 1000}});
  EXPECT_TRUE(after.ok() || absl::IsUnavailable(after)) << after;
  lane_->Close();
}

INSTANTIATE_TEST_SUITE_P(AllKinds, LaneConformanceTest,
                         testing::Values("loopback", "fault", "ucx_shm", "tcp", "ucx_am"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tandem::kvtransfer
