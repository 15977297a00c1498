// Which incarnation of each router instance is the one that counts: the one that greeted last.
//
// Whoever greets under an instance's name as an incarnation that was not seen before takes the place of all earlier
// ones; they are refused from then on, so that two routers that were given one name cannot throw each other out in
// turn. Remembers the last kKnownMax incarnations that greeted: one older than these would count as new.
// Tested by router_succession_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

#include "absl/status/status.h"
#include "proto/common.pb.h"

namespace tandem::worker_shell {

class RouterSuccession final {
 public:
  static constexpr size_t kKnownMax = 1024;

  // FAILED_PRECONDITION where a later incarnation has taken this one's place.
  absl::Status Greet(const proto::Identity& router);

 private:
  struct Known {
    std::string instance;
    uint64_t incarnation;
    bool is_replaced;
  };
  std::deque<Known> known_;  // in the order of their last greeting
};

}  // namespace tandem::worker_shell
