// For tests: the same constraints, matched in the plainest way: every stack by itself, every token by itself.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "model/token_mask/constraint.h"

namespace tandem::model::testing {

class PlainMatcher {
 public:
  // Both outlive it.
  PlainMatcher(const ConstraintSpec& spec, const std::vector<std::string>& token_bytes);

  bool MayFollow(int32_t token) const;
  // Must be allowed.
  void Accept(int32_t token);
  // Bytes that lead to an end by the shortest way; must be at a character's border and must not need a mark.
  std::string ShortestEnd() const;
  bool may_end() const;
  // An ambiguous grammar has more stacks than can be kept one by one: what it says from then on counts for nothing.
  bool has_given_up() const { return has_given_up_; }

 private:
  // A state and the states behind the calls that it is in, the innermost last.
  using Stack = std::vector<uint32_t>;
  struct Point {
    std::set<Stack> stacks;
    std::string rest;  // of a character
    bool has_ended = false;
  };

  void Close(std::set<Stack>* stacks) const;
  std::set<Stack> Step(const std::set<Stack>& stacks, uint32_t c) const;
  bool StepBytes(const std::string& bytes, Point* point) const;
  bool StepTo(int32_t token, Point* point) const;
  int64_t LengthToEnd(const Stack& stack) const;
  bool IsAlive(const std::set<Stack>& stacks) const;

  const ConstraintSpec& spec_;
  const std::vector<std::string>& token_bytes_;
  std::vector<int64_t> length_to_end_;  // of each state: characters and marks, at least
  Point point_;
  mutable bool has_given_up_ = false;
};

}  // namespace tandem::model::testing
