// Proves who is let in: the incarnation that greeted last, again and again; never one whose place was taken.
#include "proto/instance_succession.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::proto {
namespace {

using ::testing::HasSubstr;

Identity Router(const std::string& instance, uint64_t incarnation) {
  Identity identity;
  identity.set_instance(instance);
  identity.set_incarnation(incarnation);
  return identity;
}

TEST(InstanceSuccessionTest, ARouterMayComeBackAsLongAsNobodyTookItsPlace) {
  InstanceSuccession succession("router");
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(succession.Greet(Router("a", 100)).ok());
    EXPECT_TRUE(succession.Greet(Router("b", 200)).ok());
  }
}

TEST(InstanceSuccessionTest, OneThatWasReplacedIsRefusedForGoodAndByName) {
  InstanceSuccession succession("router");
  // The higher number is no rank: incarnations are random.
  EXPECT_TRUE(succession.Greet(Router("a", 900)).ok());
  EXPECT_TRUE(succession.Greet(Router("a", 100)).ok());
  for (int i = 0; i < 3; ++i) {
    const absl::Status status = succession.Greet(Router("a", 900));
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr("\"a\""));
    EXPECT_TRUE(succession.Greet(Router("a", 100)).ok());
  }
  EXPECT_TRUE(succession.Greet(Router("a", 101)).ok());
  EXPECT_FALSE(succession.Greet(Router("a", 100)).ok());
  EXPECT_FALSE(succession.Greet(Router("a", 900)).ok());
}

TEST(InstanceSuccessionTest, RemembersABoundedNumberAndForgetsTheOldest) {
  InstanceSuccession succession("router");
  EXPECT_TRUE(succession.Greet(Router("a", 1)).ok());
  EXPECT_TRUE(succession.Greet(Router("a", 2)).ok());
  for (uint64_t i = 3; i < InstanceSuccession::kKnownMax + 1; ++i) {
    EXPECT_TRUE(succession.Greet(Router(absl::StrCat("r", i), i)).ok());
  }
  EXPECT_FALSE(succession.Greet(Router("a", 1)).ok());
  EXPECT_TRUE(succession.Greet(Router("z", 5000)).ok());
  EXPECT_TRUE(succession.Greet(Router("a", 2)).ok()) << "the current one is still known";
  EXPECT_TRUE(succession.Greet(Router("a", 1)).ok()) << "the oldest was forgotten";
}

}  // namespace
}  // namespace tandem::proto
