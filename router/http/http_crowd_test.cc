// More clients than the server has places or memory for: who gives way to whom, and that whoever holds a place without
// using it keeps nobody out.
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "boost/asio/executor_work_guard.hpp"
#include "boost/asio/io_context.hpp"
#include "boost/asio/post.hpp"
#include "gtest/gtest.h"
#include "router/http/http_server.h"
#include "router/testing/raw_client.h"

namespace tandem::router {
namespace {

const absl::Duration kNever = absl::InfiniteDuration();
constexpr char kGet[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";

std::string PostHead(size_t num_bytes) {
  return absl::StrCat("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: ", num_bytes, "\r\n\r\n");
}

std::string Post(size_t num_bytes) { return absl::StrCat(PostHead(num_bytes), std::string(num_bytes, 'x')); }

// Answers with the size of the body; what comes to /hold once the test drops it.
class SizeHandler final : public HttpHandler {
 public:
  void Handle(std::shared_ptr<Exchange> exchange) override {
    if (exchange->request().path == "/hold") {
      absl::MutexLock lock(&mutex_);
      held_ = std::move(exchange);
      return;
    }
    HttpResponse response;
    response.body = absl::StrCat(exchange->TakeBody().size());
    exchange->BodyDone();
    exchange->Respond(std::move(response));
  }
  bool AwaitHeld() {
    absl::MutexLock lock(&mutex_);
    const auto has_one = [this] { return held_ != nullptr; };
    return mutex_.AwaitWithTimeout(absl::Condition(&has_one), RawClient::kPatience);
  }
  // On the server's thread.
  void RespondToHeld() {
    absl::MutexLock lock(&mutex_);
    held_->Respond(HttpResponse());
    held_ = nullptr;
  }

 private:
  absl::Mutex mutex_;
  std::shared_ptr<Exchange> held_;
};

class HttpCrowdTest : public testing::Test {
 protected:
  void Start(const HttpLimits& limits) {
    auto server = HttpServer::Listen(io_context_, "127.0.0.1", 0, PortSharing::kExclusive, limits, &handler_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    thread_ = std::thread([this] { io_context_.run(); });
  }
  void TearDown() override {
    OnThread([this] { server_->Drain(); });
    io_context_.stop();
    thread_.join();
  }
  void OnThread(const std::function<void()>& work) {
    absl::Notification done;
    boost::asio::post(io_context_, [&] {
      work();
      done.Notify();
    });
    done.WaitForNotification();
  }
  // Until the server's thread sees that it is so.
  void Await(const std::function<bool()>& is_so) {
    const absl::Time deadline = absl::Now() + RawClient::kPatience;
    for (bool is_seen = false; !is_seen;) {
      OnThread([&] { is_seen = is_so(); });
      ASSERT_LT(absl::Now(), deadline);
    }
  }
  void AwaitBodyBytes(size_t num_bytes) {
    Await([&] { return server_->num_body_bytes() == num_bytes; });
  }
  void AwaitConnections(int count) {
    Await([&] { return server_->num_connections() == count; });
  }
  int port() const { return server_->port(); }

  SizeHandler handler_;
  boost::asio::io_context io_context_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> keep_running_ =
      boost::asio::make_work_guard(io_context_);
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
};

TEST_F(HttpCrowdTest, BodiesOfAllConnectionsShareOneBound) {
  HttpLimits limits;
  limits.bodies_bytes_max = 3000;
  limits.give_way_after = kNever;
  Start(limits);
  RawClient first(port());
  ASSERT_TRUE(first.Send(absl::StrCat(PostHead(2000), std::string(1500, 'x'))));
  AwaitBodyBytes(1500);
  RawClient second(port());
  second.Send(Post(2000));
  const RawClient::Response refused = second.ReadResponse();
  EXPECT_EQ(refused.status, 503);
  EXPECT_TRUE(absl::StrContains(refused.head, "Retry-After: ")) << refused.head;
  ASSERT_TRUE(first.Send(std::string(500, 'x')));
  EXPECT_EQ(first.ReadResponse().body, "2000");
  RawClient third(port());
  third.Send(Post(2000));
  EXPECT_EQ(third.ReadResponse().body, "2000") << "the share is back";
}

TEST_F(HttpCrowdTest, WhatIsAnnouncedTakesNothingUntilItComes) {
  HttpLimits limits;
  limits.bodies_bytes_max = 3000;
  limits.give_way_after = kNever;
  Start(limits);
  std::vector<std::unique_ptr<RawClient>> silent;
  for (int i = 0; i < 20; ++i) {
    silent.push_back(std::make_unique<RawClient>(port()));
    ASSERT_TRUE(silent.back()->Send(absl::StrCat(PostHead(2900), "x")));
  }
  AwaitBodyBytes(20);
  RawClient busy(port());
  ASSERT_TRUE(busy.Send(Post(2900)));
  EXPECT_EQ(busy.ReadResponse().body, "2900");
  ASSERT_TRUE(silent[0]->Send(std::string(2898, 'x')));
  AwaitBodyBytes(2918);
  silent[1]->Send(std::string(100, 'x'));
  EXPECT_EQ(silent[1]->ReadResponse().status, 503) << "bytes that have come are counted, announced or not";
}

TEST_F(HttpCrowdTest, ABodyThatDoesNotComeGivesWayToOneThatDoes) {
  HttpLimits limits;
  limits.bodies_bytes_max = 3000;
  limits.give_way_after = absl::ZeroDuration();
  Start(limits);
  RawClient first(port());
  ASSERT_TRUE(first.Send(absl::StrCat(PostHead(2000), std::string(1999, 'x'))));
  AwaitBodyBytes(1999);
  RawClient idle(port());  // has no bytes to give
  RawClient second(port());
  ASSERT_TRUE(second.Send(Post(2000)));
  EXPECT_EQ(second.ReadResponse().body, "2000");
  const RawClient::Response told = first.ReadResponse();
  EXPECT_EQ(told.status, 503);
  EXPECT_TRUE(absl::StrContains(told.body, "took too long to arrive")) << told.body;
  ASSERT_TRUE(idle.Send(kGet));
  EXPECT_EQ(idle.ReadResponse().status, 200);
}

TEST_F(HttpCrowdTest, WhereNobodyHasWaitedForLongTheNewcomerIsRefused) {
  HttpLimits limits;
  limits.connections_max = 1;
  limits.give_way_after = kNever;
  Start(limits);
  RawClient first(port());
  ASSERT_TRUE(first.Send(kGet));
  EXPECT_EQ(first.ReadResponse().status, 200);
  RawClient second(port());
  const RawClient::Response refused = second.ReadResponse();
  EXPECT_EQ(refused.status, 503);
  EXPECT_TRUE(absl::StrContains(refused.body, "the limit is 1")) << refused.body;
  EXPECT_TRUE(absl::StrContains(refused.head, "Retry-After: ")) << refused.head;
  ASSERT_TRUE(first.Send(kGet));
  EXPECT_EQ(first.ReadResponse().status, 200);
}

TEST_F(HttpCrowdTest, WhoeverHasBeenIdleLongestGivesWayToANewcomer) {
  HttpLimits limits;
  limits.connections_max = 2;
  limits.give_way_after = absl::ZeroDuration();
  Start(limits);
  RawClient first(port());
  AwaitConnections(1);
  RawClient second(port());
  AwaitConnections(2);
  ASSERT_TRUE(first.Send(kGet));
  EXPECT_EQ(first.ReadResponse().status, 200);  // and is idle for less long than the second
  RawClient third(port());
  EXPECT_EQ(second.ReadToClose(), "") << "closed without a word, as at the end of idle_max";
  for (RawClient* client : {&first, &third}) {
    ASSERT_TRUE(client->Send(kGet));
    EXPECT_EQ(client->ReadResponse().status, 200);
  }
}

// Half a head, behind a whole request that shows that the server has read both; half a body.
TEST_F(HttpCrowdTest, HalfARequestGivesWayAndIsTold) {
  HttpLimits limits;
  limits.connections_max = 1;
  limits.give_way_after = absl::ZeroDuration();
  Start(limits);
  for (const std::string& half : {std::string("GET / HTTP/1.1\r\nHos"), absl::StrCat(PostHead(10), "xxx")}) {
    RawClient client(port());
    ASSERT_TRUE(client.Send(absl::StrCat(kGet, half)));
    EXPECT_EQ(client.ReadResponse().status, 200);
    for (int status = 503; status != 200;) {  // refused for as long as the client is being answered
      RawClient newcomer(port());
      newcomer.Send(kGet);
      status = newcomer.ReadResponse().status;
      newcomer.Close();
    }
    EXPECT_EQ(client.ReadResponse().status, 503);
    EXPECT_EQ(client.ReadToClose(), "");
    client.Close();
    AwaitConnections(0);
  }
}

TEST_F(HttpCrowdTest, WhoeverIsBeingAnsweredStays) {
  HttpLimits limits;
  limits.connections_max = 1;
  limits.give_way_after = absl::ZeroDuration();
  Start(limits);
  RawClient client(port());
  ASSERT_TRUE(client.Send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n"));
  ASSERT_TRUE(handler_.AwaitHeld());
  RawClient newcomer(port());
  EXPECT_EQ(newcomer.ReadResponse().status, 503);
  OnThread([&] { handler_.RespondToHeld(); });
  EXPECT_EQ(client.ReadResponse().status, 200);
}

}  // namespace
}  // namespace tandem::router
