// One client's request: what it asks, what it must get, and what became of it. The checker of tokens and texts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "router/cluster.h"
#include "tests/sim/fault_plan.h"
#include "tests/sim/violations.h"

namespace tandem::sim {

enum class RequestEnd { kNone, kComplete, kFailed, kClientLeft, kRouterLost };

struct ClientRequest {
  int number = 0;
  router::GenerateOrder order;
  absl::Duration submit_at;
  absl::Duration client_leaves_after = absl::InfiniteDuration();  // counted from its submission
  absl::Duration time_limit = absl::InfiniteDuration();
  absl::Duration stops_reading_after = absl::InfiniteDuration();  // counted from its submission
  absl::Duration reads_again_after = absl::ZeroDuration();        // counted from there

  std::vector<uint32_t> expected;  // by the oracle
  std::vector<uint32_t> received;
  std::string text;
  RequestEnd end = RequestEnd::kNone;
  absl::Status error;
  int num_attempts = 1;
  bool is_released = false;

  std::string Name() const;
  // Every token is the oracle's, at its place, given once or again the same.
  void CheckTokens(int64_t first_position, absl::Span<const uint32_t> tokens, Violations& violations);
  // A complete answer is the oracle's, whole, in tokens and in text.
  void CheckComplete(Violations& violations) const;
  // A failure has a cause that faults explain.
  void CheckFailure(const FaultPlan& plan, Violations& violations) const;
};

}  // namespace tandem::sim
