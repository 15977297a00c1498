// One HTTP request as the routes see it, and one whole answer.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace tandem::router {

struct HttpRequest {
  std::string method;                                        // "GET", "POST", ...
  std::string path;                                          // percent-decoding is not done: no route needs it
  std::string query;                                         // after '?', without it
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case, in order of arrival
  std::string body;

  // The first header of that (lower-case) name, empty where there is none.
  absl::string_view Header(absl::string_view name) const {
    for (const auto& [key, value] : headers) {
      if (key == name) return value;
    }
    return "";
  }
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;  // beside Content-Type and Content-Length
};

// "OK", "Not Found", ...; "Unknown" for a status this server never sends.
const char* HttpReason(int status);

}  // namespace tandem::router
