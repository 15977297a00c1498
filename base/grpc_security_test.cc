// Calls over real gRPC on loopback: with the right certificate and token, with another's, with none, and after
// renewals.
#include "base/grpc_security.h"

#include <chrono>
#include <fstream>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/testing/certificate_authority.h"
#include "gtest/gtest.h"
#include "proto/kv_transfer.grpc.pb.h"

namespace tandem::base {
namespace {

class GreetingService final : public proto::Bootstrap::CallbackService {
 public:
  explicit GreetingService(PeerSecurity& security) : security_(security) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", PeerServerCredentials(security), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~GreetingService() override {
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
  }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

 private:
  grpc::ServerUnaryReactor* Hello(grpc::CallbackServerContext* context, const proto::HelloRequest*,
                                  proto::HelloReply*) override {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(CheckToken(*context, security_));
    return reactor;
  }

  PeerSecurity& security_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

// Over a connection of its own. UNAVAILABLE is final: the server is there, and gRPC would try again for ever.
grpc::Status Greet(const std::string& address, PeerSecurity& security) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const auto stub = proto::Bootstrap::NewStub(ConnectToPeer(address, arguments, security));
  grpc::ClientContext context;
  ShowToken(context, security);
  proto::HelloReply reply;
  return stub->Hello(&context, {}, &reply);
}

class GrpcSecurityTest : public testing::Test {
 protected:
  static std::string File(const std::string& name) {
    return testing::TempDir() + "/" + testing::UnitTest::GetInstance()->current_test_info()->name() + "." + name;
  }
  PeerSecurityConfig IssueTo(const std::string& who, const CertificateAuthority& authority,
                             const std::string& alternative_name = "IP:127.0.0.1") {
    PeerSecurityConfig config = {
        .certificate_file = File(who + ".crt"), .key_file = File(who + ".key"), .ca_file = File(who + ".ca")};
    authority.Write(config.ca_file);
    authority.Issue(config.certificate_file, config.key_file, alternative_name);
    return config;
  }
  std::unique_ptr<PeerSecurity> Load(const PeerSecurityConfig& config) {
    auto security = PeerSecurity::Load(config, clock_);
    EXPECT_TRUE(security.ok()) << security.status();
    return *std::move(security);
  }
  std::unique_ptr<PeerSecurity> LoadToken(const std::string& who, const std::string& text) {
    std::ofstream(File(who)) << text << "\n";
    return Load({.token_file = File(who)});
  }

  FakeClock clock_;
  const CertificateAuthority authority_{"ours"}, other_authority_{"theirs"};
};

TEST_F(GrpcSecurityTest, MembersOfOneAuthorityUnderstandEachOtherAndNobodyElse) {
  const auto server = Load(IssueTo("server", authority_));
  const GreetingService service(*server);
  const auto member = Load(IssueTo("member", authority_));
  EXPECT_TRUE(Greet(service.address(), *member).ok());

  const auto none = PeerSecurity::None(clock_);
  EXPECT_EQ(Greet(service.address(), *none).error_code(), grpc::StatusCode::UNAVAILABLE) << "plain text";

  PeerSecurityConfig stranger = IssueTo("stranger", other_authority_);
  EXPECT_FALSE(Greet(service.address(), *Load(stranger)).ok()) << "it does not even trust the server";
  authority_.Write(stranger.ca_file);
  EXPECT_FALSE(Greet(service.address(), *Load(stranger)).ok()) << "it trusts the server, the server not it";

  grpc::SslCredentialsOptions without_certificate;
  without_certificate.pem_root_certs = member->CurrentPem()->ca;
  const auto stub =
      proto::Bootstrap::NewStub(grpc::CreateChannel(service.address(), grpc::SslCredentials(without_certificate)));
  grpc::ClientContext context;
  proto::HelloReply reply;
  EXPECT_FALSE(stub->Hello(&context, {}, &reply).ok()) << "it knows the authority and is no member";
}

TEST_F(GrpcSecurityTest, AMemberAtAnotherAddressIsNoServer) {
  const auto elsewhere = Load(IssueTo("elsewhere", authority_, "IP:127.0.0.9"));
  const GreetingService service(*elsewhere);
  EXPECT_FALSE(Greet(service.address(), *Load(IssueTo("client", authority_))).ok());
  const auto named = Load(IssueTo("named", authority_, "DNS:tandem-peers"));
  const GreetingService named_service(*named);
  PeerSecurityConfig config = IssueTo("namer", authority_);
  config.server_name = "tandem-peers";
  EXPECT_TRUE(Greet(named_service.address(), *Load(config)).ok()) << "one name for all, wherever they are";
  EXPECT_FALSE(Greet(service.address(), *Load(config)).ok());
}

TEST_F(GrpcSecurityTest, NewConnectionsFollowRenewedCertificatesAndANewAuthority) {
  const PeerSecurityConfig config = IssueTo("server", authority_);
  const auto server = Load(config);
  const GreetingService service(*server);
  const auto member = Load(IssueTo("member", authority_));
  const auto newcomer = Load(IssueTo("newcomer", other_authority_));
  ASSERT_TRUE(Greet(service.address(), *member).ok());
  ASSERT_FALSE(Greet(service.address(), *newcomer).ok());

  other_authority_.Issue(config.certificate_file, config.key_file, "IP:127.0.0.1");
  other_authority_.Write(config.ca_file);
  clock_.Advance(PeerSecurity::kLookInterval);
  EXPECT_TRUE(Greet(service.address(), *newcomer).ok());
  EXPECT_FALSE(Greet(service.address(), *member).ok());

  std::ofstream(config.certificate_file) << "not a certificate";
  clock_.Advance(PeerSecurity::kLookInterval);
  EXPECT_TRUE(Greet(service.address(), *newcomer).ok()) << "the last good one stays";
}

TEST_F(GrpcSecurityTest, CallsWithoutTheTokenAreRefusedInWordsAndCounted) {
  const auto server = LoadToken("server", "the-clusters-token");
  const GreetingService service(*server);
  EXPECT_TRUE(Greet(service.address(), *LoadToken("member", "the-clusters-token")).ok());
  EXPECT_EQ(server->num_refused(), 0);
  const auto none = PeerSecurity::None(clock_);
  const auto stranger = LoadToken("stranger", "another-token");
  for (PeerSecurity* peer : {none.get(), stranger.get()}) {
    const grpc::Status refused = Greet(service.address(), *peer);
    EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAUTHENTICATED);
    EXPECT_TRUE(absl::StrContains(refused.error_message(), "process.peers.token_file")) << refused.error_message();
    EXPECT_FALSE(absl::StrContains(refused.error_message(), "clusters-token"));
  }
  EXPECT_EQ(server->num_refused(), 2);
}

TEST_F(GrpcSecurityTest, WhereBothAreSetBothAreAskedFor) {
  PeerSecurityConfig config = IssueTo("server", authority_);
  config.token_file = File("token");
  std::ofstream(config.token_file) << "the-clusters-token\n";
  const auto server = Load(config);
  const GreetingService service(*server);
  PeerSecurityConfig client = IssueTo("client", authority_);
  EXPECT_EQ(Greet(service.address(), *Load(client)).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  client.token_file = config.token_file;
  EXPECT_TRUE(Greet(service.address(), *Load(client)).ok());
}

}  // namespace
}  // namespace tandem::base
