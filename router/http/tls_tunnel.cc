#include "router/http/tls_tunnel.h"

#include <sys/socket.h>

#include <array>
#include <tuple>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "base/check.h"
#include "boost/asio/as_tuple.hpp"
#include "boost/asio/awaitable.hpp"
#include "boost/asio/co_spawn.hpp"
#include "boost/asio/local/stream_protocol.hpp"
#include "boost/asio/ssl/error.hpp"
#include "boost/asio/ssl/stream.hpp"
#include "boost/asio/steady_timer.hpp"
#include "boost/asio/use_awaitable.hpp"
#include "boost/asio/write.hpp"
#include "router/http/tls_context.h"

namespace tandem::router {
namespace asio = boost::asio;

namespace {

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr size_t kBufferBytes = 16 << 10;                 // as much as one TLS record holds
constexpr int kPairBufferBytes = 64 << 10;                // as of a socket's unsent bytes in connection.cc
constexpr absl::Duration kGoodbyeMax = absl::Seconds(2);  // for the client's part of the end of a TLS session

void CheckNoException(std::exception_ptr exception) {
  TANDEM_CHECK(exception == nullptr, "a tunnel's coroutine threw");
}

class Tunnel final : public std::enable_shared_from_this<Tunnel> {
 public:
  Tunnel(asio::ip::tcp::socket socket, std::shared_ptr<TlsContext> context, absl::Duration handshake_time_max,
         TlsTunnelEvents events)
      : context_(std::move(context)),
        stream_(std::move(socket), context_->ssl),
        plain_(stream_.get_executor()),
        timer_(stream_.get_executor()),
        inward_done_(stream_.get_executor(), asio::steady_timer::time_point::max()),
        handshake_time_max_(handshake_time_max),
        events_(std::move(events)) {}
  ~Tunnel() { events_.ended(); }

  asio::awaitable<void> Run() {
    boost::system::error_code ignored;
    stream_.lowest_layer().set_option(asio::ip::tcp::no_delay(true), ignored);
    ArmTimer(handshake_time_max_);
    const auto [error] = co_await stream_.async_handshake(asio::ssl::stream_base::server, kAwait);
    timer_.cancel();
    if (error || !HandOutPlainEnd()) co_return;
    asio::co_spawn(
        stream_.get_executor(), [self = shared_from_this()] { return self->PumpInward(); }, CheckNoException);
    co_await PumpOutward();
    // Both directions may not be in a TLS operation while the session is ended.
    stream_.lowest_layer().cancel(ignored);
    while (!is_inward_done_) co_await inward_done_.async_wait(kAwait);
    ArmTimer(kGoodbyeMax);
    co_await stream_.async_shutdown(kAwait);
    // What the client still sends must be read, or closing resets the connection and destroys what it has not read yet.
    stream_.lowest_layer().shutdown(asio::socket_base::shutdown_send, ignored);
    std::array<char, kBufferBytes> rest;
    for (boost::system::error_code end; !end;) {
      std::tie(end, std::ignore) = co_await stream_.next_layer().async_read_some(asio::buffer(rest), kAwait);
    }
    timer_.cancel();
  }

 private:
  bool HandOutPlainEnd() {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) return false;
    for (const int end : ends) ::setsockopt(end, SOL_SOCKET, SO_SNDBUF, &kPairBufferBytes, sizeof(kPairBufferBytes));
    boost::system::error_code error;
    plain_.assign(asio::local::stream_protocol(), ends[0], error);
    asio::ip::tcp::socket other(stream_.get_executor());
    boost::system::error_code other_error;
    other.assign(asio::ip::tcp::v4(), ends[1], other_error);  // a stream socket is all that a Connection asks for
    if (error) ::close(ends[0]);
    if (other_error) ::close(ends[1]);
    if (error || other_error) return false;
    events_.ready(std::move(other));
    return true;
  }

  // Client to Connection.
  asio::awaitable<void> PumpInward() {
    const auto done = absl::MakeCleanup([this] {
      is_inward_done_ = true;
      inward_done_.cancel();
    });
    std::array<char, kBufferBytes> buffer;
    boost::system::error_code ignored;
    for (;;) {
      const auto [error, size] = co_await stream_.async_read_some(asio::buffer(buffer), kAwait);
      if (error == asio::error::eof || error == asio::ssl::error::stream_truncated) {
        plain_.shutdown(asio::socket_base::shutdown_send, ignored);
        co_return;
      }
      if (error) {  // broken, unless the other direction has ended and asked for this
        plain_.close(ignored);
        co_return;
      }
      const auto [write_error, num_written] = co_await asio::async_write(plain_, asio::buffer(buffer, size), kAwait);
      if (write_error) co_return;  // the Connection has closed; what it wrote is still on its way out
    }
  }

  // Connection to client, until the Connection has closed its end or the client is gone.
  asio::awaitable<void> PumpOutward() {
    std::array<char, kBufferBytes> buffer;
    boost::system::error_code ignored;
    for (;;) {
      const auto [error, size] = co_await plain_.async_read_some(asio::buffer(buffer), kAwait);
      if (error) co_return;
      const auto [write_error, num_written] = co_await asio::async_write(stream_, asio::buffer(buffer, size), kAwait);
      if (!write_error) continue;
      plain_.close(ignored);
      co_return;
    }
  }

  void ArmTimer(absl::Duration after) {
    timer_.expires_after(absl::ToChronoNanoseconds(after));
    timer_.async_wait([weak = weak_from_this()](const boost::system::error_code& error) {
      const auto self = weak.lock();
      boost::system::error_code ignored;
      if (!error && self != nullptr) self->stream_.lowest_layer().close(ignored);
    });
  }

  const std::shared_ptr<TlsContext> context_;
  asio::ssl::stream<asio::ip::tcp::socket> stream_;
  asio::local::stream_protocol::socket plain_;
  asio::steady_timer timer_;
  asio::steady_timer inward_done_;
  const absl::Duration handshake_time_max_;
  const TlsTunnelEvents events_;
  bool is_inward_done_ = false;
};

}  // namespace

void StartTlsTunnel(asio::ip::tcp::socket socket, std::shared_ptr<TlsContext> context,
                    absl::Duration handshake_time_max, TlsTunnelEvents events) {
  const auto executor = socket.get_executor();
  auto tunnel = std::make_shared<Tunnel>(std::move(socket), std::move(context), handshake_time_max, std::move(events));
  asio::co_spawn(
      executor, [tunnel] { return tunnel->Run(); }, CheckNoException);
}

}  // namespace tandem::router
