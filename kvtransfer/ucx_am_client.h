// The inside of a ucx_am lane, on its thread alone: one connection, its window of requests, and the copies.
// A FetchLane is made of it by ucx_am_lane.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvtransfer/byte_run.h"
#include "kvtransfer/lane_end.h"
#include "kvtransfer/ucx_am_wire.h"
#include "kvtransfer/ucx_handles.h"

namespace tandem::kvtransfer {

class UcxAmClient final {
 public:
  static absl::StatusOr<std::unique_ptr<UcxAmClient>> Connect(const LaneEnd& end, std::span<std::byte> target,
                                                              uint64_t target_incarnation,
                                                              const std::string& net_devices);
  ~UcxAmClient();  // closes the connection; no `done` is called

  void Add(uint64_t epoch, std::vector<ByteRun> runs, std::function<void(absl::Status)> done);
  void Cancel(uint64_t epoch);
  // Sends what the window allows, takes what came, calls `done` of what has ended. False where nothing happened.
  bool Progress();
  // Ends every fetch with `status`, and calls `done`.
  void FailAll(const absl::Status& status);
  // The lane is dead: UNAVAILABLE for every fetch, from now on.
  void Die(const absl::Status& cause);
  // How long the source may still take to say its first word; InfiniteDuration where none is awaited.
  absl::Duration TimeToAnswer() const;
  // Whose events the thread waits for; nobody's once the lane is dead.
  ucp_worker_h worker_to_watch() const { return lane_status_.ok() ? worker_.get() : nullptr; }

 private:
  struct Fetch {
    uint64_t epoch = 0;
    RunCutter cutter{{}};
    std::function<void(absl::Status)> done;
    int num_unanswered = 0;
    bool has_ended = false;  // its outcome is decided; unanswered pieces are only drained
  };
  // One request that the source has not answered.
  struct Piece {
    std::shared_ptr<Fetch> fetch;
    std::vector<ByteRun> runs;
  };
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

  void Take(const AmReply& reply, std::span<const std::byte> bytes);
  bool SendNextPiece();
  void Send(std::unique_ptr<Message> message);
  void End(const std::shared_ptr<Fetch>& fetch, absl::Status status);
  void CallEnded();
  void CloseEndpoint();

  const uint64_t pool_bytes_;
  const std::span<std::byte> target_;
  const uint64_t target_incarnation_;
  UcpContext context_;
  UcpWorker worker_;
  ucp_ep_h endpoint_ = nullptr;
  absl::Duration answer_deadline_ = absl::InfiniteDuration();  // of the clock, for the first answer
  bool has_answered_ = false;
  absl::Status lane_status_;                   // of the connection
  std::deque<std::shared_ptr<Fetch>> unsent_;  // fetches with pieces to ask for, in order of arrival
  std::map<uint64_t, Piece> unanswered_;       // by request
  uint64_t next_request_ = 1;
  std::map<Fetch*, std::shared_ptr<Fetch>> live_;
  std::vector<std::pair<std::shared_ptr<Fetch>, absl::Status>> ended_;
};

}  // namespace tandem::kvtransfer
