// Proves which places clash.
#include "worker_shell/ports.h"

#include "gtest/gtest.h"

namespace tandem::worker_shell {
namespace {

TEST(PortsTest, OnePortOfOneAddressIsForOneField) {
  const absl::Status status = CheckPortsDiffer({{"x", "10.0.0.1", 7}, {"y", "10.0.0.1", 8}, {"z", "10.0.0.1", 7}});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()), "x and z are both 7: each needs a port of its own");
}

TEST(PortsTest, AWildcardOverlapsWithEveryAddress) {
  EXPECT_FALSE(CheckPortsDiffer({{"x", "0.0.0.0", 7}, {"y", "127.0.0.1", 7}}).ok());
  EXPECT_FALSE(CheckPortsDiffer({{"x", "127.0.0.1", 7}, {"y", "::", 7}}).ok());
}

TEST(PortsTest, FreePortsAndDifferentAddressesDoNotClash) {
  EXPECT_TRUE(CheckPortsDiffer({{"x", "0.0.0.0", 0}, {"y", "0.0.0.0", 0}}).ok());
  EXPECT_TRUE(CheckPortsDiffer({{"x", "10.0.0.1", 7}, {"y", "127.0.0.1", 7}}).ok());
  EXPECT_TRUE(CheckPortsDiffer({}).ok());
}

}  // namespace
}  // namespace tandem::worker_shell
