// Proves that the reason is the system's: in use, not ours, unknown.
#include "base/listen_failure.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::base {
namespace {

using ::testing::HasSubstr;

TEST(ListenFailureTest, SaysWhatTheSystemSays) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t num_bytes = sizeof(address);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  ASSERT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &num_bytes), 0);
  const int port = ntohs(address.sin_port);

  const absl::Status busy = ListenFailure({"127.0.0.1", port}, "routers");
  EXPECT_EQ(busy.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(std::string(busy.message()),
            "cannot listen on 127.0.0.1:" + std::to_string(port) + " for routers: Address already in use");
  close(fd);
  EXPECT_THAT(std::string(ListenFailure({"127.0.0.1", 0}, "routers").message()), HasSubstr("a moment ago"));
  EXPECT_THAT(std::string(ListenFailure({"198.51.100.1", 80}, "routers").message()), HasSubstr("Cannot assign"));
  EXPECT_THAT(std::string(ListenFailure({"no-such-host.invalid", 80}, "routers").message()),
              HasSubstr("no-such-host.invalid:80"));
}

}  // namespace
}  // namespace tandem::base
