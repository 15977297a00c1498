#include "tools/bench_serving/http_client.h"

#include <array>
#include <cstdint>
#include <optional>
#include <unordered_set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/host_port.h"
#include "boost/asio/buffer.hpp"
#include "boost/asio/io_context.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "boost/asio/post.hpp"
#include "boost/asio/steady_timer.hpp"
#include "boost/asio/write.hpp"
#include "boost/beast/core/flat_buffer.hpp"
#include "boost/beast/http/parser.hpp"
#include "boost/beast/http/read.hpp"
#include "boost/beast/http/string_body.hpp"

namespace tandem::bench_serving {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;
using ResponseParser = http::response_parser<http::string_body>;

constexpr size_t kReadBytes = 4096;  // of a connection, for as long as it lives: ten thousand take 40 MB

// A connection between two requests.
struct Connection {
  explicit Connection(asio::io_context& io_context) : socket(io_context) { buffer.reserve(kReadBytes); }
  asio::ip::tcp::socket socket;
  boost::beast::flat_buffer buffer;
};

}  // namespace

struct HttpClient::Shared {
  asio::io_context& io_context;
  const base::Clock& clock;
  const Endpoint endpoint;
  std::string head_fields;  // of every request, each with its line's end
  std::string peer;         // for messages
  asio::ip::tcp::endpoint address;
  std::vector<std::unique_ptr<Connection>> idle;
  std::unordered_set<Call*> calls;
  int num_opened = 0;
};

class HttpClient::Call final : public std::enable_shared_from_this<Call> {
 public:
  Call(std::shared_ptr<Shared> shared, Request request, Events events)
      : shared_(std::move(shared)),
        body_(std::move(request.body)),
        time_max_(request.time_max),
        events_(std::move(events)),
        timer_(shared_->io_context) {
    head_ = absl::StrCat(request.method, " ", shared_->endpoint.path_prefix, request.path, " HTTP/1.1\r\n",
                         shared_->head_fields);
    if (!body_.empty() || request.method == "POST") {
      absl::StrAppend(&head_, "Content-Type: application/json\r\nContent-Length: ", body_.size(), "\r\n");
    }
    absl::StrAppend(&head_, "\r\n");
    shared_->calls.insert(this);
  }
  ~Call() { shared_->calls.erase(this); }

  void Start() {
    if (has_ended_) return;  // cancelled before its turn
    if (time_max_ != absl::InfiniteDuration()) {
      timer_.expires_after(absl::ToChronoNanoseconds(time_max_));
      timer_.async_wait([self = shared_from_this()](error_code error) {
        if (error) return;
        self->End(absl::DeadlineExceededError(
            absl::StrCat("timeout: no whole answer within ", absl::FormatDuration(self->time_max_))));
      });
    }
    if (shared_->idle.empty()) return Connect();
    connection_ = std::move(shared_->idle.back());
    shared_->idle.pop_back();
    is_reused_ = true;
    Write();
  }

  void End(const absl::Status& status) {
    if (std::exchange(has_ended_, true)) return;
    timer_.cancel();
    if (connection_ != nullptr) {
      error_code ignored;
      if (status.ok() && parser_->keep_alive()) {
        shared_->idle.push_back(std::move(connection_));
      } else {
        connection_->socket.close(ignored);  // operations under way end, and find has_ended_
      }
    }
    const auto on_end = std::move(events_.on_end);
    on_end(status, status_code_);
  }

 private:
  void Connect() {
    is_reused_ = false;
    connection_ = std::make_unique<Connection>(shared_->io_context);
    ++shared_->num_opened;
    connection_->socket.async_connect(shared_->address, [self = shared_from_this()](error_code error) {
      if (self->has_ended_) return;
      if (error) return self->Fail("connect", error);
      error_code ignored;  // slower without it, not wrong
      self->connection_->socket.set_option(asio::ip::tcp::no_delay(true), ignored);
      self->Write();
    });
  }

  void Write() {
    const std::array<asio::const_buffer, 2> wire = {asio::buffer(head_), asio::buffer(body_)};
    asio::async_write(connection_->socket, wire, [self = shared_from_this()](error_code error, size_t) {
      if (self->has_ended_) return;
      if (error) return self->Fail("write", error);
      self->parser_.emplace();
      self->parser_->body_limit(boost::none);
      self->Read();
    });
  }

  void Read() {
    http::async_read_some(connection_->socket, connection_->buffer, *parser_,
                          [self = shared_from_this()](error_code error, size_t) {
                            if (!self->has_ended_) self->Take(error);
                          });
  }

