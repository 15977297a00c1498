// Proves that the kernel waits longer for a reader than we do: it ends a connection whose window stays shut for
// TCP_USER_TIMEOUT, and what it ends looks like a client that has left.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <memory>
#include <thread>

#include "absl/time/time.h"
#include "boost/asio/io_context.hpp"
#include "gtest/gtest.h"
#include "router/http/http_server.h"
#include "router/testing/raw_client.h"

namespace tandem::router {
namespace {

class EmptyHandler final : public HttpHandler {
 public:
  void Handle(std::shared_ptr<Exchange> exchange) override { exchange->Respond(HttpResponse()); }
};

// The socket of this process that the server has accepted from a client: -1 where there is none.
int AcceptedAt(int port) {
  for (int fd = 0; fd < 1024; ++fd) {
    sockaddr_in here = {}, there = {};
    socklen_t here_bytes = sizeof(here), there_bytes = sizeof(there);
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&here), &here_bytes) == 0 && ntohs(here.sin_port) == port &&
        getpeername(fd, reinterpret_cast<sockaddr*>(&there), &there_bytes) == 0) {
      return fd;
    }
  }
  return -1;
}

TEST(UserTimeoutTest, IsLongerThanTheWriteStallThatIsAllowed) {
  for (const absl::Duration stall : {absl::Milliseconds(100), absl::Seconds(30), absl::Hours(1)}) {
    EmptyHandler handler;
    boost::asio::io_context io_context(1);
    HttpLimits limits;
    limits.write_stall_max = stall;
    auto server = HttpServer::Listen(io_context, "127.0.0.1", 0, PortSharing::kExclusive, limits, &handler);
    ASSERT_TRUE(server.ok()) << server.status();
    std::thread thread([&] { io_context.run(); });
    RawClient client((*server)->port());
    ASSERT_TRUE(client.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n"));
    EXPECT_EQ(client.ReadResponse().status, 200);
    unsigned user_timeout_ms = 0;
    socklen_t num_bytes = sizeof(user_timeout_ms);
    EXPECT_EQ(getsockopt(AcceptedAt((*server)->port()), IPPROTO_TCP, TCP_USER_TIMEOUT, &user_timeout_ms, &num_bytes),
              0);
    EXPECT_GT(absl::Milliseconds(user_timeout_ms), stall);
    io_context.stop();
    thread.join();
  }
}

}  // namespace
}  // namespace tandem::router
