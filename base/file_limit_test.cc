#include "base/file_limit.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

namespace tandem::base {
namespace {

TEST(FileLimitTest, TheSoftLimitBecomesTheHardOne) {
  rlimit limit = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlim_t hard = limit.rlim_max;
  limit.rlim_cur = 64;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_GT(RaiseFileLimit(), 64);
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(limit.rlim_cur, hard);
}

}  // namespace
}  // namespace tandem::base
