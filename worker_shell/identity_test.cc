// Proves that every start is a new incarnation, names are stable, and that one host has one id.
#include "worker_shell/identity.h"

#include "gtest/gtest.h"

namespace tandem::worker_shell {
namespace {

TEST(IdentityTest, EveryStartIsANewIncarnationOfAStableInstance) {
  const proto::Identity first = DrawIdentity("decode-0", "decode", 1);
  const proto::Identity second = DrawIdentity("decode-0", "decode", 1);
  EXPECT_EQ(first.instance(), "decode-0");
  EXPECT_EQ(first.group(), "decode-0");
  EXPECT_NE(first.incarnation(), 0u);
  EXPECT_NE(first.incarnation(), second.incarnation());
}

TEST(IdentityTest, AnUnnamedInstanceIsToldApartByItsPort) {
  EXPECT_EQ(InstanceName("", 1), InstanceName("", 1));
  EXPECT_NE(InstanceName("", 1), InstanceName("", 2));
  EXPECT_EQ(InstanceName("named", 1), "named");
}

TEST(IdentityTest, AHostHasOneId) {
  const auto id = HostId();
  ASSERT_TRUE(id.ok()) << id.status();
  EXPECT_EQ(*id, *HostId());
}

}  // namespace
}  // namespace tandem::worker_shell
