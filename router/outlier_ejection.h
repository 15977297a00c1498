// Whether one worker has failed so often in a row that new requests should go elsewhere for a while.
//
// A worker that fails fast looks idle, and the least loaded one gets the next request: without this, one broken worker
// draws all traffic. After kFailuresMax failures with no success between, the worker is ejected for kTimeMin, doubled
// with each further ejection up to kTimeMax. Then it is on trial: one request at a time, whose outcome decides. An hour
// of service (kForgetAfter) makes the next ejection a first one again. Failures are the worker's (a crash, an internal
// error, a transfer that broke), never a client's (router/failover.h tells them apart). An ejection is advice:
// pair_picker.h looks past it where too many workers are ejected to be all at fault.
// Pure. Tested by outlier_ejection_test.cc.
#pragma once

#include <algorithm>

#include "absl/time/time.h"

namespace tandem::router {

class OutlierEjection final {
 public:
  static constexpr int kFailuresMax = 5;
  static constexpr absl::Duration kTimeMin = absl::Seconds(1);
  static constexpr absl::Duration kTimeMax = absl::Seconds(60);
  static constexpr absl::Duration kForgetAfter = absl::Hours(1);

  enum class Outcome {
    kSuccess,
    kFailure,
    kNothing,  // says nothing of the worker: the client left, the deadline passed
  };

  // An attempt is given to the worker. True: it is the trial, whose outcome decides.
  bool OnStart(absl::Duration now) {
    const bool is_trial = is_on_trial_ && now >= ejected_until_ && !trial_runs_;
    trial_runs_ |= is_trial;
    return is_trial;
  }
  // The worker's part of an attempt is over. True where this ejects it. Since an ejection only a trial counts: the
  // others began before, or came because there was nobody else.
  bool OnEnd(Outcome outcome, bool is_trial, absl::Duration now) {
    if (now < ejected_until_ || (is_on_trial_ && !is_trial)) return false;
    if (is_trial) trial_runs_ = false;
    if (outcome == Outcome::kNothing) return false;
    if (outcome == Outcome::kSuccess) {
      num_failures_ = 0;
      is_on_trial_ = false;
      return false;
    }
    ++num_failures_;
    if (!is_on_trial_ && num_failures_ < kFailuresMax) return false;
    time_ = now - ejected_until_ > kForgetAfter ? kTimeMin : std::min(time_ * 2, kTimeMax);
    ejected_until_ = now + time_;
    is_on_trial_ = true;
    return true;
  }

  // New requests should go elsewhere.
  bool is_out(absl::Duration now) const { return now < ejected_until_ || trial_runs_; }
  absl::Duration time() const { return time_; }  // of the latest ejection

 private:
  int num_failures_ = 0;      // since the latest success
  bool is_on_trial_ = false;  // since the latest ejection, until a success
  bool trial_runs_ = false;
  absl::Duration time_ = absl::ZeroDuration();
  absl::Duration ejected_until_ = -absl::InfiniteDuration();
};

}  // namespace tandem::router
