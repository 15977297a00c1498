// The rules of the handshake of one P-D pair, without a network: who may greet whom, and whether they fit.
// Tested by handshake_test.cc.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "proto/kv_transfer.pb.h"

namespace tandem::kvtransfer {

// What P says to a Hello: OK, INVALID_ARGUMENT (no instance, no incarnation, not a decode worker) or
// FAILED_PRECONDITION with one line for each difference.
absl::Status CheckHello(const proto::HelloRequest& hello, const proto::HelloReply& own);
// What D says to the reply: the same, the other way round.
absl::Status CheckHelloReply(const proto::HelloRequest& own, const proto::HelloReply& reply);
// OK where others can connect to it: host:port with a port and no wildcard. INVALID_ARGUMENT says what is wrong.
absl::Status ValidateAdvertisedAddress(const std::string& address);

}  // namespace tandem::kvtransfer
