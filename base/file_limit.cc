#include "base/file_limit.h"

#include <sys/resource.h>

#include <limits>

#include "base/check.h"

namespace tandem::base {

int64_t RaiseFileLimit() {
  rlimit limit = {};
  TANDEM_CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0, "getrlimit failed");
  rlimit raised = limit;
  raised.rlim_cur = raised.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;  // else a sandbox forbids it: the old one stands
  return limit.rlim_cur == RLIM_INFINITY ? std::numeric_limits<int64_t>::max() : static_cast<int64_t>(limit.rlim_cur);
}

}  // namespace tandem::base
