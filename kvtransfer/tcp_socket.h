// Owner of one non-blocking TCP socket. Tested by tcp_source_test.cc and tcp_lane_test.cc.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvtransfer/socket_address.h"

namespace tandem::kvtransfer {

class TcpSocket final {
 public:
  TcpSocket() = default;
  ~TcpSocket();
  TcpSocket(TcpSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  TcpSocket& operator=(TcpSocket&& other) noexcept;

  // UNAVAILABLE with the address and the system's word.
  static absl::StatusOr<TcpSocket> Listen(const SocketAddress& address, const std::string& name);
  // Under way: writable once it is connected or has failed.
  static absl::StatusOr<TcpSocket> Connect(const SocketAddress& address, const std::string& name);
  // How the connecting ended, once the socket is writable.
  absl::Status ConnectResult() const;

  enum class AcceptResult { kAccepted, kNobodyWaits, kNoDescriptors };
  // kNoDescriptors: the system has none left, or no memory; whoever waits goes on waiting.
  AcceptResult Accept(TcpSocket& accepted) const;

  // Bytes moved, 0 where it would block. UNAVAILABLE: the connection is over.
  absl::StatusOr<size_t> Read(std::span<const iovec> pieces) const;
  absl::StatusOr<size_t> Write(std::span<const iovec> pieces) const;

  int fd() const { return fd_; }  // -1: none
  int port() const;               // that it is bound to
  std::string PeerName() const;   // address of the other end

 private:
  explicit TcpSocket(int fd) : fd_(fd) {}
  // Small messages leave at once; a peer that is gone without a word is noticed by the system within seconds.
  void SetConnectionOptions() const;

  int fd_ = -1;
};

}  // namespace tandem::kvtransfer
