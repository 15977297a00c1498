#include "tools/bench/router_cost/latency_probe.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace tandem::router_cost {
namespace {

absl::Status SocketError(const char* what) {
  return absl::UnavailableError(absl::StrCat("probe: ", what, ": ", std::strerror(errno)));
}

// An event of a completion that has text. Words of the vocabulary hold no quotes, so none is escaped.
bool HasText(absl::string_view event) {
  return absl::StrContains(event, "\"text\":\"") && !absl::StrContains(event, "\"text\":\"\"");
}

}  // namespace

LatencyProbe::LatencyProbe(const Options& options, StepWorkers& workers, const base::Clock& clock)
    : options_(options), workers_(workers), clock_(clock) {}

LatencyProbe::~LatencyProbe() {
  if (socket_ >= 0) close(socket_);
}

absl::Status LatencyProbe::Connect() {
  if (socket_ >= 0) return absl::OkStatus();
  socket_ = socket(AF_INET, SOCK_STREAM, 0);
  if (socket_ < 0) return SocketError("socket");
  const int one = 1;
  setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(options_.router_port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) return SocketError("connect");
  return absl::OkStatus();
}

absl::StatusOr<Added> LatencyProbe::Run(uint64_t seed) {
  RETURN_IF_ERROR(Connect());
  const std::string body =
      absl::StrCat(R"({"model":")", options_.model, R"(","prompt":")", options_.prompt, R"(","max_tokens":)",
                   options_.num_tokens, R"(,"ignore_eos":true,"stream":true,"seed":)", seed, "}");
  const std::string request =
      absl::StrCat("POST /v1/completions HTTP/1.1\r\nHost: router\r\nContent-Type: application/json\r\n",
                   "Content-Length: ", body.size(), "\r\n\r\n", body);
  workers_.Watch(seed);
  const absl::Duration asked = clock_.Now();
  if (send(socket_, request.data(), request.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(request.size())) {
    return SocketError("send");
  }
  const absl::StatusOr<std::vector<absl::Duration>> events = ReadEvents();
  const std::optional<StepWorkers::Times> times = workers_.TakeTimes(seed);
  if (!events.ok()) return events.status();
  if (!times.has_value() || times->sent.size() != events->size()) {
    return absl::UnavailableError(
        absl::StrCat("probe: ", events->size(), " events for ", times.has_value() ? times->sent.size() : 0, " tokens"));
  }
  Added added{.before = times->received - asked};
  for (size_t i = 0; i < events->size(); ++i) added.after.push_back((*events)[i] - times->sent[i]);
  return added;
}

// When each event with text came. The answer ends with the last, empty chunk.
absl::StatusOr<std::vector<absl::Duration>> LatencyProbe::ReadEvents() {
  std::vector<absl::Duration> events;
  std::string received;
  for (;;) {
    char bytes[4096];
    const ssize_t size = recv(socket_, bytes, sizeof(bytes), 0);
    const absl::Duration now = clock_.Now();
    if (size <= 0) return SocketError("the answer broke off");
    received.append(bytes, static_cast<size_t>(size));
    size_t end;
    while ((end = received.find("\n\n")) != std::string::npos) {
      if (HasText(absl::string_view(received).substr(0, end))) events.push_back(now);
      received.erase(0, end + 2);
    }
    if (absl::EndsWith(received, "\r\n0\r\n\r\n")) return events;
    if (absl::StrContains(received, "\"error\"")) {
      return absl::UnavailableError(absl::StrCat("probe: refused: ", received));
    }
  }
}

}  // namespace tandem::router_cost
