#include "router/http/connection.h"

#include <netinet/tcp.h>
#include <poll.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/clock.h"
#include "boost/asio/as_tuple.hpp"
#include "boost/asio/co_spawn.hpp"
#include "boost/asio/post.hpp"
#include "boost/asio/read.hpp"
#include "boost/asio/use_awaitable.hpp"
#include "boost/asio/write.hpp"
#include "boost/beast/http/parser.hpp"
#include "boost/beast/http/read.hpp"
#include "router/http/growing_body.h"
#include "router/openai/api_error.h"

namespace tandem::router {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using RequestParser = http::request_parser<GrowingBody>;

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr size_t kReadBytes = 4 * 1024;
constexpr size_t kWatchBytes = 1024;  // as a rule nothing comes while a request is answered
template <int option>
using TcpInteger = asio::detail::socket_option::integer<IPPROTO_TCP, option>;
constexpr char kGaveWay[] = "request took too long to arrive while others waited for its place";
constexpr char kRetryAfterSeconds[] = "1";  // connections and bodies come and go by the second
constexpr int kProbeIdleSeconds = 15;
constexpr int kProbeIntervalSeconds = 5;
constexpr int kProbesMax = 3;
// A peer that acknowledges nothing is gone, whatever its window says. The kernel counts a window that stays shut, too:
// a client that is there and does not read is write_stall_max's business, which comes first.
constexpr absl::Duration kUserTimeoutMin = absl::Seconds(30);
constexpr absl::Duration kUserTimeoutBeyondStall = absl::Seconds(10);
// What the kernel keeps for a client that does not read; by default it would take megabytes of each.
constexpr int kKernelUnsentBytesMax = 64 << 10;

void CheckNoException(std::exception_ptr exception) {
  TANDEM_CHECK(exception == nullptr, "a connection's coroutine threw");
}

// The handler's end of an exchange.
class ConnectionExchange final : public Exchange {
 public:
  explicit ConnectionExchange(std::shared_ptr<ExchangeState> state) : state_(std::move(state)) {}
  ~ConnectionExchange() override {
    state_->observer = nullptr;
    if (state_->answer.is_finished()) return;
    if (state_->answer.has_started()) {
      state_->is_abandoned = true;
      Wake();
    } else {
      HttpResponse response;
      response.status = 500;
      response.body = ErrorBody(absl::InternalError("request was dropped without an answer"));
      Respond(std::move(response));
    }
  }

  const HttpRequest& request() const override { return state_->request; }
  std::string TakeBody() override { return std::exchange(state_->request.body, {}); }
  void BodyDone() override { state_->body_share.Release(); }
  void SetObserver(std::function<void(ExchangeEvent)> observer) override { state_->observer = std::move(observer); }
  void AddHeader(const std::string& name, const std::string& value) override { state_->answer.AddHeader(name, value); }
  void Respond(HttpResponse response) override {
    state_->answer.Respond(std::move(response));
    Wake();
  }
  void StartStream(const std::string& content_type, const std::string& probe) override {
    state_->answer.StartStream(content_type);
    state_->probe = probe;
    Wake();
  }
  void Write(absl::string_view bytes) override {
    if (state_->is_client_gone) return;
    state_->answer.Write(bytes);
    Wake();
  }
  void Finish() override {
    state_->answer.Finish();
    Wake();
  }
  size_t num_unsent_bytes() const override { return state_->answer.num_bytes() + state_->num_bytes_in_write; }
  void NotifyWhenDrained() override {
    state_->wants_drained = true;
    Wake();
  }

 private:
  void Wake() {
    if (auto connection = state_->connection.lock()) connection->OnNews();
  }
  const std::shared_ptr<ExchangeState> state_;
};

// Status and words for a request that could not be read.
std::optional<std::pair<int, std::string>> RefusalOf(const boost::system::error_code& error, const HttpLimits& limits) {
  if (error == http::error::end_of_stream || error == http::error::partial_message) return std::nullopt;
  if (error == http::error::body_limit) {
    return std::pair(413, absl::StrCat("request body is larger than the limit of ", limits.body_bytes_max, " bytes"));
  }
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    return std::pair(431,
                     absl::StrCat("request headers are larger than the limit of ", limits.header_bytes_max, " bytes"));
  }
  if (error.category() == http::make_error_code(http::error::bad_method).category()) {
    return std::pair(400, absl::StrCat("malformed HTTP request: ", error.message()));
  }
  return std::nullopt;  // the socket failed
}

