#include "decode_worker/lane_wiring.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "kvtransfer/fault_lane.h"
#include "kvtransfer/lane_end.h"
#include "kvtransfer/lane_probe.h"
#include "kvtransfer/tcp_lane.h"
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
  if (end.kind() == kvtransfer::kTcpKind) {
    return kvtransfer::OpenTcpLane(FromProto(end), options.target, options.target_incarnation);
  }
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

// Lanes of one kind to every rank of the peer, and the rate of the slowest.
struct MeasuredLanes {
  std::vector<std::unique_ptr<kvtransfer::FetchLane>> of_ranks;
  double bytes_per_second = 0;
};

// A kind counts where every rank has it: one slow or broken rank makes it useless.
// NOT_FOUND where some rank does not offer it.
absl::StatusOr<MeasuredLanes> MeasureKind(const proto::HelloReply& reply, const std::string& kind,
                                          const LaneWiringOptions& options, const base::Clock& clock) {
  if (reply.ranks().empty() || std::any_of(reply.ranks().begin(), reply.ranks().end(),
                                           [&](const auto& rank) { return FindEnd(rank, kind) == nullptr; })) {
    return absl::NotFoundError("not offered by the peer");
  }
  MeasuredLanes measured;  // an early return closes what is open
  for (const proto::SourceRank& rank : reply.ranks()) {
    const proto::LaneEnd* end = FindEnd(rank, kind);
    absl::StatusOr<std::unique_ptr<kvtransfer::FetchLane>> lane = Open(*end, options);
    if (!lane.ok()) return absl::UnavailableError(lane.status().message());
    ASSIGN_OR_RETURN(
        const double rate,
        kvtransfer::MeasureLane(
            **lane,
            {.target_offset = options.warm_up_offset,
             .num_bytes = std::min({options.warm_up_bytes, kvtransfer::kWarmUpBytesMax, end->pool_bytes()}),
             .limit = options.warm_up_timeout},
            clock));
    RETURN_IF_ERROR(kvtransfer::CheckRate(kind, rate));
    measured.bytes_per_second = measured.of_ranks.empty() ? rate : std::min(measured.bytes_per_second, rate);
    measured.of_ranks.push_back(*std::move(lane));
  }
  return measured;
}

std::unique_ptr<kvtransfer::FetchLane> WithFaults(std::unique_ptr<kvtransfer::FetchLane> lane,
                                                  const LaneWiringOptions& options, const base::Clock& clock) {
  if (!options.faults.has_value()) return lane;
  return std::make_unique<kvtransfer::FaultLane>(std::move(lane), options.target, *options.faults, clock);
}

}  // namespace

std::string DescribeLanes(const WiredPeer& wired) {
  std::vector<std::string> used;
  for (const kvtransfer::PeerLane& lane : wired.source.lanes) {
    used.push_back(absl::StrFormat("%s %.0f MB/s", lane.kind, lane.bytes_per_second / 1e6));
  }
  std::string text = used.empty() ? "no lane works" : absl::StrJoin(used, ", ");
  if (!wired.refusals.empty()) absl::StrAppend(&text, "; refused: ", absl::StrJoin(wired.refusals, "; "));
  return text;
}

WiredPeer WirePeer(const proto::HelloReply& reply, uint64_t session, const LaneWiringOptions& options,
                   const base::Clock& clock) {
  WiredPeer wired;
  wired.source.incarnation = reply.identity().incarnation();
  wired.source.session = session;
  wired.source.num_pages = static_cast<int64_t>(reply.num_pages());
  wired.source.num_source_ranks = reply.ranks_size();
  wired.lanes.resize(reply.ranks_size());
  std::vector<std::pair<std::string, MeasuredLanes>> measured;
  std::vector<double> rates;
  for (const std::string& kind : options.kinds) {
    absl::StatusOr<MeasuredLanes> lanes = MeasureKind(reply, kind, options, clock);
    if (!lanes.ok()) {
      if (!absl::IsNotFound(lanes.status())) {
        wired.refusals.push_back(absl::StrCat(kind, ": ", lanes.status().message()));
      }
      continue;
    }
    rates.push_back(lanes->bytes_per_second);
    measured.emplace_back(kind, *std::move(lanes));
  }
  for (const size_t place : kvtransfer::OrderByRate(rates)) {
    auto& [kind, lanes] = measured[place];
    wired.source.lanes.push_back({.kind = kind, .bytes_per_second = lanes.bytes_per_second});
    for (size_t rank = 0; rank < lanes.of_ranks.size(); ++rank) {
      wired.lanes[rank].push_back(WithFaults(std::move(lanes.of_ranks[rank]), options, clock));
    }
  }
  wired.source.detail = DescribeLanes(wired);
  return wired;
}

}  // namespace tandem::decode
