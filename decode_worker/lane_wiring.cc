#include "decode_worker/lane_wiring.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "kvtransfer/lane_end.h"
#include "kvtransfer/lane_probe.h"
#include "kvtransfer/ucx_am_lane.h"
#include "kvtransfer/ucx_shm_lane.h"

namespace tandem::decode {
namespace {

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
      const auto rate = kvtransfer::MeasureLane(
          **lane,
          {.target_offset = options.warm_up_offset,
           .num_bytes = std::min({options.warm_up_bytes, kvtransfer::kWarmUpBytesMax, end->pool_bytes()}),
           .limit = options.warm_up_timeout},
          clock);
      of_ranks.push_back(*std::move(lane));
      status = rate.ok() ? kvtransfer::CheckRate(kind, *rate) : rate.status();
      if (!status.ok()) break;
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
