#include "model/communicator/tcp_group.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace tandem::model {
namespace {

constexpr uint64_t kMagic = 0x54616e64656d5251;  // also tells byte orders apart
constexpr size_t kTextMax = 1024;
constexpr absl::Duration kGreetingMax = absl::Seconds(5);  // of somebody who connects and may say nothing
constexpr absl::Duration kRetryInterval = absl::Milliseconds(50);
constexpr int kUserTimeoutMs = 30'000;  // after which TCP gives up a peer that acknowledges nothing
constexpr int kKeepIdleSeconds = 10, kKeepIntervalSeconds = 5, kKeepProbes = 4;
// How long a broken peer's own word on why is waited for, once its other connection has ended.
constexpr int kLastWordMs = 2'000;

class Descriptor final {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }

 private:
  int fd_;
};

absl::Status SystemError(absl::string_view what, int error) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(error)));
}

struct AddressList {
  addrinfo* first = nullptr;
  ~AddressList() {
    if (first != nullptr) ::freeaddrinfo(first);
  }
};

absl::Status Resolve(const std::string& host, int port, bool to_listen, AddressList& out) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (to_listen ? AI_PASSIVE : 0);
  const int error = ::getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &hints, &out.first);
  if (error == 0) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("cannot resolve ", host, ": ", ::gai_strerror(error)));
}

void SetOptions(int fd) {
  const auto set = [fd](int level, int name, int value) { ::setsockopt(fd, level, name, &value, sizeof(value)); };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, kKeepIdleSeconds);
  set(IPPROTO_TCP, TCP_KEEPINTVL, kKeepIntervalSeconds);
  set(IPPROTO_TCP, TCP_KEEPCNT, kKeepProbes);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, kUserTimeoutMs);
}

// ---- Whole messages, during the start and for last words ----

class Deadline final {
 public:
  Deadline(const base::Clock& clock, absl::Duration timeout) : clock_(clock), end_(clock.Now() + timeout) {}
  absl::Duration left() const { return std::max(end_ - clock_.Now(), absl::ZeroDuration()); }
  int left_ms() const { return static_cast<int>(std::min<int64_t>(absl::ToInt64Milliseconds(left()) + 1, 1 << 30)); }

 private:
  const base::Clock& clock_;
  const absl::Duration end_;
};

absl::Status AwaitReady(int fd, short events, const Deadline& deadline) {
  pollfd poll_fd{.fd = fd, .events = events};
  while (true) {
    if (deadline.left() <= absl::ZeroDuration()) return absl::DeadlineExceededError("no answer in time");
    const int count = ::poll(&poll_fd, 1, deadline.left_ms());
    if (count > 0) return absl::OkStatus();
    if (count < 0 && errno != EINTR) return SystemError("poll", errno);
  }
}

absl::Status SendAll(int fd, const void* bytes, size_t count, const Deadline& deadline) {
  const auto* next = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t sent = ::send(fd, next, count, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      next += sent;
      count -= static_cast<size_t>(sent);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      RETURN_IF_ERROR(AwaitReady(fd, POLLOUT, deadline));
    } else if (errno != EINTR) {
      return SystemError("send", errno);
    }
  }
  return absl::OkStatus();
}

absl::Status ReceiveAll(int fd, void* bytes, size_t count, const Deadline& deadline) {
  auto* next = static_cast<char*>(bytes);
  while (count > 0) {
    const ssize_t received = ::recv(fd, next, count, MSG_DONTWAIT);
    if (received > 0) {
      next += received;
      count -= static_cast<size_t>(received);
    } else if (received == 0) {
      return absl::UnavailableError("the connection was closed");
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      RETURN_IF_ERROR(AwaitReady(fd, POLLIN, deadline));
    } else if (errno != EINTR) {
      return SystemError("recv", errno);
    }
  }
  return absl::OkStatus();
}

