// A TCP client for tests that says exactly the bytes it is told to, and leaves in every way a client can.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace tandem::router {

class RawClient final {
 public:
  static constexpr absl::Duration kPatience = absl::Minutes(1);  // a test that waits so long has failed

  // Connects to 127.0.0.1. receive_buffer_bytes: small, for a reader that is slow on purpose; 0 = the system's.
  explicit RawClient(int port, int receive_buffer_bytes = 0);
  ~RawClient();
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool Send(absl::string_view bytes);  // false where the server has closed
  // Everything received so far and not yet returned, up to and including `end`; all there is where the server closes.
  std::string ReadUntil(absl::string_view end);
  std::string ReadToClose();
  // One response with Content-Length or chunks, whole; its body without the chunk framing.
  struct Response {
    int status = 0;
    std::string head;
    std::string body;
  };
  Response ReadResponse();

  void ShutdownSend();  // FIN, goes on reading
  void Close();         // FIN, reads no more
  void Reset();         // RST

 private:
  bool Receive();  // false at the end of the stream
  int fd_ = -1;
  std::string received_;
};

}  // namespace tandem::router
