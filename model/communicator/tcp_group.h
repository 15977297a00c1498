// Ranks that are processes, on one host or several: two TCP connections between every two of them, one for what is
// exchanged and one for the end of the group, so that a rank that fails in the middle of a message can still say so.
//
// Start: every rank listens; rank 0, the leader, is the one whose address the others know. They tell it who they are,
// it tells everybody where the others listen, and each connects to those of lower rank. A rank of another fingerprint
// (binary and configuration), of another group size or of a rank that is taken is refused, with both sides' words, and
// the group does not come to be. The time limit is one of the start alone: an exchange waits as long as the connections
// stand. A peer whose process or host is gone is seen by its connection: at once, or when TCP gives it up.
// Nothing is encrypted and nobody is asked who they are: a network of the group's own.
// Tested by communicator_test.cc and tcp_group_test.cc.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/host_port.h"
#include "model/communicator/rank_link.h"

namespace tandem::model {

// Where a rank listens for the others of its group.
class TcpGroupPort final {
 public:
  // port 0 takes a free one. UNAVAILABLE with the system's reason.
  static absl::StatusOr<TcpGroupPort> Listen(const std::string& host, int port);
  TcpGroupPort(TcpGroupPort&& other) noexcept;
  TcpGroupPort& operator=(TcpGroupPort&&) = delete;
  ~TcpGroupPort();

  int port() const { return port_; }
  int descriptor() const { return descriptor_; }

 private:
  TcpGroupPort(int descriptor, int port) : descriptor_(descriptor), port_(port) {}

  int descriptor_ = -1;
  int port_ = 0;
};

struct TcpGroupOptions {
  int rank = 0;
  int size = 1;
  base::HostPort leader;    // of rank 0, as the others reach it
  std::string fingerprint;  // what must be equal on all ranks; at most 1 KiB
  absl::Duration start_timeout = absl::Minutes(10);
};

// Returns when all ranks are connected. DEADLINE_EXCEEDED naming the ranks that are missing, FAILED_PRECONDITION naming
// what differs.
absl::StatusOr<std::unique_ptr<RankLink>> JoinTcpGroup(TcpGroupPort port, const TcpGroupOptions& options,
                                                       const base::Clock& clock);

}  // namespace tandem::model