absl::Status SendText(int fd, absl::string_view text, const Deadline& deadline) {
  const auto length = static_cast<uint32_t>(std::min(text.size(), kTextMax));
  RETURN_IF_ERROR(SendAll(fd, &length, sizeof(length), deadline));
  return SendAll(fd, text.data(), length, deadline);
}

absl::Status ReceiveText(int fd, std::string& text, const Deadline& deadline) {
  uint32_t length = 0;
  RETURN_IF_ERROR(ReceiveAll(fd, &length, sizeof(length), deadline));
  if (length > kTextMax) return absl::InternalError(absl::StrCat("text of ", length, " bytes, at most ", kTextMax));
  text.resize(length);
  return ReceiveAll(fd, text.data(), length, deadline);
}

// ---- The start ----

enum class Purpose : int32_t { kJoin, kData, kEnd };

// The first words on every connection; to the leader's kJoin it answers with a text, empty where it agrees.
struct Greeting {
  uint64_t magic = kMagic;
  int32_t rank = 0;
  int32_t size = 0;
  Purpose purpose = Purpose::kJoin;
  int32_t port = 0;  // where the sender listens
};

struct Place {
  char host[INET6_ADDRSTRLEN + 16] = {};
  int32_t port = 0;
};

// What connects two ranks.
struct Peer {
  Descriptor data, end;
};

absl::StatusOr<Descriptor> ConnectOnce(const std::string& host, int port, const Deadline& deadline) {
  AddressList addresses;
  RETURN_IF_ERROR(Resolve(host, port, /*to_listen=*/false, addresses));
  absl::Status status = absl::UnavailableError(absl::StrCat(host, " has no address"));
  for (const addrinfo* address = addresses.first; address != nullptr; address = address->ai_next) {
    Descriptor fd(::socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd.is_open()) return SystemError("socket", errno);
    if (::connect(fd.get(), address->ai_addr, address->ai_addrlen) != 0 && errno != EINPROGRESS) {
      status = SystemError("connect", errno);
      continue;
    }
    RETURN_IF_ERROR(AwaitReady(fd.get(), POLLOUT, deadline));
    int error = 0;
    socklen_t length = sizeof(error);
    ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error == 0) {
      SetOptions(fd.get());
      return fd;
    }
    status = SystemError("connect", error);
  }
  return status;
}

// Until somebody listens there: ranks start in any order.
absl::StatusOr<Descriptor> Connect(const std::string& host, int port, const Deadline& deadline) {
  while (true) {
    absl::StatusOr<Descriptor> fd = ConnectOnce(host, port, deadline);
    if (fd.ok()) return fd;
    if (deadline.left() <= kRetryInterval) {
      return absl::DeadlineExceededError(
          absl::StrCat("cannot reach ", base::HostPort{host, port}.ToString(), ": ", fd.status().message()));
    }
    ::poll(nullptr, 0, static_cast<int>(absl::ToInt64Milliseconds(kRetryInterval)));
  }
}

std::string HostOf(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  char host[NI_MAXHOST] = {};
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0) {
    ::getnameinfo(reinterpret_cast<sockaddr*>(&address), length, host, sizeof(host), nullptr, 0, NI_NUMERICHOST);
  }
  return host;
}

class Start final {
 public:
  Start(const TcpGroupPort& port, const TcpGroupOptions& options, const base::Clock& clock)
      : port_(port), options_(options), clock_(clock), deadline_(clock, options.start_timeout), peers_(options.size) {}

  absl::StatusOr<std::vector<Peer>> Run() {
    if (options_.rank == 0) {
      RETURN_IF_ERROR(Lead());
    } else {
      RETURN_IF_ERROR(Follow());
    }
    return std::move(peers_);
  }

 private:
  Greeting OwnGreeting(Purpose purpose) const {
    return {.rank = options_.rank, .size = options_.size, .purpose = purpose, .port = port_.port()};
  }

