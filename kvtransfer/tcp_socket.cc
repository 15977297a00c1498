#include "kvtransfer/tcp_socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/base/dynamic_annotations.h"
#include "absl/strings/str_cat.h"

namespace tandem::kvtransfer {
namespace {

constexpr int kBacklog = 128;
// A host that has vanished acknowledges nothing; a connection at rest asks whether it is there.
constexpr int kUnacknowledgedMilliseconds = 10'000;
constexpr int kKeepIdleSeconds = 10;
constexpr int kKeepIntervalSeconds = 5;
constexpr int kKeepProbes = 3;

absl::Status Unavailable(const std::string& what, int error) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(error)));
}

void SetOption(int fd, int level, int option, int value) {
  setsockopt(fd, level, option, &value, sizeof(value));  // each only makes things better
}

}  // namespace

TcpSocket::~TcpSocket() {
  if (fd_ >= 0) close(fd_);
}

TcpSocket& TcpSocket::operator=(TcpSocket&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

absl::StatusOr<TcpSocket> TcpSocket::Listen(const SocketAddress& address, const std::string& name) {
  TcpSocket listener(socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const std::string what = absl::StrCat("cannot listen on ", name);
  if (listener.fd_ < 0) return Unavailable(what, errno);
  SetOption(listener.fd_, SOL_SOCKET, SO_REUSEADDR, 1);  // a restart at the same address must not wait
  if (bind(listener.fd_, address.get(), address.num_bytes) != 0 || listen(listener.fd_, kBacklog) != 0) {
    return Unavailable(what, errno);
  }
  return listener;
}

absl::StatusOr<TcpSocket> TcpSocket::Connect(const SocketAddress& address, const std::string& name) {
  TcpSocket connection(socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const std::string what = absl::StrCat("cannot reach the source at ", name);
  if (connection.fd_ < 0) return Unavailable(what, errno);
  connection.SetConnectionOptions();
  if (connect(connection.fd_, address.get(), address.num_bytes) != 0 && errno != EINPROGRESS) {
    return Unavailable(what, errno);
  }
  return connection;
}

absl::Status TcpSocket::ConnectResult() const {
  int error = 0;
  socklen_t num_bytes = sizeof(error);
  if (getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &num_bytes) != 0) error = errno;
  return error == 0 ? absl::OkStatus() : Unavailable("cannot reach the source", error);
}

TcpSocket::AcceptResult TcpSocket::Accept(TcpSocket& accepted) const {
  const int fd = accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd >= 0) {
    accepted = TcpSocket(fd);
    accepted.SetConnectionOptions();
    return AcceptResult::kAccepted;
  }
  const bool has_nothing = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
  return has_nothing ? AcceptResult::kNoDescriptors : AcceptResult::kNobodyWaits;
}

void TcpSocket::SetConnectionOptions() const {
  SetOption(fd_, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(fd_, IPPROTO_TCP, TCP_USER_TIMEOUT, kUnacknowledgedMilliseconds);
  SetOption(fd_, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(fd_, IPPROTO_TCP, TCP_KEEPIDLE, kKeepIdleSeconds);
  SetOption(fd_, IPPROTO_TCP, TCP_KEEPINTVL, kKeepIntervalSeconds);
  SetOption(fd_, IPPROTO_TCP, TCP_KEEPCNT, kKeepProbes);
}

absl::StatusOr<size_t> TcpSocket::Read(std::span<const iovec> pieces) const {
  const ssize_t num_bytes = readv(fd_, pieces.data(), static_cast<int>(pieces.size()));
  if (num_bytes > 0) return static_cast<size_t>(num_bytes);
  if (num_bytes == 0) return absl::UnavailableError("connection closed by the other end");
  if (errno == EAGAIN || errno == EINTR) return size_t{0};
  return Unavailable("connection lost", errno);
}

absl::StatusOr<size_t> TcpSocket::Write(std::span<const iovec> pieces) const {
  msghdr message = {};
  message.msg_iov = const_cast<iovec*>(pieces.data());
  message.msg_iovlen = pieces.size();
  // ThreadSanitizer notes what sendmsg read after it has returned. By then the peer may have said that it has the bytes
  // and the engine may have given their page to others: an order that runs through the network, which it cannot see.
  ABSL_ANNOTATE_IGNORE_READS_BEGIN();
  const ssize_t num_bytes = sendmsg(fd_, &message, MSG_NOSIGNAL);
  ABSL_ANNOTATE_IGNORE_READS_END();
  if (num_bytes >= 0) return static_cast<size_t>(num_bytes);
  if (errno == EAGAIN || errno == EINTR) return size_t{0};
  return Unavailable("connection lost", errno);
}

int TcpSocket::port() const {
  sockaddr_storage address = {};
  socklen_t num_bytes = sizeof(address);
  return getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &num_bytes) == 0 ? PortOf(address) : 0;
}

std::string TcpSocket::PeerName() const {
  sockaddr_storage address = {};
  socklen_t num_bytes = sizeof(address);
  char host[NI_MAXHOST];
  if (getpeername(fd_, reinterpret_cast<sockaddr*>(&address), &num_bytes) != 0 ||
      getnameinfo(reinterpret_cast<const sockaddr*>(&address), num_bytes, host, sizeof(host), nullptr, 0,
                  NI_NUMERICHOST) != 0) {
    return "unknown";
  }
  return absl::StrCat(host, " port ", PortOf(address));
}

}  // namespace tandem::kvtransfer
