// For tests that leave a port and come back to it: whoever asks the system for a free one meanwhile gets another.
//
// A socket that is bound and does not listen keeps the port from being given away, and lets whoever asks for it by its
// number listen there (both with SO_REUSEADDR). Connections are refused while nobody listens. Tested by
// held_port_test.cc.
#pragma once

namespace tandem::base {

class HeldPort final {
 public:
  HeldPort();  // of 127.0.0.1
  ~HeldPort();
  HeldPort(const HeldPort&) = delete;
  HeldPort& operator=(const HeldPort&) = delete;
  int port() const { return port_; }

 private:
  const int fd_;
  int port_ = 0;
};

}  // namespace tandem::base
