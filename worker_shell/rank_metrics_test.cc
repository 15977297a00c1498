// Proves that a group's counts arrive under their rank and kind, once, and that one rank alone shows zeros.
#include "worker_shell/rank_metrics.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu_backend.h"
#include "model/testing/micro_model.h"

namespace tandem::worker_shell {
namespace {

using ::testing::HasSubstr;

TEST(RankMetricsTest, ShowWhatEachRankHasSent) {
  const auto checkpoint = model::MakeTestCheckpoint("v32-micro", 1);
  kernels::CpuBackend first(1), second(1);
  const kvcache::KvLayout layout{.num_layers = 2, .num_pages = 2};
  std::vector<uint8_t> pool(layout.pool_bytes());
  auto group = model::RankGroup::Create({&first, &second}, checkpoint, layout, absl::MakeSpan(pool),
                                        {.num_rows_max = 8, .num_positions_max = 128});
  ASSERT_TRUE(group.ok()) << group.status();
  base::Metrics metrics("prefill");
  RankMetrics of_ranks(metrics, 2);
  const std::vector<int32_t> tokens = {1, 2, 3}, pages = {0};
  const model::Segment segment{.num_rows = 3, .page_table = pages};
  for (int step = 1; step <= 2; ++step) {
    ASSERT_TRUE((*group)->Forward({.tokens = tokens, .segments = {&segment, 1}}, [](int) {}, {}).ok());
    of_ranks.Update(**group);
    of_ranks.Update(**group);
    // Two layers a step; 788 bytes of each of a rank's rows to the one other rank.
    const std::string text = metrics.Expose();
    for (int rank = 0; rank < 2; ++rank) {
      const std::string labels = absl::StrCat("{role=\"prefill\",collective=\"all_gather\",rank=\"", rank, "\"} ");
      EXPECT_THAT(text, HasSubstr(absl::StrCat("tandem_collective_calls_total", labels, 2 * step, "\n")));
      const int num_rows = rank == 0 ? 2 : 1;
      EXPECT_THAT(
          text, HasSubstr(absl::StrCat("tandem_collective_sent_bytes_total", labels, step * 2 * num_rows * 788, "\n")));
    }
    EXPECT_THAT(text,
                HasSubstr("tandem_collective_calls_total{role=\"prefill\",collective=\"all_to_all\",rank=\"1\"} 0\n"));
  }
}

TEST(RankMetricsTest, OneRankAloneShowsZeros) {
  base::Metrics metrics("prefill");
  RankMetrics of_ranks(metrics, 1);
  EXPECT_THAT(metrics.Expose(),
              HasSubstr("tandem_collective_seconds_total{role=\"prefill\",collective=\"barrier\",rank=\"0\"} 0\n"));
}

}  // namespace
}  // namespace tandem::worker_shell
