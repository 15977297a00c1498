#include "router/status_board.h"

#include "gtest/gtest.h"

namespace tandem::router {
namespace {

TEST(StatusBoardTest, OneShardSpeaksForItself) {
  StatusBoard board;
  board.Post(0, "first\n", absl::Seconds(1));
  board.Post(0, "second\n", absl::Seconds(2));
  EXPECT_EQ(board.Text(absl::Seconds(3)), "second\n");
}

TEST(StatusBoardTest, SeveralAreShownInOrderWithTheAgeOfTheirWords) {
  StatusBoard board;
  board.Post(1, "one\n", absl::Seconds(9));
  board.Post(0, "zero\n", absl::Seconds(10) - absl::Milliseconds(30));
  EXPECT_EQ(board.Text(absl::Seconds(10)), "shard 0 of 2, 30ms ago\nzero\n\nshard 1 of 2, 1s ago\none\n");
}

}  // namespace
}  // namespace tandem::router
