// Bounds the requests that a shard has on its hands, from the first look at a body to the workers' confirmation.
//
// Whoever comes beyond the bound is refused at once: waiting would only move the queue into the clients' sockets.
// Belongs to the shard's thread. Tested by admission_test.cc.
#pragma once

#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace tandem::router {

class Admission final {
 public:
  explicit Admission(int requests_max) : requests_max_(requests_max) {}
  Admission(const Admission&) = delete;
  Admission& operator=(const Admission&) = delete;

  // Gives its place back when it is destroyed. The Admission outlives its tickets.
  class Ticket final {
   public:
    Ticket(Ticket&& other) noexcept : admission_(std::exchange(other.admission_, nullptr)) {}
    Ticket& operator=(Ticket&&) = delete;
    ~Ticket() {
      if (admission_ != nullptr) --admission_->num_requests_;
    }

   private:
    friend class Admission;
    explicit Ticket(Admission* admission) : admission_(admission) { ++admission->num_requests_; }
    Admission* admission_;
  };

  // RESOURCE_EXHAUSTED with the bound.
  absl::StatusOr<Ticket> Admit() {
    if (num_requests_ >= requests_max_) {
      return absl::ResourceExhaustedError(
          absl::StrCat("too many requests in flight: ", num_requests_, ", the limit is ", requests_max_));
    }
    return Ticket(this);
  }

  int num_requests() const { return num_requests_; }

 private:
  const int requests_max_;
  int num_requests_ = 0;
};

}  // namespace tandem::router
