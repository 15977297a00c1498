// Wakes a thread that sleeps in poll(2): an eventfd. Tested by lane_conformance_test.cc.
#pragma once

namespace tandem::kvtransfer {

class Waker final {
 public:
  Waker();
  ~Waker();
  Waker(const Waker&) = delete;
  Waker& operator=(const Waker&) = delete;

  // From any thread: fd() becomes readable and stays so until Clear().
  void Wake();
  int fd() const { return fd_; }
  void Clear();

 private:
  const int fd_;
};

}  // namespace tandem::kvtransfer
