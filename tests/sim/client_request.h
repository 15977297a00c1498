// One client's request: what it asks, what it must get, and what became of it. The checker of tokens and texts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "router/cluster.h"
#include "router/generated_tokens.h"
#include "tests/sim/fault_plan.h"
#include "tests/sim/oracle.h"
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

  // Its text ends before this token's, by a stop string.
  std::optional<uint32_t> stop_word;

  struct Choice {
    OracleAnswer expected;
    std::vector<uint32_t> received;
    std::string text;
    bool has_ended = false;
  };
  std::vector<Choice> choices;
  RequestEnd end = RequestEnd::kNone;
  absl::Status error;
  int num_attempts = 1;
  bool was_resumed = false;        // went on elsewhere after its first token
  int num_fruitless_failures = 0;  // of workers, since its latest token
  bool is_released = false;

  std::string Name() const;
  // Every token is its choice's, as the oracle says it, at its place, given once or again the same; and so is its
  // log-probability, in bits.
  void CheckTokens(const router::GeneratedTokens& tokens, Violations& violations);
  void CountFailure() { ++num_fruitless_failures; }
  // A complete answer is the oracle's, every choice whole, in tokens and in text.
  void CheckComplete(Violations& violations) const;
  // A failure has a cause that faults explain.
  void CheckFailure(const FaultPlan& plan, Violations& violations) const;
};

}  // namespace tandem::sim
