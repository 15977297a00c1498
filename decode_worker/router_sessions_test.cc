// Proves who lapses and when: a returning router keeps its requests, a restarted or absent one loses them.
#include "decode_worker/router_sessions.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

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
  std::vector<uint64_t> Attach(uint64_t stream_id, const std::string& instance, uint64_t incarnation,
                               uint64_t arrival_mark = 1) {
    return sessions_.Attach(stream_id, Router(instance, incarnation), arrival_mark);
  }
  // A part of Reattach that names so many positions.
  static proto::Reattach Part(int num_positions, bool is_last) {
    proto::Reattach part;
    for (int i = 0; i < num_positions; ++i) part.add_positions();
    part.set_is_last(is_last);
    return part;
  }
  RouterSessions sessions_{absl::Seconds(2)};
  absl::Duration now_ = absl::Seconds(10);
};

TEST_F(RouterSessionsTest, ARouterThatComesBackInTimeDoesNotLapse) {
  EXPECT_THAT(Attach(1, "a", 100), IsEmpty());
  EXPECT_TRUE(sessions_.Detach(1, now_));
  EXPECT_FALSE(sessions_.IsAttached(100));
  EXPECT_TRUE(sessions_.IsKnown(100));
  EXPECT_THAT(sessions_.TakeLapsed(now_ + absl::Milliseconds(1999)), IsEmpty());
  EXPECT_THAT(Attach(2, "a", 100), IsEmpty());
  EXPECT_THAT(sessions_.TakeLapsed(now_ + absl::Hours(1)), IsEmpty());
  EXPECT_EQ(sessions_.IncarnationOf(2), 100u);
}

TEST_F(RouterSessionsTest, ARouterThatStaysAwayLapsesOnce) {
  Attach(1, "a", 100);
  Attach(2, "b", 200);
  sessions_.Detach(1, now_);
  EXPECT_EQ(sessions_.NextLapse(), now_ + absl::Seconds(2));
  EXPECT_THAT(sessions_.TakeLapsed(now_ + absl::Seconds(2)), ElementsAre(100));
  EXPECT_THAT(sessions_.TakeLapsed(now_ + absl::Seconds(3)), IsEmpty());
  EXPECT_FALSE(sessions_.IsKnown(100));
  EXPECT_TRUE(sessions_.IsAttached(200));
}

TEST_F(RouterSessionsTest, ANewIncarnationLapsesTheOldOneAtOnceAndNobodyElse) {
  Attach(1, "a", 100);
  Attach(2, "b", 200);
  EXPECT_THAT(Attach(3, "a", 101), ElementsAre(100));
  EXPECT_FALSE(sessions_.Detach(1, now_));
  EXPECT_THAT(sessions_.AttachedStreams(), ElementsAre(3, 2));
}

TEST_F(RouterSessionsTest, TheLossOfAReplacedStreamMeansNothing) {
  Attach(1, "a", 100);
  Attach(2, "a", 100);
  EXPECT_FALSE(sessions_.Detach(1, now_));
  EXPECT_TRUE(sessions_.IsAttached(100));
}

TEST_F(RouterSessionsTest, IsInStepOnceAllPositionsHaveCome) {
  Attach(1, "a", 100);
  EXPECT_TRUE(sessions_.IsAttached(100));
  EXPECT_FALSE(sessions_.IsInStep(100));
  EXPECT_EQ(sessions_.AddPositions(1, Part(2, false)), std::nullopt);
  EXPECT_FALSE(sessions_.IsInStep(100));
  const auto positions = sessions_.AddPositions(1, Part(3, true));
  ASSERT_TRUE(positions.has_value());
  EXPECT_EQ(positions->size(), 5u);
  EXPECT_TRUE(sessions_.IsInStep(100));
  EXPECT_EQ(sessions_.AddPositions(1, Part(1, true)), std::nullopt) << "said once on a stream";
}

TEST_F(RouterSessionsTest, ANewStreamStartsItsPositionsAnew) {
  Attach(1, "a", 100, 7);
  sessions_.AddPositions(1, Part(2, false));
  EXPECT_EQ(sessions_.ArrivalMark(100), 7u);
  Attach(2, "a", 100, 9);
  EXPECT_EQ(sessions_.ArrivalMark(100), 9u);
  EXPECT_EQ(sessions_.AddPositions(1, Part(2, true)), std::nullopt) << "of the stream that was replaced";
  const auto positions = sessions_.AddPositions(2, Part(1, true));
  ASSERT_TRUE(positions.has_value());
  EXPECT_EQ(positions->size(), 1u);
  sessions_.Detach(2, now_);
  EXPECT_FALSE(sessions_.IsInStep(100));
}

TEST_F(RouterSessionsTest, PrefillPeersAreTheUnionOfAllRouters) {
  Attach(1, "a", 100);
  Attach(2, "b", 200);
  sessions_.SetPrefillPeers(100, {"p1", "p2"});
  sessions_.SetPrefillPeers(200, {"p2", "p3"});
  EXPECT_THAT(sessions_.PrefillPeers(), ElementsAre("p1", "p2", "p3"));
  sessions_.SetPrefillPeers(100, {});
  EXPECT_THAT(sessions_.PrefillPeers(), ElementsAre("p2", "p3"));
}

}  // namespace
}  // namespace tandem::decode
