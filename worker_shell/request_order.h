// In which order requests take pages and count as the oldest, at either worker: of arrival, or of priority.
//
// fcfs: of arrival. priority: higher priorities first, equal ones in order of arrival; but a request that as many
// as kOvertakenMax later ones have gone ahead of goes before all priorities, so that none waits for ever.
// Pure. Tested by request_order_test.cc.
#pragma once

#include <compare>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/strings/string_view.h"

namespace tandem::worker_shell {

enum class SchedulePolicy { kFcfs, kPriority };

// "fcfs" or "priority", which the configuration has checked.
inline SchedulePolicy SchedulePolicyOf(absl::string_view name) {
  return name == "priority" ? SchedulePolicy::kPriority : SchedulePolicy::kFcfs;
}

// Smaller places are earlier.
struct Place {
  int64_t rank = 0;
  uint64_t arrival = 0;
  auto operator<=>(const Place&) const = default;
};

inline constexpr int kOvertakenMax = 16;

inline Place PlaceOf(SchedulePolicy policy, int32_t priority, uint64_t arrival) {
  return {.rank = policy == SchedulePolicy::kPriority ? -int64_t{priority} : 0, .arrival = arrival};
}

// Whoever left `line` from the place `gone` has gone ahead of those that came before it and stand behind it. Moves the
// ones that this has happened to kOvertakenMax times to the front. Request: has `Place place` and `int num_overtaken`.
template <typename Request>
void CountOvertaken(const Place& gone, absl::btree_map<Place, Request*>& line) {
  std::vector<Request*> due;
  for (auto it = line.upper_bound(gone); it != line.end(); ++it) {
    Request& request = *it->second;
    if (request.place.arrival < gone.arrival && ++request.num_overtaken >= kOvertakenMax) due.push_back(&request);
  }
  for (Request* request : due) {
    line.erase(request->place);
    request->place.rank = std::numeric_limits<int64_t>::min();
    line.emplace(request->place, request);
  }
}

}  // namespace tandem::worker_shell
