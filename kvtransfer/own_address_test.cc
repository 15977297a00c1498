// Proves that a listener is bound as narrowly as the settings allow, and never to loopback by accident.
#include "kvtransfer/own_address.h"

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace tandem::kvtransfer {
namespace {

TEST(OwnAddressTest, LoopbackIsOwnAndAStrangersAddressIsNot) {
  EXPECT_TRUE(IsOwnAddress("127.0.0.1"));
  EXPECT_TRUE(IsOwnAddress("localhost"));
  EXPECT_FALSE(IsOwnAddress("198.51.100.1"));  // TEST-NET-2
  EXPECT_FALSE(IsOwnAddress("no-such-host.invalid"));
  EXPECT_FALSE(IsOwnAddress("0.0.0.0"));
  EXPECT_FALSE(IsOwnAddress(""));
}

TEST(OwnAddressTest, ANameThatLeadsNowhereIsSaidSo) {
  for (const char* host : {"127.0.0.1", "::1", "198.51.100.1", "localhost"}) {
    EXPECT_TRUE(CheckResolves(host).ok()) << host;
  }
  const absl::Status status = CheckResolves("no-such-host.invalid");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(absl::StartsWith(status.message(), "\"no-such-host.invalid\" cannot be resolved: ")) << status;
}

TEST(OwnAddressTest, AnAddressBelongsToItsDevice) {
  EXPECT_EQ(DeviceOf("127.0.0.1"), "lo");
  EXPECT_EQ(DeviceOf("127.1.2.3"), "lo");
  EXPECT_EQ(DeviceOf("198.51.100.1"), "");
  EXPECT_EQ(DeviceOf("no-such-host.invalid"), "");
}

TEST(OwnAddressTest, TheProcessesOwnHostComesFirstThenTheAdvertisedOne) {
  EXPECT_EQ(LaneListenHost("127.0.0.1", "198.51.100.1", "all"), "127.0.0.1");
  EXPECT_EQ(LaneListenHost("0.0.0.0", "127.0.0.1", "all"), "127.0.0.1");
  EXPECT_EQ(LaneListenHost("::", "127.0.0.1", "all"), "127.0.0.1");
}

TEST(OwnAddressTest, WhatIsNotOfThisMachineIsLeftToItsDevices) {
  EXPECT_EQ(LaneListenHost("0.0.0.0", "198.51.100.1", "all"), "");
  EXPECT_EQ(LaneListenHost("0.0.0.0", "no-such-host.invalid", "all"), "");
  EXPECT_EQ(LaneListenHost("127.0.0.1", "127.0.0.1", "eth0"), "");
}

}  // namespace
}  // namespace tandem::kvtransfer
