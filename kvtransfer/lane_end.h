// The source's end of a lane, as it travels in the handshake: fields of proto LaneEnd, without the proto.
#pragma once

#include <cstdint>
#include <string>

namespace tandem::kvtransfer {

inline constexpr char kUcxShmKind[] = "ucx_shm";
inline constexpr char kTcpKind[] = "tcp";
inline constexpr char kUcxAmKind[] = "ucx_am";
inline constexpr char kLoopbackKind[] = "loopback";

// Those between two processes, best first.
inline constexpr const char* kLaneKinds[] = {kUcxShmKind, kTcpKind, kUcxAmKind};

struct LaneEnd {
  std::string kind;
  std::string worker_address;  // ucx_shm: UCX's version and worker address; tcp, ucx_am: host:port of its listener
  uint64_t pool_address = 0;   // base of the KV pool in the source's address space
  uint64_t pool_bytes = 0;
  std::string remote_key;  // ucx_shm: packed rkey of the pool; tcp: what a connection must greet with; else empty
};

}  // namespace tandem::kvtransfer
