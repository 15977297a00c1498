// Proves that a batch is turned into rows as the segments say, and that each way to get a batch wrong is refused with
// what was wrong in the message.
#include "model/batch_plan.h"

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "kernels/cpu_backend.h"

namespace tandem::model {
namespace {

class BatchPlanTest : public ::testing::Test {
 protected:
  kernels::CpuBackend backend_{1};
  BatchPlan plan_{backend_,
                  BatchLimits{.num_rows_max = 8, .num_positions_max = 200, .num_pages = 10, .vocab_size = 100}};
  const std::vector<int32_t> tokens_ = {1, 2, 3, 4, 5};
  const std::vector<int32_t> table_a_ = {3, 4}, table_b_ = {9};
  std::vector<Segment> segments_ = {{.row_begin = 0, .num_rows = 2, .first_position = 63, .page_table = table_a_},
                                    {.row_begin = 2, .num_rows = 3, .first_position = 0, .page_table = table_b_}};
  std::vector<int32_t> logits_rows_ = {1, 4};

  void ExpectRefused(const RowBatch& batch, absl::string_view message) {
    absl::Status status = plan_.Build(batch);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(absl::StrContains(status.message(), message)) << status;
    EXPECT_EQ(plan_.num_rows(), 0);
  }
};

TEST_F(BatchPlanTest, PadsWithRowsOfAPageOfTheirOwn) {
  const std::vector<int32_t> all_rows = {0, 1, 2, 3, 4};
  const RowBatch batch{.tokens = tokens_, .segments = segments_, .logits_rows = all_rows};
  ASSERT_TRUE(plan_.Build(batch, Padding{.num_rows = 8, .page = 10, .context_max = 128}).ok());
  EXPECT_EQ(plan_.num_rows(), 8);
  EXPECT_EQ(plan_.num_batch_rows(), 5);
  EXPECT_EQ(plan_.logits_rows().shape[0], 8);
  EXPECT_EQ(plan_.ContextMax(0, 8), 128);
  const kernels::PagedRows rows = plan_.AllRows();
  for (int row = 0; row < 5; ++row) EXPECT_NE(plan_.PageOf(row), 10);
  for (int row = 5; row < 8; ++row) {
    EXPECT_EQ(plan_.tokens().data[row], 0);
    EXPECT_EQ(plan_.positions().data[row], row - 5) << "a slot for each";
    EXPECT_EQ(rows.context_length.data[row], row - 4);
    EXPECT_EQ(plan_.PageOf(row), 10);
    EXPECT_EQ(plan_.logits_rows().data[row], row);
  }
  // As many rows as it is to have: only the bound is another.
  ASSERT_TRUE(plan_.Build(batch, Padding{.num_rows = 5, .page = 10, .context_max = 192}).ok());
  EXPECT_EQ(plan_.num_rows(), 5);
  EXPECT_EQ(plan_.AllRows().page_tables.shape[0], 2);
  EXPECT_EQ(plan_.ContextMax(0, 5), 192);
  ASSERT_TRUE(plan_.Build(batch).ok());
  EXPECT_EQ(plan_.ContextMax(0, 5), 65);
}

TEST_F(BatchPlanTest, GivesEachRowItsSequencePositionAndContext) {
  ASSERT_TRUE(plan_.Build({.tokens = tokens_, .segments = segments_, .logits_rows = logits_rows_}).ok());
  EXPECT_EQ(plan_.num_rows(), 5);
  const kernels::PagedRows rows = plan_.AllRows();
  const int32_t positions[] = {63, 64, 0, 1, 2}, sequences[] = {0, 0, 1, 1, 1};
  for (int row = 0; row < 5; ++row) {
    EXPECT_EQ(plan_.positions().data[row], positions[row]);
    EXPECT_EQ(rows.context_length.data[row], positions[row] + 1);
    EXPECT_EQ(rows.sequence.data[row], sequences[row]);
    EXPECT_EQ(plan_.tokens().data[row], tokens_[row]);
  }
  EXPECT_EQ(rows.page_tables.shape[0], 2);
  EXPECT_EQ(rows.page_tables.Row(0)[1], 4);
  EXPECT_EQ(rows.page_tables.Row(1)[0], 9);
  EXPECT_EQ(plan_.logits_rows().shape[0], 2);
  EXPECT_EQ(plan_.ContextMax(0, 5), 65);
  EXPECT_EQ(plan_.ContextMax(2, 3), 3);
  EXPECT_EQ(plan_.Rows(1, 2).context_length.data[1], 1);
}

TEST_F(BatchPlanTest, DealsRowsOutToRanksInTurnAndKnowsWhereTheOthersRecordsLie) {
  const RowBatch batch{.tokens = tokens_, .segments = segments_, .logits_rows = logits_rows_};
  const int32_t positions[] = {63, 64, 0, 1, 2}, sequences[] = {0, 0, 1, 1, 1}, pages[] = {3, 4, 9, 9, 9};
  for (const RowSplit split : {RowSplit::kInterleave, RowSplit::kBySequence})
    for (const int size : {1, 2, 3, 4, 8}) {
      int num_rows_of_all = 0, num_logits_of_all = 0;
      for (int rank = 0; rank < size; ++rank) {
        BatchPlan plan(backend_, {.num_rows_max = 8, .num_positions_max = 200, .num_pages = 10, .vocab_size = 100},
                       {.rank = rank, .size = size, .split = split});
        ASSERT_TRUE(plan.Build(batch).ok());
        EXPECT_EQ(plan.num_rows_of_all(), 5);
        EXPECT_LE(plan.num_rows(), plan.share().NumRowsMax(5));
        const kernels::PagedRows rows = plan.AllRows();
        for (int row = 0; row < plan.num_rows(); ++row) {
          const int batch_row = plan.BatchRow(row);
          EXPECT_EQ((split == RowSplit::kInterleave ? batch_row : sequences[batch_row]) % size, rank);
          EXPECT_EQ(plan.tokens().data[row], tokens_[batch_row]);
          EXPECT_EQ(plan.positions().data[row], positions[batch_row]);
          EXPECT_EQ(rows.context_length.data[row], positions[batch_row] + 1);
          EXPECT_EQ(rows.sequence.data[row], sequences[batch_row]);
          EXPECT_EQ(plan.PageOf(row), pages[batch_row]);
        }
        for (int i = 0; i < plan.logits_rows().shape[0]; ++i) {
          EXPECT_EQ(plan.BatchRow(plan.logits_rows().data[i]), logits_rows_[plan.LogitsPlace(i)]);
        }
        for (int batch_row = 0; size > 1 && batch_row < 5; ++batch_row) {
          const RecordPlace& place = plan.PlacesOfAll()[batch_row];
          EXPECT_EQ(place.rank, (split == RowSplit::kInterleave ? batch_row : sequences[batch_row]) % size);
          EXPECT_EQ(place.page, pages[batch_row]);
          EXPECT_EQ(place.slot, positions[batch_row] % 64);
        }
        num_rows_of_all += plan.num_rows();
        num_logits_of_all += static_cast<int>(plan.logits_rows().shape[0]);
        EXPECT_EQ(plan.ContextMax(0, 0), 0);
      }
      EXPECT_EQ(num_rows_of_all, 5);
      EXPECT_EQ(num_logits_of_all, 2);
    }
}

TEST_F(BatchPlanTest, TakesAnEmptyBatchAndForgetsTheOneBefore) {
  ASSERT_TRUE(plan_.Build({.tokens = tokens_, .segments = segments_, .logits_rows = logits_rows_}).ok());
  ASSERT_TRUE(plan_.Build({}).ok());
  EXPECT_EQ(plan_.num_rows(), 0);
  EXPECT_EQ(plan_.logits_rows().shape[0], 0);
}

TEST_F(BatchPlanTest, RefusesTooManyRows) {
  const std::vector<int32_t> tokens(9, 1);
  ExpectRefused({.tokens = tokens}, "batch of 9 rows, limit 8");
}

TEST_F(BatchPlanTest, RefusesTokensOutsideTheVocabulary) {
  for (int32_t token : {-1, 100}) {
    std::vector<int32_t> tokens = tokens_;
    tokens[3] = token;
    ExpectRefused({.tokens = tokens, .segments = segments_}, "row 3: token ");
  }
}

TEST_F(BatchPlanTest, RefusesSegmentsThatDoNotCoverTheRowsInOrder) {
  const std::vector<Segment> good = segments_;
  segments_[1].row_begin = 3;
  ExpectRefused({.tokens = tokens_, .segments = segments_}, "segment 1: rows 3 to 5, expected from 2 within 5");
  segments_ = {good[0]};
  ExpectRefused({.tokens = tokens_, .segments = segments_}, "segments cover 2 of 5 rows");
  segments_ = good;
  segments_[1].num_rows = 4;
  ExpectRefused({.tokens = tokens_, .segments = segments_}, "segment 1: rows 2 to 5, expected from 2 within 5");
  segments_[1].num_rows = 0;
  ExpectRefused({.tokens = tokens_, .segments = segments_}, "segment 1: num_rows is 0, at least 1");
  segments_ = {good[1], good[0]};
  ExpectRefused({.tokens = tokens_, .segments = segments_}, "segment 0: rows 2 to 4, expected from 0");
}

TEST_F(BatchPlanTest, RefusesPositionsAndPagesOutOfRange) {
  const std::vector<Segment> good = segments_;
  segments_[0].first_position = 199;
  ExpectRefused({.tokens = tokens_, .segments = segments_}, "segment 0: 2 positions from 199, the last allowed is 199");
  segments_[0].first_position = INT64_MAX;
  ExpectRefused({.tokens = tokens_, .segments = segments_}, "the last allowed is 199");
  segments_[0].first_position = -1;
  ExpectRefused({.tokens = tokens_, .segments = segments_}, "2 positions from -1");
  segments_[0].first_position = 127;
  ExpectRefused({.tokens = tokens_, .segments = segments_}, "page table of 2 pages, 129 positions need 3");
  for (int32_t page : {-1, 10}) {
    const std::vector<int32_t> table = {3, page};
    segments_ = good;
    segments_[0].page_table = table;
    ExpectRefused({.tokens = tokens_, .segments = segments_}, "of logical page 1, the pool has 10");
  }
}

TEST_F(BatchPlanTest, RefusesLogitsRowsThatDoNotAscendOrAreNotThere) {
  for (const std::vector<int32_t>& rows : {std::vector<int32_t>{4, 1}, {1, 1}, {5}, {-1}}) {
    ExpectRefused({.tokens = tokens_, .segments = segments_, .logits_rows = rows}, "must ascend and lie below 5");
  }
}

}  // namespace
}  // namespace tandem::model
