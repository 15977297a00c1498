#include "kvtransfer/readable_epochs.h"

#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace tandem::kvtransfer {
namespace {

TEST(ReadableEpochsTest, KeepsIncarnationsApart) {
  ReadableEpochs epochs;
  epochs.Open(1, 7);
  EXPECT_TRUE(epochs.IsReadable({.target_incarnation = 1, .epoch = 7}));
  EXPECT_FALSE(epochs.IsReadable({.target_incarnation = 2, .epoch = 7}));
  EXPECT_FALSE(epochs.IsReadable({.target_incarnation = 1, .epoch = 8}));
  epochs.Close(2, 7);
  EXPECT_TRUE(epochs.IsReadable({.target_incarnation = 1, .epoch = 7}));
  epochs.Close(1, 7);
  epochs.Close(1, 7);
  EXPECT_EQ(epochs.size(), 0u);
}

TEST(ReadableEpochsTest, LanesMayAskWhileTheEngineChanges) {
  ReadableEpochs epochs;
  epochs.Open(1, 1);
  std::vector<std::thread> lanes;
  for (int i = 0; i < 3; ++i) {
    lanes.emplace_back([&] {
      for (int k = 0; k < 2000; ++k) EXPECT_TRUE(epochs.IsReadable({.target_incarnation = 1, .epoch = 1}));
    });
  }
  for (uint64_t epoch = 2; epoch < 2000; ++epoch) {
    epochs.Open(1, epoch);
    epochs.Close(1, epoch);
  }
  for (std::thread& lane : lanes) lane.join();
  EXPECT_EQ(epochs.size(), 1u);
}

}  // namespace
}  // namespace tandem::kvtransfer
