// Which settings are refused, which tokens are known, and files that change.
#include "base/peer_security.h"

#include <fstream>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "base/clock.h"
#include "base/testing/certificate_authority.h"
#include "gtest/gtest.h"

namespace tandem::base {
namespace {

class PeerSecurityTest : public testing::Test {
 protected:
  PeerSecurityTest() {
    authority_.Write(tls_.ca_file);
    authority_.Issue(tls_.certificate_file, tls_.key_file, "DNS:peer");
    WriteToken("first-token\nsecond-token\n");
  }
  void WriteToken(const std::string& text) { std::ofstream(token_.token_file) << text; }
  static std::string File(const std::string& name) {
    return testing::TempDir() + "/" + testing::UnitTest::GetInstance()->current_test_info()->name() + "." + name;
  }

  FakeClock clock_;
  CertificateAuthority authority_{"the authority"};
  PeerSecurityConfig tls_{.certificate_file = File("crt"), .key_file = File("key"), .ca_file = File("ca")};
  PeerSecurityConfig token_{.token_file = File("token")};
};

TEST_F(PeerSecurityTest, APortThatOthersReachIsGuardedOrOpenedInSoManyWords) {
  for (const char* host : {"127.0.0.1", "localhost", "::1", "127.8.9.1"}) {
    EXPECT_TRUE(CheckGuarded({}, "process.listen_host", host).ok()) << host;
  }
  for (const char* host : {"0.0.0.0", "::", "10.0.0.7", "127.example.com", "worker-1"}) {
    const absl::Status refused = CheckGuarded({}, "process.listen_host", host);
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << host;
    EXPECT_TRUE(absl::StartsWith(refused.message(), std::string("process.listen_host ") + host)) << refused;
    EXPECT_TRUE(CheckGuarded({.is_insecure = true}, "process.listen_host", host).ok()) << host;
    EXPECT_TRUE(CheckGuarded(tls_, "process.listen_host", host).ok()) << host;
    EXPECT_TRUE(CheckGuarded(token_, "process.listen_host", host).ok()) << host;
  }
}

TEST_F(PeerSecurityTest, TlsTakesThreeFiles) {
  EXPECT_TRUE(ValidatePeerSecurity(tls_).ok());
  EXPECT_TRUE(ValidatePeerSecurity({}).ok());
  for (std::string PeerSecurityConfig::*file :
       {&PeerSecurityConfig::certificate_file, &PeerSecurityConfig::key_file, &PeerSecurityConfig::ca_file}) {
    PeerSecurityConfig config = tls_;
    (config.*file).clear();
    EXPECT_EQ(ValidatePeerSecurity(config).code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_FALSE(ValidatePeerSecurity({.server_name = "peer"}).ok());
}

TEST_F(PeerSecurityTest, FilesThatCannotBeUsedAreNamedAtTheStart) {
  const auto refusal = [&](PeerSecurityConfig config) {
    return std::string(PeerSecurity::Load(config, clock_).status().message());
  };
  EXPECT_EQ(refusal(tls_), "");
  PeerSecurityConfig config = tls_;
  config.ca_file = File("none");
  EXPECT_TRUE(absl::StrContains(refusal(config), "ca_file " + File("none") + " cannot be used: it cannot be read"));
  config = tls_;
  config.certificate_file = tls_.key_file;
  EXPECT_TRUE(absl::StrContains(refusal(config), "it has no certificate"));
  config = tls_;
  authority_.Issue(File("other.crt"), File("other.key"), "DNS:peer");
  config.key_file = File("other.key");
  EXPECT_TRUE(absl::StrContains(refusal(config), "it is not the certificate's"));
  EXPECT_TRUE(absl::StrContains(refusal({.token_file = File("none")}), File("none")));
}

TEST_F(PeerSecurityTest, EveryKeyOfTheTokenFileIsKnownAndTheFirstIsShown) {
  const auto security = PeerSecurity::Load(token_, clock_).value();
  EXPECT_EQ(security->Token(), "first-token");
  EXPECT_TRUE(security->CheckAuthorization("Bearer first-token").ok());
  EXPECT_TRUE(security->CheckAuthorization("Bearer second-token").ok());
  for (const char* text : {"", "first-token", "Bearer first-toke", "Bearer first-token2", "Bearer "}) {
    const absl::Status refused = security->CheckAuthorization(text);
    EXPECT_EQ(refused.code(), absl::StatusCode::kUnauthenticated) << text;
    EXPECT_FALSE(absl::StrContains(refused.message(), "first")) << "a token is never told";
  }
  EXPECT_TRUE(PeerSecurity::None(clock_)->CheckAuthorization("").ok());
  EXPECT_EQ(PeerSecurity::None(clock_)->Token(), "");
}

TEST_F(PeerSecurityTest, TokensFollowTheirFileAndTheLastGoodOneStays) {
  const auto security = PeerSecurity::Load(token_, clock_).value();
  WriteToken("a-third-token\nfirst-token\n");
  EXPECT_EQ(security->Token(), "first-token") << "looked at not more than once a second";
  clock_.Advance(PeerSecurity::kLookInterval);
  EXPECT_EQ(security->Token(), "a-third-token");
  EXPECT_TRUE(security->CheckAuthorization("Bearer first-token").ok());
  EXPECT_FALSE(security->CheckAuthorization("Bearer second-token").ok());
  WriteToken("# nothing at all\n");
  clock_.Advance(PeerSecurity::kLookInterval);
  EXPECT_EQ(security->Token(), "a-third-token");
  EXPECT_TRUE(security->CheckAuthorization("Bearer a-third-token").ok());
}

TEST_F(PeerSecurityTest, CertificatesFollowTheirFilesAndTheLastGoodOnesStay) {
  const auto security = PeerSecurity::Load(tls_, clock_).value();
  const auto first = security->CurrentPem();
  authority_.Issue(tls_.certificate_file, tls_.key_file, "DNS:peer");
  clock_.Advance(PeerSecurity::kLookInterval);
  const auto second = security->CurrentPem();
  EXPECT_NE(second->certificate, first->certificate);
  EXPECT_NE(second->key, first->key);
  EXPECT_EQ(second->ca, first->ca);
  authority_.Issue(tls_.certificate_file, File("elsewhere"), "DNS:peer");  // half of a renewal
  clock_.Advance(PeerSecurity::kLookInterval);
  EXPECT_EQ(security->CurrentPem(), second);
  EXPECT_EQ(PeerSecurity::None(clock_)->CurrentPem(), nullptr);
}

}  // namespace
}  // namespace tandem::base