  // A connection that somebody has made, and what it said. Whoever is no rank of any group is closed and forgotten.
  absl::Status Accept(Descriptor& fd, Greeting& greeting, std::string& fingerprint) {
    while (true) {
      RETURN_IF_ERROR(AwaitReady(port_.descriptor(), POLLIN, deadline_));
      fd = Descriptor(::accept4(port_.descriptor(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!fd.is_open()) continue;
      SetOptions(fd.get());
      const Deadline patience(clock_, std::min(deadline_.left(), kGreetingMax));
      if (ReceiveAll(fd.get(), &greeting, sizeof(greeting), patience).ok() && greeting.magic == kMagic &&
          ReceiveText(fd.get(), fingerprint, patience).ok()) {
        return absl::OkStatus();
      }
    }
  }

  std::string Objection(const Greeting& greeting, absl::string_view fingerprint,
                        const std::vector<Descriptor>& joined) const {
    if (fingerprint != options_.fingerprint) {
      return absl::StrCat("rank ", greeting.rank, " is \"", fingerprint, "\", rank 0 is \"", options_.fingerprint,
                          "\"");
    }
    if (greeting.size != options_.size) {
      return absl::StrCat("rank ", greeting.rank, " is of a group of ", greeting.size, ", rank 0 of one of ",
                          options_.size);
    }
    if (greeting.rank < 1 || greeting.rank >= options_.size) {
      return absl::StrCat("rank ", greeting.rank, " of a group of ", options_.size);
    }
    if (joined[greeting.rank].is_open()) return absl::StrCat("rank ", greeting.rank, " is there twice");
    return "";
  }

  absl::Status Lead() {
    std::vector<Descriptor> joined(options_.size);
    std::vector<Place> places(options_.size);
    for (int num_joined = 1; num_joined < options_.size;) {
      Descriptor fd;
      Greeting greeting;
      std::string fingerprint;
      if (const absl::Status status = Accept(fd, greeting, fingerprint); !status.ok()) {
        return absl::Status(status.code(),
                            absl::StrCat("rank 0 waits for ranks ", Missing(joined), ": ", status.message()));
      }
      if (greeting.purpose != Purpose::kJoin) continue;
      if (const std::string objection = Objection(greeting, fingerprint, joined); !objection.empty()) {
        // Everybody hears it: the group will not come to be.
        for (const Descriptor& other : joined) {
          if (other.is_open()) SendText(other.get(), objection, deadline_).IgnoreError();
        }
        SendText(fd.get(), objection, deadline_).IgnoreError();
        return absl::FailedPreconditionError(objection);
      }
      const std::string host = HostOf(fd.get());
      std::memcpy(places[greeting.rank].host, host.data(), std::min(host.size(), sizeof(Place::host) - 1));
      places[greeting.rank].port = greeting.port;
      joined[greeting.rank] = std::move(fd);
      ++num_joined;
    }
    for (int rank = 1; rank < options_.size; ++rank) {
      RETURN_IF_ERROR(SendText(joined[rank].get(), "", deadline_));
      RETURN_IF_ERROR(SendAll(joined[rank].get(), places.data(), places.size() * sizeof(Place), deadline_));
    }
    return AcceptHigherRanks();
  }

  static std::string Missing(const std::vector<Descriptor>& joined) {
    std::vector<size_t> missing;
    for (size_t rank = 1; rank < joined.size(); ++rank) {
      if (!joined[rank].is_open()) missing.push_back(rank);
    }
    return absl::StrJoin(missing, ", ");
  }

  absl::Status Follow() {
    ASSIGN_OR_RETURN(const Descriptor leader, Connect(options_.leader.host, options_.leader.port, deadline_));
    RETURN_IF_ERROR(Greet(leader.get(), Purpose::kJoin));
    std::string objection;
    RETURN_IF_ERROR(ReceiveText(leader.get(), objection, deadline_));
    if (!objection.empty()) return absl::FailedPreconditionError(objection);
    std::vector<Place> places(options_.size);
    RETURN_IF_ERROR(ReceiveAll(leader.get(), places.data(), places.size() * sizeof(Place), deadline_));
    for (int rank = 0; rank < options_.rank; ++rank) {
      places[rank].host[sizeof(Place::host) - 1] = 0;
      const std::string host = rank == 0 ? options_.leader.host : places[rank].host;
      const int port = rank == 0 ? options_.leader.port : places[rank].port;
      for (const Purpose purpose : {Purpose::kData, Purpose::kEnd}) {
        ASSIGN_OR_RETURN(Descriptor fd, Connect(host, port, deadline_));
        RETURN_IF_ERROR(Greet(fd.get(), purpose));
        (purpose == Purpose::kData ? peers_[rank].data : peers_[rank].end) = std::move(fd);
      }
    }
    return AcceptHigherRanks();
  }

  absl::Status Greet(int fd, Purpose purpose) {
    const Greeting greeting = OwnGreeting(purpose);
    RETURN_IF_ERROR(SendAll(fd, &greeting, sizeof(greeting), deadline_));
    return SendText(fd, options_.fingerprint, deadline_);
  }

  absl::Status AcceptHigherRanks() {
    for (int num_missing = 2 * (options_.size - 1 - options_.rank); num_missing > 0;) {
      Descriptor fd;
      Greeting greeting;
      std::string fingerprint;
      if (const absl::Status status = Accept(fd, greeting, fingerprint); !status.ok()) {
        return absl::Status(status.code(), absl::StrCat("rank ", options_.rank,
                                                        " waits for connections of higher ranks: ", status.message()));
      }
      if (fingerprint != options_.fingerprint || greeting.rank <= options_.rank || greeting.rank >= options_.size ||
          greeting.purpose == Purpose::kJoin) {
        continue;
      }
      Peer& peer = peers_[greeting.rank];
      Descriptor& place = greeting.purpose == Purpose::kData ? peer.data : peer.end;
      if (place.is_open()) continue;
      place = std::move(fd);
      --num_missing;
    }
    return absl::OkStatus();
  }

  const TcpGroupPort& port_;
  const TcpGroupOptions& options_;
  const base::Clock& clock_;
  const Deadline deadline_;
  std::vector<Peer> peers_;
};

// ---- The group at work ----

class TcpLink final : public RankLink {
 public:
  TcpLink(int rank, std::vector<Peer> peers, const base::Clock& clock)
      : rank_(rank),
        clock_(clock),
        peers_(std::move(peers)),
        transfers_(peers_.size()),
        polls_(2 * peers_.size()),
        has_gone_(peers_.size()) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(peers_.size()); }

  absl::Status Exchange(absl::Span<const ConstBytes> send, absl::Span<const MutableBytes> receive) override {
    TANDEM_CHECK(send.size() == peers_.size() && receive.size() == peers_.size(),
                 "an exchange has a part for every rank");
    RETURN_IF_ERROR(status());
    ++num_exchanges_;
    for (int peer = 0; peer < size(); ++peer) {
      transfers_[peer] = {.header_out = {.exchange = num_exchanges_, .num_bytes = send[peer].size()},
                          .out = send[peer],
                          .in = receive[peer]};
    }
    if (send[rank_].size() != receive[rank_].size()) {
      return EndWith(rank_, Unexpected(rank_, send[rank_].size(), receive[rank_].size()));
    }
    if (!send[rank_].empty() && send[rank_].data() != receive[rank_].data()) {
      std::memcpy(receive[rank_].data(), send[rank_].data(), send[rank_].size());
    }
    while (Prepare()) {
      if (::poll(polls_.data(), polls_.size(), -1) < 0) {
        if (errno == EINTR) continue;
        return EndWith(rank_, SystemError("poll", errno));
      }
      for (int peer = 0; peer < size(); ++peer) {
        if (peer != rank_) RETURN_IF_ERROR(Serve(peer));
      }
    }
    return absl::OkStatus();
  }

  void Fail(const absl::Status& cause) override {
    TANDEM_CHECK(!cause.ok(), "a rank fails for a cause");
    EndWith(rank_, cause).IgnoreError();
  }

  absl::Status status() const override ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return failure_;
  }

