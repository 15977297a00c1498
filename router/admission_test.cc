// Both bounds hold, the line moves in order and is shared fairly between callers, every place comes back exactly once,
// and a refusal's advice is arithmetic.
#include "router/admission.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <random>
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
  Place Enter(Admission& admission, int id = 0, const Caller& caller = {}) {
    auto place = admission.Enter(caller, [this, id] { admitted_.push_back(id); });
    EXPECT_TRUE(place.ok()) << place.status();
    return *std::move(place);
  }

  base::FakeClock clock_;
  std::vector<int> admitted_;  // whom the line has called, or sent away, in order
};

TEST_F(AdmissionTest, RefusesBeyondBothBoundsAndTakesAgainWhenAPlaceIsBack) {
  Admission admission({.in_flight_max = 2, .waiting_max = 1}, clock_);
  Place first = Enter(admission);
  const Place second = Enter(admission);
  const Place third = Enter(admission);
  EXPECT_TRUE(second->is_admitted());
  EXPECT_FALSE(third->is_admitted());
  const auto fourth = admission.Enter({}, [] {});
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

// Ten requests of one caller are there first; each of another's comes next all the same.
TEST_F(AdmissionTest, TheLineIsSharedBetweenCallersByWhatTheyHaveInFlight) {
  Admission admission({.in_flight_max = 2, .waiting_max = 20}, clock_);
  const Caller many{.key = 1}, few{.key = 2};
  std::vector<Place> places;
  for (int i = 0; i < 10; ++i) places.push_back(Enter(admission, 100 + i, many));
  for (int i = 0; i < 3; ++i) places.push_back(Enter(admission, 200 + i, few));
  places[0].reset();  // one of many runs still: few has none
  places[1].reset();  // few has one, many none
  EXPECT_THAT(admitted_, ElementsAre(200, 102));
  places[2].reset();  // few has one, many none
  places[10].reset();
  EXPECT_THAT(admitted_, ElementsAre(200, 102, 103, 201));
  while (admission.num_in_flight() > 0) {  // whoever is admitted ends; those in line move up
    const auto running = std::find_if(places.begin(), places.end(),
                                      [](const Place& place) { return place != nullptr && place->is_admitted(); });
    running->reset();
  }
  EXPECT_EQ(admitted_.size(), 11u) << "nobody is left behind";
}

TEST_F(AdmissionTest, AHigherPriorityGoesFirst) {
  Admission admission({.in_flight_max = 1, .waiting_max = 8}, clock_);
  Place running = Enter(admission);
  Place low = Enter(admission, 1, {.key = 1, .priority = Priority::kLow});
  Place normal = Enter(admission, 2, {.key = 2});
  Place high = Enter(admission, 3, {.key = 3, .priority = Priority::kHigh});
  running.reset();
  high.reset();
  normal.reset();
  EXPECT_THAT(admitted_, ElementsAre(3, 2, 1));
}

TEST_F(AdmissionTest, WhoFillsTheLineMakesRoomForOthers) {
  Admission admission({.in_flight_max = 1, .waiting_max = 3}, clock_);
  const Caller many{.key = 1}, few{.key = 2};
  std::vector<Place> places;
  for (int i = 0; i < 4; ++i) places.push_back(Enter(admission, 100 + i, many));
  EXPECT_FALSE(admission.Enter(many, [] {}).ok()) << "not for more of its own";
  const Place first = Enter(admission, 200, few);
  EXPECT_THAT(admitted_, ElementsAre(103)) << "the latest of whom has most in line";
  EXPECT_TRUE(places[3]->is_sent_away());
  EXPECT_EQ(admission.num_waiting(), 3);
  EXPECT_FALSE(admission.Enter(few, [] {}).ok()) << "two against one: equal after that is not less";
  places[3].reset();
  EXPECT_EQ(admission.num_waiting(), 3) << "who was sent away gives nothing back";
  const Place high = Enter(admission, 300, {.key = 3, .priority = Priority::kHigh});
  EXPECT_THAT(admitted_, ElementsAre(103, 102));
  const auto low = admission.Enter({.key = 4, .priority = Priority::kLow}, [] {});
  EXPECT_EQ(low.status().code(), absl::StatusCode::kResourceExhausted);
}

// Against a plain count of everything, whatever the order of events.
TEST_F(AdmissionTest, RandomCallersKeepTheBooks) {
  std::mt19937 random(5);
  Admission admission({.in_flight_max = 3, .waiting_max = 5}, clock_);
  std::vector<Place> places;
  for (int step = 0; step < 20'000; ++step) {
    if (random() % 2 == 0) {
      const Caller caller{.key = static_cast<int>(random() % 4), .priority = static_cast<Priority>(random() % 3 - 1)};
      if (auto place = admission.Enter(caller, [] {}); place.ok()) places.push_back(*std::move(place));
    } else if (!places.empty()) {
      const size_t one = random() % places.size();
      places.erase(places.begin() + static_cast<std::ptrdiff_t>(one));
    }
    int num_admitted = 0, num_waiting = 0;
    for (const Place& place : places) {
      num_admitted += place->is_admitted() ? 1 : 0;
      num_waiting += !place->is_admitted() && !place->is_sent_away() ? 1 : 0;
    }
    ASSERT_EQ(admission.num_in_flight(), num_admitted);
    ASSERT_EQ(admission.num_waiting(), num_waiting);
    ASSERT_LE(num_waiting, 5);
    ASSERT_TRUE(num_waiting == 0 || num_admitted == 3) << "nobody waits beside a free place";
  }
  places.clear();
  EXPECT_EQ(admission.num_in_flight(), 0);
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
