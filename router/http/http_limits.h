// What one client may cost: every bound of the HTTP server in one place. Settings: router/config.h.
#pragma once

#include <cstddef>

#include "absl/time/time.h"

namespace tandem::router {

struct HttpLimits {
  size_t body_bytes_max = size_t{64} << 20;
  size_t bodies_bytes_max = size_t{1} << 30;  // of all connections, read and not yet prepared: connection_group.h
  size_t header_bytes_max = size_t{32} << 10;
  size_t pipelined_bytes_max = size_t{16} << 10;       // read ahead while a request is being answered
  int connections_max = 16384;                         // a shard: connection_group.h
  absl::Duration give_way_after = absl::Seconds(5);    // waiting for a request while others find no place
  absl::Duration idle_max = absl::Seconds(75);         // between requests
  absl::Duration header_time_max = absl::Seconds(10);  // from a header's first byte to its last
  absl::Duration body_stall_max = absl::Seconds(30);   // without a byte of the body
  absl::Duration body_time_max = absl::Minutes(10);    // the whole body
  absl::Duration write_stall_max = absl::Seconds(30);  // a client that takes no byte
  absl::Duration close_wait_max = absl::Seconds(2);    // for the rest of a request that was refused unread
  size_t close_bytes_max = size_t{64} << 20;
};

}  // namespace tandem::router