// Feeds the parser what was read before the client's FIN. Asio does not report a FIN twice, so nothing more is read.
template <typename IsEnough>
boost::system::error_code ParseBuffered(RequestParser& parser, boost::beast::flat_buffer& buffer,
                                        const IsEnough& is_enough) {
  boost::system::error_code error;
  while (!is_enough() && !error) {
    if (buffer.size() == 0) return http::error::partial_message;
    buffer.consume(parser.put(buffer.data(), error));
  }
  return error == http::error::need_more ? http::error::partial_message : error;
}

void FillRequest(RequestParser& parser, HttpRequest* request) {
  auto& message = parser.get();
  request->method = std::string(message.method_string());
  std::string target(message.target());
  if (absl::StartsWith(target, "http://")) {  // absolute form, as clients of a proxy send it
    const size_t path_begin = target.find('/', sizeof("http://") - 1);
    target = path_begin == std::string::npos ? "/" : target.substr(path_begin);
  }
  const size_t question = target.find('?');
  request->path = target.substr(0, question);
  if (question != std::string::npos) request->query = target.substr(question + 1);
  for (const auto& field : message) {
    request->headers.emplace_back(absl::AsciiStrToLower(std::string(field.name_string())), std::string(field.value()));
  }
  request->body = std::move(message.body());
}

}  // namespace

bool OldestInLineGivesWay(const ConnectionGroup& group, GivesWay what, const Connection* for_whom) {
  const absl::Duration latest = base::RealClock().Now() - group.limits.give_way_after;
  for (Connection* const connection : group.in_line) {
    if (connection->waiting_since() > latest) return false;
    if (connection == for_whom || (what == GivesWay::kBodyBytes && connection->num_body_bytes() == 0)) continue;
    connection->GiveWay();
    return true;
  }
  return false;
}

Connection::Connection(asio::ip::tcp::socket socket, std::shared_ptr<ConnectionGroup> group)
    : socket_(std::move(socket)),
      group_(std::move(group)),
      timer_(socket_.get_executor()),
      writer_wake_(socket_.get_executor()),
      watcher_done_(socket_.get_executor()) {
  group_->connections.insert(this);
  buffer_.max_size(group_->limits.header_bytes_max + group_->limits.pipelined_bytes_max + 2 * kReadBytes);
  boost::system::error_code ignored;  // without the options the connection is slower, not wrong
  socket_.non_blocking(true, ignored);
  socket_.set_option(asio::socket_base::keep_alive(true), ignored);  // a client whose host has vanished says nothing
  socket_.set_option(TcpInteger<TCP_KEEPIDLE>(kProbeIdleSeconds), ignored);
  socket_.set_option(TcpInteger<TCP_KEEPINTVL>(kProbeIntervalSeconds), ignored);
  socket_.set_option(TcpInteger<TCP_KEEPCNT>(kProbesMax), ignored);
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  socket_.set_option(TcpInteger<TCP_NOTSENT_LOWAT>(kKernelUnsentBytesMax), ignored);
  const absl::Duration user_timeout =
      std::max(kUserTimeoutMin, group_->limits.write_stall_max + kUserTimeoutBeyondStall);
  socket_.set_option(TcpInteger<TCP_USER_TIMEOUT>(static_cast<int>(absl::ToInt64Milliseconds(user_timeout))), ignored);
}

Connection::~Connection() {
  LeaveLine();
  group_->connections.erase(this);
  if (is_news_due_) std::erase(group_->with_news, this);
}

void Connection::Start() {
  asio::co_spawn(
      socket_.get_executor(), [self = shared_from_this()] { return self->Serve(); }, CheckNoException);
}

