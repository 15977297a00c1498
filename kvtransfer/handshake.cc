#include "kvtransfer/handshake.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/host_port.h"
#include "base/status_macros.h"
#include "kvtransfer/fingerprint.h"

namespace tandem::kvtransfer {
namespace {

// gRPC carries a status message in a header of at most 8 KiB, percent-encoded.
constexpr size_t kRefusalBytesMax = 2048;

absl::Status CheckIdentity(const proto::Identity& identity, const std::string& role) {
  if (identity.instance().empty()) return absl::InvalidArgumentError("identity has no instance name");
  if (identity.incarnation() == 0) {
    return absl::InvalidArgumentError(absl::StrCat("instance ", identity.instance(), " has no incarnation"));
  }
  if (identity.role() != role) {
    return absl::InvalidArgumentError(absl::StrCat("instance ", identity.instance(), " is a ",
                                                   identity.role().empty() ? "nameless role" : identity.role(),
                                                   ", expected ", role));
  }
  return absl::OkStatus();
}

absl::Status CheckFit(const proto::Identity& decode_identity, const proto::Fingerprint& decode,
                      const proto::Identity& prefill_identity, const proto::Fingerprint& prefill) {
  std::vector<std::string> differences;
  if (decode_identity.protocol_version() != prefill_identity.protocol_version()) {
    differences.push_back(absl::StrCat("protocol_version of the identity: decode has ",
                                       decode_identity.protocol_version(), ", prefill has ",
                                       prefill_identity.protocol_version()));
  }
  for (std::string& line : ListDifferences(decode, prefill)) differences.push_back(std::move(line));
  if (differences.empty()) return absl::OkStatus();
  std::string text = absl::StrCat("decode ", decode_identity.instance(), " and prefill ", prefill_identity.instance(),
                                  " do not fit:\n", absl::StrJoin(differences, "\n"));
  if (text.size() > kRefusalBytesMax) {
    text.resize(kRefusalBytesMax);
    absl::StrAppend(&text, "... (", differences.size(), " differences)");
  }
  return absl::FailedPreconditionError(text);
}

}  // namespace

absl::Status CheckHello(const proto::HelloRequest& hello, const proto::HelloReply& own) {
  RETURN_IF_ERROR(CheckIdentity(hello.identity(), "decode"));
  return CheckFit(hello.identity(), hello.fingerprint(), own.identity(), own.fingerprint());
}

absl::Status CheckHelloReply(const proto::HelloRequest& own, const proto::HelloReply& reply) {
  RETURN_IF_ERROR(CheckIdentity(reply.identity(), "prefill"));
  RETURN_IF_ERROR(CheckFit(own.identity(), own.fingerprint(), reply.identity(), reply.fingerprint()));
  if (reply.num_pages() == 0) return absl::FailedPreconditionError("prefill has no KV pages");
  if (reply.ranks().empty()) return absl::FailedPreconditionError("prefill offers no source rank");
  return absl::OkStatus();
}

absl::Status ValidateAdvertisedAddress(const std::string& address) {
  absl::StatusOr<base::HostPort> parsed = base::ParseHostPort(address);
  if (!parsed.ok()) return parsed.status();
  if (base::IsWildcard(parsed->host)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "address ", parsed->ToString(), " is a wildcard: others cannot connect to it, advertise a routable host"));
  }
  if (parsed->port == 0) return absl::InvalidArgumentError(absl::StrCat("address ", parsed->ToString(), " has port 0"));
  return absl::OkStatus();
}

}  // namespace tandem::kvtransfer
