#include "base/admin_http.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <vector>

namespace tandem::base {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

int Connect(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  return fd;
}

// Sends raw bytes and reads until the server closes.
std::string Exchange(int port, const std::string& request) {
  const int fd = Connect(port);
  EXPECT_EQ(send(fd, request.data(), request.size(), 0), static_cast<ssize_t>(request.size()));
  std::string reply;
  char buffer[4096];
  for (ssize_t n; (n = recv(fd, buffer, sizeof(buffer), 0)) > 0;) reply.append(buffer, n);
  close(fd);
  return reply;
}

std::string Get(int port, const std::string& target) {
  return Exchange(port, "GET " + target + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
}

std::unique_ptr<AdminHttpServer> StartServer() {
  auto server = AdminHttpServer::Start("127.0.0.1", 0,
                                       {{"/health",
                                         [] {
                                           return AdminReply{200, "ok\n"};
                                         }},
                                        {"/readyz", [] {
                                           return AdminReply{503, "no peer\n"};
                                         }}});
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

TEST(AdminHttpTest, AnswersItsPagesAndNothingElse) {
  const auto server = StartServer();
  EXPECT_THAT(Get(server->port(), "/health"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Get(server->port(), "/health?verbose=1"), EndsWith("\r\n\r\nok\n"));
  EXPECT_THAT(Get(server->port(), "/readyz"), StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(Get(server->port(), "/nothing"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Exchange(server->port(), "POST /health HTTP/1.1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"),
              StartsWith("HTTP/1.1 405"));
}

TEST(AdminHttpTest, KeepsAConnectionForSeveralRequests) {
  const auto server = StartServer();
  const std::string reply = Exchange(server->port(),
                                     "GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
                                     "GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(reply, HasSubstr("HTTP/1.1 200"));
  EXPECT_THAT(reply, HasSubstr("HTTP/1.1 503"));
}

TEST(AdminHttpTest, AHeadRequestHasALengthAndNoBody) {
  const auto server = StartServer();
  const std::string reply = Exchange(server->port(), "HEAD /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(reply, HasSubstr("Content-Length: 3"));
  EXPECT_THAT(reply, EndsWith("\r\n\r\n"));
}

TEST(AdminHttpTest, SurvivesGarbage) {
  const auto server = StartServer();
  Exchange(server->port(), std::string("\x16\x03\x01\x00\xff garbage\r\n\r\n", 18));
  EXPECT_THAT(Get(server->port(), "/health"), StartsWith("HTTP/1.1 200"));
}

TEST(AdminHttpTest, ASilentCrowdKeepsNobodyOut) {
  const auto server = StartServer();
  std::vector<int> crowd;
  for (int i = 0; i < 200; ++i) {
    crowd.push_back(Connect(server->port()));
    if (i % 2 == 0) {
      EXPECT_EQ(send(crowd.back(), "GET /hea", 8, 0), 8);
    }
  }
  for (int i = 0; i < 3; ++i) EXPECT_THAT(Get(server->port(), "/health"), StartsWith("HTTP/1.1 200"));
  char byte;
  EXPECT_EQ(recv(crowd.front(), &byte, 1, 0), 0) << "the one that has been silent for longest was closed";
  for (const int fd : crowd) close(fd);
}

TEST(AdminHttpTest, APortInUseIsNamed) {
  const auto server = StartServer();
  const auto second = AdminHttpServer::Start("127.0.0.1", server->port(), {});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("127.0.0.1:" + std::to_string(server->port())));
}

}  // namespace
}  // namespace tandem::base
