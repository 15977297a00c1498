#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace tandem::base {

void CheckFailed(const char* file, int line, const char* condition, absl::string_view message) {
  std::fprintf(stderr, "FATAL %s:%d check failed: %s: %.*s\n", file, line, condition, static_cast<int>(message.size()),
               message.data());
  std::fflush(stderr);
  std::abort();
}

}  // namespace tandem::base
