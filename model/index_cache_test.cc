#include "model/index_cache.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::model {
namespace {

using ::testing::HasSubstr;

TEST(IndexCacheTest, APatternIsTakenAsItIs) {
  EXPECT_EQ(*IndexCachePattern("FFSFS", 0, 5), "FFSFS");
  EXPECT_EQ(*IndexCachePattern("", 0, 5), "");
  EXPECT_EQ(*IndexCachePattern("FFFFF", 0, 5), "") << "nothing is shared";
}

TEST(IndexCacheTest, AFrequencyLetsEveryNthLayerChooseFromTheSecondOn) {
  EXPECT_EQ(*IndexCachePattern("", 2, 6), "FFSFSF");
  EXPECT_EQ(*IndexCachePattern("", 4, 10), "FFSSSFSSSF");
  EXPECT_EQ(*IndexCachePattern("", 1, 4), "");
}

TEST(IndexCacheTest, TheMtpLayerChoosesForItself) {
  EXPECT_TRUE(SharesSelection("FS", 1));
  EXPECT_FALSE(SharesSelection("FS", 0));
  EXPECT_FALSE(SharesSelection("FS", 2));
  EXPECT_FALSE(SharesSelection("", 0));
}

TEST(IndexCacheTest, WhatCannotBeIsRefusedByName) {
  const auto refused = [](absl::string_view pattern, int freq) {
    return std::string(IndexCachePattern(pattern, freq, 5).status().message());
  };
  EXPECT_THAT(refused("FFSF", 0), HasSubstr("index_topk_pattern has 4 letters, must have one for each of "
                                            "num_hidden_layers 5"));
  EXPECT_THAT(refused("FFsFS", 0), HasSubstr("has 's' for layer 2"));
  EXPECT_THAT(refused("SFFFF", 0), HasSubstr("begins with S"));
  EXPECT_THAT(refused("FFSFS", 2), HasSubstr("both set"));
  EXPECT_THAT(refused("", -1), HasSubstr("index_topk_freq is -1"));
}

}  // namespace
}  // namespace tandem::model
