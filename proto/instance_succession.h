// Which incarnation of each instance is the one that counts: the one that greeted last.
//
// Whoever greets under an instance's name as an incarnation that was not seen before takes the place of all earlier
// ones; they are refused from then on, so that two processes that were given one name cannot throw each other out in
// turn. Remembers the last kKnownMax incarnations that greeted: one older than these would count as new.
// Tested by instance_succession_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/common.pb.h"

namespace tandem::proto {

class InstanceSuccession final {
 public:
  static constexpr size_t kKnownMax = 1024;

  // kind: what greets, as messages call it: "router".
  explicit InstanceSuccession(absl::string_view kind) : kind_(kind) {}

  // FAILED_PRECONDITION where a later incarnation has taken this one's place.
  absl::Status Greet(const Identity& identity);

 private:
  struct Known {
    std::string instance;
    uint64_t incarnation;
    bool is_replaced;
  };
  const std::string kind_;
  std::deque<Known> known_;  // in the order of their last greeting
};

}  // namespace tandem::proto