  void Take(error_code error) {
    const absl::Duration now = shared_->clock.Now();
    if (parser_->is_header_done()) {
      status_code_ = static_cast<int>(parser_->get().result_int());
      std::string& bytes = parser_->get().body();
      if (!bytes.empty()) {
        const absl::Status taken = events_.on_bytes(status_code_, bytes, now);
        bytes.clear();
        if (!taken.ok()) return End(taken);
      }
    }
    if (error) return Fail("read", error);
    if (parser_->is_done()) return End(absl::OkStatus());
    Read();
  }

  void Fail(absl::string_view what, error_code error) {
    const bool is_unanswered = !parser_.has_value() || !parser_->got_some();
    if (is_reused_ && is_unanswered) {
      error_code ignored;
      connection_->socket.close(ignored);
      parser_.reset();
      return Connect();
    }
    End(absl::UnavailableError(absl::StrCat(what, " failed: ", shared_->peer, ": ", error.message())));
  }

  const std::shared_ptr<Shared> shared_;
  std::string head_;
  const std::string body_;
  const absl::Duration time_max_;
  Events events_;
  asio::steady_timer timer_;
  std::unique_ptr<Connection> connection_;
  std::optional<ResponseParser> parser_;
  bool is_reused_ = false;
  bool has_ended_ = false;
  int status_code_ = 0;
};

absl::StatusOr<Endpoint> ParseBaseUrl(absl::string_view url) {
  absl::string_view rest = url;
  if (!absl::ConsumePrefix(&rest, "http://")) {
    return absl::InvalidArgumentError(absl::StrCat("\"", url, "\" does not begin with http://"));
  }
  Endpoint endpoint;
  const size_t slash = rest.find('/');
  if (slash != absl::string_view::npos) {
    endpoint.path_prefix = std::string(absl::StripSuffix(rest.substr(slash), "/"));
    rest = rest.substr(0, slash);
  }
  const size_t colon = rest.rfind(':');
  const bool has_port = colon != absl::string_view::npos && rest.find(']', colon) == absl::string_view::npos;
  const auto parsed = base::ParseHostPort(has_port ? std::string(rest) : absl::StrCat(rest, ":80"));
  if (!parsed.ok()) return parsed.status();
  endpoint.host = parsed->host;
  endpoint.port = parsed->port;
  return endpoint;
}

HttpClient::HttpClient(asio::io_context& io_context, const base::Clock& clock, Endpoint endpoint,
                       std::vector<std::pair<std::string, std::string>> headers)
    : shared_(std::make_shared<Shared>(Shared{.io_context = io_context, .clock = clock, .endpoint = endpoint})) {
  shared_->peer = base::HostPort{.host = endpoint.host, .port = endpoint.port}.ToString();
  shared_->head_fields = absl::StrCat("Host: ", shared_->peer, "\r\n");
  for (const auto& [name, value] : headers) absl::StrAppend(&shared_->head_fields, name, ": ", value, "\r\n");
}

HttpClient::~HttpClient() { CancelAll(); }

absl::Status HttpClient::Resolve() {
  error_code error;
  asio::ip::tcp::resolver resolver(shared_->io_context);
  const auto found = resolver.resolve(shared_->endpoint.host, std::to_string(shared_->endpoint.port), error);
  if (error || found.empty()) {
    return absl::UnavailableError(absl::StrCat("cannot resolve ", shared_->peer, ": ", error.message()));
  }
  shared_->address = found.begin()->endpoint();
  return absl::OkStatus();
}

void HttpClient::Send(Request request, Events events) {
  auto call = std::make_shared<Call>(shared_, std::move(request), std::move(events));
  asio::post(shared_->io_context, [call = std::move(call)] { call->Start(); });
}

void HttpClient::CancelAll() {
  std::vector<std::shared_ptr<Call>> calls;
  for (Call* call : shared_->calls) calls.push_back(call->shared_from_this());
  for (const auto& call : calls) call->End(absl::CancelledError("interrupted: by the user"));
}

absl::StatusOr<HttpClient::Response> HttpClient::Fetch(Request request) {
  Response response;
  absl::Status end;
  bool has_ended = false;
  Send(std::move(request), {.on_bytes =
                                [&](int, absl::string_view bytes, absl::Duration) {
                                  response.body.append(bytes.data(), bytes.size());
                                  return absl::OkStatus();
                                },
                            .on_end =
                                [&](absl::Status status, int code) {
                                  end = std::move(status);
                                  response.status = code;
                                  has_ended = true;
                                }});
  shared_->io_context.restart();
  while (!has_ended) shared_->io_context.run_one();
  if (!end.ok()) return end;
  return response;
}

int HttpClient::num_connections_opened() const { return shared_->num_opened; }

}  // namespace tandem::bench_serving
