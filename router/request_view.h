// A request under way as operators see it: one line of /statusz and of the dashboard.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"

namespace tandem::router {

struct RequestView {
  std::string id;
  std::string pair;  // "" until it is picked
  int64_t num_prompt_tokens = 0;
  int64_t num_generated = 0;
  absl::Duration age;
  bool is_waiting = false;  // in line, not in flight yet
};

}  // namespace tandem::router
