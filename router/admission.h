// Bounds the requests that a shard has on its hands: so many in flight, so many in line behind them, the rest refused.
//
// A request is in flight from its place on, before the first look at its body, to the workers' confirmation that they
// hold nothing of it. The line is in order of arrival: whoever gives a place back hands it to the oldest. A refusal
// says when a place is likely (Retry-After), from the rate at which requests have left lately. Belongs to the shard's
// thread. Tested by admission_test.cc.
#pragma once

#include <functional>
#include <list>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
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

   private:
    friend class Admission;
    explicit Place(Admission* admission) : admission_(*admission) {}
    Admission& admission_;
    std::function<void()> on_admitted_;
    bool is_admitted_ = false;
    std::list<Place*>::iterator in_line_;  // where it is not admitted
  };

  // Admitted at once where there is room; else in line, and on_admitted is called when its turn has come (on the
  // shard's thread, from inside the call that gave the place back). RESOURCE_EXHAUSTED with both bounds where the line
  // is full too.
  absl::StatusOr<std::unique_ptr<Place>> Enter(std::function<void()> on_admitted);

  // When whoever is refused now may find a place: 1 s to kRetryAfterMax, in whole seconds.
  absl::Duration RetryAfter() const;

  const Limits& limits() const { return limits_; }
  int num_in_flight() const { return num_in_flight_; }
  int num_waiting() const { return static_cast<int>(line_.size()); }

 private:
  void Admit(Place& place);
  void Leave(Place& place);

  const Limits limits_;
  const base::Clock& clock_;
  int num_in_flight_ = 0;
  std::list<Place*> line_;  // oldest first
  CompletionRate rate_;
};

}  // namespace tandem::router
