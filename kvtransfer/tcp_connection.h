// The source's end of one connection of a tcp lane: takes the greeting, then answers requests in order with bytes of
// the pool. A state machine over one non-blocking socket; TcpSource polls it on its thread.
//
// Nothing that a stranger sends is believed: only a greeting of the right length with the right key opens the
// connection, and every error of its peer closes it, and it alone. Memory is bounded: a read buffer for one request,
// and kTcpWindowPieces requests that point into the pool. Whether an epoch may be read is asked for every piece, when
// its reply begins to leave; a page that is freed meanwhile gives bytes that decode, which has let go of the epoch,
// drops, or whose sum is wrong. Tested by tcp_source_test.cc and lane_conformance_test.cc.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kvtransfer/epoch_check.h"
#include "kvtransfer/tcp_socket.h"
#include "kvtransfer/tcp_wire.h"

namespace tandem::kvtransfer {

// What all connections of a source share.
struct TcpServed {
  std::span<const std::byte> pool;
  std::array<uint64_t, 2> key = {};
  EpochCheck is_epoch_readable;
};

class TcpConnection final {
 public:
  // `served` outlives the connection. greeting_deadline: point of the clock.
  TcpConnection(TcpSocket socket, const TcpServed& served, absl::Duration greeting_deadline);

  int fd() const { return socket_.fd(); }
  std::string PeerName() const { return socket_.PeerName(); }
  short PollEvents() const;
  bool HasGreeted() const { return has_greeted_; }
  absl::Duration greeting_deadline() const { return greeting_deadline_; }

  // Reads and writes what the socket allows, one piece or so. An error: the connection is to be closed. UNAVAILABLE: it
  // is over; INVALID_ARGUMENT: its peer is not one of ours, or breaks the protocol.
  absl::Status Progress(short events);

 private:
  struct Request {
    TcpRequest header;
    std::vector<ByteRun> runs;
  };

  absl::Status Read();
  absl::Status TakeGreeting();
  absl::Status TakeRequests();
  absl::Status Write();
  void BeginReply();
  absl::Status Gather(const Request& request);

  const TcpServed& served_;
  const absl::Duration greeting_deadline_;
  TcpSocket socket_;
  bool has_greeted_ = false;
  uint64_t target_incarnation_ = 0;
  std::array<std::byte, sizeof(TcpRequest) + kTcpPieceRunsMax * sizeof(TcpRun)> in_;
  size_t num_in_ = 0;
  std::deque<Request> requests_;
  // The reply under way: its header (or the welcome), then its pieces or its error.
  TcpReply reply_;
  TcpWelcome welcome_;
  std::string error_;
  std::vector<iovec> out_;
  size_t next_out_ = 0;
};

}  // namespace tandem::kvtransfer
