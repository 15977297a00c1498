#include "kvtransfer/page_grid.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::kvtransfer {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr CellSums kRight{.latent = 1, .index = 2};
constexpr CellSums kWrong{.latent = 1, .index = 3};

TEST(PageGridTest, AnnouncesEachWantedCellOnceAsRunsOfPages) {
  PageGrid grid(3, 2, 8);
  EXPECT_THAT(grid.Announce(0, {.layer_begin = 0, .layer_end = 1, .page_begin = 4, .page_end = 5}),
              ElementsAre(PagePiece{.rank = 0, .layer = 0, .page_begin = 4, .page_end = 5}));
  EXPECT_THAT(grid.Announce(1, {.layer_begin = 0, .layer_end = 2, .page_begin = 0, .page_end = 10}),
              ElementsAre(PagePiece{.rank = 1, .layer = 0, .page_begin = 2, .page_end = 4},
                          PagePiece{.rank = 1, .layer = 0, .page_begin = 5, .page_end = 8},
                          PagePiece{.rank = 1, .layer = 1, .page_begin = 2, .page_end = 8}));
  EXPECT_THAT(grid.Announce(0, {.layer_begin = 0, .layer_end = 2, .page_begin = 0, .page_end = 10}), IsEmpty());
  EXPECT_THAT(grid.Announce(0, {.layer_begin = 2, .layer_end = 3, .page_begin = 0, .page_end = 2}), IsEmpty());
  EXPECT_EQ(grid.num_announced(), 12);
  EXPECT_EQ(grid.rank(0, 4), 0);
  EXPECT_EQ(grid.rank(0, 5), 1);
}

TEST(PageGridTest, AgreesInEitherOrderOfBytesAndSums) {
  PageGrid grid(1, 0, 2);
  grid.Announce(0, {.layer_begin = 0, .layer_end = 1, .page_begin = 0, .page_end = 2});
  EXPECT_EQ(grid.Landed(0, 0, 0, kRight), CellVerdict::kOpen);
  EXPECT_EQ(grid.Expect(0, 0, kRight).value(), CellVerdict::kAgrees);
  EXPECT_EQ(grid.Expect(0, 1, kRight).value(), CellVerdict::kOpen);
  EXPECT_FALSE(grid.IsComplete());
  EXPECT_EQ(grid.Landed(0, 1, 0, kRight), CellVerdict::kAgrees);
  EXPECT_TRUE(grid.IsComplete());
}

TEST(PageGridTest, AWrongCellMayLandOnceMore) {
  PageGrid grid(1, 0, 1);
  grid.Announce(0, {.layer_begin = 0, .layer_end = 1, .page_begin = 0, .page_end = 1});
  EXPECT_EQ(grid.Expect(0, 0, kRight).value(), CellVerdict::kOpen);
  EXPECT_EQ(grid.Landed(0, 0, 1, kWrong), CellVerdict::kWrongOnce);
  EXPECT_EQ(grid.num_landed(), 0);
  EXPECT_EQ(grid.lane(0, 0), 1);
  EXPECT_EQ(grid.Landed(0, 0, 0, kWrong), CellVerdict::kWrongTwice);
  EXPECT_FALSE(grid.IsComplete());
}

TEST(PageGridTest, SumsMaySayTheSameAgainButNothingElse) {
  PageGrid grid(1, 0, 1);
  EXPECT_TRUE(grid.Expect(0, 0, kRight).ok());
  EXPECT_EQ(grid.Expect(0, 0, kRight).value(), CellVerdict::kOpen);
  EXPECT_EQ(grid.Expect(0, 0, kWrong).status().code(), absl::StatusCode::kInternal);
}

TEST(PageGridTest, AGridThatWantsNothingIsComplete) {
  PageGrid grid(2, 3, 3);
  EXPECT_TRUE(grid.IsComplete());
  EXPECT_THAT(grid.Announce(0, {.layer_begin = 0, .layer_end = 2, .page_begin = 0, .page_end = 3}), IsEmpty());
}

}  // namespace
}  // namespace tandem::kvtransfer
