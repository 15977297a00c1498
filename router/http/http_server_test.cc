// The server against raw sockets: framing, limits, time-outs, pipelining, garbage, and clients that leave.
#include "router/http/http_server.h"

#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "base/held_port.h"
#include "boost/asio/executor_work_guard.hpp"
#include "boost/asio/io_context.hpp"
#include "boost/asio/post.hpp"
#include "gtest/gtest.h"
#include "router/testing/raw_client.h"

namespace tandem::router {
namespace {

// Answers by path: /echo gives the body back; /size its size; /hold keeps the exchange for the test; /drop forgets it.
class TestHandler final : public HttpHandler {
 public:
  void Handle(std::shared_ptr<Exchange> exchange) override {
    const HttpRequest& request = exchange->request();
    HttpResponse response;
    response.content_type = "text/plain";
    if (request.path == "/drop") return;
    if (request.path == "/hold") {
      absl::MutexLock lock(&mutex_);
      exchange->SetObserver([this](ExchangeEvent event) {
        absl::MutexLock lock(&mutex_);
        ++(event == ExchangeEvent::kDrained ? num_drained_ : num_left_);
        if (event == ExchangeEvent::kClientStalled) ++num_stalled_;
      });
      held_ = std::move(exchange);
      return;
    }
    response.body = request.path == "/size"
                        ? absl::StrCat(request.body.size())
                        : absl::StrCat(request.method, " ", request.path, " ", request.query, " ", request.body);
    exchange->Respond(std::move(response));
  }

  // The exchange lives until Drop() or the end of the test.
  Exchange* AwaitHeld() {
    absl::MutexLock lock(&mutex_);
    mutex_.AwaitWithTimeout(absl::Condition(
                                +[](TestHandler* self) { return self->held_ != nullptr; }, this),
                            RawClient::kPatience);
    return held_.get();
  }
  // On the server's thread.
  void Drop() {
    std::shared_ptr<Exchange> dropped;
    absl::MutexLock lock(&mutex_);
    dropped.swap(held_);
  }
  bool AwaitClientLeft() { return Await(&num_left_); }
  bool AwaitDrained() { return Await(&num_drained_); }
  int num_stalled() {
    absl::MutexLock lock(&mutex_);
    return num_stalled_;
  }
  int num_left() {
    absl::MutexLock lock(&mutex_);
    return num_left_;
  }

