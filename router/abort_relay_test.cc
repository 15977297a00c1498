// Every shard looks once, and the one that asked hears of it once, also where some have ended.
#include "router/abort_relay.h"

#include <deque>
#include <utility>

#include "gtest/gtest.h"

namespace tandem::router {
namespace {

// A shard's loop whose turn comes when the test says so.
struct Loop {
  std::deque<std::function<void()>> work;
  bool has_ended = false;

  AbortRelay::Post Post() {
    return [this](std::function<void()> more) {
      if (!has_ended) work.push_back(std::move(more));
    };
  }
  void Run() {
    while (!work.empty()) {
      std::exchange(work.front(), nullptr)();
      work.pop_front();
    }
  }
};

class AbortRelayTest : public testing::Test {
 protected:
  AbortRelayTest() {
    for (int i = 0; i < 3; ++i) {
      relay_.Join(loops_[i].Post(), [this, i](const std::string& id) {
        EXPECT_EQ(id, "x");
        ++num_looks_[i];
        return i;
      });
    }
  }
  void Abort() {
    relay_.AbortEverywhere("x", loops_[1].Post(), [this](int num_aborted) {
      ++num_answers_;
      num_aborted_ = num_aborted;
    });
  }
  Loop loops_[3];
  int num_looks_[3] = {};
  int num_answers_ = 0;
  int num_aborted_ = -1;
  AbortRelay relay_;
};

TEST_F(AbortRelayTest, AnswersWhenTheLastShardHasLooked) {
  Abort();
  loops_[0].Run();
  loops_[1].Run();
  EXPECT_EQ(num_answers_, 0);
  loops_[2].Run();
  EXPECT_EQ(num_answers_, 0) << "the answer is the asking shard's to give";
  loops_[1].Run();
  EXPECT_EQ(num_answers_, 1);
  EXPECT_EQ(num_aborted_, 3);
  for (const int looks : num_looks_) EXPECT_EQ(looks, 1);
}

TEST_F(AbortRelayTest, AShardThatHasEndedIsNotWaitedFor) {
  loops_[2].has_ended = true;
  Abort();
  loops_[0].work.clear();  // dropped unrun
  loops_[1].Run();
  loops_[1].Run();
  EXPECT_EQ(num_answers_, 1);
  EXPECT_EQ(num_aborted_, 1);
}

}  // namespace
}  // namespace tandem::router
