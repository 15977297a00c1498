#include "base/grpc_security.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "grpc/grpc_security.h"
#include "grpcpp/security/server_credentials.h"

namespace tandem::base {
namespace {

constexpr char kTokenKey[] = "authorization";

// gRPC's C++ layer has no server credentials that follow files and keep what was last good; its C layer asks for the
// certificates at every handshake.
class FollowingCredentials final : public grpc::ServerCredentials {
 public:
  explicit FollowingCredentials(PeerSecurity& security)
      : credentials_(grpc_ssl_server_credentials_create_with_options(
            grpc_ssl_server_credentials_create_options_using_config_fetcher(
                GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY, &Fetch, &security))) {}
  ~FollowingCredentials() override { grpc_server_credentials_release(credentials_); }

  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }
  static grpc_ssl_certificate_config_reload_status Fetch(void* security, grpc_ssl_server_certificate_config** config) {
    const auto pem = static_cast<PeerSecurity*>(security)->CurrentPem();
    const grpc_ssl_pem_key_cert_pair pair = {.private_key = pem->key.c_str(), .cert_chain = pem->certificate.c_str()};
    *config = grpc_ssl_server_certificate_config_create(pem->ca.c_str(), &pair, 1);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  grpc_server_credentials* const credentials_;
};

}  // namespace

std::shared_ptr<grpc::Channel> ConnectToPeer(const std::string& address, grpc::ChannelArguments arguments,
                                             PeerSecurity& security) {
  const auto pem = security.CurrentPem();
  if (pem == nullptr) return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  if (!security.server_name().empty()) {
    arguments.SetString(GRPC_SSL_TARGET_NAME_OVERRIDE_ARG, security.server_name());
  }
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = pem->ca;
  options.pem_private_key = pem->key;
  options.pem_cert_chain = pem->certificate;
  return grpc::CreateCustomChannel(address, grpc::SslCredentials(options), arguments);
}

void ShowToken(grpc::ClientContext& context, PeerSecurity& security) {
  if (std::string token = security.Token(); !token.empty()) {
    context.AddMetadata(kTokenKey, absl::StrCat("Bearer ", std::move(token)));
  }
}

std::shared_ptr<grpc::ServerCredentials> PeerServerCredentials(PeerSecurity& security) {
  if (!security.HasTls()) return grpc::InsecureServerCredentials();
  return std::make_shared<FollowingCredentials>(security);
}

grpc::Status CheckToken(const grpc::CallbackServerContext& context, PeerSecurity& security) {
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find(kTokenKey);
  const absl::Status status = security.CheckAuthorization(
      found == metadata.end() ? absl::string_view() : absl::string_view(found->second.data(), found->second.size()));
  if (status.ok()) return grpc::Status::OK;
  security.CountRefused(context.peer());
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

}  // namespace tandem::base
