// Where one answer stands in its constraint, token by token; goes back over tokens that were drafts.
//
// Knows which text has come, not which tokens may follow: token_masker.h finds those. Tested by token_matcher_test.cc.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "model/token_mask/call_stack.h"
#include "model/token_mask/constraint.h"

namespace tandem::model {

class TokenMatcher final {
 public:
  // That may be taken back.
  static constexpr int kRollbackMax = 32;

  explicit TokenMatcher(std::shared_ptr<const Constraint> constraint);
  TokenMatcher(TokenMatcher&&) = default;
  TokenMatcher& operator=(TokenMatcher&&) = default;

  // INVALID_ARGUMENT, and nothing changes: the token may not stand here.
  absl::Status Accept(int32_t token);
  // Takes back the last tokens that were accepted, at most kRollbackMax of them since the last Rollback.
  void Rollback(int num_tokens);

  bool may_end() const { return now().set.may_end && now().prefix.empty(); }
  // It may, and nothing else is left to it.
  bool must_end() const;
  bool has_ended() const { return now().has_ended; }
  int64_t num_tokens() const { return num_tokens_; }

  const Constraint& constraint() const { return *constraint_; }
  const std::shared_ptr<const Constraint>& shared_constraint() const { return constraint_; }
  // Places behind the last complete character, and the front of the next.
  const PlaceSet& places() const { return now().set; }
  const CharPrefix& prefix() const { return now().prefix; }

 private:
  struct Point {
    PlaceSet set;
    CharPrefix prefix;
    bool has_ended = false;
  };

  const Point& now() const { return points_.back(); }
  bool IsEndToken(int32_t token) const;
  bool StepText(const std::string& bytes, Point* point);
  void CompactNodes();

  std::shared_ptr<const Constraint> constraint_;
  std::unique_ptr<CallArena> arena_;  // of the nodes that the points stand on, and of older ones
  size_t num_nodes_to_compact_;
  std::deque<Point> points_;  // the last kRollbackMax + 1
  int64_t num_tokens_ = 0;
};

}  // namespace tandem::model
