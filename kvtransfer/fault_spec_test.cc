// Proves: a spec means what it says, chance follows the seed and the probabilities, and bad text is named.
#include "kvtransfer/fault_spec.h"

#include <string>

#include "gtest/gtest.h"

namespace tandem::kvtransfer {
namespace {

TEST(FaultSpecTest, ReadsWhatOperatorsWrite) {
  const auto spec = ParseFaultSpec("seed=7,drop=0.25,delay=0.5,delay_time=20ms,at=3:corrupt,at=5:none");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->seed, 7u);
  EXPECT_EQ(spec->probability.at(Fault::kDrop), 0.25);
  EXPECT_EQ(spec->delay_time, absl::Milliseconds(20));
  EXPECT_EQ(spec->FaultOf(3), Fault::kCorrupt);
  EXPECT_EQ(spec->FaultOf(5), Fault::kNone);
  EXPECT_EQ(ParseFaultSpec("")->FaultOf(0), Fault::kNone);
}

TEST(FaultSpecTest, NamesWhatIsWrong) {
  const auto message = [](std::string_view text) { return std::string(ParseFaultSpec(text).status().message()); };
  EXPECT_EQ(message("drop=2"), "fault spec: drop=2: want a probability of 0 to 1");
  EXPECT_EQ(message("drop=nan"), "fault spec: drop=nan: want a probability of 0 to 1");
  EXPECT_EQ(message("drop=0.6,fail=0.6"), "fault spec: probabilities add up to 1.2, limit 1");
  EXPECT_EQ(message("at=x:drop"), "fault spec: at=x:drop: want at=NUMBER:FAULT");
  EXPECT_EQ(message("at=1:explode"), "fault spec: at=1:explode: want at=NUMBER:FAULT");
  EXPECT_EQ(message("delay_time=-1s"), "fault spec: delay_time=-1s: want a duration of 0 to 1h");
  EXPECT_EQ(message("seed=a"), "fault spec: seed=a: not a number");
  EXPECT_NE(message("lose=1").find("fault spec: lose: unknown"), std::string::npos);
}

TEST(FaultSpecTest, FollowsTheSeedAndTheProbabilities) {
  FaultSpec spec = *ParseFaultSpec("seed=1,drop=0.1,corrupt=0.3");
  std::map<Fault, int> counts;
  for (uint64_t i = 0; i < 10000; ++i) {
    ASSERT_EQ(spec.FaultOf(i), spec.FaultOf(i));
    ++counts[spec.FaultOf(i)];
  }
  EXPECT_NEAR(counts[Fault::kDrop], 1000, 150);
  EXPECT_NEAR(counts[Fault::kCorrupt], 3000, 200);
  FaultSpec other = spec;
  other.seed = 2;
  int num_different = 0;
  for (uint64_t i = 0; i < 1000; ++i) num_different += spec.FaultOf(i) != other.FaultOf(i);
  EXPECT_GT(num_different, 200);
}

TEST(FaultSpecTest, KnowsTheNameOfEveryFault) {
  for (int i = 0; i <= static_cast<int>(Fault::kStall); ++i) {
    const Fault fault = static_cast<Fault>(i);
    const auto spec = ParseFaultSpec("at=0:" + std::string(FaultName(fault)));
    ASSERT_TRUE(spec.ok());
    EXPECT_EQ(spec->FaultOf(0), fault);
  }
}

}  // namespace
}  // namespace tandem::kvtransfer
