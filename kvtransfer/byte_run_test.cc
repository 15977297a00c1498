// Proves: a run outside a pool is refused whatever its numbers; cutting hands out each byte once, in order, in pieces
// within both limits.
#include "kvtransfer/byte_run.h"

#include <limits>
#include <random>

#include "gtest/gtest.h"

namespace tandem::kvtransfer {
namespace {

constexpr uint64_t kHuge = std::numeric_limits<uint64_t>::max();

TEST(ByteRunTest, RefusesRunsThatLeaveAPool) {
  const auto code = [](ByteRun run) { return ValidateRuns(std::vector<ByteRun>{run}, 100, 50).code(); };
  EXPECT_EQ(code({0, 0, 50}), absl::StatusCode::kOk);
  EXPECT_EQ(code({50, 0, 50}), absl::StatusCode::kOk);
  EXPECT_EQ(code({99, 49, 1}), absl::StatusCode::kOk);
  EXPECT_EQ(code({0, 0, 0}), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(code({51, 0, 50}), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(code({0, 1, 50}), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(code({100, 0, 1}), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(code({kHuge, 0, 1}), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(code({1, 0, kHuge}), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(code({0, kHuge, 2}), absl::StatusCode::kOutOfRange);
}

TEST(ByteRunTest, NamesTheRunThatItRefuses) {
  EXPECT_EQ(ValidateRuns(std::vector<ByteRun>{{0, 0, 1}, {90, 0, 20}}, 100, 50).message(),
            "run of 20 bytes at 90 of a source pool of 100 bytes");
}

TEST(RunCutterTest, HandsOutEachByteOnceInOrder) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<ByteRun> runs(1 + random() % 6);
    std::vector<std::pair<uint64_t, uint64_t>> expected;  // (source, target) of every byte
    for (ByteRun& run : runs) {
      run = {random() % 1000, random() % 1000, 1 + random() % 40};
      for (uint64_t i = 0; i < run.num_bytes; ++i) expected.emplace_back(run.source_offset + i, run.target_offset + i);
    }
    const uint64_t num_bytes_max = 1 + random() % 50;
    const size_t num_runs_max = 1 + random() % 4;
    std::vector<std::pair<uint64_t, uint64_t>> actual;
    RunCutter cutter(runs);
    while (!cutter.IsDone()) {
      const std::vector<ByteRun> piece = cutter.Cut(num_bytes_max, num_runs_max);
      ASSERT_FALSE(piece.empty());
      ASSERT_LE(piece.size(), num_runs_max);
      ASSERT_LE(TotalBytes(piece), num_bytes_max);
      for (const ByteRun& run : piece) {
        ASSERT_GT(run.num_bytes, 0u);
        for (uint64_t i = 0; i < run.num_bytes; ++i) actual.emplace_back(run.source_offset + i, run.target_offset + i);
      }
    }
    ASSERT_EQ(actual, expected) << seed;
    EXPECT_TRUE(cutter.Cut(1, 1).empty());
  }
}

}  // namespace
}  // namespace tandem::kvtransfer
