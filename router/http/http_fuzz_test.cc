// Bytes that nobody meant, cut anywhere: whatever comes in, every connection ends, what is answered is well-formed
// HTTP, and the next client is served.
//
// Deterministic: the seed is fixed, a failure prints the bytes.
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/synchronization/notification.h"
#include "base/clock.h"
#include "boost/asio/executor_work_guard.hpp"
#include "boost/asio/io_context.hpp"
#include "boost/asio/post.hpp"
#include "gtest/gtest.h"
#include "router/http/http_server.h"
#include "router/testing/raw_client.h"

namespace tandem::router {
namespace {

class EchoHandler final : public HttpHandler {
 public:
  void Handle(std::shared_ptr<Exchange> exchange) override {
    HttpResponse response;
    response.body = exchange->TakeBody();
    exchange->Respond(std::move(response));
  }
};

const std::vector<std::string>& Corpus() {
  static const auto* corpus = new std::vector<std::string>{
      "GET /health HTTP/1.1\r\nHost: x\r\n\r\n",
      "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello",
      "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\nhi",
      "GET / HTTP/1.0\r\n\r\n",
      "HEAD http://x/a?b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
  };
  return *corpus;
}

const std::vector<std::string>& Pieces() {
  static const auto* pieces = new std::vector<std::string>{
      "\r\n",
      "\n",
      "\r",
      ": ",
      "HTTP/1.1",
      "HTTP/9.9",
      "GET ",
      "Content-Length: 99999999999999999999",
      "\t",
      "chunked",
      "ffffffffffffffff\r\n",
      "-1",
      "0\r\n\r\n",
      "Connection: upgrade\r\n",
      "\x01",
      "\xff",
      " ",
      "Transfer-Encoding: gzip\r\n",
      "%00",
  };
  return *pieces;
}

std::string Mutate(std::mt19937& random) {
  std::string bytes;
  for (size_t i = 0; i <= random() % 3; ++i) bytes += Corpus()[random() % Corpus().size()];
  for (size_t i = 0; i < random() % 4; ++i) {
    const size_t at = random() % bytes.size();
    switch (random() % 4) {
      case 0:
        bytes.erase(at, 1 + random() % 6);
        break;
      case 1:
        bytes.insert(at, Pieces()[random() % Pieces().size()]);
        break;
      case 2:
        bytes[at] = static_cast<char>(random());
        break;
      default:
        bytes.insert(at, bytes.substr(random() % (at + 1), random() % 20));
    }
    if (bytes.empty()) bytes = "\r\n";
  }
  return bytes;
}

TEST(HttpFuzzTest, EveryConnectionEndsAndEveryAnswerIsHttp) {
  EchoHandler handler;
  boost::asio::io_context io_context(1);
  auto keep_running = boost::asio::make_work_guard(io_context);
  HttpLimits limits;
  // No time-out ends a connection or cuts an answer off: what is sent, and the client's end of it, must do.
  limits.header_time_max = limits.body_stall_max = limits.idle_max = absl::Hours(1);
  limits.close_wait_max = absl::Hours(1);
  auto server = HttpServer::Listen(io_context, "127.0.0.1", 0, PortSharing::kExclusive, limits, &handler);
  ASSERT_TRUE(server.ok()) << server.status();
  std::thread thread([&] { io_context.run(); });

  std::mt19937 random(20261130);
  int num_served = 0, num_refused = 0;
  for (int round = 0; round < 3000; ++round) {
    const std::string bytes = Mutate(random);
    RawClient client((*server)->port());
    const size_t cut = random() % (bytes.size() + 1);
    if (client.Send(bytes.substr(0, cut)) && client.Send(bytes.substr(cut))) client.ShutdownSend();
    const absl::Duration asked_at = base::RealClock().Now();
    const std::string answer = client.ReadToClose();
    ASSERT_LT(base::RealClock().Now() - asked_at, RawClient::kPatience / 2) << absl::CEscape(bytes);
    if (!answer.empty()) {
      ASSERT_TRUE(absl::StartsWith(answer, "HTTP/1.1 ")) << absl::CEscape(bytes) << "\n" << absl::CEscape(answer);
    }
    num_served += absl::StrContains(answer, "HTTP/1.1 200 ") ? 1 : 0;
    num_refused += absl::StrContains(answer, "HTTP/1.1 4") ? 1 : 0;
  }
  EXPECT_GT(num_served, 300);
  EXPECT_GT(num_refused, 300);
  RawClient client((*server)->port());
  client.Send(Corpus()[1]);
  EXPECT_EQ(client.ReadResponse().body, "hello");

  absl::Notification drained;
  boost::asio::post(io_context, [&] {
    (*server)->Drain();
    drained.Notify();
  });
  drained.WaitForNotification();
  io_context.stop();
  thread.join();
}

}  // namespace
}  // namespace tandem::router
