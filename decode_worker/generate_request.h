// One attempt of one client request, as the router's Generate brings it, put together from its parts.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
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
  std::vector<uint32_t> generated_tokens;  // of all choices, one after the other: head.resumed() says how many of each
  proto::GenerateHead head;

  size_t num_choices() const { return std::max<size_t>(1, head.num_choices()); }
  // Tokens of the choice that the router brought.
  int64_t num_brought(int choice) const { return head.resumed_size() > choice ? head.resumed(choice).num_tokens() : 0; }
  bool HasEnded(int choice) const { return head.resumed_size() > choice && head.resumed(choice).has_ended(); }
};

}  // namespace tandem::decode
