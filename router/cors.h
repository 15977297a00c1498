// Which web pages may read answers (Cross-Origin Resource Sharing): a list of origins, or all. Keys travel in
// Authorization, never in cookies, so no answer allows credentials. Tested by cors_test.cc.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "router/http/http_message.h"

namespace tandem::router {

class CorsPolicy final {
 public:
  CorsPolicy() = default;  // no page
  explicit CorsPolicy(std::vector<std::string> allowed_origins) : origins_(std::move(allowed_origins)) {}

  // INVALID_ARGUMENT: an origin is neither "*" nor scheme://host[:port].
  static absl::Status Validate(const std::vector<std::string>& allowed_origins);

  bool Allows(absl::string_view origin) const;
  // What an answer to a request from an allowed page says besides; nothing for others.
  std::vector<std::pair<std::string, std::string>> HeadersFor(const HttpRequest& request) const;
  // True for an OPTIONS request by which a browser asks what it may send from an allowed page.
  bool IsPreflight(const HttpRequest& request) const;
  // Its answer. methods: that the path takes.
  static HttpResponse PreflightAnswer(const HttpRequest& request, const std::string& methods);

 private:
  std::vector<std::string> origins_;
};

}  // namespace tandem::router
