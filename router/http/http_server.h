// An HTTP/1.1 server on one io_context: one listener, one coroutine a connection.
//
// Several servers (one a shard) may listen on one port (SO_REUSEPORT): the kernel spreads the connections. What the
// server decides itself: framing, limits and time-outs (http_limits.h), keep-alive and pipelining, Expect:
// 100-continue, errors before a request is whole (as OpenAI error objects), and that a client has left. Everything else
// is the handler's. Tested by http_server_test.cc with raw sockets.
//
// A client that has left. RST and a failed write are certain. FIN is not: a client that has closed looks like one that
// shut down only its sending side (nc -N) and still reads. On FIN the server sends bytes that mean nothing ("100
// Continue" before the answer, the stream's probe inside one): a closed socket answers RST, which ends the request at
// once; a half-closed client is served. HTTP/1.0 clients before their answer cannot be probed: they are served.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "router/http/exchange.h"
#include "router/http/http_limits.h"
#include "router/http/tls_certificate.h"

namespace boost::asio {
class io_context;
}

namespace tandem::router {

class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // A whole request. May answer at once or later.
  virtual void Handle(std::shared_ptr<Exchange> exchange) = 0;
  // A request or a connection that the server itself has refused with that HTTP status: nobody else hears of it.
  virtual void OnRefused(int /*status*/) {}
};

enum class PortSharing { kExclusive, kShared };

// UNAVAILABLE where somebody listens there already. For those who go on to share the port among themselves.
absl::Status CheckPortIsFree(const std::string& host, int port);

class HttpServer final {
 public:
  // UNAVAILABLE where the address cannot be bound, naming it. port 0 takes a free one. kShared: any process of this
  // user may share the port too, so the caller first makes sure that it is free. The handler outlives the server, the
  // server outlives the io_context's run. tls: not null for HTTPS, and HTTPS alone; outlives the server.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Listen(boost::asio::io_context& io_context,
                                                            const std::string& host, int port, PortSharing sharing,
                                                            const HttpLimits& limits, HttpHandler* handler,
                                                            TlsCertificate* tls = nullptr);
  ~HttpServer();
  int port() const;

  // All on the io_context's thread.
  // Closes idle connections; from here on every connection, also a new one, closes behind the answer under way.
  void Drain();
  // Drains, and accepts no more.
  void Close();
  int num_connections() const;
  size_t num_body_bytes() const;  // of the bodies that are being read or not yet prepared

 private:
  class Listener;
  explicit HttpServer(std::shared_ptr<Listener> listener);
  std::shared_ptr<Listener> listener_;
};

}  // namespace tandem::router
