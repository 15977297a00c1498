#include "router/testing/self_signed_certificate.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <cstdio>

#include "gtest/gtest.h"

namespace tandem::router {

void WriteSelfSignedCertificate(const TlsCertificate::Files& files, const std::string& common_name,
                                const std::string& alternative_name) {
  EVP_PKEY* const key = EVP_EC_gen("P-256");
  X509* const certificate = X509_new();
  X509_set_version(certificate, X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate), -60);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
  X509_set_pubkey(certificate, key);
  X509_NAME* const subject = X509_get_subject_name(certificate);
  X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(common_name.c_str()),
                             -1, -1, 0);
  X509_set_issuer_name(certificate, subject);
  if (!alternative_name.empty()) {
    X509_EXTENSION* const names = X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, alternative_name.c_str());
    ASSERT_NE(names, nullptr) << alternative_name;
    X509_add_ext(certificate, names, -1);
    X509_EXTENSION_free(names);
  }
  ASSERT_GT(X509_sign(certificate, key, EVP_sha256()), 0);
  std::FILE* out = std::fopen((files.certificate + ".new").c_str(), "w");
  PEM_write_X509(out, certificate);
  std::fclose(out);
  out = std::fopen((files.key + ".new").c_str(), "w");
  PEM_write_PrivateKey(out, key, nullptr, nullptr, 0, nullptr, nullptr);
  std::fclose(out);
  ASSERT_EQ(std::rename((files.key + ".new").c_str(), files.key.c_str()), 0);
  ASSERT_EQ(std::rename((files.certificate + ".new").c_str(), files.certificate.c_str()), 0);
  X509_free(certificate);
  EVP_PKEY_free(key);
}

}  // namespace tandem::router
