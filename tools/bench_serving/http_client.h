// HTTP/1.1 requests by the thousand on one thread: kept connections, bodies handed on as they arrive.
//
// A connection that the server closed while it was idle shows only when it is used again: such a request is sent once
// more on a new one, provided that nothing of an answer came. Nothing else is repeated. Errors name host and port.
// Tested by http_client_test.cc and load_test.cc against servers on loopback.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"

namespace boost::asio {
class io_context;
}

namespace tandem::bench_serving {

struct Endpoint {
  std::string host;
  int port = 0;
  std::string path_prefix;  // "" or "/something": before every path
};

// "http://host[:port][/path]". INVALID_ARGUMENT says what is wrong; https is.
absl::StatusOr<Endpoint> ParseBaseUrl(absl::string_view url);

class HttpClient final {
 public:
  struct Request {
    std::string method;
    std::string path;
    std::string body;
    absl::Duration time_max = absl::InfiniteDuration();  // DEADLINE_EXCEEDED after that
  };
  // Called on the io_context's thread, never from inside Send().
  struct Events {
    // Not OK: the answer is given up, and on_end gets that status.
    std::function<absl::Status(int status, absl::string_view bytes, absl::Duration at)> on_bytes;
    std::function<void(absl::Status end, int status)> on_end;  // once, last; status 0 where no head came
  };
  class Call;

  HttpClient(boost::asio::io_context& io_context, const base::Clock& clock, Endpoint endpoint,
             std::vector<std::pair<std::string, std::string>> headers);
  ~HttpClient();

  // Finds the host's address. UNAVAILABLE where there is none. Blocks, once, before the first Send().
  absl::Status Resolve();
  void Send(Request request, Events events);
  // Ends every request under way with CANCELLED.
  void CancelAll();

  struct Response {
    int status = 0;
    std::string body;
  };
  // Runs the io_context until the answer is there.
  absl::StatusOr<Response> Fetch(Request request);

  int num_connections_opened() const;

 private:
  struct Shared;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace tandem::bench_serving
