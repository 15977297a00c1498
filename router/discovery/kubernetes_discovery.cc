#include "router/discovery/kubernetes_discovery.h"

#include <cmath>
#include <exception>
#include <fstream>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/log.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "boost/asio/as_tuple.hpp"
#include "boost/asio/awaitable.hpp"
#include "boost/asio/co_spawn.hpp"
#include "boost/asio/io_context.hpp"
#include "boost/asio/steady_timer.hpp"
#include "boost/asio/use_awaitable.hpp"
#include "router/discovery/endpoint_slice.h"
#include "router/discovery/endpoint_watch.h"
#include "router/http/https_get.h"

namespace tandem::router {
namespace asio = boost::asio;

namespace {

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr size_t kFileBytesMax = 64 << 10;                // of a token, of a namespace
constexpr size_t kErrorBytesMax = 64 << 10;               // of an error's body; what is beyond it is not read
constexpr absl::Duration kWatchGrace = absl::Seconds(2);  // for the server to end its watch itself

void CheckNoException(std::exception_ptr exception) {
  TANDEM_CHECK(exception == nullptr, "a coroutine of the Kubernetes discovery threw");
}

absl::StatusOr<std::string> ReadSmallFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kFileBytesMax, '\0');
  if (!file.is_open()) return absl::NotFoundError(absl::StrCat("cannot read ", path));
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) return absl::NotFoundError(absl::StrCat("cannot read ", path));
  text.resize(static_cast<size_t>(file.gcount()));
  text = std::string(absl::StripAsciiWhitespace(text));
  if (text.empty() || text.find_first_of("\r\n") != std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat(path, " must hold one line"));
  }
  return text;
}

std::string PercentEncoded(absl::string_view text) {
  std::string encoded;
  for (const char c : text) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '.' || c == '_' || c == '~') {
      encoded += c;
    } else {
      absl::StrAppend(&encoded, "%", absl::AsciiStrToUpper(absl::BytesToHexString(absl::string_view(&c, 1))));
    }
  }
  return encoded;
}

absl::Status With(absl::string_view prefix, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(prefix, status.message()));
}

}  // namespace

class KubernetesDiscovery::Loop final {
 public:
  Loop(Options options, const base::Clock* clock, WorkerDirectory* directory)
      : options_(std::move(options)), clock_(clock), directory_(directory) {
    for (const Pool& pool : options_.pools) {
      asio::co_spawn(
          io_context_, [this, pool] { return Follow(pool); }, CheckNoException);
    }
    thread_ = std::thread([this] { io_context_.run(); });
  }
  ~Loop() {
    io_context_.stop();
    thread_.join();
  }

 private:
  struct Follower {  // of one pool
    std::string source;
    EndpointWatch watch;
    bool has_told_fault = false;
  };
  // What has come of an answer.
  struct Answer {
    HttpsHead head;
    std::string body;  // of a list and of errors; of a watch the event that has not ended
  };

  asio::awaitable<void> Follow(Pool pool) {
    EndpointWatch::Options options;
    options.role = pool.role;
    options.selector = pool.selector;
    options.port_name = options_.port_name;
    options.list_interval = options_.list_interval;
    options.seed = base::RandomId();
    Follower follower{absl::StrCat("kubernetes, ", WorkerRoleName(pool.role), " workers"), EndpointWatch(options)};
    LOG_INFO("workers are found by the Kubernetes API", {"source", follower.source}, {"host", options_.api_host},
             {"port", options_.api_port}, {"selector", pool.selector}, {"port_name", options_.port_name});
    asio::steady_timer timer(io_context_);
    while (true) {
      const EndpointWatch::Ask ask = follower.watch.Next(clock_->Now());
      if (ask.wait > absl::ZeroDuration()) {
        timer.expires_after(absl::ToChronoNanoseconds(ask.wait));
        co_await timer.async_wait(kAwait);
      }
      if (ask.kind == EndpointWatch::Ask::Kind::kList) {
        co_await List(follower, pool.selector);
      } else {
        co_await Watch(follower, pool.selector, ask);
      }
      TellFault(follower);
    }
  }

  asio::awaitable<void> List(Follower& follower, const std::string& selector) {
    Answer answer;
    HttpsEvents events;
    events.on_head = [&answer](const HttpsHead& head) { answer.head = head; };
    events.on_body = [&answer](absl::string_view piece) {
      const size_t bytes_max = answer.head.status == 200 ? kListBytesMax : kErrorBytesMax;
      if (answer.body.size() + piece.size() > bytes_max) {
        return absl::ResourceExhaustedError(absl::StrCat("the list is larger than ", bytes_max, " bytes"));
      }
      absl::StrAppend(&answer.body, piece);
      return absl::OkStatus();
    };
    absl::StatusOr<HttpsRequest> request = Request(selector, "");
    absl::Status status = request.status();
    if (status.ok()) status = co_await HttpsGet(*std::move(request), events);
    if (answer.head.status != 0 && answer.head.status != 200) {
      status = With("the list of EndpointSlices: ", KubernetesError(answer.head.status, answer.body));
    }
    follower.watch.OnListed(clock_->Now(), ListOf(status, answer.body), answer.head.retry_after);
    directory_->Report(follower.source, follower.watch.workers());
  }

