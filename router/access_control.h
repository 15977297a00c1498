// Who may ask what: bearer keys of clients and of administrators.
//
// Only digests of keys are kept, and a key is compared with all of them in a time that says nothing of any. Keys come
// from files or environment variables that the configuration names; they are in no log and no page. Immutable, for any
// thread. Tested by access_control_test.cc.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem::router {

enum class RouteAccess {
  kOpen,    // probes and metrics: for everybody
  kClient,  // with a client's key, or an administrator's, where there are client keys
  kAdmin,   // with an administrator's key where there are any, else as kClient
};

inline constexpr size_t kAccessKeyBytesMin = 8;

// One key a line, blank lines and lines that begin with '#' aside. INVALID_ARGUMENT names `source` and the line, never
// the key: no key at all, one that is shorter than kAccessKeyBytesMin, or one with other than printable ASCII or with a
// space.
absl::StatusOr<std::vector<std::string>> ParseAccessKeys(absl::string_view text, const std::string& source);
// Of the file and of the environment variable, as far as they are named ("" = not). NOT_FOUND where what is named is
// not there.
absl::StatusOr<std::vector<std::string>> LoadAccessKeys(const std::string& file, const std::string& variable);

class AccessControl final {
 public:
  AccessControl() = default;  // everything is open
  AccessControl(const std::vector<std::string>& client_keys, const std::vector<std::string>& admin_keys);

  // authorization: the header of that name. UNAUTHENTICATED as an OpenAI error.
  absl::Status Check(RouteAccess access, absl::string_view authorization) const;

 private:
  using Digest = std::array<uint8_t, 32>;
  static std::vector<Digest> DigestsOf(const std::vector<std::string>& keys);
  static bool HasKey(const std::vector<Digest>& digests, const Digest& digest);

  std::vector<Digest> client_digests_;
  std::vector<Digest> admin_digests_;
};

}  // namespace tandem::router