void Connection::StartRefusal() {
  asio::co_spawn(
      socket_.get_executor(), [self = shared_from_this()] { return self->Refuse(); }, CheckNoException);
}

void Connection::Drain() {
  if (state_ != nullptr) state_->answer.CloseAfterwards();
  if (is_idle_) {
    boost::system::error_code ignored;
    socket_.close(ignored);
  }
}

void Connection::JoinLine() {
  LeaveLine();
  waiting_since_ = base::RealClock().Now();
  place_in_line_ = group_->in_line.insert(group_->in_line.end(), this);
  is_in_line_ = true;
}

void Connection::LeaveLine() {
  if (std::exchange(is_in_line_, false)) group_->in_line.erase(place_in_line_);
}

void Connection::GiveWay() {
  LeaveLine();
  boost::system::error_code ignored;
  if (is_idle_) {
    socket_.close(ignored);
    return;
  }
  gives_way_ = true;
  if (state_ != nullptr) state_->body_share.Release();
  socket_.cancel(ignored);  // the coroutine, which reads, goes on and says so
}

template <typename Take>
bool Connection::HasRoomForBody(const Take& take) {
  while (!take()) {
    if (!OldestInLineGivesWay(*group_, GivesWay::kBodyBytes, this)) return false;
  }
  return true;
}

void Connection::WakeWriter() {
  is_writer_waiting_ = false;
  writer_wake_.cancel();
}

void Connection::OnNews() {
  if (!is_writer_waiting_) return;  // it looks before it waits
  if (!IsMidStream()) return WakeWriter();
  if (std::exchange(is_news_due_, true)) return;
  group_->with_news.push_back(this);
  if (group_->with_news.size() > 1) return;
  asio::post(socket_.get_executor(), [group = group_] { WriteNews(group.get()); });
}

bool Connection::IsMidStream() const {
  return !state_->is_client_gone && !state_->is_abandoned && !state_->wants_drained && !state_->answer.is_finished();
}

// Nothing in here ends a connection: coroutines are woken, and run later.
void Connection::WriteNews(ConnectionGroup* group) {
  for (Connection* connection : std::exchange(group->with_news, {})) {
    connection->is_news_due_ = false;
    if (connection->is_writer_waiting_ && !connection->WriteAtOnce()) connection->WakeWriter();
  }
}

bool Connection::WriteAtOnce() {
  if (!IsMidStream()) return false;
  ExchangeState& state = *state_;
  state.answer.Take(&wire_);
  wire_begin_ = 0;
  if (wire_.empty()) return true;
  boost::system::error_code error;
  wire_begin_ = socket_.write_some(asio::buffer(wire_), error);
  state.num_bytes_in_write = wire_.size() - wire_begin_;
  return state.num_bytes_in_write == 0;
}

// Some clients send an empty line behind a body (RFC 9112, 2.2).
void Connection::SkipEmptyLines() {
  const auto* const bytes = static_cast<const char*>(buffer_.data().data());
  size_t num_skipped = 0;
  while (num_skipped < buffer_.size() && (bytes[num_skipped] == '\r' || bytes[num_skipped] == '\n')) ++num_skipped;
  buffer_.consume(num_skipped);
}

asio::awaitable<void> Connection::Serve() {
  for (;;) {
    SkipEmptyLines();
    JoinLine();
    if (buffer_.size() == 0) {
      if (has_fin_) break;
      if (!co_await WaitForFirstByte()) co_return;
      continue;
    }
    const ReadEnd end = co_await ReadRequest();
    LeaveLine();
    if (end == ReadEnd::kClosed) co_return;
    if (end == ReadEnd::kRequest) group_->handler->Handle(std::make_shared<ConnectionExchange>(state_));
    const bool goes_on = co_await Answer();
    state_ = nullptr;
    if (goes_on) continue;
    if (end == ReadEnd::kRefused || buffer_.size() > 0) co_await CloseGently();
    break;
  }
  boost::system::error_code ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  socket_.close(ignored);
}

