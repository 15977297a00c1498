// The source's end of a lane, as it travels in the handshake: fields of proto LaneEnd, without the proto.
#pragma once

#include <cstdint>
#include <string>

namespace tandem::kvtransfer {

inline constexpr char kUcxShmKind[] = "ucx_shm";
inline constexpr char kUcxAmKind[] = "ucx_am";
inline constexpr char kLoopbackKind[] = "loopback";

struct LaneEnd {
  std::string kind;
  std::string worker_address;  // ucx_shm: UCX worker address; ucx_am: host:port of its listener
  uint64_t pool_address = 0;   // base of the KV pool in the source's address space
  uint64_t pool_bytes = 0;
  std::string remote_key;  // packed rkey of the pool; empty for lanes that do not read memory remotely
};

}  // namespace tandem::kvtransfer
