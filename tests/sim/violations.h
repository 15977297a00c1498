// What a run did wrong. Checkers add to it; a run is right where it stays empty.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "tests/sim/event_queue.h"

namespace tandem::sim {

class Violations final {
 public:
  explicit Violations(const EventQueue& events) : events_(events) {}

  void Add(const std::string& what) {
    constexpr size_t kListedMax = 20;
    if (found_.size() < kListedMax) {
      found_.push_back(absl::StrCat("at ", absl::FormatDuration(events_.now()), ": ", what));
    }
  }
  const std::vector<std::string>& found() const { return found_; }

 private:
  const EventQueue& events_;
  std::vector<std::string> found_;
};

}  // namespace tandem::sim
