#include "router/failover.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tandem::router {
namespace {

bool IsCrash(const absl::Status& cause) {
  return absl::IsInternal(cause) || absl::IsDataLoss(cause) || absl::IsUnknown(cause);
}

absl::Status With(const absl::Status& cause, const std::string& addition) {
  return absl::Status(cause.code(), absl::StrCat(std::string(cause.message()), "; ", addition));
}

}  // namespace

bool IsWorkerFailure(const absl::Status& cause) {
  switch (cause.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
      return true;
    default:
      return false;
  }
}

Failover::Decision Failover::OnFailure(const absl::Status& cause, bool is_worker_lost, int64_t num_generated,
                                       absl::Duration now) {
  cause_ = cause;
  no_pair_since_ = absl::InfiniteDuration();
  ++num_failures_;
  if (num_generated != num_generated_) {
    num_generated_ = num_generated;
    failing_since_ = now;
    num_fruitless_failures_ = 0;
    num_fruitless_crashes_ = 0;
  }
  ++num_fruitless_failures_;
  if (is_worker_lost || IsCrash(cause)) ++num_fruitless_crashes_;
  // A full line is what a new request should hear of, but no reason to lose a stream.
  const bool is_full_line = absl::IsResourceExhausted(cause) && num_generated > 0;
  if (!wait_max_.has_value() || !(IsWorkerFailure(cause) || is_full_line)) return {.error = cause};
  if (num_fruitless_crashes_ >= kCrashesMax) {
    return {.error = absl::InternalError(
                absl::StrCat("the request was on ", num_fruitless_crashes_,
                             " workers that failed, with no token between; the last: ", std::string(cause.message())))};
  }
  if (num_fruitless_failures_ >= kFailuresMax) {
    return {.error = With(cause, absl::StrCat("failed ", num_fruitless_failures_, " times with no token between"))};
  }
  if (num_fruitless_failures_ == 1) return {.look_at = now};
  return {.look_at = now + kLookInterval * (1 << (num_fruitless_failures_ - 2))};
}

Failover::Decision Failover::OnNoPair(const absl::Status& why, bool may_be_back, absl::Duration now) {
  no_pair_since_ = std::min(no_pair_since_, now);
  if (num_generated_ <= 0) {
    const bool waits = absl::IsUnavailable(why) && may_be_back && now - no_pair_since_ < kReturnWaitMax;
    if (waits) return {.look_at = now + kLookInterval};
    return {.error = cause_.ok() ? why : cause_};
  }
  if (now - failing_since_ < *wait_max_) return {.look_at = now + kLookInterval};
  return {.error = With(cause_, absl::StrCat("no worker to go on with for ", absl::FormatDuration(*wait_max_), ": ",
                                             std::string(why.message())))};
}

}  // namespace tandem::router
