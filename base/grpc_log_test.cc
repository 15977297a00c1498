// Proves that a failure inside gRPC prints nothing by itself, and that GRPC_VERBOSITY brings its lines back as ours.
#include "base/grpc_log.h"

#include <cstdlib>

#include "gmock/gmock.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"

namespace tandem::base {
namespace {

// What gRPC says on stderr about a port that another server has.
std::string WhatABusyPortPrints() {
  int port = 0;
  grpc::CallbackGenericService nothing, nothing_else;
  grpc::ServerBuilder first;
  first.RegisterCallbackGenericService(&nothing);
  first.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  const auto server = first.BuildAndStart();
  grpc::ServerBuilder second;
  second.RegisterCallbackGenericService(&nothing_else);
  second.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  second.AddListeningPort("127.0.0.1:" + std::to_string(port), grpc::InsecureServerCredentials());
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(second.BuildAndStart(), nullptr);
  return ::testing::internal::GetCapturedStderr();
}

TEST(GrpcLogTest, ABusyPortPrintsNothingUnlessTheOperatorAsks) {
  ASSERT_EQ(unsetenv("GRPC_VERBOSITY"), 0);
  EXPECT_THAT(WhatABusyPortPrints(), ::testing::HasSubstr("chttp2_server")) << "what gRPC does when left alone";
  RouteGrpcLog();
  EXPECT_EQ(WhatABusyPortPrints(), "");
  ASSERT_EQ(setenv("GRPC_VERBOSITY", "ERROR", 1), 0);
  RouteGrpcLog();
  EXPECT_THAT(WhatABusyPortPrints(), ::testing::ContainsRegex("WARNING [^ ]*chttp2_server[^ ]* grpc text="));
}

}  // namespace
}  // namespace tandem::base
