// Proves who lapses and when: a returning router keeps its requests, a restarted or absent one loses them.
#include "decode_worker/router_sessions.h"

#include <cstdint>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::decode {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

proto::Identity Router(const std::string& instance, uint64_t incarnation) {
  proto::Identity identity;
  identity.set_instance(instance);
  identity.set_incarnation(incarnation);
  identity.set_role("router");
  return identity;
}

class RouterSessionsTest : public ::testing::Test {
 protected:
  RouterSessions sessions_{absl::Seconds(2)};
  absl::Duration now_ = absl::Seconds(10);
};

TEST_F(RouterSessionsTest, ARouterThatComesBackInTimeDoesNotLapse) {
  EXPECT_THAT(sessions_.Attach(1, Router("a", 100)), IsEmpty());
  EXPECT_TRUE(sessions_.Detach(1, now_));
  EXPECT_FALSE(sessions_.IsAttached(100));
  EXPECT_TRUE(sessions_.IsKnown(100));
  EXPECT_THAT(sessions_.TakeLapsed(now_ + absl::Milliseconds(1999)), IsEmpty());
  EXPECT_THAT(sessions_.Attach(2, Router("a", 100)), IsEmpty());
  EXPECT_THAT(sessions_.TakeLapsed(now_ + absl::Hours(1)), IsEmpty());
  EXPECT_EQ(sessions_.IncarnationOf(2), 100u);
}

TEST_F(RouterSessionsTest, ARouterThatStaysAwayLapsesOnce) {
  sessions_.Attach(1, Router("a", 100));
  sessions_.Attach(2, Router("b", 200));
  sessions_.Detach(1, now_);
  EXPECT_EQ(sessions_.NextLapse(), now_ + absl::Seconds(2));
  EXPECT_THAT(sessions_.TakeLapsed(now_ + absl::Seconds(2)), ElementsAre(100));
  EXPECT_THAT(sessions_.TakeLapsed(now_ + absl::Seconds(3)), IsEmpty());
  EXPECT_FALSE(sessions_.IsKnown(100));
  EXPECT_TRUE(sessions_.IsAttached(200));
}

TEST_F(RouterSessionsTest, ANewIncarnationLapsesTheOldOneAtOnceAndNobodyElse) {
  sessions_.Attach(1, Router("a", 100));
  sessions_.Attach(2, Router("b", 200));
  EXPECT_THAT(sessions_.Attach(3, Router("a", 101)), ElementsAre(100));
  EXPECT_FALSE(sessions_.Detach(1, now_));
  EXPECT_THAT(sessions_.Attached(), ElementsAre(101, 200));
}

TEST_F(RouterSessionsTest, TheLossOfAReplacedStreamMeansNothing) {
  sessions_.Attach(1, Router("a", 100));
  sessions_.Attach(2, Router("a", 100));
  EXPECT_FALSE(sessions_.Detach(1, now_));
  EXPECT_TRUE(sessions_.IsAttached(100));
}

TEST_F(RouterSessionsTest, PrefillPeersAreTheUnionOfAllRouters) {
  sessions_.Attach(1, Router("a", 100));
  sessions_.Attach(2, Router("b", 200));
  sessions_.SetPrefillPeers(100, {"p1", "p2"});
  sessions_.SetPrefillPeers(200, {"p2", "p3"});
  EXPECT_THAT(sessions_.PrefillPeers(), ElementsAre("p1", "p2", "p3"));
  sessions_.SetPrefillPeers(100, {});
  EXPECT_THAT(sessions_.PrefillPeers(), ElementsAre("p2", "p3"));
}

}  // namespace
}  // namespace tandem::decode
