// WorkerChannel over gRPC: one connection for Live, and for decode workers one more for Bulk.
//
// One thread takes what gRPC has done and hands each event to the owner's thread by `post`. At most kUnreadMax messages
// wait there; then the stream is not read, and HTTP/2 flow control holds the worker's sender. Tested by
// worker_loss_integration_test.cc.
#pragma once

#include <functional>

#include "base/peer_security.h"
#include "router/worker_channel.h"

namespace tandem::router {

inline constexpr int kUnreadMax = 256;

// Runs a closure on the owner's thread, in order. May be called from any thread, as long as a channel lives.
using PostToOwner = std::function<void(std::function<void()>)>;

// `security` outlives every channel.
WorkerChannelFactory MakeGrpcWorkerChannelFactory(PostToOwner post, base::PeerSecurity& security);

}  // namespace tandem::router
