#include "kvtransfer/lane_probe.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/notification.h"
#include "base/status_macros.h"
#include "kvtransfer/lane_end.h"

namespace tandem::kvtransfer {
namespace {

// One warm-up fetch. A late one is cancelled and waited for: lanes end what is cancelled soon.
absl::Status FetchOnce(FetchLane& lane, const ProbeOptions& options) {
  absl::Notification is_done;
  absl::Status status;
  lane.Fetch(kWarmUpEpoch,
             {{.source_offset = 0, .target_offset = options.target_offset, .num_bytes = options.num_bytes}},
             [&](absl::Status fetched) {
               status = std::move(fetched);
               is_done.Notify();
             });
  if (is_done.WaitForNotificationWithTimeout(options.limit)) return status;
  lane.Cancel(kWarmUpEpoch);
  is_done.WaitForNotification();
  return absl::DeadlineExceededError(
      absl::StrCat("warm-up of ", options.num_bytes, " bytes took longer than ", absl::FormatDuration(options.limit)));
}

}  // namespace

absl::StatusOr<double> MeasureLane(FetchLane& lane, const ProbeOptions& options, const base::Clock& clock) {
  if (options.num_bytes < 1 || options.num_bytes > kWarmUpBytesMax || options.num_tries < 1) {
    return absl::InvalidArgumentError(absl::StrCat("warm-up of ", options.num_bytes, " bytes in ", options.num_tries,
                                                   " tries: want 1 to ", kWarmUpBytesMax, " bytes, at least 1 try"));
  }
  absl::Duration best = absl::InfiniteDuration();
  for (int i = 0; i < options.num_tries; ++i) {
    const absl::Duration begin = clock.Now();
    RETURN_IF_ERROR(FetchOnce(lane, options));
    best = std::min(best, clock.Now() - begin);
  }
  return static_cast<double>(options.num_bytes) / absl::ToDoubleSeconds(std::max(best, absl::Nanoseconds(1)));
}

// A warm-up is one fetch alone, so these are far below what a lane gives with its window full (lane_benchmark.cc).
double ExpectedRate(std::string_view kind) {
  if (kind == kLoopbackKind || kind == kUcxShmKind) return 2e9;
  if (kind == kTcpKind || kind == kUcxAmKind) return 200e6;  // a 2 Gb/s network; a faster one is measured, not demanded
  return 0;
}

std::vector<size_t> OrderByRate(std::span<const double> bytes_per_second) {
  std::vector<size_t> left(bytes_per_second.size());
  std::iota(left.begin(), left.end(), size_t{0});
  std::vector<size_t> order;
  while (!left.empty()) {
    double best = 0;
    for (const size_t lane : left) best = std::max(best, bytes_per_second[lane]);
    const auto next =
        std::find_if(left.begin(), left.end(), [&](size_t lane) { return bytes_per_second[lane] >= best / 2; });
    order.push_back(*next);
    left.erase(next);
  }
  return order;
}

absl::Status CheckRate(std::string_view kind, double bytes_per_second) {
  const double least = ExpectedRate(kind) / 10;
  if (bytes_per_second >= least) return absl::OkStatus();
  return absl::UnavailableError(absl::StrFormat("%s lane gives %.0f MB/s, at least %.0f MB/s are expected",
                                                std::string(kind), bytes_per_second / 1e6, least / 1e6));
}

}  // namespace tandem::kvtransfer
