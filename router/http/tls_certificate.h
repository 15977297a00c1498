// The certificate that a TLS listener shows, from two PEM files, followed when they change.
//
// Files are looked at when a connection comes, at most once a second: whoever renews them (a certificate manager, a
// mounted secret) need tell nobody. Connections that are open keep what they began with. Files that cannot be used are
// logged once, and the last good certificate stays. TLS 1.2 at least. Thread-safe: the shards of a process share one.
// Tested by tls_test.cc.
#pragma once

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/clock.h"

namespace tandem::router {

// Boost.Asio's SSL context, kept out of headers.
struct TlsContext;

class TlsCertificate final {
 public:
  struct Files {
    std::string certificate;  // the chain, leaf first
    std::string key;
  };
  static constexpr absl::Duration kLookInterval = absl::Seconds(1);

  // INVALID_ARGUMENT names the file that cannot be used. The clock outlives the certificate.
  static absl::StatusOr<std::unique_ptr<TlsCertificate>> Load(const Files& files, const base::Clock* clock);

  // Of the files as they are now, or were when they could last be used.
  std::shared_ptr<TlsContext> Current() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  TlsCertificate(const Files& files, const base::Clock* clock, std::shared_ptr<TlsContext> context, std::string stamp);

  const Files files_;
  const base::Clock* const clock_;
  absl::Mutex mutex_;
  std::shared_ptr<TlsContext> context_ ABSL_GUARDED_BY(mutex_);
  std::string stamp_ ABSL_GUARDED_BY(mutex_);  // of the files when they were last read
  absl::Duration looked_at_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem::router
