#include "router/status_board.h"

#include "gtest/gtest.h"

namespace tandem::router {
namespace {

StatusBoard::Word Said(const char* text, absl::Duration at) {
  StatusBoard::Word word;
  word.text = text;
  word.posted_at = at;
  return word;
}

TEST(StatusBoardTest, OneShardSpeaksForItself) {
  StatusBoard board;
  board.Post(0, Said("first\n", absl::Seconds(1)));
  board.Post(0, Said("second\n", absl::Seconds(2)));
  EXPECT_EQ(board.Text(absl::Seconds(3)), "second\n");
}

TEST(StatusBoardTest, SeveralAreShownInOrderWithTheAgeOfTheirWords) {
  StatusBoard board;
  board.Post(1, Said("one\n", absl::Seconds(9)));
  board.Post(0, Said("zero\n", absl::Seconds(10) - absl::Milliseconds(30)));
  EXPECT_EQ(board.Text(absl::Seconds(10)), "shard 0 of 2, 30ms ago\nzero\n\nshard 1 of 2, 1s ago\none\n");
}

TEST(StatusBoardTest, FiguresOfEachShardAreThereWithoutItsText) {
  StatusBoard board;
  StatusBoard::Word word = Said("text\n", absl::Seconds(4));
  word.num_in_flight = 7;
  word.num_waiting = 2;
  word.requests.resize(3);
  board.Post(0, Said("", absl::Seconds(3)));
  board.Post(1, word);
  const std::vector<StatusBoard::Word> words = board.Words();
  ASSERT_EQ(words.size(), 2u);
  EXPECT_EQ(words[0].num_in_flight, 0);
  EXPECT_EQ(words[1].num_in_flight, 7);
  EXPECT_EQ(words[1].num_waiting, 2);
  EXPECT_EQ(words[1].requests.size(), 3u);
  EXPECT_EQ(words[1].posted_at, absl::Seconds(4));
  EXPECT_EQ(words[1].text, "");
}

}  // namespace
}  // namespace tandem::router
