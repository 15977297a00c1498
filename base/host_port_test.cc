#include "base/host_port.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::base {
namespace {

using ::testing::HasSubstr;

TEST(HostPortTest, ReadsNamesAndBothKindsOfLiterals) {
  EXPECT_EQ(*ParseHostPort("prefill-0.pool:8998"), (HostPort{"prefill-0.pool", 8998}));
  EXPECT_EQ(*ParseHostPort("10.0.0.1:1"), (HostPort{"10.0.0.1", 1}));
  EXPECT_EQ(*ParseHostPort("[::1]:65535"), (HostPort{"::1", 65535}));
  EXPECT_EQ(*ParseHostPort("[fe80::1%lo]:8100"), (HostPort{"fe80::1%lo", 8100}));
}

TEST(HostPortTest, LocalhostAndLoopbackAreOnePeer) {
  EXPECT_EQ(*ParseHostPort("localhost:80"), *ParseHostPort("127.0.0.1:80"));
}

TEST(HostPortTest, WritesLiteralsInBrackets) {
  EXPECT_EQ(ParseHostPort("[::1]:8100")->ToString(), "[::1]:8100");
  EXPECT_EQ(ParseHostPort("a:1")->ToString(), "a:1");
}

TEST(HostPortTest, RefusesWithThePositionOfTheFault) {
  const struct {
    const char* text;
    const char* says;
  } cases[] = {
      {"", "expected \":port\" at character 1"},
      {"host", "expected \":port\" at character 5"},
      {"::1", "[address]:port"},
      {"fe80::1%lo", "[address]:port"},
      {"[::1]", "expected \":port\" at character 6"},
      {"[::1", "without"},
      {":80", "empty host"},
      {"host:", "bad port"},
      {"host:0", "1 to 65535"},
      {"host:65536", "1 to 65535"},
      {"host:80x", "bad digit at character 8"},
      {"ho st:80", "bad character at character 3"},
      {"http://h:80", "[address]:port"},
      {"host:-1", "bad digit"},
      {"host:99999999999999999999", "1 to 65535"},
  };
  for (const auto& c : cases) {
    const auto result = ParseHostPort(c.text);
    ASSERT_FALSE(result.ok()) << c.text;
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(result.status().message()), HasSubstr(c.says)) << c.text;
  }
}

TEST(HostPortTest, WildcardsAreNoPlaceToConnectTo) {
  EXPECT_TRUE(IsWildcard("0.0.0.0"));
  EXPECT_TRUE(IsWildcard("::"));
  EXPECT_FALSE(IsWildcard("127.0.0.1"));
}

TEST(HostPortTest, LoopbackIsWhatNoOtherMachineReaches) {
  for (const char* host : {"127.0.0.1", "127.1.2.3", "localhost", "::1"}) EXPECT_TRUE(IsLoopback(host)) << host;
  for (const char* host : {"", "0.0.0.0", "::", "10.0.0.1", "127.evil.org", "128.0.0.1", "::2"}) {
    EXPECT_FALSE(IsLoopback(host)) << host;
  }
}

}  // namespace
}  // namespace tandem::base
