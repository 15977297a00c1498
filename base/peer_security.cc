#include "base/peer_security.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file_stamp.h"
#include "base/host_port.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace tandem::base {
namespace {

constexpr absl::Duration kRefusalLogInterval = absl::Minutes(1);

struct X509Free {
  void operator()(X509* certificate) const { X509_free(certificate); }
};
struct KeyFree {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
struct BioFree {
  void operator()(BIO* bio) const { BIO_free(bio); }
};
using BioPtr = std::unique_ptr<BIO, BioFree>;

BioPtr Over(const std::string& text) { return BioPtr(BIO_new_mem_buf(text.data(), static_cast<int>(text.size()))); }

// A key with a pass phrase would make OpenSSL ask for it on the terminal.
int NoPassPhrase(char*, int, int, void*) { return 0; }

absl::Status Unusable(const std::string& field, const std::string& file, absl::string_view why) {
  ERR_clear_error();
  return absl::InvalidArgumentError(absl::StrCat("process.peers.", field, " ", file, " cannot be used: ", why));
}

absl::StatusOr<std::string> ReadFile(const std::string& field, const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  if (!stream) return Unusable(field, file, "it cannot be read");
  return std::string(std::istreambuf_iterator<char>(stream), {});
}

// What gRPC would only say at the first handshake, and to the wrong people.
absl::Status CheckPem(const PeerSecurityConfig& config, const PeerSecurity::Pem& pem) {
  const BioPtr certificate_text = Over(pem.certificate), key_text = Over(pem.key), ca_text = Over(pem.ca);
  const std::unique_ptr<X509, X509Free> certificate(
      PEM_read_bio_X509(certificate_text.get(), nullptr, NoPassPhrase, nullptr));
  if (certificate == nullptr) return Unusable("certificate_file", config.certificate_file, "it has no certificate");
  const std::unique_ptr<EVP_PKEY, KeyFree> key(PEM_read_bio_PrivateKey(key_text.get(), nullptr, NoPassPhrase, nullptr));
  if (key == nullptr) return Unusable("key_file", config.key_file, "it has no private key without pass phrase");
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    return Unusable("key_file", config.key_file, "it is not the certificate's");
  }
  const std::unique_ptr<X509, X509Free> ca(PEM_read_bio_X509(ca_text.get(), nullptr, NoPassPhrase, nullptr));
  if (ca == nullptr) return Unusable("ca_file", config.ca_file, "it has no certificate");
  ERR_clear_error();
  return absl::OkStatus();
}

}  // namespace

void AddPeerSecurityFields(ConfigSchema& schema, PeerSecurityConfig& config, bool listens) {
  schema.String(
      "process.peers.token_file", &config.token_file,
      "File of keys, one a line, # for comments, that the services of a cluster share: the first is sent with "
      "every call, each is accepted. Followed when it changes.");
  schema.String(
      "process.peers.certificate_file", &config.certificate_file,
      "PEM file with this service's certificate chain, leaf first: calls between services then go over mutual "
      "TLS alone, 1.2 or newer. New connections follow the three files when they change.");
  schema.String("process.peers.key_file", &config.key_file, "PEM file with the certificate's private key.");
  schema.String("process.peers.ca_file", &config.ca_file,
                "PEM file with the authorities whose certificates other services must show.");
  schema.String("process.peers.server_name", &config.server_name,
                "Name that the certificates of services have to bear when they are connected to, whatever their "
                "address; empty for the address itself.");
  if (!listens) return;
  schema.Bool("process.peers.insecure", &config.is_insecure,
              "Lets anybody who reaches the ports for services speak to them: with neither TLS nor a token they may "
              "otherwise be opened on loopback alone.");
}

absl::Status ValidatePeerSecurity(const PeerSecurityConfig& config) {
  const std::pair<const char*, bool> files[] = {{"certificate_file", !config.certificate_file.empty()},
                                                {"key_file", !config.key_file.empty()},
                                                {"ca_file", !config.ca_file.empty()}};
  for (const auto& [missing, is_given] : files) {
    for (const auto& [given, is_other_given] : files) {
      if (is_given || !is_other_given) continue;
      return absl::InvalidArgumentError(absl::StrCat("process.peers.", given, " is given and process.peers.", missing,
                                                     " is not: TLS between services takes all three files"));
    }
  }
  if (!config.server_name.empty() && !config.HasTls()) {
    return absl::InvalidArgumentError("process.peers.server_name is given without process.peers.certificate_file");
  }
  return absl::OkStatus();
}

