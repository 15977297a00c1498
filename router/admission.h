// Bounds the requests that a shard has on its hands: so many in flight, so many in line behind them, the rest refused.
//
// A request is in flight from its place on, before the first look at its body, to the workers' confirmation that they
// hold nothing of it. Whoever gives a place back hands it to the next in line. The line is fair: a higher priority goes
// first; of equal ones, a request of the caller that has the fewest in flight; of that caller, the oldest. So one
// caller's thousand requests hold up another's first one by one place at most, and a caller that is alone has all of
// them. Where the line is full, too, the caller with most in it makes room: its latest request is sent away for a
// newcomer of a caller with less, or of a lower priority for a higher one. Callers are told apart by their keys.
//
// A refusal says when a place is likely (Retry-After), from the rate at which requests have left lately. Belongs to the
// shard's thread. Tested by admission_test.cc.
#pragma once

#include <functional>
#include <list>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "router/caller.h"
#include "router/completion_rate.h"

namespace tandem::router {

class Admission final {
 public:
  static constexpr absl::Duration kRetryAfterMax = absl::Seconds(60);

  struct Limits {
    int in_flight_max = 1;
    int waiting_max = 0;
  };

  // The clock outlives the admission, and that outlives its places.
  Admission(const Limits& limits, const base::Clock& clock) : limits_(limits), clock_(clock) {}
  Admission(const Admission&) = delete;
  Admission& operator=(const Admission&) = delete;

  // One request's place in line or in flight; given back by the destructor.
  class Place final {
   public:
    ~Place();
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    bool is_admitted() const { return is_admitted_; }
    bool is_sent_away() const { return is_sent_away_; }

   private:
    friend class Admission;
    Place(Admission* admission, const Caller& caller) : admission_(*admission), caller_(caller) {}
    Admission& admission_;
    const Caller caller_;
    std::function<void()> on_change_;
    bool is_admitted_ = false;
    bool is_sent_away_ = false;
    std::list<Place*>::iterator in_line_;  // where it is neither
  };

  // Admitted at once where there is room; else in line, and on_change is called when its turn has come or it has been
  // sent away (on the shard's thread, from inside the call that gave the place back or entered). RESOURCE_EXHAUSTED
  // with both bounds where the line is full, too, and nobody makes room.
  absl::StatusOr<std::unique_ptr<Place>> Enter(const Caller& caller, std::function<void()> on_change);

  // What whoever is sent away is told.
  absl::Status Full() const;
  // When whoever is refused now may find a place: 1 s to kRetryAfterMax, in whole seconds.
  absl::Duration RetryAfter() const;

  const Limits& limits() const { return limits_; }
  int num_in_flight() const { return num_in_flight_; }
  int num_waiting() const { return static_cast<int>(line_.size()); }

 private:
  struct Share {  // of one caller
    int in_flight = 0;
    int waiting = 0;
  };

  void Admit(Place& place);
  void Leave(Place& place);
  void TakeOutOfLine(Place& place);
  // In line; nullptr where nobody has to go before the newcomer.
  Place* WhoMakesRoomFor(const Caller& newcomer);
  void Forget(int caller);  // where nothing is left of it

  const Limits limits_;
  const base::Clock& clock_;
  int num_in_flight_ = 0;
  std::list<Place*> line_;                  // oldest first
  absl::flat_hash_map<int, Share> shares_;  // of callers that have anything here
  CompletionRate rate_;
};

}  // namespace tandem::router
