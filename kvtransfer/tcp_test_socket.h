// A blocking socket for tests that speak a tcp lane's protocol by hand, well or badly.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "base/host_port.h"
#include "gtest/gtest.h"
#include "kvtransfer/socket_address.h"

namespace tandem::kvtransfer {

template <typename Struct>
std::string BytesOf(const Struct& value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

class TestSocket final {
 public:
  explicit TestSocket(int fd) : fd_(fd) {
    const timeval limit = {.tv_sec = 120};  // a test that waits for what never comes ends
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  }
  // Connects to host:port.
  explicit TestSocket(const std::string& where) : TestSocket(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const SocketAddress address = *Resolve(*base::ParseHostPort(where));
    EXPECT_EQ(connect(fd_, address.get(), address.num_bytes), 0) << where << ": " << std::strerror(errno);
  }
  ~TestSocket() {
    if (fd_ >= 0) close(fd_);
  }
  TestSocket(TestSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

  // False where the other end has closed.
  bool Write(const std::string& bytes) {
    for (size_t sent = 0; sent < bytes.size();) {
      const ssize_t num_bytes = send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (num_bytes <= 0) return false;
      sent += num_bytes;
    }
    return true;
  }
  // Exactly that many, or fewer where the other end closes before.
  std::string Read(size_t num_bytes) {
    std::string bytes(num_bytes, '\0');
    size_t got = 0;
    while (got < num_bytes) {
      const ssize_t n = recv(fd_, bytes.data() + got, num_bytes - got, 0);
      if (n <= 0) break;
      got += n;
    }
    bytes.resize(got);
    return bytes;
  }
  template <typename Struct>
  Struct ReadStruct() {
    Struct value;
    const std::string bytes = Read(sizeof(value));
    EXPECT_EQ(bytes.size(), sizeof(value)) << "the other end closed";
    std::memcpy(&value, bytes.data(), bytes.size());
    return value;
  }
  // Waits for the other end to close or reset, whatever it sends before.
  bool IsClosed() {
    char bytes[4096];
    ssize_t num_bytes = 0;
    while ((num_bytes = recv(fd_, bytes, sizeof(bytes), 0)) > 0) {
    }
    return num_bytes == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
  }
  // As a process that dies: RST instead of FIN.
  void Reset() {
    const linger now = {.l_onoff = 1, .l_linger = 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    close(std::exchange(fd_, -1));
  }

 private:
  int fd_;
};

}  // namespace tandem::kvtransfer
