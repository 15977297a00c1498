// What a worker tells its Live streams and hears from them, without gRPC.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "absl/time/time.h"
#include "proto/worker.pb.h"

namespace tandem::worker_shell {

// For routers to read what a worker that has drained told them last.
inline constexpr absl::Duration kFarewellMax = absl::Seconds(1);

struct WorkerVitals {
  uint64_t engine_steps = 0;
  absl::Duration oldest_work_age;  // zero where nothing waits for the engine
  proto::Load load;
};

struct LiveOptions {
  proto::WorkerHello hello;
  absl::Duration heartbeat_interval = absl::Milliseconds(250);
  absl::Duration silence_max = absl::Seconds(2);
  size_t queue_bytes_max = size_t{16} << 20;  // of one stream, unread by its router
};

struct LiveEvents {
  std::function<void(uint64_t stream_id, const proto::Identity& router)> attached;
  std::function<void(uint64_t stream_id, proto::RouterMessage message)> message;
  std::function<void(uint64_t stream_id)> lost;  // exactly once for each attached
  std::function<WorkerVitals()> vitals;          // called on the heartbeat thread
};

}  // namespace tandem::worker_shell
