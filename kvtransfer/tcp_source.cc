#include "kvtransfer/tcp_source.h"

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <list>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/host_port.h"
#include "base/log.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "kvtransfer/socket_address.h"
#include "kvtransfer/tcp_connection.h"
#include "kvtransfer/tcp_socket.h"
#include "kvtransfer/waker.h"

namespace tandem::kvtransfer {
namespace {

constexpr absl::Duration kNoDescriptorsPause = absl::Milliseconds(100);
constexpr absl::Duration kRefusalLogInterval = absl::Seconds(60);

}  // namespace

class TcpSource::Server final {
 public:
  explicit Server(TcpSourceOptions options) : options_(std::move(options)) {
    served_ = {.pool = options_.pool,
               .key = {base::RandomId(), base::RandomId()},
               .is_epoch_readable = options_.is_epoch_readable};
  }
  ~Server() { Stop(); }

  absl::Status Start() {
    if (options_.pool.empty()) return absl::InvalidArgumentError("a kv pool of 0 bytes");
    std::string host = options_.listen_host;
    if (host.empty()) {
      ASSIGN_OR_RETURN(host, RoutableHost(options_.net_devices));
    }
    const base::HostPort where = {host, options_.port};
    ASSIGN_OR_RETURN(const SocketAddress address, Resolve(where));
    ASSIGN_OR_RETURN(listener_, TcpSocket::Listen(address, absl::StrCat("tcp lane address ", where.ToString())));
    std::string told_host = options_.advertised_host.empty() ? host : options_.advertised_host;
    if (base::IsWildcard(told_host)) {
      ASSIGN_OR_RETURN(told_host, RoutableHost(options_.net_devices));
    }
    lane_end_ = {.kind = kTcpKind,
                 .worker_address = base::HostPort{told_host, listener_.port()}.ToString(),
                 .pool_address = 0,
                 .pool_bytes = options_.pool.size(),
                 .remote_key = std::string(reinterpret_cast<const char*>(served_.key.data()), sizeof(served_.key))};
    thread_ = std::thread([this] { Run(); });
    return absl::OkStatus();
  }

  void Stop() {
    is_stopping_ = true;
    waker_.Wake();
    if (thread_.joinable()) thread_.join();
  }

  const LaneEnd& lane_end() const { return lane_end_; }
  int num_connections() const { return num_greeted_; }
  int64_t num_refused() const { return num_refused_; }

 private:
  void Run() {
    while (!is_stopping_) {
      const absl::Duration now = base::RealClock().Now();
      CloseLate(now);
      const std::vector<short> events = Poll(now);
      size_t i = 0;
      for (auto it = connections_.begin(); it != connections_.end(); ++i) {
        const auto connection = it++;
        if (events[2 + i] != 0) Serve(connection, events[2 + i]);
      }
      if (events[1] != 0) AcceptAll();
    }
    connections_.clear();
    num_greeted_ = 0;
    listener_ = TcpSocket();
  }

  // Events of the waker, of the listener, then of each connection; none of the listener where it pauses.
  std::vector<short> Poll(absl::Duration now) {
    const bool may_accept = now >= accepts_from_;
    std::vector<pollfd> fds = {{waker_.fd(), POLLIN, 0}, {may_accept ? listener_.fd() : -1, POLLIN, 0}};
    absl::Duration next = may_accept ? absl::InfiniteDuration() : accepts_from_;
    for (const TcpConnection& connection : connections_) {
      fds.push_back({connection.fd(), connection.PollEvents(), 0});
      if (!connection.HasGreeted()) next = std::min(next, connection.greeting_deadline());
    }
    // Rounded up: a wait that ends early would spin.
    const int limit_ms =
        next == absl::InfiniteDuration()
            ? -1
            : static_cast<int>(absl::ToInt64Milliseconds(std::max(next - now, absl::ZeroDuration()))) + 1;
    std::vector<short> events(fds.size());
    if (poll(fds.data(), fds.size(), limit_ms) < 0) {
      if (errno != EINTR) LOG_WARNING("tcp source cannot poll", {"why", std::strerror(errno)});
      return events;
    }
    if (fds[0].revents != 0) waker_.Clear();
    for (size_t i = 0; i < fds.size(); ++i) events[i] = fds[i].revents;
    return events;
  }

