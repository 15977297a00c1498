#include "kvtransfer/waker.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace tandem::kvtransfer {

Waker::Waker() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  TANDEM_CHECK(fd_ >= 0, absl::StrCat("eventfd: ", std::strerror(errno)));
}

Waker::~Waker() { close(fd_); }

void Waker::Wake() {
  const uint64_t one = 1;
  // EAGAIN: the counter is full, so the sleeper is awake already.
  TANDEM_CHECK(write(fd_, &one, sizeof(one)) == sizeof(one) || errno == EAGAIN,
               absl::StrCat("eventfd: ", std::strerror(errno)));
}

void Waker::Clear() {
  uint64_t count = 0;
  TANDEM_CHECK(read(fd_, &count, sizeof(count)) == sizeof(count) || errno == EAGAIN,
               absl::StrCat("eventfd: ", std::strerror(errno)));
}

}  // namespace tandem::kvtransfer
