#include "kvtransfer/link_liveness.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tandem::kvtransfer {

LinkLiveness::LinkLiveness(const LivenessOptions& options, absl::Duration now)
    : options_(options), last_look_(now), next_heartbeat_(now), last_step_(now) {}

void LinkLiveness::Heard(absl::Duration now) {
  silent_for_ = absl::ZeroDuration();
  last_look_ = std::max(last_look_, now);
}

void LinkLiveness::HeardHeartbeat(absl::Duration now, const proto::PeerHeartbeat& heartbeat) {
  Heard(now);
  peer_work_age_ = absl::Microseconds(static_cast<int64_t>(heartbeat.oldest_work_age_us()));
  if (heartbeat.engine_steps() != peer_steps_ || peer_work_age_ == absl::ZeroDuration()) last_step_ = now;
  peer_steps_ = heartbeat.engine_steps();
}

absl::Status LinkLiveness::Check(absl::Duration now) {
  silent_for_ += std::clamp(now - last_look_, absl::ZeroDuration(), options_.look_max);
  last_look_ = std::max(last_look_, now);
  if (silent_for_ >= options_.silence_max) {
    return absl::UnavailableError(absl::StrCat("no sign of life for ", absl::FormatDuration(silent_for_), ", at most ",
                                               absl::FormatDuration(options_.silence_max)));
  }
  if (now - last_step_ >= options_.engine_stall_max && peer_work_age_ >= options_.engine_stall_max) {
    return absl::UnavailableError(absl::StrCat("its engine is stuck at step ", peer_steps_, " for ",
                                               absl::FormatDuration(now - last_step_), " with work waiting"));
  }
  return absl::OkStatus();
}

proto::PeerHeartbeat LinkLiveness::NextHeartbeat(absl::Duration now, const EngineVitals& vitals) {
  next_heartbeat_ = now + options_.heartbeat_interval;
  proto::PeerHeartbeat heartbeat;
  heartbeat.set_sequence(++sequence_);
  heartbeat.set_engine_steps(vitals.steps);
  heartbeat.set_oldest_work_age_us(static_cast<uint64_t>(absl::ToInt64Microseconds(vitals.oldest_work_age)));
  return heartbeat;
}

absl::Duration LinkLiveness::NextDue() const {
  return std::min(next_heartbeat_, last_look_ + options_.silence_max - silent_for_);
}

absl::Duration Backoff::Next() {
  const absl::Duration wait = next_;
  next_ = std::min(next_ * 2, max_);
  return wait;
}

}  // namespace tandem::kvtransfer