 private:
  struct Header {
    uint64_t magic = kMagic;
    uint64_t exchange = 0;
    uint64_t num_bytes = 0;
  };
  struct Transfer {
    Header header_out, header_in;
    size_t header_out_done = 0, header_in_done = 0;
    ConstBytes out;
    MutableBytes in;

    bool has_sent() const { return header_out_done == sizeof(Header) && out.empty(); }
    bool has_received() const { return header_in_done == sizeof(Header) && in.empty(); }
  };

  static absl::Status Unexpected(int peer, uint64_t sent, uint64_t expected) {
    return absl::InternalError(
        absl::StrCat("rank ", peer, " sends ", sent, " bytes, ", expected, " are expected of it"));
  }

  // What is waited for; false where everything is done.
  bool Prepare() {
    bool has_more = false;
    for (int peer = 0; peer < size(); ++peer) {
      pollfd& data = polls_[2 * peer];
      pollfd& end = polls_[2 * peer + 1];
      data = end = {.fd = -1};
      if (peer == rank_) continue;
      const short events = static_cast<short>((transfers_[peer].has_sent() ? 0 : POLLOUT) |
                                              (transfers_[peer].has_received() ? 0 : POLLIN));
      has_more |= events != 0;
      if (events != 0) data = {.fd = peers_[peer].data.get(), .events = events};
      if (!has_gone_[peer]) end = {.fd = peers_[peer].end.get(), .events = POLLIN};
    }
    return has_more;
  }

