// Proves: order of arrival under fcfs; higher priorities first, equal ones in order of arrival; and that in any stream
// of arrivals nobody is overtaken more than kOvertakenMax times before it goes first.
#include "worker_shell/request_order.h"

#include <deque>
#include <random>

#include "gtest/gtest.h"

namespace tandem::worker_shell {
namespace {

struct Request {
  Place place;
  int num_overtaken = 0;
  int32_t priority = 0;
  int times_passed = 0;  // counted by the test
};

TEST(RequestOrderTest, PlacesAreOfArrivalOrOfPriority) {
  EXPECT_LT(PlaceOf(SchedulePolicy::kFcfs, -5, 1), PlaceOf(SchedulePolicy::kFcfs, 5, 2));
  EXPECT_LT(PlaceOf(SchedulePolicy::kPriority, 5, 2), PlaceOf(SchedulePolicy::kPriority, -5, 1));
  EXPECT_LT(PlaceOf(SchedulePolicy::kPriority, 5, 1), PlaceOf(SchedulePolicy::kPriority, 5, 2));
  EXPECT_LT(PlaceOf(SchedulePolicy::kPriority, std::numeric_limits<int32_t>::max(), 1),
            PlaceOf(SchedulePolicy::kPriority, std::numeric_limits<int32_t>::min(), 0));
}

TEST(RequestOrderTest, NobodyIsOvertakenForEver) {
  for (const SchedulePolicy policy : {SchedulePolicy::kFcfs, SchedulePolicy::kPriority}) {
    std::mt19937 random(1);
    std::deque<Request> requests;
    absl::btree_map<Place, Request*> line;
    int most_passed = 0, num_out_of_order = 0;
    uint64_t last_arrival = 0;
    for (uint64_t arrival = 1; arrival < 5000; ++arrival) {
      // One comes, one goes: the low ones would wait for ever.
      const int32_t priority = arrival % 50 == 0 ? -1 : static_cast<int32_t>(random() % 3);
      Request& request = requests.emplace_back();
      request.priority = priority;
      request.place = PlaceOf(policy, priority, arrival);
      line.emplace(request.place, &request);
      if (arrival < 30) continue;
      Request& first = *line.begin()->second;
      const Place gone = first.place;
      line.erase(line.begin());
      num_out_of_order += gone.arrival < last_arrival;
      last_arrival = gone.arrival;
      for (const auto& [place, other] : line) other->times_passed += place.arrival < gone.arrival;
      most_passed = std::max(most_passed, first.times_passed);
      CountOvertaken(gone, line);
    }
    // Those that are due at the same time wait for each other.
    EXPECT_LE(most_passed, policy == SchedulePolicy::kFcfs ? 0 : kOvertakenMax);
    EXPECT_EQ(num_out_of_order > 0, policy == SchedulePolicy::kPriority);
    for (const auto& [place, request] : line) EXPECT_LE(request->times_passed, kOvertakenMax);
  }
}

}  // namespace
}  // namespace tandem::worker_shell
