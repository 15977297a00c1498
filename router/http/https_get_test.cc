// GETs of our own HTTPS server, and of listeners that are no such server.
#include "router/http/https_get.h"

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/held_port.h"
#include "boost/asio/co_spawn.hpp"
#include "boost/asio/executor_work_guard.hpp"
#include "boost/asio/io_context.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "router/http/http_server.h"
#include "router/http/tls_certificate.h"
#include "router/testing/self_signed_certificate.h"

namespace tandem::router {
namespace {

namespace asio = boost::asio;
using ::testing::HasSubstr;

// /size/N: a body of N bytes; /stream: a stream in three pieces; /held: one that does not end; else what was asked.
class TestHandler final : public HttpHandler {
 public:
  void Handle(std::shared_ptr<Exchange> exchange) override {
    const std::string& path = exchange->request().path;
    if (path == "/stream" || path == "/held") {
      exchange->StartStream("text/plain", ":\n\n");
      for (const char* piece : {"one", "two", "three"}) exchange->Write(piece);
      if (path == "/held") {
        held_ = std::move(exchange);
      } else {
        exchange->Finish();
      }
      return;
    }
    HttpResponse response;
    if (absl::StartsWith(path, "/size/")) {
      response.body = std::string(static_cast<size_t>(std::stoi(path.substr(6))), 'x');
    } else {
      response.status = 429;
      response.headers = {{"Retry-After", "7"}};
      response.body = absl::StrCat(exchange->request().Header("authorization"), " ", exchange->request().query);
    }
    exchange->Respond(std::move(response));
  }

 private:
  std::shared_ptr<Exchange> held_;
};

class HttpsGetTest : public testing::Test {
 protected:
  HttpsGetTest() {
    const std::string stem =
        absl::StrCat(testing::TempDir(), "/", testing::UnitTest::GetInstance()->current_test_info()->name());
    files_ = {stem + ".crt", stem + ".key"};
    WriteSelfSignedCertificate(files_, "test", "IP:127.0.0.1");
    authorities_ = files_.certificate;
  }
  void Serve() {
    auto certificate = TlsCertificate::Load(files_, &clock_);
    ASSERT_TRUE(certificate.ok()) << certificate.status();
    certificate_ = *std::move(certificate);
    auto server = HttpServer::Listen(io_context_, "127.0.0.1", 0, PortSharing::kExclusive, HttpLimits(), &handler_,
                                     certificate_.get());
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    port_ = server_->port();
    thread_ = std::thread([this] { io_context_.run(); });
  }
  ~HttpsGetTest() override {
    io_context_.stop();
    if (thread_.joinable()) thread_.join();
  }
  HttpsRequest Request(const std::string& target) {
    HttpsRequest request;
    request.host = "127.0.0.1";
    request.port = port_;
    request.authorities_file = authorities_;
    request.target = target;
    request.headers = {{"Authorization", "Bearer abc"}};
    request.answer_time_max = request.body_time_max = absl::Minutes(2);  // patience, not the product's
    return request;
  }
  absl::Status Get(HttpsRequest request) {
    asio::io_context client;
    absl::Status status = absl::UnknownError("it has not ended");
    HttpsEvents events;
    events.on_head = [this](const HttpsHead& head) { head_ = head; };
    events.on_body = [this](absl::string_view piece) {
      absl::StrAppend(&body_, piece);
      return verdict_;
    };
    asio::co_spawn(
        client, [&] { return HttpsGet(std::move(request), events); },
        [&status](std::exception_ptr exception, absl::Status result) {
          EXPECT_EQ(exception, nullptr);
          status = std::move(result);
        });
    client.run();
    return status;
  }

  base::FakeClock clock_;
  TlsCertificate::Files files_;
  std::string authorities_;
  std::unique_ptr<TlsCertificate> certificate_;
  asio::io_context io_context_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_{io_context_.get_executor()};
  TestHandler handler_;
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
  int port_ = 0;
  HttpsHead head_;
  std::string body_;
  absl::Status verdict_;
};

TEST_F(HttpsGetTest, BringsHeadAndBody) {
  Serve();
  EXPECT_TRUE(Get(Request("/echo?a=b")).ok());
  EXPECT_EQ(head_.status, 429);
  EXPECT_EQ(head_.retry_after, absl::Seconds(7));
  EXPECT_EQ(body_, "Bearer abc a=b");
}

TEST_F(HttpsGetTest, BodiesOfEverySizeAndStreamsAreWhole) {
  Serve();
  for (const int size : {0, 1, 16 << 10, (16 << 10) + 1, 3 << 20}) {
    body_.clear();
    EXPECT_TRUE(Get(Request(absl::StrCat("/size/", size))).ok());
    EXPECT_EQ(head_.status, 200);
    EXPECT_EQ(body_.size(), static_cast<size_t>(size));
  }
  body_.clear();
  EXPECT_TRUE(Get(Request("/stream")).ok());
  EXPECT_EQ(body_, "onetwothree");
}

TEST_F(HttpsGetTest, WhoeverReadsMayEndIt) {
  Serve();
  verdict_ = absl::ResourceExhaustedError("enough");
  EXPECT_EQ(Get(Request("/size/3000000")), absl::ResourceExhaustedError("enough"));
  EXPECT_LE(body_.size(), size_t{16} << 10);
}

TEST_F(HttpsGetTest, AnAnswerThatDoesNotEndIsGivenUp) {
  Serve();
  HttpsRequest request = Request("/held");
  request.body_time_max = absl::Milliseconds(50);
  EXPECT_EQ(Get(request).code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(HttpsGetTest, AServerOfAnotherNameOrAuthorityIsRefused) {
  Serve();
  const TlsCertificate::Files other = {files_.certificate + ".other", files_.key + ".other"};
  WriteSelfSignedCertificate(other, "test", "IP:127.0.0.1");
  authorities_ = other.certificate;
  absl::Status status = Get(Request("/echo"));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_THAT(std::string(status.message()), HasSubstr("certificate refused: self"));
  EXPECT_EQ(head_.status, 0) << "and it has not seen the request";
}

TEST_F(HttpsGetTest, ACertificateForAnotherHostIsRefused) {
  WriteSelfSignedCertificate(files_, "127.0.0.1", "IP:127.0.0.2,DNS:elsewhere.example");
  Serve();
  EXPECT_EQ(Get(Request("/echo")).code(), absl::StatusCode::kUnauthenticated);
}

TEST_F(HttpsGetTest, WhatIsMissingIsNamed) {
  const base::HeldPort nobody;
  port_ = nobody.port();
  absl::Status status = Get(Request("/echo"));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("https://127.0.0.1:", port_, ": cannot connect")));
  authorities_ = "/no/such/ca.crt";
  status = Get(Request("/echo"));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/no/such/ca.crt"));
  HttpsRequest request = Request("/echo");
  request.authorities_file = files_.certificate;
  request.host = "no-such-host.invalid";
  EXPECT_THAT(std::string(Get(request).message()), HasSubstr("no-such-host.invalid"));
}

}  // namespace
}  // namespace tandem::router
