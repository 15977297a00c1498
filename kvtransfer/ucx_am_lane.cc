#include "kvtransfer/ucx_am_lane.h"

#include "absl/strings/str_cat.h"
#include "kvtransfer/threaded_lane.h"
#include "kvtransfer/ucx_am_client.h"

namespace tandem::kvtransfer {

absl::StatusOr<std::unique_ptr<FetchLane>> OpenUcxAmLane(const LaneEnd& end, std::span<std::byte> target,
                                                         uint64_t target_incarnation, const std::string& net_devices) {
  if (end.kind != kUcxAmKind || end.worker_address.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("not an end of a ucx_am lane: kind ", end.kind, ", address of ",
                                                   end.worker_address.size(), " bytes"));
  }
  return OpenThreadedLane(kUcxAmKind,
                          [=] { return UcxAmClient::Connect(end, target, target_incarnation, net_devices); });
}

}  // namespace tandem::kvtransfer
