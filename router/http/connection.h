// One client connection: reads requests, hands them on, writes answers. The rules stand in http_server.h.
//
// One coroutine reads a request and then writes its answer; while it writes, a second one reads, to notice a client
// that leaves and to take what it pipelines. What a stream has to say is written without a turn of the coroutine: all
// connections with news write it in one go, once the handler that made the news is done. The coroutine is woken where
// the socket does not take all, and for the answer's end. Internal to router/http.
#pragma once

#include <list>
#include <memory>
#include <string>

#include "boost/asio/awaitable.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "boost/asio/steady_timer.hpp"
#include "boost/beast/core/flat_buffer.hpp"
#include "router/http/answer_buffer.h"
#include "router/http/connection_group.h"
#include "router/http/http_server.h"

namespace tandem::router {

// One exchange's state, shared by the connection and the handler's Exchange.
struct ExchangeState {
  HttpRequest request;
  AnswerBuffer answer;
  BodyShare body_share;
  std::string probe;
  std::function<void(ExchangeEvent)> observer;
  std::weak_ptr<Connection> connection;
  size_t num_bytes_in_write = 0;
  bool is_client_gone = false;
  bool is_abandoned = false;  // dropped by the handler inside a stream
  bool wants_drained = false;

  ExchangeState(const AnswerBuffer::Terms& terms, std::shared_ptr<ConnectionGroup> group)
      : answer(terms), body_share(std::move(group)) {}
};

class Connection final : public std::enable_shared_from_this<Connection> {
 public:
  Connection(boost::asio::ip::tcp::socket socket, std::shared_ptr<ConnectionGroup> group);
  ~Connection();

  void Start();         // serves until the connection ends
  void StartRefusal();  // says 503 and closes
  void Drain();         // closes now where idle, else after the answer under way
  // There is something to write, or to look at.
  void OnNews();
  // For one that waits for a request: closes it where it is idle, else tells it 503.
  void GiveWay();
  absl::Duration waiting_since() const { return waiting_since_; }
  // Read so far of the request that it waits for.
  size_t num_body_bytes() const { return state_ == nullptr ? 0 : state_->body_share.num_bytes(); }

 private:
  enum class ReadEnd { kRequest, kRefused, kClosed };  // refused: error_ says how to answer
  using ErrorCode = boost::system::error_code;

  boost::asio::awaitable<void> Serve();
  boost::asio::awaitable<void> Refuse();
  void SkipEmptyLines();
  boost::asio::awaitable<bool> WaitForFirstByte();
  // Reads one request into state_ and its terms.
  boost::asio::awaitable<ReadEnd> ReadRequest();
  // The end of those who wait for a request; again where it is in line already.
  void JoinLine();
  void LeaveLine();
  // False where there is no room for a body of num_bytes, although others have given way.
  template <typename Take>
  bool HasRoomForBody(const Take& take);
  // Until the answer is on its way or the client has left. True where the connection may go on.
  boost::asio::awaitable<bool> Answer();
  boost::asio::awaitable<void> Watch(std::shared_ptr<ExchangeState> state);
  boost::asio::awaitable<bool> WriteAll(absl::string_view wire);
  void WakeWriter();
  static void WriteNews(ConnectionGroup* group);
  // What is ready of a stream, as far as the socket takes it at once. False where the coroutine must go on with it.
  bool WriteAtOnce();
  bool IsMidStream() const;
  boost::asio::awaitable<void> CloseGently();

  ReadEnd RefuseRequest(int status, const std::string& message);
  void ClientLeft(ExchangeState& state, ExchangeEvent how = ExchangeEvent::kClientLeft);
  void WriteFailed(ExchangeState& state);
  void OnFin(ExchangeState& state);  // finds out whether the client has left
  bool HasBrokenDown() const;        // a reset that nobody has read yet
  // The timer ends whatever the socket is doing; timed_out_ tells.
  void ArmTimer(absl::Duration after);
  void DisarmTimer();

  boost::asio::ip::tcp::socket socket_;
  const std::shared_ptr<ConnectionGroup> group_;
  boost::asio::steady_timer timer_;
  boost::asio::steady_timer writer_wake_;
  boost::asio::steady_timer watcher_done_;
  boost::beast::flat_buffer buffer_;
  std::shared_ptr<ExchangeState> state_;
  uint64_t timer_generation_ = 0;
  bool timed_out_ = false;
  bool is_writer_waiting_ = false;  // for news
  bool is_news_due_ = false;        // it is in ConnectionGroup::with_news
  std::string wire_;                // of the answer: taken, and from wire_begin_ on not written yet
  size_t wire_begin_ = 0;
  bool is_idle_ = false;  // between requests, not a byte of the next one read
  bool is_watching_ = false;
  bool watch_must_end_ = false;
  bool has_fin_ = false;  // the client's sending side is closed
  std::list<Connection*>::iterator place_in_line_;
  bool is_in_line_ = false;
  bool gives_way_ = false;
  absl::Duration waiting_since_ = absl::ZeroDuration();
};

}  // namespace tandem::router
