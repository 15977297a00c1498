// The source's end of ucx_am lanes: answers requests for bytes of the pool, one reply per request.
//
// Connections are made through a listener: where UCX 1.13.1 connects by worker addresses over TCP, a peer that dies
// while connecting aborts this process (an assertion on a wireup reply that cannot be sent).
// Lives on the source's thread alone: UCX calls its handlers from within ucp_worker_progress, they only write down what
// came, and Serve() acts on it. Memory is bounded by kAmWindowPieces replies per connection; one that asks for more, or
// for what makes no sense, is closed. Whether an epoch may be read is asked for every request, that is every piece.
// Bytes are read at any time until the reply has left; a page that is freed meanwhile gives a reply that decode, which
// has let go of the epoch, drops, or whose sum is wrong.
// Tested by lane_conformance_test.cc.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kvtransfer/epoch_check.h"
#include "kvtransfer/ucx_am_wire.h"
#include "kvtransfer/ucx_handles.h"

namespace tandem::kvtransfer {

class UcxAmServer final {
 public:
  // Listens on `host` and a free port, or on `port`. UNAVAILABLE, with the address, where it cannot.
  static absl::StatusOr<std::unique_ptr<UcxAmServer>> Create(ucp_worker_h worker, const std::string& host, int port,
                                                             std::span<const std::byte> pool,
                                                             EpochCheck is_epoch_readable);
  int port() const { return port_; }
  // Accepts, answers and forgets what the handlers wrote down. To be called after each ucp_worker_progress.
  void Serve();
  // Closes every connection: decode sees its lanes die. The worker is progressed no more after it, and never destroyed:
  // UCX 1.13.1 crashes where a listener goes away while somebody connects. It is left to the end of the process.
  void Shutdown();

 private:
  struct Connection {
    ucp_ep_h endpoint = nullptr;
    int num_replies = 0;  // under way
    bool has_failed = false;
  };
  struct Request {
    ucp_ep_h endpoint;
    AmRequest header;
    std::vector<AmRun> runs;
  };
  // Under way; UCX reads all of it until the reply has left.
  struct Reply {
    AmReply header;
    std::string error;
    std::vector<ucp_dt_iov_t> pieces;  // of the pool
    std::shared_ptr<Connection> connection;
  };

  UcxAmServer(ucp_worker_h worker, std::span<const std::byte> pool, EpochCheck is_epoch_readable);
  absl::Status Listen(const std::string& host, int port);
  static void OnConnect(ucp_conn_request_h connect, void* self);
  static ucs_status_t OnRequest(void* self, const void* header, size_t header_bytes, void* data, size_t num_bytes,
                                const ucp_am_recv_param_t* param);
  static void OnEndpointError(void* connection, ucp_ep_h endpoint, ucs_status_t status);
  static void OnReplySent(void* request, ucs_status_t status, void* reply);

  void Accept(ucp_conn_request_h connect);
  void Answer(const Request& request);
  // Points the reply's pieces at the runs. ABORTED, OUT_OF_RANGE: nothing of the pool may be read.
  absl::Status Gather(const Request& request, Reply& reply) const;
  void Send(std::unique_ptr<Reply> reply);
  void DropFailed();

  const ucp_worker_h worker_;
  const std::span<const std::byte> pool_;
  const EpochCheck is_epoch_readable_;
  ucp_listener_h listener_ = nullptr;
  int port_ = 0;
  std::deque<ucp_conn_request_h> connects_;
  std::deque<Request> requests_;
  std::map<ucp_ep_h, std::shared_ptr<Connection>> connections_;
};

}  // namespace tandem::kvtransfer