asio::awaitable<void> Connection::Refuse() {
  state_ = std::make_shared<ExchangeState>(AnswerBuffer::Terms{.keep_alive = false}, group_);
  RefuseRequest(503, absl::StrCat("too many connections: the limit is ", group_->limits.connections_max));
  std::string wire;
  state_->answer.Take(&wire);
  if (co_await WriteAll(wire)) co_await CloseGently();
}

asio::awaitable<bool> Connection::WaitForFirstByte() {
  is_idle_ = true;
  ArmTimer(group_->limits.idle_max);
  auto [error, size] = co_await socket_.async_read_some(buffer_.prepare(kReadBytes), kAwait);
  DisarmTimer();
  is_idle_ = false;
  if (error) co_return false;
  buffer_.commit(size);
  co_return true;
}

Connection::ReadEnd Connection::RefuseRequest(int status, const std::string& message) {
  HttpResponse response;
  response.status = status;
  response.body = ErrorBody(status == 413   ? absl::OutOfRangeError(message)
                            : status == 503 ? absl::UnavailableError(message)
                                            : absl::InvalidArgumentError(message));
  if (status == 503) response.headers.emplace_back("Retry-After", kRetryAfterSeconds);
  state_->answer.CloseAfterwards();  // what follows on the wire is of unknown meaning
  state_->answer.Respond(std::move(response));
  group_->handler->OnRefused(status);
  return ReadEnd::kRefused;
}

asio::awaitable<Connection::ReadEnd> Connection::ReadRequest() {
  const HttpLimits& limits = group_->limits;
  RequestParser parser;
  parser.header_limit(static_cast<uint32_t>(limits.header_bytes_max));
  parser.body_limit(limits.body_bytes_max);

  ErrorCode header_error;
  if (has_fin_) {
    header_error = ParseBuffered(parser, buffer_, [&] { return parser.is_header_done(); });
  } else {
    ArmTimer(limits.header_time_max);
    std::tie(header_error, std::ignore) = co_await http::async_read_header(socket_, buffer_, parser, kAwait);
    DisarmTimer();
  }
  AnswerBuffer::Terms terms;
  terms.is_http_1_0 = parser.is_header_done() && parser.get().version() < 11;
  terms.is_head = parser.is_header_done() && parser.get().method() == http::verb::head;
  terms.keep_alive = parser.is_header_done() && parser.get().keep_alive();
  state_ = std::make_shared<ExchangeState>(terms, group_);
  state_->connection = weak_from_this();
  if (gives_way_) co_return RefuseRequest(503, kGaveWay);
  if (timed_out_) {
    co_return RefuseRequest(
        408, absl::StrCat("request headers did not arrive within ", absl::FormatDuration(limits.header_time_max)));
  }
  if (header_error) {
    const auto refusal = RefusalOf(header_error, limits);
    co_return refusal.has_value() ? RefuseRequest(refusal->first, refusal->second) : ReadEnd::kClosed;
  }

  if (!terms.is_http_1_0 && parser.get().count(http::field::host) != 1) {
    co_return RefuseRequest(400, absl::StrCat("malformed HTTP request: HTTP/1.1 takes one Host header, got ",
                                              parser.get().count(http::field::host)));
  }
  const size_t num_codings = parser.get().count(http::field::transfer_encoding);
  const auto coding = parser.get()[http::field::transfer_encoding];
  if (num_codings > 1 || (num_codings == 1 && !boost::beast::iequals(coding, "chunked"))) {
    co_return RefuseRequest(501, absl::StrCat("transfer-encoding ", std::string(coding), " is not supported"));
  }
  const auto encoding = parser.get()[http::field::content_encoding];
  if (!encoding.empty() && encoding != "identity") {
    co_return RefuseRequest(415, absl::StrCat("content-encoding ", std::string(encoding), " is not supported"));
  }
  const auto expectation = parser.get()[http::field::expect];
  if (!expectation.empty() && !terms.is_http_1_0) {
    if (!boost::beast::iequals(expectation, "100-continue")) {
      co_return RefuseRequest(417, absl::StrCat("expectation ", std::string(expectation), " is not supported"));
    }
    if (!parser.is_done() && buffer_.size() == 0) {
      static const std::string* const kContinue = new std::string("HTTP/1.1 100 Continue\r\n\r\n");
      if (!co_await WriteAll(*kContinue)) co_return ReadEnd::kClosed;
    }
  }

  const auto refuse_body = [this] {
    return RefuseRequest(
        503, absl::StrCat("too many bytes of request bodies at once: the limit is ", group_->limits.bodies_bytes_max));
  };
  const size_t num_announced = parser.content_length().value_or(0);
  if (!HasRoomForBody([&] { return state_->body_share.HasRoomFor(num_announced); })) co_return refuse_body();
  const absl::Duration body_deadline = base::RealClock().Now() + limits.body_time_max;
  while (!parser.is_done()) {
    ErrorCode error;
    if (has_fin_) {
      error = ParseBuffered(parser, buffer_, [&] { return parser.is_done(); });
    } else {
      ArmTimer(std::min(body_deadline - base::RealClock().Now(), limits.body_stall_max));
      std::tie(error, std::ignore) = co_await http::async_read_some(socket_, buffer_, parser, kAwait);
      DisarmTimer();
    }
    if (gives_way_) co_return RefuseRequest(503, kGaveWay);
    if (timed_out_) co_return RefuseRequest(408, "request body did not arrive in time");
    if (error) {
      const auto refusal = RefusalOf(error, limits);
      co_return refusal.has_value() ? RefuseRequest(refusal->first, refusal->second) : ReadEnd::kClosed;
    }
    const size_t num_read = parser.get().body().size();
    if (!HasRoomForBody([&] { return state_->body_share.GrowTo(num_read); })) co_return refuse_body();
  }
  if (buffer_.size() == 0) buffer_.shrink_to_fit();
  FillRequest(parser, &state_->request);
  if (group_->is_draining) state_->answer.CloseAfterwards();
  co_return ReadEnd::kRequest;
}

