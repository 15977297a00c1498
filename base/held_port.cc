#include "base/held_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"

namespace tandem::base {

HeldPort::HeldPort() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const int on = 1;
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t num_bytes = sizeof(address);
  TANDEM_CHECK(setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
                   bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
                   getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &num_bytes) == 0,
               "no port can be held");
  port_ = ntohs(address.sin_port);
}

HeldPort::~HeldPort() { close(fd_); }

}  // namespace tandem::base
