// One GET of another server over TLS, its body as it comes: for the lists and watches of the Kubernetes API.
//
// The server's certificate is checked against the given authorities and the host's name or address; TLS 1.2 at least.
// Every wait has an end. No redirects, no connection kept: a request every half minute needs neither. Internal to those
// who run coroutines of Asio. Tested by https_get_test.cc.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "boost/asio/awaitable.hpp"

namespace tandem::router {

struct HttpsRequest {
  std::string host;  // a name or an address, without brackets
  int port = 443;
  std::string authorities_file;  // PEM
  std::string target;            // path and query
  std::vector<std::pair<std::string, std::string>> headers;
  absl::Duration answer_time_max = absl::Seconds(10);  // to the end of the answer's head
  absl::Duration body_time_max = absl::Seconds(30);    // after it
};

struct HttpsHead {
  int status = 0;
  absl::Duration retry_after = absl::ZeroDuration();  // zero: the server names no number of seconds
};

struct HttpsEvents {
  std::function<void(const HttpsHead&)> on_head;           // once, before the body
  std::function<absl::Status(absl::string_view)> on_body;  // each piece; an error ends the request
};

// OK after the whole body. UNAVAILABLE for a server that cannot be reached or ends too early, DEADLINE_EXCEEDED,
// UNAUTHENTICATED for a certificate that is not the server's, INVALID_ARGUMENT for the authorities' file and for what
// is no HTTP; else what on_body has said. The words name the server and are the same each time.
boost::asio::awaitable<absl::Status> HttpsGet(HttpsRequest request, HttpsEvents events);

}  // namespace tandem::router
