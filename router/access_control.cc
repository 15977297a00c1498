#include "router/access_control.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "router/openai/api_error.h"

namespace tandem::router {
namespace {

constexpr absl::string_view kScheme = "bearer ";

std::array<uint8_t, 32> DigestOf(absl::string_view key) {
  std::array<uint8_t, 32> digest;
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), digest.data());
  return digest;
}

void WarnIfReadableByOthers(const std::string& file) {
  struct stat status = {};
  if (stat(file.c_str(), &status) == 0 && (status.st_mode & 0077) != 0) {
    LOG_WARNING("file of access keys may be read by others than its owner", {"file", file});
  }
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ParseAccessKeys(absl::string_view text, const std::string& source) {
  std::vector<std::string> keys;
  int line_number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++line_number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || absl::StartsWith(line, "#")) continue;
    if (line.size() < kAccessKeyBytesMin) {
      return absl::InvalidArgumentError(absl::StrCat(source, ": the key in line ", line_number, " has ", line.size(),
                                                     " bytes, must have at least ", kAccessKeyBytesMin));
    }
    if (!std::all_of(line.begin(), line.end(), absl::ascii_isgraph)) {
      return absl::InvalidArgumentError(
          absl::StrCat(source, ": the key in line ", line_number, " has other than printable ASCII characters"));
    }
    keys.emplace_back(line);
  }
  if (keys.empty()) return absl::InvalidArgumentError(absl::StrCat(source, ": has no key, must have at least one"));
  return keys;
}

absl::StatusOr<std::vector<std::string>> LoadAccessKeys(const std::string& file, const std::string& variable) {
  std::vector<std::string> keys;
  const auto add = [&](absl::string_view text, const std::string& source) -> absl::Status {
    ASSIGN_OR_RETURN(std::vector<std::string> more, ParseAccessKeys(text, source));
    keys.insert(keys.end(), more.begin(), more.end());
    return absl::OkStatus();
  };
  if (!file.empty()) {
    std::ifstream stream(file, std::ios::binary);
    if (!stream) return absl::NotFoundError(absl::StrCat("cannot read file of access keys ", file));
    WarnIfReadableByOthers(file);
    RETURN_IF_ERROR(add(std::string(std::istreambuf_iterator<char>(stream), {}), file));
  }
  if (!variable.empty()) {
    const char* value = std::getenv(variable.c_str());
    if (value == nullptr) {
      return absl::NotFoundError(absl::StrCat("environment variable ", variable, " of access keys is not set"));
    }
    RETURN_IF_ERROR(add(value, absl::StrCat("environment variable ", variable)));
  }
  return keys;
}

AccessControl::AccessControl(const std::vector<std::string>& client_keys, const std::vector<std::string>& admin_keys)
    : client_digests_(DigestsOf(client_keys)), admin_digests_(DigestsOf(admin_keys)) {}

std::vector<AccessControl::Digest> AccessControl::DigestsOf(const std::vector<std::string>& keys) {
  std::vector<Digest> digests;
  for (const std::string& key : keys) digests.push_back(DigestOf(key));
  return digests;
}

// Looks at every digest, and at every byte of each.
bool AccessControl::HasKey(const std::vector<Digest>& digests, const Digest& digest) {
  bool has_key = false;
  for (const Digest& known : digests) has_key |= CRYPTO_memcmp(known.data(), digest.data(), known.size()) == 0;
  return has_key;
}

absl::Status AccessControl::Check(RouteAccess access, absl::string_view authorization) const {
  const bool takes_admins_alone = access == RouteAccess::kAdmin && !admin_digests_.empty();
  if (access == RouteAccess::kOpen || (!takes_admins_alone && client_digests_.empty())) return absl::OkStatus();
  if (authorization.empty()) {
    return absl::UnauthenticatedError("no API key; send it as Authorization: Bearer <key>");
  }
  if (!absl::StartsWithIgnoreCase(authorization, kScheme)) {
    return absl::UnauthenticatedError("Authorization must be Bearer <key>");
  }
  const Digest digest = DigestOf(absl::StripAsciiWhitespace(authorization.substr(kScheme.size())));
  const bool is_admin = HasKey(admin_digests_, digest);
  const bool is_client = HasKey(client_digests_, digest);
  if (is_admin || (is_client && !takes_admins_alone)) return absl::OkStatus();
  if (is_client) return absl::UnauthenticatedError("this path takes an administrator's key");
  return absl::UnauthenticatedError("incorrect API key");
}

}  // namespace tandem::router
