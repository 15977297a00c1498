// How much memory a KV pool may take on this machine, so that one that cannot fit is refused at the start and not by
// the kernel's killer in the middle of a request. Tested by memory_room_test.cc.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem::worker_shell {

// Bytes that can still be had: what the system calls available, or what the control group (version 2 or 1) leaves where
// that is less; file pages that can be dropped count. `root` is "/" but in tests. UNAVAILABLE where the system does not
// tell.
absl::StatusOr<int64_t> AvailableMemoryBytes(const std::string& root = "/");

// RESOURCE_EXHAUSTED naming the setting and both sizes where a pool of `pool_bytes` for `kv_cache_tokens` is more than
// that.
absl::Status CheckRoomForPool(int64_t kv_cache_tokens, int64_t pool_bytes, int64_t available_bytes,
                              const std::string& setting = "process.kv_cache_tokens");

}  // namespace tandem::worker_shell
