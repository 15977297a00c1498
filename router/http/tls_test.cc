// The server over TLS, against a client of OpenSSL's own: answers, streams, versions, clients that leave, and a
// certificate that is renewed while connections are open.
#include <arpa/inet.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/clock.h"
#include "boost/asio/executor_work_guard.hpp"
#include "boost/asio/io_context.hpp"
#include "boost/asio/post.hpp"
#include "gtest/gtest.h"
#include "router/http/http_server.h"
#include "router/http/tls_certificate.h"
#include "router/testing/self_signed_certificate.h"

namespace tandem::router {
namespace {

class TlsClient final {
 public:
  // version_max: 0 for any.
  explicit TlsClient(int port, int version_max = 0) : context_(SSL_CTX_new(TLS_client_method())) {
    if (version_max != 0) {
      SSL_CTX_set_security_level(context_, 0);
      SSL_CTX_set_max_proto_version(context_, version_max);
    }
    ssl_ = SSL_new(context_);
    fd_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    SSL_set_fd(ssl_, fd_);
    is_secure_ = SSL_connect(ssl_) == 1;
  }
  ~TlsClient() {
    SSL_free(ssl_);
    SSL_CTX_free(context_);
    if (fd_ >= 0) ::close(fd_);
  }
  bool is_secure() const { return is_secure_; }
  std::string PeerName() const {
    X509* const certificate = SSL_get1_peer_certificate(ssl_);
    char name[64] = "";
    X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, name, sizeof(name));
    X509_free(certificate);
    return name;
  }
  void Send(const std::string& bytes) {
    EXPECT_EQ(SSL_write(ssl_, bytes.data(), static_cast<int>(bytes.size())), static_cast<int>(bytes.size()));
  }
  // Up to and including `end`, or all there is where the server ends the session.
  std::string ReadUntil(const std::string& end) {
    while (!absl::StrContains(received_, end)) {
      char buffer[4096];
      const int size = SSL_read(ssl_, buffer, sizeof(buffer));
      if (size <= 0) break;
      received_.append(buffer, static_cast<size_t>(size));
    }
    const size_t size = std::min(received_.find(end), received_.size() - std::min(end.size(), received_.size()));
    std::string text = received_.substr(0, size + end.size());
    received_.erase(0, text.size());
    return text;
  }
  // Without a word, as a process that dies.
  void Reset() {
    const linger now = {1, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    ::close(std::exchange(fd_, -1));
  }

 private:
  SSL_CTX* const context_;
  SSL* ssl_ = nullptr;
  int fd_ = -1;
  bool is_secure_ = false;
  std::string received_;
};

// /size says the size of the body; /stream holds a stream with one piece open for the test.
class TestHandler final : public HttpHandler {
 public:
  void Handle(std::shared_ptr<Exchange> exchange) override {
    if (exchange->request().path == "/stream") {
      exchange->SetObserver([this](ExchangeEvent event) {
        if (event == ExchangeEvent::kClientLeft && !left.HasBeenNotified()) left.Notify();
      });
      exchange->StartStream("text/plain", ":\n\n");
      exchange->Write("first");
      held_ = std::move(exchange);
      return;
    }
    HttpResponse response;
    response.body = absl::StrCat("size ", exchange->request().body.size(), ".");
    exchange->Respond(std::move(response));
  }
  absl::Notification left;

 private:
  std::shared_ptr<Exchange> held_;
};

class TlsTest : public testing::Test {
 protected:
  TlsTest() {
    const std::string folder = testing::TempDir();
    const std::string test = testing::UnitTest::GetInstance()->current_test_info()->name();
    files_ = {absl::StrCat(folder, "/", test, ".crt"), absl::StrCat(folder, "/", test, ".key")};
    WriteSelfSignedCertificate(files_, "first");
    auto certificate = TlsCertificate::Load(files_, &clock_);
    EXPECT_TRUE(certificate.ok()) << certificate.status();
    certificate_ = *std::move(certificate);
    auto server = HttpServer::Listen(io_context_, "127.0.0.1", 0, PortSharing::kExclusive, HttpLimits(), &handler_,
                                     certificate_.get());
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    thread_ = std::thread([this] { io_context_.run(); });
  }
  ~TlsTest() override {
    io_context_.stop();
    thread_.join();
  }
  int port() const { return server_->port(); }
  static std::string Post(const std::string& body) {
    return absl::StrCat("POST /size HTTP/1.1\r\nHost: x\r\nContent-Length: ", body.size(), "\r\n\r\n", body);
  }
  bool Answers(TlsClient& client) {
    client.Send(Post("abc"));
    return absl::StrContains(client.ReadUntil("size 3."), "HTTP/1.1 200 OK");
  }

  base::FakeClock clock_;
  TlsCertificate::Files files_;
  std::unique_ptr<TlsCertificate> certificate_;
  boost::asio::io_context io_context_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_{io_context_.get_executor()};
  TestHandler handler_;
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
};

TEST_F(TlsTest, ServesSmallAndLargeBodiesOnOneConnection) {
  TlsClient client(port());
  ASSERT_TRUE(client.is_secure());
  EXPECT_EQ(client.PeerName(), "first");
  EXPECT_TRUE(Answers(client));
  client.Send(Post(std::string(size_t{3} << 20, 'a')));
  EXPECT_TRUE(absl::StrContains(client.ReadUntil("size 3145728."), "200 OK"));
  EXPECT_TRUE(Answers(client));
}

TEST_F(TlsTest, AVersionBelow12IsRefused) {
  EXPECT_FALSE(TlsClient(port(), TLS1_1_VERSION).is_secure());
  EXPECT_TRUE(TlsClient(port(), TLS1_2_VERSION).is_secure());
  EXPECT_TRUE(TlsClient(port(), TLS1_3_VERSION).is_secure());
}

TEST_F(TlsTest, AClientThatIsGoneIsNoticedInsideAStream) {
  TlsClient client(port());
  client.Send("GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(absl::StrContains(client.ReadUntil("first"), "first"));
  client.Reset();
  EXPECT_TRUE(handler_.left.WaitForNotificationWithTimeout(absl::Seconds(30)));
}

TEST_F(TlsTest, NewConnectionsFollowTheFilesAndOldOnesGoOn) {
  TlsClient old(port());
  EXPECT_EQ(old.PeerName(), "first");
  WriteSelfSignedCertificate(files_, "second");
  EXPECT_EQ(TlsClient(port()).PeerName(), "first") << "it looks once a second at most";
  clock_.Advance(TlsCertificate::kLookInterval);
  EXPECT_EQ(TlsClient(port()).PeerName(), "second");
  EXPECT_TRUE(Answers(old)) << "an open connection keeps what it began with";

  std::FILE* const out = std::fopen(files_.key.c_str(), "w");
  std::fputs("no key", out);
  std::fclose(out);
  clock_.Advance(TlsCertificate::kLookInterval);
  EXPECT_EQ(TlsClient(port()).PeerName(), "second") << "the last good one stays";
}

TEST_F(TlsTest, FilesThatCannotBeUsedAreNamed) {
  EXPECT_TRUE(
      absl::StrContains(TlsCertificate::Load({"/none.crt", files_.key}, &clock_).status().message(), "/none.crt"));
  EXPECT_TRUE(absl::StrContains(TlsCertificate::Load({files_.certificate, "/none.key"}, &clock_).status().message(),
                                "/none.key"));
  const TlsCertificate::Files others = {files_.certificate + ".other", files_.key + ".other"};
  WriteSelfSignedCertificate(others, "other");
  const absl::Status status = TlsCertificate::Load({files_.certificate, others.key}, &clock_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tandem::router
