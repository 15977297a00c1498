// Both bounds hold, the line moves in order, every place comes back exactly once, and a refusal's advice is arithmetic.
#include "router/admission.h"

#include <memory>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::router {
namespace {

using ::testing::ElementsAre;
using Place = std::unique_ptr<Admission::Place>;

class AdmissionTest : public testing::Test {
 protected:
  Place Enter(Admission& admission, int id = 0) {
    auto place = admission.Enter([this, id] { admitted_.push_back(id); });
    EXPECT_TRUE(place.ok()) << place.status();
    return *std::move(place);
  }

  base::FakeClock clock_;
  std::vector<int> admitted_;  // whom the line has called, in order
};

TEST_F(AdmissionTest, RefusesBeyondBothBoundsAndTakesAgainWhenAPlaceIsBack) {
  Admission admission({.in_flight_max = 2, .waiting_max = 1}, clock_);
  Place first = Enter(admission);
  const Place second = Enter(admission);
  const Place third = Enter(admission);
  EXPECT_TRUE(second->is_admitted());
  EXPECT_FALSE(third->is_admitted());
  const auto fourth = admission.Enter([] {});
  EXPECT_EQ(fourth.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(fourth.status().message(), "too many requests: 2 in flight, the limit is 2; 1 in line, the limit is 1");
  first.reset();
  EXPECT_TRUE(third->is_admitted());
  EXPECT_EQ(admission.num_in_flight(), 2);
  EXPECT_EQ(admission.num_waiting(), 0);
  EXPECT_FALSE(Enter(admission)->is_admitted());
  EXPECT_EQ(admission.num_waiting(), 0) << "whoever leaves the line gives its place in line back";
}

TEST_F(AdmissionTest, TheLineMovesInOrderOfArrivalAndWhoeverLeavesItIsSkipped) {
  Admission admission({.in_flight_max = 1, .waiting_max = 8}, clock_);
  Place running = Enter(admission);
  Place a = Enter(admission, 1);
  Place b = Enter(admission, 2);
  Place c = Enter(admission, 3);
  b.reset();
  running.reset();
  EXPECT_THAT(admitted_, ElementsAre(1));
  EXPECT_TRUE(a->is_admitted());
  EXPECT_FALSE(c->is_admitted());
  a.reset();
  EXPECT_THAT(admitted_, ElementsAre(1, 3));
  c.reset();
  EXPECT_EQ(admission.num_in_flight(), 0);
}

TEST_F(AdmissionTest, NobodyOvertakesTheLine) {
  Admission admission({.in_flight_max = 1, .waiting_max = 2}, clock_);
  Place running = Enter(admission);
  const Place waiting = Enter(admission, 1);
  running.reset();
  EXPECT_FALSE(Enter(admission, 2)->is_admitted()) << "the free place was the waiting one's";
}

TEST_F(AdmissionTest, RetryAfterIsTheMeasuredWaitForThePlaceBehindTheLine) {
  Admission admission({.in_flight_max = 4, .waiting_max = 8}, clock_);
  std::vector<Place> places;
  for (int i = 0; i < 4; ++i) places.push_back(Enter(admission));
  for (int i = 0; i < 5; ++i) places.push_back(Enter(admission));
  clock_.Advance(absl::Seconds(4));
  EXPECT_EQ(admission.RetryAfter(), absl::Seconds(24)) << "6th in line, at best one has ended in 4 s";
  places.front().reset();
  places[1].reset();  // 2 in 4 s; three still wait
  EXPECT_EQ(admission.RetryAfter(), absl::Seconds(8));
  clock_.Advance(absl::Minutes(10));
  EXPECT_EQ(admission.RetryAfter(), Admission::kRetryAfterMax);
}

TEST_F(AdmissionTest, RetryAfterIsAtLeastASecond) {
  Admission admission({.in_flight_max = 1, .waiting_max = 0}, clock_);
  const Place place = Enter(admission);
  EXPECT_EQ(admission.RetryAfter(), absl::Seconds(1));
}

}  // namespace
}  // namespace tandem::router