  using Connections = std::list<TcpConnection>;

  void Serve(Connections::iterator connection, short events) {
    const bool had_greeted = connection->HasGreeted();
    const absl::Status status = connection->Progress(events);
    if (connection->HasGreeted() && !had_greeted) ++num_greeted_;
    if (status.ok()) return;
    if (!connection->HasGreeted()) return Refuse(connection, status);
    if (!absl::IsUnavailable(status)) {
      LOG_WARNING("tcp lane closed", {"from", connection->PeerName()}, {"status", status});
    }
    --num_greeted_;
    connections_.erase(connection);
  }

  void AcceptAll() {
    while (true) {
      TcpSocket accepted;
      switch (listener_.Accept(accepted)) {
        case TcpSocket::AcceptResult::kNobodyWaits:
          return;
        case TcpSocket::AcceptResult::kNoDescriptors:
          LOG_WARNING("tcp source cannot accept: no descriptors or memory left", {"connections", connections_.size()});
          accepts_from_ = base::RealClock().Now() + kNoDescriptorsPause;
          return;
        case TcpSocket::AcceptResult::kAccepted:
          break;
      }
      const size_t num_greeting = connections_.size() - num_greeted_;
      if (num_greeting >= kGreetingMax || connections_.size() >= kConnectionsMax) {
        const auto oldest = std::find_if(connections_.begin(), connections_.end(),
                                         [](const TcpConnection& connection) { return !connection.HasGreeted(); });
        if (oldest == connections_.end()) {
          LOG_WARNING("tcp connection refused: as many as there may be are open", {"from", accepted.PeerName()},
                      {"connections_max", kConnectionsMax});
          ++num_refused_;
          continue;
        }
        Refuse(oldest, absl::ResourceExhaustedError("too many connections that do not greet"));
      }
      connections_.emplace_back(std::move(accepted), served_, base::RealClock().Now() + kGreetingLimit);
    }
  }

  void CloseLate(absl::Duration now) {
    for (auto it = connections_.begin(); it != connections_.end();) {
      const auto connection = it++;
      if (connection->HasGreeted() || now < connection->greeting_deadline()) continue;
      Refuse(connection,
             absl::DeadlineExceededError(absl::StrCat("no greeting within ", absl::FormatDuration(kGreetingLimit))));
    }
  }

  // A scan of ports is one line a minute, not one a connection.
  void Refuse(Connections::iterator connection, const absl::Status& why) {
    ++num_refused_;
    const absl::Duration now = base::RealClock().Now();
    if (now >= logs_refusals_from_) {
      LOG_WARNING("tcp lane refused a connection that is no decode worker's", {"from", connection->PeerName()},
                  {"why", why.message()}, {"refused_since_start", num_refused_.load()});
      logs_refusals_from_ = now + kRefusalLogInterval;
    }
    connections_.erase(connection);
  }

  const TcpSourceOptions options_;
  TcpServed served_;
  LaneEnd lane_end_;
  TcpSocket listener_;
  Connections connections_;  // in order of arrival
  absl::Duration accepts_from_ = -absl::InfiniteDuration();
  absl::Duration logs_refusals_from_ = -absl::InfiniteDuration();
  std::atomic<int> num_greeted_ = 0;
  std::atomic<int64_t> num_refused_ = 0;
  std::atomic<bool> is_stopping_ = false;
  Waker waker_;
  std::thread thread_;
};

absl::StatusOr<std::unique_ptr<TcpSource>> TcpSource::Start(TcpSourceOptions options) {
  auto server = std::make_unique<Server>(std::move(options));
  RETURN_IF_ERROR(server->Start());
  return std::unique_ptr<TcpSource>(new TcpSource(std::move(server)));
}

TcpSource::TcpSource(std::unique_ptr<Server> server) : server_(std::move(server)) {}
TcpSource::~TcpSource() = default;
const LaneEnd& TcpSource::lane_end() const { return server_->lane_end(); }
void TcpSource::Stop() { server_->Stop(); }
int TcpSource::num_connections() const { return server_->num_connections(); }
int64_t TcpSource::num_refused() const { return server_->num_refused(); }

}  // namespace tandem::kvtransfer
