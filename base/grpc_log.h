// gRPC's own log, kept off stderr: each failure that it would print reaches us as a status, which we report once and in
// our words. An operator who sets GRPC_VERBOSITY gets gRPC's lines, in the form of ours. Tested by grpc_log_test.cc.
#pragma once

namespace tandem::base {

// To be called once by main, before the first use of gRPC.
void RouteGrpcLog();

}  // namespace tandem::base
