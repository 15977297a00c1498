// TLS before a connection: what the client sends arrives decrypted at one end of a pair of local sockets, whose other
// end a Connection serves as any client's, and what that writes goes out encrypted.
//
// So connection.cc knows of no TLS, and everything it decides (bounds, time-outs, clients that leave) holds for both. A
// client's FIN arrives as FIN, a reset as the pair's end. Costs a copy each way and two file descriptors. Internal to
// router/http. Tested by tls_test.cc.
#pragma once

#include <functional>
#include <memory>

#include "absl/time/time.h"
#include "boost/asio/ip/tcp.hpp"
#include "router/http/tls_certificate.h"

namespace tandem::router {

struct TlsTunnelEvents {
  // Hands out the decrypted end, once the client has shaken hands.
  std::function<void(boost::asio::ip::tcp::socket plain)> ready;
  // Once, last: nothing of the client is held any more.
  std::function<void()> ended;
};

// handshake_time_max: from the connection to the end of the handshake, then it is closed.
void StartTlsTunnel(boost::asio::ip::tcp::socket socket, std::shared_ptr<TlsContext> context,
                    absl::Duration handshake_time_max, TlsTunnelEvents events);

}  // namespace tandem::router
