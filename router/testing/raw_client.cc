#include "router/testing/raw_client.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "absl/strings/ascii.h"

namespace tandem::router {

RawClient::RawClient(int port, int receive_buffer_bytes) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  if (receive_buffer_bytes > 0) {
    setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof(receive_buffer_bytes));
  }
  const timeval patience = absl::ToTimeval(kPatience);
  setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  const int on = 1;
  setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) Close();
}

RawClient::~RawClient() { Close(); }

bool RawClient::Send(absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

bool RawClient::Receive() {
  char bytes[65536];
  const ssize_t size = recv(fd_, bytes, sizeof(bytes), 0);
  if (size <= 0) return false;
  received_.append(bytes, static_cast<size_t>(size));
  return true;
}

std::string RawClient::ReadUntil(absl::string_view end) {
  size_t found;
  size_t searched = 0;  // `end` does not begin before it
  while ((found = received_.find(end.data(), searched, end.size())) == std::string::npos) {
    searched = received_.size() < end.size() ? 0 : received_.size() - end.size() + 1;
    if (!Receive()) return std::exchange(received_, "");
  }
  std::string result = received_.substr(0, found + end.size());
  received_.erase(0, found + end.size());
  return result;
}

std::string RawClient::ReadToClose() {
  while (Receive()) {
  }
  return std::exchange(received_, "");
}

RawClient::Response RawClient::ReadResponse() {
  Response response;
  response.head = ReadUntil("\r\n\r\n");
  if (response.head.size() < 12) return response;
  response.status = std::atoi(response.head.substr(9, 3).c_str());
  const std::string lower = absl::AsciiStrToLower(response.head);
  if (lower.find("transfer-encoding: chunked") != std::string::npos) {
    for (;;) {
      const std::string size_line = ReadUntil("\r\n");
      const size_t size = std::strtoul(size_line.c_str(), nullptr, 16);
      while (received_.size() < size + 2) {
        if (!Receive()) {
          response.body += "[cut]";
          return response;
        }
      }
      response.body += received_.substr(0, size);
      received_.erase(0, size + 2);
      if (size == 0) return response;
    }
  }
  const size_t length_at = lower.find("content-length: ");
  const size_t length = length_at == std::string::npos ? 0 : std::strtoul(lower.c_str() + length_at + 16, nullptr, 10);
  while (received_.size() < length) {
    if (!Receive()) break;
  }
  response.body = received_.substr(0, length);
  received_.erase(0, length);
  return response;
}

void RawClient::ShutdownSend() { shutdown(fd_, SHUT_WR); }

void RawClient::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

void RawClient::Reset() {
  const linger abort_on_close = {1, 0};
  setsockopt(fd_, SOL_SOCKET, SO_LINGER, &abort_on_close, sizeof(abort_on_close));
  Close();
}

}  // namespace tandem::router
