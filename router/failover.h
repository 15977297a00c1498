// Whether and when a prompt whose attempt has failed is given to workers again. One for each prompt.
//
// Pure: inputs are failures, fruitless looks for a pair, and time; the answer is a point of time to look for a pair at,
// or the error that the client gets. Any failure of workers may be tried again elsewhere, since a resumed attempt
// draws the same tokens. Two bounds keep a request that breaks its workers from going through all of them, and both
// start anew whenever a token has come: kCrashesMax workers that were lost or failed in a way of their own,
// kFailuresMax failures of any kind. What has given nothing yet, and what was not started yet, waits for a pair only
// while a worker may be back, up to kReturnWaitMax; what has given tokens waits for any, up to wait_max.
// Tested by failover_test.cc.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace tandem::router {

// A failure of the worker or the way to it, not of the request: another worker may do better.
bool IsWorkerFailure(const absl::Status& cause);

class Failover final {
 public:
  static constexpr int kCrashesMax = 2;
  static constexpr int kFailuresMax = 4;
  // Between looks for a pair, and before the second failure's next attempt; doubled with each failure after that.
  static constexpr absl::Duration kLookInterval = absl::Milliseconds(50);
  // A stream that broke is open again or its worker lost within a second; a restarted pair has then to find itself.
  static constexpr absl::Duration kReturnWaitMax = absl::Seconds(2);

  // wait_max: nullopt: nothing is tried again.
  explicit Failover(std::optional<absl::Duration> wait_max) : wait_max_(wait_max) {}

  struct Decision {
    absl::Status error;           // not OK: the prompt fails with it
    absl::Duration look_at = {};  // else when to look for a pair
  };

  // An attempt has failed with the cause, after so many tokens of the prompt in all.
  Decision OnFailure(const absl::Status& cause, bool is_worker_lost, int64_t num_generated, absl::Duration now);
  // It was not to look before this point: other prompts went first. Waiting for a pair counts from there.
  void LooksFrom(absl::Duration point) { failing_since_ = std::max(failing_since_, point); }
  // No pair can take it now. may_be_back: a worker whose stream has just broken may yet return.
  Decision OnNoPair(const absl::Status& why, bool may_be_back, absl::Duration now);

  int num_failures() const { return num_failures_; }    // in all
  const absl::Status& cause() const { return cause_; }  // of the latest failure

 private:
  const std::optional<absl::Duration> wait_max_;
  absl::Status cause_;                                       // of the latest failure
  absl::Duration no_pair_since_ = absl::InfiniteDuration();  // the first fruitless look after it
  absl::Duration failing_since_;                             // the first failure after the latest token
  int64_t num_generated_ = -1;                               // at that failure
  int num_failures_ = 0;
  int num_fruitless_failures_ = 0;  // since that token
  int num_fruitless_crashes_ = 0;
};

}  // namespace tandem::router
