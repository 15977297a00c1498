#include "kvtransfer/tcp_lane.h"

#include "absl/strings/str_cat.h"
#include "kvtransfer/tcp_client.h"
#include "kvtransfer/tcp_wire.h"
#include "kvtransfer/threaded_lane.h"

namespace tandem::kvtransfer {

absl::StatusOr<std::unique_ptr<FetchLane>> OpenTcpLane(const LaneEnd& end, std::span<std::byte> target,
                                                       uint64_t target_incarnation) {
  if (end.kind != kTcpKind || end.worker_address.empty() || end.remote_key.size() != sizeof(TcpGreeting::key)) {
    return absl::InvalidArgumentError(absl::StrCat("not an end of a tcp lane: kind ", end.kind, ", address of ",
                                                   end.worker_address.size(), " bytes, key of ", end.remote_key.size(),
                                                   " bytes"));
  }
  return OpenThreadedLane(kTcpKind, [=] { return TcpClient::Connect(end, target, target_incarnation); });
}

}  // namespace tandem::kvtransfer
