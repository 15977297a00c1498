// The inside of a ucx_am lane, on its thread alone: one connection, its window of requests, and the copies.
// A FetchLane is made of it by ucx_am_lane.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kvtransfer/lane_client.h"
#include "kvtransfer/lane_end.h"
#include "kvtransfer/piece_window.h"
#include "kvtransfer/ucx_am_wire.h"
#include "kvtransfer/ucx_handles.h"

namespace tandem::kvtransfer {

class UcxAmClient final : public LaneClient {
 public:
  static absl::StatusOr<std::unique_ptr<UcxAmClient>> Connect(const LaneEnd& end, std::span<std::byte> target,
                                                              uint64_t target_incarnation,
                                                              const std::string& net_devices);
  ~UcxAmClient() override;

  void Add(uint64_t epoch, std::vector<ByteRun> runs, std::function<void(absl::Status)> done) override;
  void Cancel(uint64_t epoch) override { window_.Cancel(epoch); }
  bool Progress() override;
  void FailAll(const absl::Status& status) override;
  void Sleep(Waker& waker) override;

 private:
  // What UCX reads until a message has left.
  struct Message {
    AmRequest header;
    std::vector<AmRun> runs;
    UcxAmClient* client = nullptr;
  };

  UcxAmClient(uint64_t pool_bytes, std::span<std::byte> target, uint64_t target_incarnation);
  absl::Status Open(const LaneEnd& end, const std::string& net_devices);
  static ucs_status_t OnReply(void* self, const void* header, size_t header_bytes, void* data, size_t num_bytes,
                              const ucp_am_recv_param_t* param);
  static void OnEndpointError(void* self, ucp_ep_h endpoint, ucs_status_t status);
  static void OnSent(void* request, ucs_status_t status, void* message);

  // The lane is dead: UNAVAILABLE for every fetch, from now on.
  void Die(const absl::Status& cause);
  void Take(const AmReply& reply, std::span<const std::byte> bytes);
  bool SendNextPiece();
  void Send(std::unique_ptr<Message> message);
  void CloseEndpoint();
  // How long the source may still take to say its first word; InfiniteDuration where none is awaited.
  absl::Duration TimeToAnswer() const;

  const std::span<std::byte> target_;
  const uint64_t target_incarnation_;
  UcpContext context_;
  UcpWorker worker_;
  ucp_ep_h endpoint_ = nullptr;
  absl::Duration answer_deadline_ = absl::InfiniteDuration();  // of the clock, for the first answer
  bool has_answered_ = false;
  PieceWindow window_;
};

}  // namespace tandem::kvtransfer