  absl::Status Serve(int peer) {
    if (polls_[2 * peer + 1].revents != 0) {
      char first = 0;
      // What a peer has sent of this exchange before it failed is of no use any more; what one has sent that has gone
      // without a word may be all that it had to send.
      if (::recv(peers_[peer].end.get(), &first, 1, MSG_PEEK | MSG_DONTWAIT) > 0) return EndAsToldBy(peer, "");
      has_gone_[peer] = true;
    }
    if (polls_[2 * peer].revents == 0) return absl::OkStatus();
    Transfer& transfer = transfers_[peer];
    const int fd = peers_[peer].data.get();
    while (!transfer.has_sent()) {
      const bool in_header = transfer.header_out_done < sizeof(Header);
      const auto* from = in_header ? reinterpret_cast<const std::byte*>(&transfer.header_out) + transfer.header_out_done
                                   : transfer.out.data();
      const size_t count = in_header ? sizeof(Header) - transfer.header_out_done : transfer.out.size();
      const ssize_t sent = ::send(fd, from, count, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0) return EndAsToldBy(peer, std::strerror(errno));
      if (in_header) {
        transfer.header_out_done += static_cast<size_t>(sent);
      } else {
        transfer.out.remove_prefix(static_cast<size_t>(sent));
      }
    }
    while (!transfer.has_received()) {
      const bool in_header = transfer.header_in_done < sizeof(Header);
      auto* to =
          in_header ? reinterpret_cast<std::byte*>(&transfer.header_in) + transfer.header_in_done : transfer.in.data();
      const size_t count = in_header ? sizeof(Header) - transfer.header_in_done : transfer.in.size();
      const ssize_t received = ::recv(fd, to, count, MSG_DONTWAIT);
      if (received < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
      if (received < 0 && errno == EINTR) continue;
      if (received <= 0) return EndAsToldBy(peer, received == 0 ? "its connection has ended" : std::strerror(errno));
      if (!in_header) {
        transfer.in.remove_prefix(static_cast<size_t>(received));
        continue;
      }
      transfer.header_in_done += static_cast<size_t>(received);
      if (transfer.header_in_done < sizeof(Header)) continue;
      const Header& header = transfer.header_in;
      if (header.magic != kMagic || header.exchange != num_exchanges_) {
        return EndWith(rank_, absl::InternalError(absl::StrCat("rank ", peer, " is at exchange ", header.exchange,
                                                               ", this one at ", num_exchanges_)));
      }
      if (header.num_bytes != transfer.in.size()) {
        return EndWith(rank_, Unexpected(peer, header.num_bytes, transfer.in.size()));
      }
    }
    return absl::OkStatus();
  }

  // The group ends by what the peer says on its way out, else by its silence.
  absl::Status EndAsToldBy(int peer, absl::string_view otherwise) {
    const Deadline deadline(clock_, absl::Milliseconds(kLastWordMs));
    int32_t words[2] = {};
    std::string text;
    if (ReceiveAll(peers_[peer].end.get(), words, sizeof(words), deadline).ok() &&
        ReceiveText(peers_[peer].end.get(), text, deadline).ok()) {
      return EndWith(words[0], absl::Status(static_cast<absl::StatusCode>(words[1]), text));
    }
    return EndWith(peer, absl::UnavailableError(otherwise));
  }

  // Tells every rank, once.
  absl::Status EndWith(int failed_rank, const absl::Status& cause) ABSL_LOCKS_EXCLUDED(mutex_) {
    {
      absl::MutexLock lock(&mutex_);
      if (!failure_.ok()) return failure_;
      failure_ = RankFailure(failed_rank, cause);
    }
    const int32_t words[2] = {failed_rank, static_cast<int32_t>(cause.code())};
    const Deadline deadline(clock_, absl::Milliseconds(kLastWordMs));
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank_) continue;
      const int fd = peers_[peer].end.get();
      if (SendAll(fd, words, sizeof(words), deadline).ok()) SendText(fd, cause.message(), deadline).IgnoreError();
    }
    return status();
  }

  const int rank_;
  const base::Clock& clock_;
  const std::vector<Peer> peers_;  // by rank; its own is empty
  uint64_t num_exchanges_ = 0;
  std::vector<Transfer> transfers_;  // of the exchange under way, by rank
  std::vector<pollfd> polls_;        // [rank][data, end]
  std::vector<bool> has_gone_;       // by rank: its second connection has ended without a word
  mutable absl::Mutex mutex_;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<TcpGroupPort> TcpGroupPort::Listen(const std::string& host, int port) {
  AddressList addresses;
  RETURN_IF_ERROR(Resolve(host, port, /*to_listen=*/true, addresses));
  const std::string where = base::HostPort{host, port}.ToString();
  Descriptor fd(::socket(addresses.first->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.is_open()) return SystemError("socket", errno);
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (::bind(fd.get(), addresses.first->ai_addr, addresses.first->ai_addrlen) != 0 || ::listen(fd.get(), 128) != 0) {
    return SystemError(absl::StrCat("cannot listen on ", where, " for ranks"), errno);
  }
  sockaddr_storage bound{};
  socklen_t length = sizeof(bound);
  if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &length) != 0)
    return SystemError("getsockname", errno);
  const int taken = ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port
                                                      : reinterpret_cast<sockaddr_in*>(&bound)->sin_port);
  return TcpGroupPort(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0), taken);
}

TcpGroupPort::TcpGroupPort(TcpGroupPort&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), port_(other.port_) {}

TcpGroupPort::~TcpGroupPort() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

absl::StatusOr<std::unique_ptr<RankLink>> JoinTcpGroup(TcpGroupPort port, const TcpGroupOptions& options,
                                                       const base::Clock& clock) {
  TANDEM_CHECK(0 <= options.rank && options.rank < options.size, "a rank is one of its group");
  if (options.fingerprint.size() > kTextMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("a group's fingerprint of ", options.fingerprint.size(), " bytes, at most ", kTextMax));
  }
  ASSIGN_OR_RETURN(std::vector<Peer> peers, Start(port, options, clock).Run());
  return std::unique_ptr<RankLink>(new TcpLink(options.rank, std::move(peers), clock));
}

}  // namespace tandem::model
