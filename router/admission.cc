#include "router/admission.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tandem::router {

Admission::Place::~Place() { admission_.Leave(*this); }

absl::Status Admission::Full() const {
  return absl::ResourceExhaustedError(absl::StrCat("too many requests: ", num_in_flight_, " in flight, the limit is ",
                                                   limits_.in_flight_max, "; ", num_waiting(),
                                                   " in line, the limit is ", limits_.waiting_max));
}

absl::StatusOr<std::unique_ptr<Admission::Place>> Admission::Enter(const Caller& caller,
                                                                   std::function<void()> on_change) {
  const bool has_room = num_in_flight_ < limits_.in_flight_max;
  Place* sent_away = nullptr;
  if (!has_room && num_waiting() >= limits_.waiting_max) {
    sent_away = WhoMakesRoomFor(caller);
    if (sent_away == nullptr) return Full();
    TakeOutOfLine(*sent_away);
    sent_away->is_sent_away_ = true;
  }
  std::unique_ptr<Place> place(new Place(this, caller));
  if (has_room) {
    Admit(*place);
  } else {
    place->on_change_ = std::move(on_change);
    place->in_line_ = line_.insert(line_.end(), place.get());
    ++shares_[caller.key].waiting;
  }
  if (sent_away != nullptr) sent_away->on_change_();
  return place;
}

void Admission::Admit(Place& place) {
  if (num_in_flight_++ == 0) rate_.Restart(clock_.Now());
  place.is_admitted_ = true;
  ++shares_[place.caller_.key].in_flight;
}

void Admission::TakeOutOfLine(Place& place) {
  line_.erase(place.in_line_);
  --shares_[place.caller_.key].waiting;
  Forget(place.caller_.key);
}

void Admission::Forget(int caller) {
  const auto share = shares_.find(caller);
  if (share->second.in_flight == 0 && share->second.waiting == 0) shares_.erase(share);
}

void Admission::Leave(Place& place) {
  if (place.is_sent_away_) return;
  if (!place.is_admitted_) return TakeOutOfLine(place);
  --num_in_flight_;
  --shares_[place.caller_.key].in_flight;
  rate_.Count(clock_.Now());
  if (line_.empty()) return Forget(place.caller_.key);
  // The first of the best: the line is in order of arrival.
  Place& next = **std::min_element(line_.begin(), line_.end(), [this](const Place* a, const Place* b) {
    if (a->caller_.priority != b->caller_.priority) return a->caller_.priority > b->caller_.priority;
    return shares_.at(a->caller_.key).in_flight < shares_.at(b->caller_.key).in_flight;
  });
  Admit(next);  // before it leaves the line: its caller's share must not be forgotten between
  TakeOutOfLine(next);
  if (place.caller_.key != next.caller_.key) Forget(place.caller_.key);
  next.on_change_();
}

Admission::Place* Admission::WhoMakesRoomFor(const Caller& newcomer) {
  if (line_.empty()) return nullptr;
  // The last of the worst: lowest priority, then most in line, then latest.
  Place& worst = **std::min_element(line_.rbegin(), line_.rend(), [this](const Place* a, const Place* b) {
    if (a->caller_.priority != b->caller_.priority) return a->caller_.priority < b->caller_.priority;
    return shares_.at(a->caller_.key).waiting > shares_.at(b->caller_.key).waiting;
  });
  if (worst.caller_.priority != newcomer.priority) {
    return worst.caller_.priority < newcomer.priority ? &worst : nullptr;
  }
  const auto share = shares_.find(newcomer.key);
  const int num_after = 1 + (share == shares_.end() ? 0 : share->second.waiting);
  return shares_.at(worst.caller_.key).waiting > num_after ? &worst : nullptr;
}

absl::Duration Admission::RetryAfter() const {
  const absl::Duration forecast = rate_.TimeFor(num_waiting() + 1, clock_.Now());
  return std::clamp(absl::Ceil(forecast, absl::Seconds(1)), absl::Seconds(1), kRetryAfterMax);
}

}  // namespace tandem::router
