// For tests: an authority that signs certificates, as a cluster's own does.
#pragma once

#include <openssl/evp.h>
#include <openssl/x509.h>

#include <string>

namespace tandem::base {

class CertificateAuthority final {
 public:
  explicit CertificateAuthority(const std::string& name);
  ~CertificateAuthority();
  CertificateAuthority(const CertificateAuthority&) = delete;
  CertificateAuthority& operator=(const CertificateAuthority&) = delete;

  // The authority's own certificate.
  void Write(const std::string& ca_file) const;
  // A new key and a certificate for it, valid for an hour, as PEM files that take the place of what is there.
  // alternative_name: as OpenSSL writes it, "IP:127.0.0.1" or "DNS:name".
  void Issue(const std::string& certificate_file, const std::string& key_file,
             const std::string& alternative_name) const;

 private:
  EVP_PKEY* const key_;
  X509* const certificate_;
};

}  // namespace tandem::base
