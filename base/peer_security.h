// What the services show each other and ask of each other: certificates, a token, or nothing.
//
// TLS is mutual: both sides show a certificate that the authority of `ca_file` has signed; certificates of other
// authorities, the system's included, count for nothing. The token is a shared secret that every call carries, in clear
// where there is no TLS. Both may be used together: then both are asked for. A port that other machines can reach has
// one of the two, or is opened to everybody by `insecure` in so many words.
//
// Files are looked at when they are needed, at most once a second, and followed when they change: certificates at the
// next connection, tokens at the next call. Files that cannot be used are logged once, and what was last good stays.
// Thread-safe. gRPC's part of it: grpc_security.h. Tested by peer_security_test.cc.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/access_keys.h"
#include "base/clock.h"
#include "base/config.h"

namespace tandem::base {

struct PeerSecurityConfig {
  std::string token_file;
  std::string certificate_file;
  std::string key_file;
  std::string ca_file;
  std::string server_name;  // "" = the address that was connected to
  bool is_insecure = false;

  bool HasToken() const { return !token_file.empty(); }
  bool HasTls() const { return !certificate_file.empty(); }
};

// process.peers.*; `config` outlives the schema. A service that only connects has no use for `insecure`.
void AddPeerSecurityFields(ConfigSchema& schema, PeerSecurityConfig& config, bool listens);
// The three TLS files together or none of them. Reads no file.
absl::Status ValidatePeerSecurity(const PeerSecurityConfig& config);
// INVALID_ARGUMENT where strangers could reach the host of that field and nothing would tell them from a peer.
absl::Status CheckGuarded(const PeerSecurityConfig& config, const std::string& field, absl::string_view host);

class PeerSecurity final {
 public:
  static constexpr absl::Duration kLookInterval = absl::Seconds(1);

  struct Pem {
    std::string certificate;  // the chain, leaf first
    std::string key;
    std::string ca;
  };

  // Errors name the file that cannot be used and why. The clock outlives this.
  static absl::StatusOr<std::unique_ptr<PeerSecurity>> Load(const PeerSecurityConfig& config, const Clock& clock);
  // Neither TLS nor token.
  static std::unique_ptr<PeerSecurity> None(const Clock& clock);

  bool HasToken() const { return config_.HasToken(); }
  bool HasTls() const { return config_.HasTls(); }
  const std::string& server_name() const { return config_.server_name; }

  // What a call carries: the first key of the file. "" where there is none.
  std::string Token() ABSL_LOCKS_EXCLUDED(mutex_);
  // UNAUTHENTICATED unless the text is "Bearer " and one of the file's keys; OK where no token is asked for.
  absl::Status CheckAuthorization(absl::string_view authorization) ABSL_LOCKS_EXCLUDED(mutex_);
  // The files as they are now, or were when they could last be used; nullptr without TLS.
  std::shared_ptr<const Pem> CurrentPem() ABSL_LOCKS_EXCLUDED(mutex_);

  // Calls refused for their token.
  void CountRefused(absl::string_view peer) ABSL_LOCKS_EXCLUDED(mutex_);
  int64_t num_refused() const { return num_refused_; }

 private:
  PeerSecurity(PeerSecurityConfig config, const Clock& clock) : config_(std::move(config)), clock_(clock) {}
  absl::Status ReadToken() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status ReadPem() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FollowFiles() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const PeerSecurityConfig config_;
  const Clock& clock_;
  std::atomic<int64_t> num_refused_ = 0;
  absl::Mutex mutex_;
  absl::Duration look_due_at_ ABSL_GUARDED_BY(mutex_) = -absl::InfiniteDuration();
  absl::Duration refusal_log_due_at_ ABSL_GUARDED_BY(mutex_) = -absl::InfiniteDuration();
  std::string token_stamp_ ABSL_GUARDED_BY(mutex_);
  std::string token_ ABSL_GUARDED_BY(mutex_);
  AccessKeyDigests known_ ABSL_GUARDED_BY(mutex_);
  std::string pem_stamp_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const Pem> pem_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem::base
