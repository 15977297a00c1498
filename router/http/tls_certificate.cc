#include "router/http/tls_certificate.h"

#include <openssl/ssl.h>

#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file_stamp.h"
#include "base/log.h"
#include "router/http/tls_context.h"

namespace tandem::router {
namespace ssl = boost::asio::ssl;

namespace {

std::string StampOf(const TlsCertificate::Files& files) { return base::FileStamp({files.certificate, files.key}); }

absl::Status Unusable(const std::string& file, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("TLS file ", file, " cannot be used: ", why));
}

// http/1.1 is all that is spoken here.
int ChooseProtocol(SSL*, const unsigned char** out, unsigned char* out_size, const unsigned char* in, unsigned in_size,
                   void*) {
  static const unsigned char kHttp11[] = "\x08http/1.1";
  unsigned char* chosen = nullptr;
  if (SSL_select_next_proto(&chosen, out_size, kHttp11, sizeof(kHttp11) - 1, in, in_size) != OPENSSL_NPN_NEGOTIATED) {
    return SSL_TLSEXT_ERR_NOACK;
  }
  *out = chosen;
  return SSL_TLSEXT_ERR_OK;
}

absl::StatusOr<std::shared_ptr<TlsContext>> Read(const TlsCertificate::Files& files) {
  std::shared_ptr<TlsContext> context;
  try {
    context = std::make_shared<TlsContext>(TlsContext{ssl::context(ssl::context::tls_server)});
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("cannot set TLS up: ", error.what()));
  }
  boost::system::error_code error;
  context->ssl.use_certificate_chain_file(files.certificate, error);
  if (error) return Unusable(files.certificate, error.message());
  context->ssl.use_private_key_file(files.key, ssl::context::pem, error);
  if (error) return Unusable(files.key, error.message());
  SSL_CTX* const native = context->ssl.native_handle();
  if (SSL_CTX_check_private_key(native) != 1) return Unusable(files.key, "it is not the certificate's");
  if (SSL_CTX_set_min_proto_version(native, TLS1_2_VERSION) != 1) {
    return absl::InternalError("cannot set TLS 1.2 as the least version");
  }
  SSL_CTX_set_options(native, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_alpn_select_cb(native, ChooseProtocol, nullptr);
  return context;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TlsCertificate>> TlsCertificate::Load(const Files& files, const base::Clock* clock) {
  std::string stamp = StampOf(files);
  absl::StatusOr<std::shared_ptr<TlsContext>> context = Read(files);
  if (!context.ok()) return context.status();
  return std::unique_ptr<TlsCertificate>(new TlsCertificate(files, clock, *std::move(context), std::move(stamp)));
}

TlsCertificate::TlsCertificate(const Files& files, const base::Clock* clock, std::shared_ptr<TlsContext> context,
                               std::string stamp)
    : files_(files), clock_(clock), context_(std::move(context)), stamp_(std::move(stamp)), looked_at_(clock->Now()) {}

std::shared_ptr<TlsContext> TlsCertificate::Current() {
  absl::MutexLock lock(&mutex_);
  if (clock_->Now() < looked_at_ + kLookInterval) return context_;
  looked_at_ = clock_->Now();
  std::string stamp = StampOf(files_);
  if (stamp == stamp_) return context_;
  stamp_ = std::move(stamp);
  absl::StatusOr<std::shared_ptr<TlsContext>> context = Read(files_);
  if (context.ok()) {
    LOG_INFO("TLS certificate read again", {"file", files_.certificate});
    context_ = *std::move(context);
  } else {
    LOG_WARNING("TLS files have changed and cannot be used: the last certificate stays", {"why", context.status()});
  }
  return context_;
}

}  // namespace tandem::router
