#include "router/admission.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tandem::router {

Admission::Place::~Place() { admission_.Leave(*this); }

absl::StatusOr<std::unique_ptr<Admission::Place>> Admission::Enter(std::function<void()> on_admitted) {
  const bool has_room = num_in_flight_ < limits_.in_flight_max;
  if (!has_room && num_waiting() >= limits_.waiting_max) {
    return absl::ResourceExhaustedError(absl::StrCat("too many requests: ", num_in_flight_, " in flight, the limit is ",
                                                     limits_.in_flight_max, "; ", num_waiting(),
                                                     " in line, the limit is ", limits_.waiting_max));
  }
  std::unique_ptr<Place> place(new Place(this));
  if (has_room) {
    Admit(*place);
  } else {
    place->on_admitted_ = std::move(on_admitted);
    place->in_line_ = line_.insert(line_.end(), place.get());
  }
  return place;
}

void Admission::Admit(Place& place) {
  if (num_in_flight_++ == 0) rate_.Restart(clock_.Now());
  place.is_admitted_ = true;
}

void Admission::Leave(Place& place) {
  if (!place.is_admitted_) {
    line_.erase(place.in_line_);
    return;
  }
  --num_in_flight_;
  rate_.Count(clock_.Now());
  if (line_.empty()) return;
  Place& next = *line_.front();
  line_.pop_front();
  Admit(next);
  next.on_admitted_();
}

absl::Duration Admission::RetryAfter() const {
  const absl::Duration forecast = rate_.TimeFor(num_waiting() + 1, clock_.Now());
  return std::clamp(absl::Ceil(forecast, absl::Seconds(1)), absl::Seconds(1), kRetryAfterMax);
}

}  // namespace tandem::router
