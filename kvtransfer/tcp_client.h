// The inside of a tcp lane, on its thread alone: one connection, its window of requests, and payloads read straight
// into their place. A FetchLane is made of it by tcp_lane.cc.
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
#include "kvtransfer/tcp_socket.h"
#include "kvtransfer/tcp_wire.h"

namespace tandem::kvtransfer {

class TcpClient final : public LaneClient {
 public:
  static absl::StatusOr<std::unique_ptr<TcpClient>> Connect(const LaneEnd& end, std::span<std::byte> target,
                                                            uint64_t target_incarnation);

  void Add(uint64_t epoch, std::vector<ByteRun> runs, std::function<void(absl::Status)> done) override;
  void Cancel(uint64_t epoch) override { window_.Cancel(epoch); }
  bool Progress() override;
  void FailAll(const absl::Status& status) override;
  void Sleep(Waker& waker) override;

 private:
  enum class Phase {
    kConnecting,
    kGreeting,  // until the welcome
    kReplies,   // between two replies, or within a header
    kPayload,
    kError,  // within the text of one
  };

  TcpClient(const LaneEnd& end, std::span<std::byte> target, uint64_t target_incarnation, TcpSocket socket);

  // The lane is dead: UNAVAILABLE for every fetch, from now on.
  void Die(const absl::Status& cause);
  absl::StatusOr<bool> Write();
  absl::StatusOr<bool> Read();
  // Where the next bytes go: the rest of what the phase wants, and the next header behind a payload.
  std::vector<iovec> NextPlaces();
  // Takes note of bytes that have arrived there, and acts on what is whole.
  absl::Status Take(size_t num_bytes);
  absl::Status TakeWelcome();
  absl::Status TakeHeader();
  void EndReply(absl::Status status);

  const uint64_t pool_bytes_;
  const std::span<std::byte> target_;
  const uint64_t target_incarnation_;
  TcpSocket socket_;
  Phase phase_ = Phase::kConnecting;
  const absl::Duration welcome_deadline_;  // point of the clock
  PieceWindow window_;
  std::string out_;  // asked for and not sent yet: at most a window of requests
  // What arrives: a welcome or a header; then runs of the reply's piece, those before next_run_ and next_run_bytes_ of
  // it being there; or the text of an error.
  TcpWelcome welcome_;
  TcpReply head_;   // the next one may arrive with the end of a payload
  TcpReply reply_;  // the one whose payload or error is under way
  size_t num_head_bytes_ = 0;
  std::vector<ByteRun> runs_;
  size_t next_run_ = 0;
  uint64_t next_run_bytes_ = 0;
  std::string error_;
  size_t num_error_bytes_ = 0;
  std::vector<std::byte> scratch_;  // what nobody wants any more goes here
};

}  // namespace tandem::kvtransfer
