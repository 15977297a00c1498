#include "router/http/http_server.h"

#include <sys/socket.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "boost/asio/io_context.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "boost/asio/steady_timer.hpp"
#include "router/http/connection.h"
#include "router/http/tls_tunnel.h"

namespace tandem::router {
namespace asio = boost::asio;

namespace {

constexpr auto kAcceptRetryAfter = std::chrono::milliseconds(50);  // out of file descriptors: some will come back

}  // namespace

class HttpServer::Listener final : public std::enable_shared_from_this<HttpServer::Listener> {
 public:
  Listener(asio::io_context& io_context, const HttpLimits& limits, HttpHandler* handler, TlsCertificate* tls)
      : acceptor_(io_context), retry_(io_context), group_(std::make_shared<ConnectionGroup>()), tls_(tls) {
    group_->limits = limits;
    group_->handler = handler;
  }

  absl::Status Open(const std::string& host, int port, PortSharing sharing) {
    boost::system::error_code error;
    const auto fail = [&](const char* what) {
      return absl::UnavailableError(absl::StrCat("cannot ", what, " ", host, ":", port, ": ", error.message()));
    };
    const asio::ip::address address = asio::ip::make_address(host, error);
    if (error) return fail("parse the address");
    const asio::ip::tcp::endpoint endpoint(address, static_cast<uint16_t>(port));
    using ReusePort = asio::detail::socket_option::boolean<SOL_SOCKET, SO_REUSEPORT>;
    if (acceptor_.open(endpoint.protocol(), error); error) return fail("open");
    if (acceptor_.set_option(asio::socket_base::reuse_address(true), error); error) return fail("share");
    if (acceptor_.set_option(ReusePort(sharing == PortSharing::kShared), error); error) return fail("share");
    if (acceptor_.bind(endpoint, error); error) return fail("bind");
    if (acceptor_.listen(asio::socket_base::max_listen_connections, error); error) return fail("listen on");
    port_ = acceptor_.local_endpoint().port();
    return absl::OkStatus();
  }

  void Accept() {
    acceptor_.async_accept(
        [self = shared_from_this()](const boost::system::error_code& error, asio::ip::tcp::socket socket) {
          if (self->is_closed_ || error == asio::error::operation_aborted) return;
          if (error) return self->RetryLater(error.message());
          if (std::exchange(self->has_accept_failed_, false)) LOG_INFO("accepts again", {"port", self->port_});
          self->tls_ == nullptr ? self->StartConnection(std::move(socket)) : self->StartTunnel(std::move(socket));
          self->Accept();
        });
  }

  void Drain() {
    group_->is_draining = true;
    CloseIdle();
  }

  void Close() {
    Drain();
    if (std::exchange(is_closed_, true)) return;
    boost::system::error_code ignored;
    acceptor_.close(ignored);
    retry_.cancel();
  }

  int port() const { return port_; }
  // A tunnel lasts longer than the connection behind it.
  int num_connections() const { return tls_ == nullptr ? static_cast<int>(group_->connections.size()) : num_tunnels_; }
  size_t num_body_bytes() const { return group_->num_body_bytes; }

 private:
  void StartConnection(asio::ip::tcp::socket socket) {
    auto connection = std::make_shared<Connection>(std::move(socket), group_);
    const bool is_one_too_many = num_connections() > group_->limits.connections_max &&
                                 !OldestInLineGivesWay(*group_, GivesWay::kPlace, connection.get());
    is_one_too_many ? connection->StartRefusal() : connection->Start();
  }

  // Clients that have not shaken hands yet count as connections; those far beyond the bound are closed unheard.
  void StartTunnel(asio::ip::tcp::socket socket) {
    if (num_tunnels_ > 2 * group_->limits.connections_max) return;
    ++num_tunnels_;
    StartTlsTunnel(
        std::move(socket), tls_->Current(), group_->limits.header_time_max,
        {.ready = [self = shared_from_this()](asio::ip::tcp::socket plain) { self->StartConnection(std::move(plain)); },
         .ended = [self = shared_from_this()] { --self->num_tunnels_; }});
  }

  void CloseIdle() {
    const std::vector<Connection*> connections(group_->connections.begin(), group_->connections.end());
    for (Connection* connection : connections) connection->Drain();
  }

  // As a rule it lasts until connections are closed: said once, not at every try.
  void RetryLater(const std::string& why) {
    if (!std::exchange(has_accept_failed_, true)) {
      LOG_WARNING("accept failed", {"port", port_}, {"why", why}, {"connections", num_connections()});
    }
    retry_.expires_after(kAcceptRetryAfter);
    retry_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
      if (!error && !self->is_closed_) self->Accept();
    });
  }

  asio::ip::tcp::acceptor acceptor_;
  asio::steady_timer retry_;
  const std::shared_ptr<ConnectionGroup> group_;
  TlsCertificate* const tls_;  // null: plain HTTP
  int num_tunnels_ = 0;
  int port_ = 0;
  bool is_closed_ = false;
  bool has_accept_failed_ = false;
};

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Listen(asio::io_context& io_context, const std::string& host,
                                                               int port, PortSharing sharing, const HttpLimits& limits,
                                                               HttpHandler* handler, TlsCertificate* tls) {
  auto listener = std::make_shared<Listener>(io_context, limits, handler, tls);
  if (absl::Status status = listener->Open(host, port, sharing); !status.ok()) return status;
  listener->Accept();
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(listener)));
}

absl::Status CheckPortIsFree(const std::string& host, int port) {
  asio::io_context io_context;
  return HttpServer::Listen(io_context, host, port, PortSharing::kExclusive, HttpLimits(), nullptr).status();
}

HttpServer::HttpServer(std::shared_ptr<Listener> listener) : listener_(std::move(listener)) {}
HttpServer::~HttpServer() = default;
int HttpServer::port() const { return listener_->port(); }
void HttpServer::Drain() { listener_->Drain(); }
void HttpServer::Close() { listener_->Close(); }
int HttpServer::num_connections() const { return listener_->num_connections(); }
size_t HttpServer::num_body_bytes() const { return listener_->num_body_bytes(); }

}  // namespace tandem::router
