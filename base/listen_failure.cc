#include "base/listen_failure.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"

namespace tandem::base {
namespace {

std::string Reason(const HostPort& where) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(where.host.c_str(), std::to_string(where.port).c_str(), &hints, &found);
  if (error != 0) return gai_strerror(error);
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  std::string reason = "it was taken a moment ago";
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      bind(fd, found->ai_addr, found->ai_addrlen) != 0 || listen(fd, 1) != 0) {
    reason = std::strerror(errno);
  }
  if (fd >= 0) close(fd);
  return reason;
}

}  // namespace

absl::Status ListenFailure(const HostPort& where, const std::string& whom) {
  return absl::UnavailableError(
      absl::StrCat("cannot listen on ", where.ToString(), " for ", whom, ": ", Reason(where)));
}

}  // namespace tandem::base
