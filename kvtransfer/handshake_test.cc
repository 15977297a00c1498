#include "kvtransfer/handshake.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvtransfer/fingerprint.h"
#include "proto/protocol_version.h"

namespace tandem::kvtransfer {
namespace {

using ::testing::HasSubstr;

proto::HelloRequest Hello() {
  proto::HelloRequest hello;
  hello.mutable_identity()->set_instance("decode-0");
  hello.mutable_identity()->set_incarnation(1);
  hello.mutable_identity()->set_role("decode");
  hello.mutable_identity()->set_protocol_version(proto::kProtocolVersion);
  *hello.mutable_fingerprint() = BuildFingerprint({.model_hash = "m"});
  return hello;
}

proto::HelloReply Reply() {
  proto::HelloReply reply;
  reply.mutable_identity()->set_instance("prefill-0");
  reply.mutable_identity()->set_incarnation(2);
  reply.mutable_identity()->set_role("prefill");
  reply.mutable_identity()->set_protocol_version(proto::kProtocolVersion);
  *reply.mutable_fingerprint() = BuildFingerprint({.model_hash = "m"});
  reply.set_num_pages(4);
  reply.add_ranks();
  return reply;
}

TEST(HandshakeTest, SidesThatFitAgreeInBothDirections) {
  EXPECT_TRUE(CheckHello(Hello(), Reply()).ok());
  EXPECT_TRUE(CheckHelloReply(Hello(), Reply()).ok());
}

TEST(HandshakeTest, ARefusalListsEveryDifferenceOnALineOfItsOwn) {
  proto::HelloReply reply = Reply();
  *reply.mutable_fingerprint() = BuildFingerprint({.model_hash = "n", .page_size = 64});
  reply.mutable_identity()->set_protocol_version(9);
  const std::string expected =
      "decode decode-0 and prefill prefill-0 do not fit:\n"
      "protocol_version of the identity: decode has 1, prefill has 9\n"
      "model_hash: decode has \"m\", prefill has \"n\"\n"
      "page_size: decode has \"0\", prefill has \"64\"";
  for (const absl::Status& status : {CheckHello(Hello(), reply), CheckHelloReply(Hello(), reply)}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(status.message(), expected);
  }
}

TEST(HandshakeTest, ARefusalFitsIntoAStatusMessage) {
  proto::HelloReply reply = Reply();
  for (int i = 0; i < 1000; ++i) reply.mutable_fingerprint()->add_fields()->set_name(std::to_string(i) + "_field");
  const std::string message(CheckHello(Hello(), reply).message());
  EXPECT_LT(message.size(), 2200u);
  EXPECT_THAT(message, HasSubstr("... (1000 differences)"));
}

TEST(HandshakeTest, WhoDoesNotSayWhoHeIsIsRefused) {
  proto::HelloRequest hello = Hello();
  hello.mutable_identity()->set_incarnation(0);
  EXPECT_EQ(CheckHello(hello, Reply()).message(), "instance decode-0 has no incarnation");
  hello = Hello();
  hello.mutable_identity()->clear_instance();
  EXPECT_EQ(CheckHello(hello, Reply()).code(), absl::StatusCode::kInvalidArgument);
  hello = Hello();
  hello.mutable_identity()->set_role("router");
  EXPECT_EQ(CheckHello(hello, Reply()).message(), "instance decode-0 is a router, expected decode");
  proto::HelloReply reply = Reply();
  reply.mutable_identity()->set_role("decode");
  EXPECT_EQ(CheckHelloReply(Hello(), reply).message(), "instance prefill-0 is a decode, expected prefill");
}

TEST(HandshakeTest, APrefillWithoutPagesOrRanksIsOfNoUse) {
  proto::HelloReply reply = Reply();
  reply.set_num_pages(0);
  EXPECT_EQ(CheckHelloReply(Hello(), reply).code(), absl::StatusCode::kFailedPrecondition);
  reply = Reply();
  reply.clear_ranks();
  EXPECT_EQ(CheckHelloReply(Hello(), reply).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(HandshakeTest, OnlyRoutableAddressesMayBeAdvertised) {
  for (const char* good : {"10.0.0.7:8998", "prefill-0.prefill:8998", "[2001:db8::1]:8998", "127.0.0.1:1"}) {
    EXPECT_TRUE(ValidateAdvertisedAddress(good).ok()) << good << ValidateAdvertisedAddress(good);
  }
  for (const char* bad : {"0.0.0.0:8998", "[::]:8998", "10.0.0.7", "10.0.0.7:0", "::1:8998", ":8998", ""}) {
    EXPECT_EQ(ValidateAdvertisedAddress(bad).code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

}  // namespace
}  // namespace tandem::kvtransfer
