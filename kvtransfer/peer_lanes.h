// One peer's lanes as decode judges them: which to use, how much may be outstanding, which to distrust.
// No I/O; lanes are numbered by their place, best first. Tested by peer_lanes_test.cc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace tandem::kvtransfer {

// One way to fetch from a peer.
struct PeerLane {
  std::string kind;
  double bytes_per_second = 0;  // as measured at the handshake; 0 where unknown
};

struct LanePolicy {
  // Bytes outstanding at one peer: what its lane moves in this time, and while completions wait to be heard of, within
  // the bounds below. So a lane is busy though its owner looks after it once in a step, and a cancel is confirmed soon,
  // however many requests are under way.
  absl::Duration fetch_window = absl::Milliseconds(20);
  int64_t window_bytes_min = int64_t{1} << 20;
  int64_t window_bytes_max = int64_t{1} << 30;
  // A lane with two wrong sums within this time is not used for as long again.
  absl::Duration quarantine_window = absl::Seconds(60);
};

class PeerLanes final {
 public:
  PeerLanes(const LanePolicy& policy, const std::vector<PeerLane>& lanes);

  bool HasUsable(absl::Duration now) const;
  // The best lane that is not quarantined, another than `avoid` where there is one; `avoid` where there is not. With
  // avoid = kNone and every lane quarantined, the first. At least one lane.
  static constexpr int kNone = -1;
  int Pick(absl::Duration now, int avoid = kNone) const;
  int64_t WindowBytes(absl::Duration now) const;

  struct FetchTimes {
    absl::Duration started;
    absl::Duration ended;  // at the lane
    absl::Duration heard;  // by who counts it; not earlier
  };
  // A fetch of this lane is over, successfully where num_bytes > 0. Updates the measured rate.
  void CountCompletion(int lane, int64_t num_bytes, const FetchTimes& times);
  // A wrong sum came over this lane. True where that puts it into quarantine.
  bool Strike(int lane, absl::Duration now);

  int size() const { return static_cast<int>(lanes_.size()); }
  const std::string& kind(int lane) const { return lanes_[lane].kind; }
  double bytes_per_second(int lane) const { return lanes_[lane].bytes_per_second; }
  // Everything but measured rates, as times from now on.
  void AppendState(absl::Duration now, std::vector<uint64_t>& state) const;

 private:
  struct Lane {
    std::string kind;
    double bytes_per_second = 0;
    // Recent bytes and the time they took, each completion weighing 0.9 times the next.
    double recent_bytes = 0;
    double recent_seconds = 0;
    absl::Duration last_completion = -absl::InfiniteDuration();
    absl::Duration last_wrong_sum = -absl::InfiniteDuration();
    absl::Duration quarantined_until = -absl::InfiniteDuration();
  };

  LanePolicy policy_;
  absl::Duration hearing_delay_;  // the longest of late, slowly forgotten
  absl::Duration last_heard_;
  std::vector<Lane> lanes_;
};

}  // namespace tandem::kvtransfer
