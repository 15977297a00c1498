// Proves: known epochs may read everything, unknown ones nothing, the warm-up only its region.
#include "kvtransfer/epoch_check.h"

#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace tandem::kvtransfer {
namespace {

absl::StatusCode Check(uint64_t epoch, ByteRun run) {
  const auto is_readable = [](const FetchOrigin& origin) {
    return origin.target_incarnation == 5 && origin.epoch == 7;
  };
  return CheckReadable({5, epoch}, std::vector<ByteRun>{run}, is_readable).code();
}

TEST(EpochCheckTest, LetsOnlyKnownEpochsRead) {
  EXPECT_EQ(Check(7, {kWarmUpBytesMax, 0, 100}), absl::StatusCode::kOk);
  EXPECT_EQ(Check(8, {0, 0, 100}), absl::StatusCode::kAborted);
}

TEST(EpochCheckTest, LetsTheWarmUpReadItsRegionAlone) {
  EXPECT_EQ(Check(kWarmUpEpoch, {0, 0, kWarmUpBytesMax}), absl::StatusCode::kOk);
  EXPECT_EQ(Check(kWarmUpEpoch, {1, 0, kWarmUpBytesMax}), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(Check(kWarmUpEpoch, {std::numeric_limits<uint64_t>::max(), 0, 2}), absl::StatusCode::kOutOfRange);
}

}  // namespace
}  // namespace tandem::kvtransfer
