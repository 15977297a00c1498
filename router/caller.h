// Who asks, as far as places are shared out by it. Tested by admission_test.cc and access_control_test.cc.
#pragma once

namespace tandem::router {

enum class Priority { kLow = -1, kNormal = 0, kHigh = 1 };

struct Caller {
  int key = 0;  // numbers the keys; 0: without one
  Priority priority = Priority::kNormal;
};

}  // namespace tandem::router
