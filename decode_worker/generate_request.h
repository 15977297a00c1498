// One attempt of one client request, as the router's Generate brings it, put together from its parts.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/worker.pb.h"

namespace tandem::decode {

// proto::RequestKey as a value that can be hashed and compared. Keys match exactly or not at all.
struct RequestKey {
  uint64_t router_incarnation = 0;
  uint64_t request_id = 0;
  uint32_t attempt = 0;

  static RequestKey From(const proto::RequestKey& key) {
    return {key.router_incarnation(), key.request_id(), key.attempt()};
  }
  proto::RequestKey ToProto() const {
    proto::RequestKey key;
    key.set_router_incarnation(router_incarnation);
    key.set_request_id(request_id);
    key.set_attempt(attempt);
    return key;
  }
  std::string ToString() const { return absl::StrFormat("%016x/%d", request_id, attempt); }

  auto operator<=>(const RequestKey&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const RequestKey& key) {
    return H::combine(std::move(h), key.router_incarnation, key.request_id, key.attempt);
  }
};

struct GenerateRequest {
  RequestKey key;
  std::vector<uint32_t> prompt_tokens;
  proto::GenerateHead head;
};

}  // namespace tandem::decode
