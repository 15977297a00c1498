// For tests: a key, and a certificate that it has signed itself.
#pragma once

#include <string>

#include "router/http/tls_certificate.h"

namespace tandem::router {

// As certificate managers do: new files that take the old ones' place. alternative_name: as OpenSSL writes it,
// "IP:127.0.0.1" or "DNS:name"; "" for none.
void WriteSelfSignedCertificate(const TlsCertificate::Files& files, const std::string& common_name,
                                const std::string& alternative_name = "");

}  // namespace tandem::router
