// A connection to one worker, as the link above it sees it: two ordered streams of messages, no policy.
//
// GrpcWorkerChannel is the real one; tests and //tests/sim bring their own. All methods and events belong to one
// thread, the owner's.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "proto/worker.pb.h"

namespace tandem::router {

enum class WorkerRole { kPrefill, kDecode };

inline const char* WorkerRoleName(WorkerRole role) { return role == WorkerRole::kPrefill ? "prefill" : "decode"; }

class WorkerChannel {
 public:
  struct Events {
    std::function<void(const proto::WorkerMessage&)> on_message;
    std::function<void(const proto::BulkReply&)> on_bulk_reply;  // decode workers only
    std::function<void(const absl::Status&)> on_closed;          // once; nothing comes after it
  };

  virtual ~WorkerChannel() = default;  // closes; no event comes after it
  // Never blocks. Messages to a closed channel are dropped: on_closed tells.
  virtual void Send(proto::RouterMessage message) = 0;
  virtual void SendPart(proto::GeneratePart part) = 0;  // decode workers only
};

// Starts to connect; the outcome comes as an event, never from inside the call.
using WorkerChannelFactory =
    std::function<std::unique_ptr<WorkerChannel>(const std::string& address, WorkerRole role, WorkerChannel::Events)>;

}  // namespace tandem::router
