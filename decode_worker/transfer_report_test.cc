#include "decode_worker/transfer_report.h"

#include "gtest/gtest.h"

namespace tandem::decode {
namespace {

TEST(TransferReportTest, TellsTimesSinceTheArrivalAndWhatNeverCame) {
  kvtransfer::TransferTimes times;
  times.started = absl::Seconds(10) + absl::Microseconds(5);
  times.accepted = absl::Seconds(11);
  times.first_announced = absl::Seconds(12);
  times.ready = absl::Seconds(10);  // with the arrival
  times.chunks = {{.num_pages = 8, .at = absl::Seconds(13)}, {.num_pages = 9, .at = absl::Seconds(14)}};
  const proto::TransferReport report = ReportOf(times, absl::Seconds(10));
  EXPECT_EQ(report.started_us(), 5u);
  EXPECT_EQ(report.accepted_us(), 1'000'000u);
  EXPECT_EQ(report.first_announced_us(), 2'000'000u);
  EXPECT_EQ(report.first_token_us(), 0u) << "a request that is resumed gets none";
  EXPECT_EQ(report.ready_us(), 1u) << "0 would mean never";
  ASSERT_EQ(report.chunks_size(), 2);
  EXPECT_EQ(report.chunks(1).num_pages(), 9u);
  EXPECT_EQ(report.chunks(1).at_us(), 4'000'000u);
}

}  // namespace
}  // namespace tandem::decode
