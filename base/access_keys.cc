#include "base/access_keys.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/log.h"

namespace tandem::base {
namespace {

constexpr absl::string_view kScheme = "bearer ";

std::array<uint8_t, 32> DigestOf(absl::string_view key) {
  std::array<uint8_t, 32> digest;
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), digest.data());
  return digest;
}

// A group may read it: that is how secrets are mounted for a process that is not root.
void WarnIfReadableByAll(const std::string& file) {
  struct stat status = {};
  if (stat(file.c_str(), &status) == 0 && (status.st_mode & 0007) != 0) {
    LOG_WARNING("file of access keys may be read by everybody on this machine", {"file", file});
  }
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ParseAccessKeys(absl::string_view text, const std::string& source,
                                                         std::vector<std::string>* attributes) {
  std::vector<std::string> keys;
  int line_number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++line_number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || absl::StartsWith(line, "#")) continue;
    if (attributes != nullptr) {
      const size_t end = std::min(line.find_first_of(" \t"), line.size());
      attributes->emplace_back(absl::StripAsciiWhitespace(line.substr(end)));
      line = line.substr(0, end);
    }
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

absl::StatusOr<std::vector<std::string>> ReadAccessKeyFile(const std::string& file,
                                                           std::vector<std::string>* attributes) {
  std::ifstream stream(file, std::ios::binary);
  if (!stream) return absl::NotFoundError(absl::StrCat("cannot read file of access keys ", file));
  WarnIfReadableByAll(file);
  return ParseAccessKeys(std::string(std::istreambuf_iterator<char>(stream), {}), file, attributes);
}

AccessKeyDigests::AccessKeyDigests(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) digests_.push_back(DigestOf(key));
}

int AccessKeyDigests::Find(absl::string_view key) const {
  const std::array<uint8_t, 32> digest = DigestOf(key);
  int found = -1;
  for (size_t i = 0; i < digests_.size(); ++i) {
    if (CRYPTO_memcmp(digests_[i].data(), digest.data(), digest.size()) == 0) found = static_cast<int>(i);
  }
  return found;
}

absl::string_view BearerKey(absl::string_view authorization) {
  if (!absl::StartsWithIgnoreCase(authorization, kScheme)) return "";
  return absl::StripAsciiWhitespace(authorization.substr(kScheme.size()));
}

}  // namespace tandem::base