 private:
  bool Await(int* counter) {
    absl::MutexLock lock(&mutex_);
    return mutex_.AwaitWithTimeout(absl::Condition(
                                       +[](int* value) { return *value > 0; }, counter),
                                   RawClient::kPatience);
  }
  absl::Mutex mutex_;
  std::shared_ptr<Exchange> held_;
  int num_left_ = 0;
  int num_stalled_ = 0;
  int num_drained_ = 0;
};

class HttpServerTest : public testing::Test {
 protected:
  void Start(const HttpLimits& limits = HttpLimits(), int port = 0) {
    auto server = HttpServer::Listen(io_context_, "127.0.0.1", port, PortSharing::kExclusive, limits, &handler_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    thread_ = std::thread([this] { io_context_.run(); });
  }
  void TearDown() override {
    OnThread([this] { server_->Drain(); });
    io_context_.stop();
    thread_.join();
  }
  // Runs on the server's thread and waits.
  void OnThread(std::function<void()> work) {
    absl::Notification done;
    boost::asio::post(io_context_, [&] {
      work();
      done.Notify();
    });
    done.WaitForNotification();
  }
  int port() const { return server_->port(); }

  TestHandler handler_;
  boost::asio::io_context io_context_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> keep_running_ =
      boost::asio::make_work_guard(io_context_);
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
};

constexpr char kGet[] = "GET /a?b=c HTTP/1.1\r\nHost: x\r\n\r\n";

std::string Post(absl::string_view path, absl::string_view body) {
  return absl::StrCat("POST ", path, " HTTP/1.1\r\nHost: x\r\nContent-Length: ", body.size(), "\r\n\r\n", body);
}

TEST_F(HttpServerTest, AnswersAndKeepsTheConnection) {
  Start();
  RawClient client(port());
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(client.Send(kGet));
    const RawClient::Response response = client.ReadResponse();
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.body, "GET /a b=c ");
  }
}

TEST_F(HttpServerTest, TargetMayBeInAbsoluteForm) {
  Start();
  RawClient client(port());
  ASSERT_TRUE(client.Send("GET http://x:80/a?b=c HTTP/1.1\r\nHost: x\r\n\r\n"));
  EXPECT_EQ(client.ReadResponse().body, "GET /a b=c ");
}

TEST_F(HttpServerTest, EveryByteMayComeAlone) {
  Start();
  RawClient client(port());
  for (char byte : Post("/echo", "body")) ASSERT_TRUE(client.Send(absl::string_view(&byte, 1)));
  EXPECT_EQ(client.ReadResponse().body, "POST /echo  body");
}

TEST_F(HttpServerTest, PipelinedRequestsAreAnsweredInOrder) {
  Start();
  RawClient client(port());
  std::string requests;
  for (int i = 0; i < 50; ++i) requests += Post("/echo", absl::StrCat(i));
  ASSERT_TRUE(client.Send(requests));
  for (int i = 0; i < 50; ++i) EXPECT_EQ(client.ReadResponse().body, absl::StrCat("POST /echo  ", i));
}

TEST_F(HttpServerTest, RequestsSentBeforeAHalfCloseAreAllAnswered) {
  Start();
  RawClient client(port());
  ASSERT_TRUE(client.Send(Post("/echo", "1") + Post("/echo", "2") + Post("/echo", "3")));
  client.ShutdownSend();
  const std::string answers = client.ReadToClose();
  for (const char* answer : {"POST /echo  1", "POST /echo  2", "POST /echo  3"}) {
    EXPECT_TRUE(absl::StrContains(answers, answer)) << answers;
  }
}

TEST_F(HttpServerTest, HalfARequestBeforeAHalfCloseIsDropped) {
  Start();
  for (int round = 0; round < 50; ++round) {
    RawClient client(port());
    ASSERT_TRUE(client.Send(Post("/echo", "1") + "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Len"));
    client.ShutdownSend();
    const std::string answers = client.ReadToClose();
    ASSERT_TRUE(absl::EndsWith(answers, "POST /echo  1")) << answers << " in round " << round;
  }
}

TEST_F(HttpServerTest, ChunkedBodiesAreRead) {
  Start();
  RawClient client(port());
  ASSERT_TRUE(client.Send(
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4;ext=1\r\ndefg\r\n0\r\n\r\n"));
  EXPECT_EQ(client.ReadResponse().body, "POST /echo  abcdefg");
}

TEST_F(HttpServerTest, ExpectationIsMetBeforeTheBodyComes) {
  Start();
  RawClient client(port());
  ASSERT_TRUE(client.Send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"));
  EXPECT_EQ(client.ReadUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  ASSERT_TRUE(client.Send("hi"));
  EXPECT_EQ(client.ReadResponse().body, "POST /echo  hi");
}

TEST_F(HttpServerTest, BodyAtTheLimitIsTakenAndOneByteMoreIsNot) {
  HttpLimits limits;
  limits.body_bytes_max = 1 << 20;
  limits.close_wait_max = RawClient::kPatience;
  Start(limits);
  const std::string body(limits.body_bytes_max, 'x');
  RawClient client(port());
  ASSERT_TRUE(client.Send(Post("/size", body)));
  EXPECT_EQ(client.ReadResponse().body, absl::StrCat(body.size()));
  client.Send(Post("/size", body + "x"));
  const RawClient::Response refused = client.ReadResponse();
  EXPECT_EQ(refused.status, 413);
  EXPECT_TRUE(absl::StrContains(refused.body, "limit of 1048576 bytes")) << refused.body;
  EXPECT_TRUE(absl::StrContains(refused.head, "Connection: close"));
  EXPECT_EQ(client.ReadToClose(), "") << "closed cleanly, after the answer was read";
}

TEST_F(HttpServerTest, ChunkedBodyOverTheLimitIsRefusedToo) {
  HttpLimits limits;
  limits.body_bytes_max = 1000;
  Start(limits);
  RawClient client(port());
  client.Send(absl::StrCat("POST /size HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n400\r\n",
                           std::string(1024, 'x'), "\r\n0\r\n\r\n"));
  EXPECT_EQ(client.ReadResponse().status, 413);
}

TEST_F(HttpServerTest, BodyOverTheLimitIsRefusedBeforeItIsSent) {
  HttpLimits limits;
  limits.body_bytes_max = 1000;
  Start(limits);
  RawClient client(port());
  ASSERT_TRUE(client.Send("POST /size HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\nExpect: 100-continue\r\n\r\n"));
  EXPECT_EQ(client.ReadResponse().status, 413);
}

TEST_F(HttpServerTest, OverlongHeadersAre431) {
  HttpLimits limits;
  limits.header_bytes_max = 1024;
  Start(limits);
  RawClient client(port());
  client.Send(absl::StrCat("GET / HTTP/1.1\r\nHost: x\r\nX-Long: ", std::string(4096, 'x'), "\r\n\r\n"));
  EXPECT_EQ(client.ReadResponse().status, 431);
}

TEST_F(HttpServerTest, GarbageIs400AndTheConnectionCloses) {
  Start();
  for (const char* garbage : {"\r\n\r\nnonsense\r\n\r\n", "GET\r\n\r\n", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
                              "GET / HTTP/1.1\r\nBad Header\r\n\r\n", "POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
                              "POST /size HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
                              "POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"}) {
    RawClient client(port());
    ASSERT_TRUE(client.Send(garbage));
    const RawClient::Response response = client.ReadResponse();
    EXPECT_EQ(response.status, 400) << garbage;
    EXPECT_TRUE(absl::StrContains(response.body, "\"error\"")) << garbage;
    EXPECT_EQ(client.ReadToClose(), "") << garbage;
  }
  RawClient client(port());
  ASSERT_TRUE(client.Send(kGet));
  EXPECT_EQ(client.ReadResponse().status, 200) << "others are served";
}

TEST_F(HttpServerTest, EmptyLinesBeforeARequestAreIgnored) {
  Start();
  RawClient client(port());
  ASSERT_TRUE(client.Send(absl::StrCat("\r\n", kGet, "\r\n\r\n", kGet)));
  EXPECT_EQ(client.ReadResponse().status, 200);
  EXPECT_EQ(client.ReadResponse().status, 200);
  ASSERT_TRUE(client.Send("\r"));
  ASSERT_TRUE(client.Send("\n"));
  ASSERT_TRUE(client.Send(kGet));
  EXPECT_EQ(client.ReadResponse().status, 200);
  ASSERT_TRUE(client.Send(absl::StrCat(kGet, "\r\n")));
  client.ShutdownSend();
  EXPECT_EQ(client.ReadResponse().status, 200);
  EXPECT_EQ(client.ReadToClose(), "");
}

TEST_F(HttpServerTest, NewClientsMustNameTheHostOnce) {
  Start();
  for (const char* request : {"GET /a HTTP/1.1\r\n\r\n", "GET /a HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n"}) {
    RawClient client(port());
    ASSERT_TRUE(client.Send(request));
    const RawClient::Response response = client.ReadResponse();
    EXPECT_EQ(response.status, 400) << request;
    EXPECT_TRUE(absl::StrContains(response.body, "Host")) << response.body;
  }
  RawClient old(port());
  ASSERT_TRUE(old.Send("GET /a HTTP/1.0\r\n\r\n"));
  EXPECT_EQ(old.ReadResponse().status, 200) << "HTTP/1.0 knows no Host";
}

TEST_F(HttpServerTest, TransferCodingsOtherThanChunkedAre501) {
  Start();
  for (const char* coding : {"gzip", "gzip, chunked", "identity", "gzip\r\nTransfer-Encoding: chunked"}) {
    RawClient client(port());
    ASSERT_TRUE(client.Send(
        absl::StrCat("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: ", coding, "\r\n\r\n0\r\n\r\n")));
    const RawClient::Response response = client.ReadResponse();
    EXPECT_EQ(response.status, 501) << coding;
    EXPECT_TRUE(absl::StrContains(response.head, "Not Implemented")) << response.head;
    EXPECT_EQ(client.ReadToClose(), "") << coding;
  }
}

TEST_F(HttpServerTest, CompressedBodiesAreRefused) {
  Start();
  RawClient client(port());
  client.Send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc");
  EXPECT_EQ(client.ReadResponse().status, 415);
}

TEST_F(HttpServerTest, SlowHeadersAreEndedWith408) {
  HttpLimits limits;
  limits.header_time_max = absl::Milliseconds(50);
  Start(limits);
  RawClient client(port());
  ASSERT_TRUE(client.Send("GET / HTTP/1.1\r\nHost:"));
  EXPECT_EQ(client.ReadResponse().status, 408);
  EXPECT_EQ(client.ReadToClose(), "");
}

TEST_F(HttpServerTest, StalledBodyIsEndedWith408) {
  HttpLimits limits;
  limits.body_stall_max = absl::Milliseconds(50);
  Start(limits);
  RawClient client(port());
  ASSERT_TRUE(client.Send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc"));
  EXPECT_EQ(client.ReadResponse().status, 408);
}

TEST_F(HttpServerTest, IdleConnectionIsClosedWithoutAWord) {
  HttpLimits limits;
  limits.idle_max = absl::Milliseconds(50);
  Start(limits);
  RawClient client(port());
  EXPECT_EQ(client.ReadToClose(), "");
}

TEST_F(HttpServerTest, OldClientIsServedAndClosed) {
  Start();
  RawClient client(port());
  ASSERT_TRUE(client.Send("GET /a HTTP/1.0\r\n\r\n"));
  EXPECT_TRUE(absl::EndsWith(client.ReadToClose(), "GET /a  "));
}

TEST_F(HttpServerTest, HeadHasNoBody) {
  Start();
  RawClient client(port());
  ASSERT_TRUE(client.Send("HEAD /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"));
  EXPECT_TRUE(absl::EndsWith(client.ReadToClose(), "\r\n\r\n"));
}

TEST_F(HttpServerTest, StreamArrivesPieceByPiece) {
  Start();
  RawClient client(port());
  ASSERT_TRUE(client.Send(Post("/hold", "")));
  Exchange* const exchange = handler_.AwaitHeld();
  ASSERT_NE(exchange, nullptr);
  OnThread([&] {
    exchange->StartStream("text/event-stream", ": \n\n");
    exchange->Write("one\n");
  });
  EXPECT_TRUE(absl::StrContains(client.ReadUntil("one\n"), "text/event-stream"));
  OnThread([&] { exchange->Write("two\n"); });
  client.ReadUntil("two\n");
  OnThread([&] { exchange->Finish(); });
  EXPECT_EQ(client.ReadUntil("0\r\n\r\n"), "\r\n0\r\n\r\n");
  ASSERT_TRUE(client.Send(kGet));
  EXPECT_EQ(client.ReadResponse().status, 200) << "the connection goes on";
}

TEST_F(HttpServerTest, DroppedRequestIs500) {
  Start();
  RawClient client(port());
  ASSERT_TRUE(client.Send(Post("/drop", "")));
  EXPECT_EQ(client.ReadResponse().status, 500);
}

TEST_F(HttpServerTest, StreamDroppedHalfwayIsCutNotEnded) {
  Start();
  RawClient client(port());
  ASSERT_TRUE(client.Send(Post("/hold", "")));
  Exchange* const exchange = handler_.AwaitHeld();
  OnThread([&] {
    exchange->StartStream("text/event-stream", "");
    exchange->Write("one\n");
    handler_.Drop();
  });
  EXPECT_FALSE(absl::StrContains(client.ReadToClose(), "0\r\n\r\n"));
}

// Every way of leaving, before the answer and inside a stream.
class LeavingClientTest : public HttpServerTest, public testing::WithParamInterface<std::pair<bool, bool>> {};

TEST_P(LeavingClientTest, IsNoticedAtOnce) {
  const auto [is_reset, is_streaming] = GetParam();
  Start();
  RawClient client(port());
  ASSERT_TRUE(client.Send(Post("/hold", "")));
  Exchange* const exchange = handler_.AwaitHeld();
  ASSERT_NE(exchange, nullptr);
  if (is_streaming) {
    OnThread([&] {
      exchange->StartStream("text/event-stream", ": \n\n");
      exchange->Write("one\n");
    });
    client.ReadUntil("one\n\r\n");
  }
  is_reset ? client.Reset() : client.Close();
  EXPECT_TRUE(handler_.AwaitClientLeft());
  OnThread([&] {
    if (is_streaming) exchange->Write("into the void");
  });
  EXPECT_EQ(handler_.num_left(), 1);
}

INSTANTIATE_TEST_SUITE_P(AllWays, LeavingClientTest,
                         testing::Values(std::pair(false, false), std::pair(false, true), std::pair(true, false),
                                         std::pair(true, true)));

TEST_F(HttpServerTest, HalfClosedClientIsServedBeforeTheAnswer) {
  Start();
  RawClient client(port());
  ASSERT_TRUE(client.Send(Post("/hold", "")));
  client.ShutdownSend();
  Exchange* const exchange = handler_.AwaitHeld();
  ASSERT_NE(exchange, nullptr);
  EXPECT_EQ(client.ReadUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n") << "the probe";
  OnThread([&] {
    HttpResponse response;
    response.body = "late";
    exchange->Respond(std::move(response));
  });
  EXPECT_EQ(client.ReadResponse().body, "late");
  EXPECT_EQ(handler_.num_left(), 0);
  EXPECT_EQ(client.ReadToClose(), "");
}

TEST_F(HttpServerTest, HalfClosedClientIsServedInsideAStream) {
  Start();
  RawClient client(port());
  ASSERT_TRUE(client.Send(Post("/hold", "")));
  Exchange* const exchange = handler_.AwaitHeld();
  OnThread([&] {
    exchange->StartStream("text/event-stream", ": \n\n");
    exchange->Write("one\n");
  });
  client.ReadUntil("one\n\r\n");
  client.ShutdownSend();
  EXPECT_TRUE(absl::StrContains(client.ReadUntil(": \n\n"), ": \n\n"));
  OnThread([&] {
    exchange->Write("two\n");
    exchange->Finish();
  });
  EXPECT_TRUE(absl::StrContains(client.ReadToClose(), "two\n\r\n0\r\n\r\n"));
  EXPECT_EQ(handler_.num_left(), 0);
}

TEST_F(HttpServerTest, ClientThatLeavesAfterTheProbeIsNoticed) {
  Start();
  RawClient client(port());
  ASSERT_TRUE(client.Send(Post("/hold", "")));
  client.ShutdownSend();
  ASSERT_NE(handler_.AwaitHeld(), nullptr);
  client.ReadUntil("\r\n\r\n");
  client.Reset();
  EXPECT_TRUE(handler_.AwaitClientLeft());
}

TEST_F(HttpServerTest, ReaderThatTakesNothingIsGivenUp) {
  HttpLimits limits;
  limits.write_stall_max = absl::Milliseconds(100);
  Start(limits);
  RawClient client(port(), /*receive_buffer_bytes=*/4096);
  ASSERT_TRUE(client.Send(Post("/hold", "")));
  Exchange* const exchange = handler_.AwaitHeld();
  OnThread([&] {
    exchange->StartStream("text/event-stream", "");
    exchange->Write(std::string(16 << 20, 'x'));
    EXPECT_GT(exchange->num_unsent_bytes(), 0u);
  });
  EXPECT_TRUE(handler_.AwaitClientLeft());
  EXPECT_EQ(handler_.num_stalled(), 1);
}

TEST_F(HttpServerTest, WriterHearsWhenItsBytesHaveLeft) {
  Start();
  RawClient client(port());
  ASSERT_TRUE(client.Send(Post("/hold", "")));
  Exchange* const exchange = handler_.AwaitHeld();
  OnThread([&] {
    exchange->StartStream("text/event-stream", "");
    exchange->Write(std::string(8 << 20, 'x'));
    exchange->NotifyWhenDrained();
  });
  std::thread reader([&] { client.ReadUntil("x\r\n"); });
  EXPECT_TRUE(handler_.AwaitDrained());
  reader.join();
  OnThread([&] { EXPECT_EQ(exchange->num_unsent_bytes(), 0u); });
}

TEST_F(HttpServerTest, DrainAnswersWhatIsUnderWayAndClosesTheRest) {
  Start();
  RawClient idle(port());
  ASSERT_TRUE(idle.Send(kGet));
  EXPECT_EQ(idle.ReadResponse().status, 200);
  RawClient busy(port());
  ASSERT_TRUE(busy.Send(Post("/hold", "")));
  Exchange* const exchange = handler_.AwaitHeld();
  OnThread([&] { server_->Drain(); });
  EXPECT_EQ(idle.ReadToClose(), "");
  OnThread([&] { exchange->Respond(HttpResponse()); });
  const RawClient::Response response = busy.ReadResponse();
  EXPECT_EQ(response.status, 200);
  EXPECT_TRUE(absl::StrContains(response.head, "Connection: close"));
  EXPECT_EQ(busy.ReadToClose(), "");
}

TEST_F(HttpServerTest, DrainingServerAnswersOneRequestAConnectionUntilItIsClosed) {
  const base::HeldPort held_port;
  Start(HttpLimits(), held_port.port());
  OnThread([&] { server_->Drain(); });
  for (int i = 0; i < 2; ++i) {
    RawClient client(port());
    ASSERT_TRUE(client.Send(absl::StrCat(kGet, kGet)));
    const RawClient::Response response = client.ReadResponse();
    EXPECT_EQ(response.status, 200);
    EXPECT_TRUE(absl::StrContains(response.head, "Connection: close")) << response.head;
    EXPECT_EQ(client.ReadToClose(), "") << "only the first is answered";
  }
  RawClient idle(port());
  OnThread([&] { server_->Close(); });
  EXPECT_EQ(idle.ReadToClose(), "");
  const auto next =
      HttpServer::Listen(io_context_, "127.0.0.1", held_port.port(), PortSharing::kExclusive, HttpLimits(), &handler_);
  EXPECT_TRUE(next.ok()) << "the port is free again: " << next.status();
}

TEST_F(HttpServerTest, PortInUseIsNamed) {
  Start();
  const auto second =
      HttpServer::Listen(io_context_, "127.0.0.1", port(), PortSharing::kExclusive, HttpLimits(), &handler_);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(absl::StrContains(second.status().message(), absl::StrCat("127.0.0.1:", port()))) << second.status();
}

TEST_F(HttpServerTest, ShardsShareAPort) {
  auto first = HttpServer::Listen(io_context_, "127.0.0.1", 0, PortSharing::kShared, HttpLimits(), &handler_);
  ASSERT_TRUE(first.ok());
  auto second =
      HttpServer::Listen(io_context_, "127.0.0.1", (*first)->port(), PortSharing::kShared, HttpLimits(), &handler_);
  EXPECT_TRUE(second.ok()) << second.status();
  Start();
}

}  // namespace
}  // namespace tandem::router