asio::awaitable<bool> Connection::Answer() {
  const std::shared_ptr<ExchangeState> state = state_;
  watch_must_end_ = false;
  is_watching_ = true;
  asio::co_spawn(
      socket_.get_executor(), [self = shared_from_this(), state] { return self->Watch(state); }, CheckNoException);
  bool is_broken = false;
  for (;;) {
    if (wire_begin_ == wire_.size()) {
      state->answer.Take(&wire_);
      wire_begin_ = 0;
    }
    if (wire_begin_ < wire_.size()) {
      state->num_bytes_in_write = wire_.size() - wire_begin_;
      if (!co_await WriteAll(absl::string_view(wire_).substr(wire_begin_))) WriteFailed(*state);
      wire_begin_ = wire_.size();
      state->num_bytes_in_write = 0;
    }
    is_broken = state->is_client_gone || state->is_abandoned;
    if (is_broken) break;
    if (state->answer.num_bytes() > 0) continue;
    if (std::exchange(state->wants_drained, false) && state->observer) state->observer(ExchangeEvent::kDrained);
    if (state->answer.num_bytes() > 0) continue;
    if (state->answer.is_finished()) {
      state->answer.Take(&wire_);  // the last chunk, where Finish() came without bytes
      if (!wire_.empty() && !co_await WriteAll(wire_)) WriteFailed(*state);
      break;
    }
    writer_wake_.expires_at(asio::steady_timer::time_point::max());
    is_writer_waiting_ = true;
    co_await writer_wake_.async_wait(kAwait);
  }
  wire_ = std::string();  // an idle connection keeps no memory of it
  wire_begin_ = 0;
  boost::system::error_code ignored;
  if (is_broken) socket_.close(ignored);
  watch_must_end_ = true;
  socket_.cancel(ignored);
  while (is_watching_) {
    watcher_done_.expires_at(asio::steady_timer::time_point::max());
    co_await watcher_done_.async_wait(kAwait);
  }
  co_return !is_broken && !state->is_client_gone && state->answer.keeps_alive() && !group_->is_draining &&
      !(has_fin_ && buffer_.size() == 0);
}

