#include "decode_worker/lane_wiring.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/notification.h"
#include "kvtransfer/lane_end.h"
#include "kvtransfer/ucx_am_lane.h"
#include "kvtransfer/ucx_shm_lane.h"

namespace tandem::decode {
namespace {

// A tenth of what the slowest fit machine gives: below it the lane is broken (an emulation, a wrong device), not slow.
double SlowestFitRate(const std::string& kind) { return kind == kvtransfer::kUcxShmKind ? 200e6 : 10e6; }

constexpr int kWarmUpTries = 3;  // the first one pays for connecting

kvtransfer::LaneEnd FromProto(const proto::LaneEnd& end) {
  return {.kind = end.kind(),
          .worker_address = end.worker_address(),
          .pool_address = end.pool_address(),
          .pool_bytes = end.pool_bytes(),
          .remote_key = end.remote_key()};
}

absl::StatusOr<std::unique_ptr<kvtransfer::FetchLane>> Open(const proto::LaneEnd& end,
                                                            const LaneWiringOptions& options) {
  if (end.kind() == kvtransfer::kUcxShmKind) return kvtransfer::OpenUcxShmLane(FromProto(end), options.target);
  if (end.kind() == kvtransfer::kUcxAmKind) {
    return kvtransfer::OpenUcxAmLane(FromProto(end), options.target, options.target_incarnation, options.net_devices);
  }
  return absl::UnimplementedError(absl::StrCat("lane kind \"", end.kind(), "\" is not known here"));
}

// Bytes per second of the best try.
absl::StatusOr<double> WarmUp(kvtransfer::FetchLane& lane, uint64_t source_bytes, const LaneWiringOptions& options,
                              const base::Clock& clock) {
  const uint64_t num_bytes = std::min({options.warm_up_bytes, kvtransfer::kWarmUpBytesMax, source_bytes});
  double best = 0;
  for (int i = 0; i < kWarmUpTries; ++i) {
    // Shared, because a fetch that came too late may still end after this function has.
    struct Fetch {
      absl::Notification is_done;
      absl::Status status;
    };
    const auto fetch = std::make_shared<Fetch>();
    const absl::Duration began = clock.Now();
    lane.Fetch(kvtransfer::kWarmUpEpoch,
               {{.source_offset = 0, .target_offset = options.warm_up_offset, .num_bytes = num_bytes}},
               [fetch](absl::Status status) {
                 fetch->status = std::move(status);
                 fetch->is_done.Notify();
               });
    if (!fetch->is_done.WaitForNotificationWithTimeout(options.warm_up_timeout)) {
      return absl::DeadlineExceededError(absl::StrCat("warm-up of ", num_bytes, " bytes took longer than ",
                                                      absl::FormatDuration(options.warm_up_timeout)));
    }
    if (!fetch->status.ok()) return fetch->status;
    const double seconds = std::max(absl::ToDoubleSeconds(clock.Now() - began), 1e-9);
    best = std::max(best, static_cast<double>(num_bytes) / seconds);
  }
  return best;
}

const proto::LaneEnd* FindEnd(const proto::SourceRank& rank, const std::string& kind) {
  for (const proto::LaneEnd& end : rank.lanes()) {
    if (end.kind() == kind) return &end;
  }
  return nullptr;
}

}  // namespace

WiredPeer WirePeer(const proto::HelloReply& reply, uint64_t session, const LaneWiringOptions& options,
                   const base::Clock& clock) {
  WiredPeer wired;
  wired.source.incarnation = reply.identity().incarnation();
  wired.source.session = session;
  wired.source.num_pages = static_cast<int64_t>(reply.num_pages());
  wired.source.num_source_ranks = reply.ranks_size();
  wired.lanes.resize(reply.ranks_size());
  for (const std::string& kind : options.kinds) {
    // A kind counts where every rank has it: one slow or broken rank makes it useless.
    std::vector<std::unique_ptr<kvtransfer::FetchLane>> of_ranks;
    double bytes_per_second = 0;
    absl::Status status = reply.ranks_size() > 0 ? absl::OkStatus() : absl::NotFoundError("the peer has no ranks");
    for (const proto::SourceRank& rank : reply.ranks()) {
      const proto::LaneEnd* end = FindEnd(rank, kind);
      if (end == nullptr) {
        status = absl::NotFoundError("not offered by the peer");
        break;
      }
      auto lane = Open(*end, options);
      if (!lane.ok()) {
        status = lane.status();
        break;
      }
      const auto rate = WarmUp(**lane, end->pool_bytes(), options, clock);
      of_ranks.push_back(*std::move(lane));
      if (!rate.ok()) {
        status = rate.status();
        break;
      }
      if (*rate < SlowestFitRate(kind)) {
        status = absl::UnavailableError(
            absl::StrFormat("%.0f MB/s, at least %.0f MB/s are expected", *rate / 1e6, SlowestFitRate(kind) / 1e6));
        break;
      }
      bytes_per_second = of_ranks.size() == 1 ? *rate : std::min(bytes_per_second, *rate);
    }
    if (!status.ok()) {
      wired.refusals.push_back(absl::StrCat(kind, ": ", status.message()));
      for (const auto& lane : of_ranks) lane->Close();
      continue;
    }
    for (size_t rank = 0; rank < of_ranks.size(); ++rank) wired.lanes[rank].push_back(std::move(of_ranks[rank]));
    wired.source.lanes.push_back({.kind = kind, .bytes_per_second = bytes_per_second});
  }
  return wired;
}

}  // namespace tandem::decode