absl::Status CheckGuarded(const PeerSecurityConfig& config, const std::string& field, absl::string_view host) {
  if (config.HasTls() || config.HasToken() || config.is_insecure || IsLoopback(host)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      field, " ", host,
      " can be reached from other machines, and nothing would tell strangers from routers and workers: set "
      "process.peers.token_file, or certificate_file, key_file and ca_file beside it, or listen on "
      "127.0.0.1, or let everybody in with process.peers.insecure=true"));
}

absl::StatusOr<std::unique_ptr<PeerSecurity>> PeerSecurity::Load(const PeerSecurityConfig& config, const Clock& clock) {
  RETURN_IF_ERROR(ValidatePeerSecurity(config));
  auto security = std::unique_ptr<PeerSecurity>(new PeerSecurity(config, clock));
  absl::MutexLock lock(&security->mutex_);
  RETURN_IF_ERROR(security->ReadToken());
  RETURN_IF_ERROR(security->ReadPem());
  security->look_due_at_ = clock.Now() + kLookInterval;
  return security;
}

std::unique_ptr<PeerSecurity> PeerSecurity::None(const Clock& clock) {
  return std::unique_ptr<PeerSecurity>(new PeerSecurity({}, clock));
}

absl::Status PeerSecurity::ReadToken() {
  if (!HasToken()) return absl::OkStatus();
  token_stamp_ = FileStamp({config_.token_file});
  ASSIGN_OR_RETURN(const std::vector<std::string> keys, ReadAccessKeyFile(config_.token_file));
  token_ = keys.front();
  known_ = AccessKeyDigests(keys);
  return absl::OkStatus();
}

absl::Status PeerSecurity::ReadPem() {
  if (!HasTls()) return absl::OkStatus();
  pem_stamp_ = FileStamp({config_.certificate_file, config_.key_file, config_.ca_file});
  auto pem = std::make_shared<Pem>();
  ASSIGN_OR_RETURN(pem->certificate, ReadFile("certificate_file", config_.certificate_file));
  ASSIGN_OR_RETURN(pem->key, ReadFile("key_file", config_.key_file));
  ASSIGN_OR_RETURN(pem->ca, ReadFile("ca_file", config_.ca_file));
  RETURN_IF_ERROR(CheckPem(config_, *pem));
  pem_ = std::move(pem);
  return absl::OkStatus();
}

void PeerSecurity::FollowFiles() {
  if (clock_.Now() < look_due_at_) return;
  look_due_at_ = clock_.Now() + kLookInterval;
  if (HasToken() && FileStamp({config_.token_file}) != token_stamp_) {
    if (const absl::Status status = ReadToken(); status.ok()) {
      LOG_INFO("token of services read again", {"file", config_.token_file});
    } else {
      LOG_WARNING("token of services has changed and cannot be used: the last one stays", {"why", status});
    }
  }
  if (HasTls() && FileStamp({config_.certificate_file, config_.key_file, config_.ca_file}) != pem_stamp_) {
    if (const absl::Status status = ReadPem(); status.ok()) {
      LOG_INFO("certificates of services read again", {"file", config_.certificate_file});
    } else {
      LOG_WARNING("certificates of services have changed and cannot be used: the last ones stay", {"why", status});
    }
  }
}

std::string PeerSecurity::Token() {
  absl::MutexLock lock(&mutex_);
  FollowFiles();
  return token_;
}

absl::Status PeerSecurity::CheckAuthorization(absl::string_view authorization) {
  if (!HasToken()) return absl::OkStatus();
  const absl::string_view key = BearerKey(authorization);
  absl::MutexLock lock(&mutex_);
  FollowFiles();
  if (known_.Has(key)) return absl::OkStatus();
  return absl::UnauthenticatedError(
      absl::StrCat("this worker takes calls with its cluster's token alone, ",
                   authorization.empty() ? "and the call has none" : "and the call has another",
                   "; check process.peers.token_file on both sides"));
}

std::shared_ptr<const PeerSecurity::Pem> PeerSecurity::CurrentPem() {
  if (!HasTls()) return nullptr;
  absl::MutexLock lock(&mutex_);
  FollowFiles();
  return pem_;
}

void PeerSecurity::CountRefused(absl::string_view peer) {
  ++num_refused_;
  absl::MutexLock lock(&mutex_);
  if (clock_.Now() < refusal_log_due_at_) return;
  refusal_log_due_at_ = clock_.Now() + kRefusalLogInterval;
  LOG_WARNING("call without the cluster's token refused", {"peer", peer}, {"refused", num_refused_.load()});
}

}  // namespace tandem::base