asio::awaitable<void> Connection::Watch(std::shared_ptr<ExchangeState> state) {
  if (has_fin_) OnFin(*state);  // came while an earlier request of this connection was answered
  while (!watch_must_end_ && !state->is_client_gone) {
    if (has_fin_ || buffer_.size() >= group_->limits.pipelined_bytes_max) {
      if (HasBrokenDown()) {
        ClientLeft(*state);
        break;
      }
      auto [error] = co_await socket_.async_wait(asio::ip::tcp::socket::wait_error, kAwait);
      if (!error && HasBrokenDown()) ClientLeft(*state);
      if (error) break;
      continue;
    }
    auto [error, size] = co_await socket_.async_read_some(buffer_.prepare(kWatchBytes), kAwait);
    if (!error) {
      buffer_.commit(size);
    } else if (error == asio::error::eof) {
      has_fin_ = true;
      OnFin(*state);
    } else {
      if (error != asio::error::operation_aborted) ClientLeft(*state);
      break;
    }
  }
  is_watching_ = false;
  watcher_done_.cancel();
}

void Connection::OnFin(ExchangeState& state) {
  if (buffer_.size() == 0) state.answer.CloseAfterwards();  // else there are requests that it sent before
  if (!state.answer.has_started()) {
    state.answer.WriteContinue();
  } else if (!state.answer.is_finished() && !state.probe.empty()) {
    state.answer.Write(state.probe);
  }
  WakeWriter();
}

void Connection::WriteFailed(ExchangeState& state) {
  ClientLeft(state, timed_out_ ? ExchangeEvent::kClientStalled : ExchangeEvent::kClientLeft);
}

void Connection::ClientLeft(ExchangeState& state, ExchangeEvent how) {
  if (std::exchange(state.is_client_gone, true)) return;
  if (state.observer) state.observer(how);
  WakeWriter();
}

bool Connection::HasBrokenDown() const {
  pollfd entry = {const_cast<asio::ip::tcp::socket&>(socket_).native_handle(), 0, 0};
  return ::poll(&entry, 1, 0) == 1 && (entry.revents & (POLLERR | POLLHUP | POLLNVAL)) != 0;
}

asio::awaitable<bool> Connection::WriteAll(absl::string_view wire) {
  size_t written = 0;
  while (written < wire.size()) {
    boost::system::error_code error;
    written += socket_.write_some(asio::buffer(wire.data() + written, wire.size() - written),
                                  error);  // takes all, as a rule: no timer, no turn
    if (error && error != asio::error::would_block) co_return false;
    if (written == wire.size()) break;
    ArmTimer(group_->limits.write_stall_max);
    auto [wait_error] = co_await socket_.async_wait(asio::ip::tcp::socket::wait_write, kAwait);
    DisarmTimer();
    if (wait_error || timed_out_) co_return false;
  }
  co_return true;
}

asio::awaitable<void> Connection::CloseGently() {
  // Closing with unread bytes sends RST, which may destroy the answer before the client has read it.
  boost::system::error_code ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  buffer_.clear();
  ArmTimer(group_->limits.close_wait_max);
  size_t num_discarded = 0;
  while (!has_fin_ && num_discarded < group_->limits.close_bytes_max) {
    auto [error, size] = co_await socket_.async_read_some(buffer_.prepare(kReadBytes), kAwait);
    if (error) break;
    num_discarded += size;
  }
  DisarmTimer();
  socket_.close(ignored);
}

void Connection::ArmTimer(absl::Duration after) {
  timed_out_ = false;
  const uint64_t generation = ++timer_generation_;
  timer_.expires_after(absl::ToChronoNanoseconds(std::max(after, absl::ZeroDuration())));
  timer_.async_wait([weak = weak_from_this(), generation](const boost::system::error_code& error) {
    const auto self = weak.lock();
    if (error || self == nullptr || self->timer_generation_ != generation) return;
    self->timed_out_ = true;
    boost::system::error_code ignored;
    self->socket_.cancel(ignored);
  });
}

void Connection::DisarmTimer() {
  ++timer_generation_;
  timer_.cancel();
}

}  // namespace tandem::router
