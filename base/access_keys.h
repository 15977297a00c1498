// Secrets that open something: read from files, kept as digests, compared in a time that says nothing of any.
// They are in no log, no page and no error. Tested by access_keys_test.cc.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem::base {

inline constexpr size_t kAccessKeyBytesMin = 8;

// One key a line, blank lines and lines that begin with '#' aside. INVALID_ARGUMENT names `source` and the line, never
// the key: no key at all, one that is shorter than kAccessKeyBytesMin, or one with other than printable ASCII or with a
// space.
// attributes: where given, what stands behind each key's first space; else nothing may.
absl::StatusOr<std::vector<std::string>> ParseAccessKeys(absl::string_view text, const std::string& source,
                                                         std::vector<std::string>* attributes = nullptr);
// NOT_FOUND where the file cannot be read. Warns of a file that everybody on the machine may read.
absl::StatusOr<std::vector<std::string>> ReadAccessKeyFile(const std::string& file,
                                                           std::vector<std::string>* attributes = nullptr);

// A set of keys of which only digests are kept. Immutable, for any thread.
class AccessKeyDigests final {
 public:
  AccessKeyDigests() = default;
  explicit AccessKeyDigests(const std::vector<std::string>& keys);

  bool empty() const { return digests_.empty(); }
  // Both look at every digest, and at every byte of each.
  bool Has(absl::string_view key) const { return Find(key) >= 0; }
  int Find(absl::string_view key) const;  // its place; -1 where it is not there

 private:
  std::vector<std::array<uint8_t, 32>> digests_;
};

// The key of "Bearer <key>", whatever the scheme's case; "" where the text is none.
absl::string_view BearerKey(absl::string_view authorization);

}  // namespace tandem::base
