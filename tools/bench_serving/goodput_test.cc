// Proves that each bound is read by its name and judges its own time, inclusively.
#include "tools/bench_serving/goodput.h"

#include <gtest/gtest.h>

namespace tandem::bench_serving {
namespace {

constexpr AnswerTimes kTimes{.ttft = absl::Milliseconds(100),
                             .tpot = absl::Milliseconds(20),
                             .itl_max = absl::Milliseconds(40),
                             .e2e = absl::Milliseconds(900)};

TEST(GoodputTest, EachBoundJudgesItsOwnTimeInclusively) {
  const struct {
    const char* kept;
    const char* broken;
  } cases[] = {{"ttft:100", "ttft:99.9"}, {"tpot:20", "tpot:19.5"}, {"itl:40", "itl:39"}, {"e2e:900", "e2el:899"}};
  for (const auto& [kept, broken] : cases) {
    GoodputLimits limits;
    ASSERT_TRUE(AddGoodputLimit(kept, &limits).ok()) << kept;
    EXPECT_TRUE(IsGood(kTimes, limits)) << kept;
    GoodputLimits tight;
    ASSERT_TRUE(AddGoodputLimit(broken, &tight).ok()) << broken;
    EXPECT_FALSE(IsGood(kTimes, tight)) << broken;
  }
}

TEST(GoodputTest, OneBrokenBoundOfSeveralIsEnough) {
  GoodputLimits limits;
  ASSERT_TRUE(AddGoodputLimit("ttft:1000", &limits).ok());
  ASSERT_TRUE(AddGoodputLimit("itl:1", &limits).ok());
  EXPECT_FALSE(IsGood(kTimes, limits));
}

TEST(GoodputTest, AnAnswerOfOneTokenHasNoTimePerToken) {
  GoodputLimits limits;
  ASSERT_TRUE(AddGoodputLimit("tpot:1", &limits).ok());
  EXPECT_TRUE(IsGood({.ttft = absl::Seconds(1), .e2e = absl::Seconds(1)}, limits));
}

TEST(GoodputTest, NonsenseIsRefused) {
  GoodputLimits limits;
  for (const char* text : {"", "ttft", "ttft:", "ttft:fast", "ttft:0", "ttft:-1", "ttft:inf", "latency:5", ":5"}) {
    EXPECT_FALSE(AddGoodputLimit(text, &limits).ok()) << text;
  }
  ASSERT_TRUE(AddGoodputLimit("e2e:5", &limits).ok());
  EXPECT_FALSE(AddGoodputLimit("e2el:6", &limits).ok()) << "two names of one bound";
}

}  // namespace
}  // namespace tandem::bench_serving
