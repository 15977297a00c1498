#include "base/testing/certificate_authority.h"

#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <functional>

#include "base/check.h"

namespace tandem::base {
namespace {

X509* NewCertificate(EVP_PKEY* key, const std::string& name, X509_NAME* issuer) {
  static int serial = 0;
  X509* const certificate = X509_new();
  X509_set_version(certificate, X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), ++serial);
  X509_gmtime_adj(X509_getm_notBefore(certificate), -60);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
  X509_set_pubkey(certificate, key);
  X509_NAME* const subject = X509_get_subject_name(certificate);
  X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1,
                             0);
  X509_set_issuer_name(certificate, issuer != nullptr ? issuer : subject);
  return certificate;
}

void Extend(X509* certificate, int kind, const std::string& value) {
  X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, nullptr, kind, value.c_str());
  TANDEM_CHECK(extension != nullptr, value);
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

void WriteInPlace(const std::string& file, const std::function<void(std::FILE*)>& write) {
  const std::string fresh = file + ".new";
  std::FILE* const out = std::fopen(fresh.c_str(), "w");
  TANDEM_CHECK(out != nullptr, fresh);
  write(out);
  std::fclose(out);
  TANDEM_CHECK(std::rename(fresh.c_str(), file.c_str()) == 0, file);
}

}  // namespace

CertificateAuthority::CertificateAuthority(const std::string& name)
    : key_(EVP_EC_gen("P-256")), certificate_(NewCertificate(key_, name, nullptr)) {
  Extend(certificate_, NID_basic_constraints, "critical,CA:TRUE");
  Extend(certificate_, NID_key_usage, "critical,keyCertSign");
  X509_sign(certificate_, key_, EVP_sha256());
}

CertificateAuthority::~CertificateAuthority() {
  X509_free(certificate_);
  EVP_PKEY_free(key_);
}

void CertificateAuthority::Write(const std::string& ca_file) const {
  WriteInPlace(ca_file, [&](std::FILE* out) { PEM_write_X509(out, certificate_); });
}

void CertificateAuthority::Issue(const std::string& certificate_file, const std::string& key_file,
                                 const std::string& alternative_name) const {
  EVP_PKEY* const key = EVP_EC_gen("P-256");
  X509* const certificate = NewCertificate(key, "a peer", X509_get_subject_name(certificate_));
  Extend(certificate, NID_subject_alt_name, alternative_name);
  X509_sign(certificate, key_, EVP_sha256());
  WriteInPlace(key_file,
               [&](std::FILE* out) { PEM_write_PrivateKey(out, key, nullptr, nullptr, 0, nullptr, nullptr); });
  WriteInPlace(certificate_file, [&](std::FILE* out) { PEM_write_X509(out, certificate); });
  X509_free(certificate);
  EVP_PKEY_free(key);
}

}  // namespace tandem::base
