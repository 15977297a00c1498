#include "kvtransfer/dead_epochs.h"

#include "gtest/gtest.h"

namespace tandem::kvtransfer {
namespace {

TEST(DeadEpochsTest, RemembersExactlyWhatWasBuried) {
  DeadEpochs dead;
  for (const uint64_t epoch : {5, 2, 9}) dead.Bury(epoch);
  for (uint64_t epoch = 1; epoch <= 10; ++epoch) EXPECT_EQ(dead.IsDead(epoch), epoch == 5 || epoch == 2 || epoch == 9);
}

TEST(DeadEpochsTest, StaysSmallWhenEveryEpochEnds) {
  DeadEpochs dead;
  for (uint64_t epoch = 1; epoch <= 100'000; ++epoch) dead.Bury(epoch);
  std::vector<uint64_t> state;
  dead.AppendState(state);
  EXPECT_EQ(state, std::vector<uint64_t>{100'000});
}

TEST(DeadEpochsTest, NeverForgetsADeadOneWhenItOverflows) {
  DeadEpochs dead;
  constexpr uint64_t kEpochs = 4 * DeadEpochs::kTombstonesMax;
  for (uint64_t epoch = 2; epoch <= kEpochs; epoch += 2) dead.Bury(epoch);  // every other one went to another peer
  std::vector<uint64_t> state;
  dead.AppendState(state);
  EXPECT_LE(state.size(), DeadEpochs::kTombstonesMax + 1);
  for (uint64_t epoch = 2; epoch <= kEpochs; epoch += 2) EXPECT_TRUE(dead.IsDead(epoch));
  EXPECT_FALSE(dead.IsDead(kEpochs - 1));  // still among the tombstones, so still open to be started
  EXPECT_FALSE(dead.IsDead(kEpochs + 1));
}

}  // namespace
}  // namespace tandem::kvtransfer
