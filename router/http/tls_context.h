// What tls_certificate.h makes and tls_tunnel.cc uses. Internal to router/http.
#pragma once

#include "boost/asio/ssl/context.hpp"

namespace tandem::router {

struct TlsContext {
  boost::asio::ssl::context ssl;
};

}  // namespace tandem::router