  absl::StatusOr<EndpointSliceList> ListOf(const absl::Status& status, const std::string& body) const {
    RETURN_IF_ERROR(status);
    absl::StatusOr<EndpointSliceList> list = ParseEndpointSliceList(body, options_.port_name);
    if (!list.ok()) return With("the API server's answer: ", list.status());
    return list;
  }

  asio::awaitable<void> Watch(Follower& follower, const std::string& selector, const EndpointWatch::Ask& ask) {
    Answer answer;
    HttpsEvents events;
    events.on_head = [&answer](const HttpsHead& head) { answer.head = head; };
    events.on_body = [&](absl::string_view piece) {
      if (answer.head.status == 200) return TakeEvents(follower, piece, &answer.body);
      absl::StrAppend(&answer.body, piece.substr(0, kErrorBytesMax - answer.body.size()));
      return answer.body.size() < kErrorBytesMax ? absl::OkStatus() : absl::ResourceExhaustedError("a large error");
    };
    const int seconds = static_cast<int>(std::ceil(absl::ToDoubleSeconds(ask.length)));
    absl::StatusOr<HttpsRequest> request =
        Request(selector, absl::StrCat("&watch=true&allowWatchBookmarks=true&timeoutSeconds=", seconds,
                                       "&resourceVersion=", PercentEncoded(ask.resource_version)));
    absl::Status status = request.status();
    if (status.ok()) {
      request->body_time_max = ask.length + kWatchGrace;
      status = co_await HttpsGet(*std::move(request), events);
    }
    if (answer.head.status != 0 && answer.head.status != 200) {
      status = With("the watch of EndpointSlices: ", KubernetesError(answer.head.status, answer.body));
    }
    follower.watch.OnWatchEnded(clock_->Now(), answer.head.status == 200, status, answer.head.retry_after);
  }

  // Events are lines; `rest` is of the one that has not ended.
  absl::Status TakeEvents(Follower& follower, absl::string_view piece, std::string* rest) {
    while (true) {
      const size_t end = piece.find('\n');
      absl::StrAppend(rest, piece.substr(0, end));
      if (rest->size() > kEventBytesMax) {
        return absl::ResourceExhaustedError(absl::StrCat("an event is larger than ", kEventBytesMax, " bytes"));
      }
      if (end == absl::string_view::npos) return absl::OkStatus();
      piece.remove_prefix(end + 1);
      absl::StatusOr<EndpointSliceEvent> event = ParseEndpointSliceEvent(*rest, options_.port_name);
      if (!event.ok()) event = With("an event of the API server: ", event.status());
      rest->clear();
      RETURN_IF_ERROR(follower.watch.OnEvent(event));
      directory_->Report(follower.source, follower.watch.workers());
    }
  }

  absl::StatusOr<HttpsRequest> Request(const std::string& selector, const std::string& more_query) const {
    const std::string& folder = options_.service_account_folder;
    std::string name_space = options_.name_space;
    if (name_space.empty()) {
      ASSIGN_OR_RETURN(name_space, ReadSmallFile(absl::StrCat(folder, "/namespace")));
    }
    ASSIGN_OR_RETURN(const std::string token, ReadSmallFile(absl::StrCat(folder, "/token")));
    HttpsRequest request;
    request.host = options_.api_host;
    request.port = options_.api_port;
    request.authorities_file = absl::StrCat(folder, "/ca.crt");
    request.target = absl::StrCat("/apis/discovery.k8s.io/v1/namespaces/", PercentEncoded(name_space),
                                  "/endpointslices?labelSelector=", PercentEncoded(selector), more_query);
    request.headers = {
        {"Accept", "application/json"}, {"User-Agent", "tandem-router"}, {"Authorization", "Bearer " + token}};
    return request;
  }

  void TellFault(Follower& follower) {
    const absl::Status& fault = follower.watch.watch_fault();
    if (fault.ok() == !follower.has_told_fault) return;
    follower.has_told_fault = !fault.ok();
    if (fault.ok()) {
      LOG_INFO("workers are watched again", {"source", follower.source});
    } else {
      LOG_WARNING("workers are listed, not watched", {"source", follower.source}, {"cause", fault});
    }
  }

  const Options options_;
  const base::Clock* const clock_;
  WorkerDirectory* const directory_;
  asio::io_context io_context_{1};
  std::thread thread_;
};

KubernetesDiscovery::KubernetesDiscovery(Options options, const base::Clock* clock, WorkerDirectory* directory)
    : loop_(std::make_unique<Loop>(std::move(options), clock, directory)) {}

KubernetesDiscovery::~KubernetesDiscovery() = default;

}  // namespace tandem::router
