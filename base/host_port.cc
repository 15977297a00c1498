#include "base/host_port.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace tandem::base {
namespace {

absl::Status Fault(absl::string_view text, size_t position, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("address \"", text, "\": ", what, " at character ", position + 1));
}

}  // namespace

std::string HostPort::ToString() const {
  if (host.find(':') != std::string::npos) return absl::StrCat("[", host, "]:", port);
  return absl::StrCat(host, ":", port);
}

absl::StatusOr<HostPort> ParseHostPort(absl::string_view text) {
  HostPort result;
  size_t colon;
  if (!text.empty() && text[0] == '[') {
    const size_t close = text.find(']');
    if (close == absl::string_view::npos) return Fault(text, 0, "\"[\" without \"]\"");
    result.host = std::string(text.substr(1, close - 1));
    colon = close + 1;
    if (colon >= text.size() || text[colon] != ':') return Fault(text, colon, "expected \":port\"");
  } else {
    colon = text.rfind(':');
    if (colon == absl::string_view::npos) return Fault(text, text.size(), "expected \":port\"");
    if (text.find(':') != colon) {
      return Fault(text, text.find(':'), "an IPv6 address is written [address]:port; unexpected \":\"");
    }
    result.host = std::string(text.substr(0, colon));
  }
  if (result.host.empty()) return Fault(text, 0, "empty host");
  for (size_t i = 0; i < result.host.size(); ++i) {
    if (result.host[i] <= ' ' || result.host[i] == '/') return Fault(text, text.find(result.host) + i, "bad character");
  }
  const absl::string_view port = text.substr(colon + 1);
  for (size_t i = 0; i < port.size(); ++i) {
    if (port[i] < '0' || port[i] > '9')
      return Fault(text, colon + 1 + i, "a port is a number from 1 to 65535; bad digit");
  }
  if (port.size() > 5 || !absl::SimpleAtoi(port, &result.port) || result.port < 1 || result.port > 65535) {
    return Fault(text, colon + 1, "a port is a number from 1 to 65535; bad port");
  }
  if (result.host == "localhost") result.host = "127.0.0.1";
  return result;
}

bool IsWildcard(absl::string_view host) { return host == "0.0.0.0" || host == "::" || host == "*" || host.empty(); }

bool IsLoopback(absl::string_view host) {
  if (host == "localhost" || host == "::1") return true;
  // A name may begin with 127., too.
  return absl::StartsWith(host, "127.") && std::all_of(host.begin(), host.end(), [](char c) {
           return c == '.' || absl::ascii_isdigit(static_cast<unsigned char>(c));
         });
}

}  // namespace tandem::base
