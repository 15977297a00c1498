#include "kvtransfer/peer_lanes.h"

#include <algorithm>

#include "base/check.h"

namespace tandem::kvtransfer {
namespace {

constexpr double kCompletionDecay = 0.9;
constexpr double kHearingDecay = 0.99;
constexpr absl::Duration kHearingDelayMax = absl::Milliseconds(200);

}  // namespace

PeerLanes::PeerLanes(const LanePolicy& policy, const std::vector<PeerLane>& lanes) : policy_(policy) {
  for (const PeerLane& lane : lanes) lanes_.push_back({.kind = lane.kind, .bytes_per_second = lane.bytes_per_second});
}

bool PeerLanes::HasUsable(absl::Duration now) const {
  return std::any_of(lanes_.begin(), lanes_.end(), [&](const Lane& lane) { return lane.quarantined_until <= now; });
}

int PeerLanes::Pick(absl::Duration now, int avoid) const {
  TANDEM_CHECK(!lanes_.empty(), "a peer has lanes");
  for (int i = 0; i < size(); ++i) {
    if (i != avoid && lanes_[i].quarantined_until <= now) return i;
  }
  return std::max(avoid, 0);
}

int64_t PeerLanes::WindowBytes(absl::Duration now) const {
  const double rate = lanes_[Pick(now)].bytes_per_second;
  const double bytes = rate * absl::ToDoubleSeconds(policy_.fetch_window + hearing_delay_);
  return static_cast<int64_t>(
      std::clamp(bytes, static_cast<double>(policy_.window_bytes_min), static_cast<double>(policy_.window_bytes_max)));
}

void PeerLanes::CountCompletion(int index, int64_t num_bytes, const FetchTimes& times) {
  Lane& lane = lanes_[index];
  if (times.heard > last_heard_) hearing_delay_ *= kHearingDecay;  // once for all that are heard of together
  last_heard_ = times.heard;
  hearing_delay_ = std::min(std::max(times.heard - times.ended, hearing_delay_), kHearingDelayMax);
  if (num_bytes > 0) {
    // Where fetches overlap, only the time since the one before is this one's.
    lane.recent_bytes = lane.recent_bytes * kCompletionDecay + static_cast<double>(num_bytes);
    const absl::Duration took =
        std::max(times.ended - std::max(lane.last_completion, times.started), absl::ZeroDuration());
    lane.recent_seconds = lane.recent_seconds * kCompletionDecay + absl::ToDoubleSeconds(took);
    if (lane.recent_seconds > 0) lane.bytes_per_second = lane.recent_bytes / lane.recent_seconds;
  }
  lane.last_completion = std::max(lane.last_completion, times.ended);
}

bool PeerLanes::Strike(int index, absl::Duration now) {
  Lane& lane = lanes_[index];
  const bool is_second = now - lane.last_wrong_sum <= policy_.quarantine_window;
  lane.last_wrong_sum = now;
  if (is_second) lane.quarantined_until = now + policy_.quarantine_window;
  return is_second;
}

void PeerLanes::AppendState(absl::Duration now, std::vector<uint64_t>& state) const {
  const auto from_now = [&](absl::Duration point) {
    return static_cast<uint64_t>(absl::ToInt64Microseconds(std::max(point - now, absl::ZeroDuration())));
  };
  for (const Lane& lane : lanes_) {
    state.push_back(from_now(lane.last_wrong_sum + policy_.quarantine_window));
    state.push_back(from_now(lane.quarantined_until));
  }
}

}  // namespace tandem::kvtransfer
