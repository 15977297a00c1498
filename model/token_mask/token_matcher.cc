#include "model/token_mask/token_matcher.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace tandem::model {
namespace {

constexpr size_t kNodesMin = 256;

}  // namespace

TokenMatcher::TokenMatcher(std::shared_ptr<const Constraint> constraint)
    : constraint_(std::move(constraint)), arena_(std::make_unique<CallArena>()), num_nodes_to_compact_(kNodesMin) {
  Point& first = points_.emplace_back();
  const CallNode* outermost = arena_->New(constraint_->first_state(), 0);
  PlaceStepper(*constraint_).Enter({.state = constraint_->first_state(), .node = outermost}, *arena_, &first.set);
}

bool TokenMatcher::IsEndToken(int32_t token) const {
  const auto& end_tokens = constraint_->end_tokens();
  return std::find(end_tokens.begin(), end_tokens.end(), static_cast<uint32_t>(token)) != end_tokens.end();
}

bool TokenMatcher::must_end() const {
  if (!may_end()) return false;
  for (const Place& place : now().set.places) {
    const ConstraintState& state = constraint_->state(place.state);
    for (const auto* steps : {&state.chars, &state.tokens}) {
      for (const ConstraintState::Step& step : *steps) {
        if (place.node->depth + constraint_->need(step.to) <= Constraint::kCallDepthMax) return false;
      }
    }
  }
  return true;
}

bool TokenMatcher::StepText(const std::string& bytes, Point* point) {
  PlaceStepper stepper(*constraint_);
  PlaceSet next;
  for (const char byte : bytes) {
    const CharPrefix::Result result = point->prefix.Append(static_cast<uint8_t>(byte));
    if (result == CharPrefix::Result::kInvalid) return false;
    if (result == CharPrefix::Result::kPartial) {
      if (!stepper.MayStep(point->set, {point->prefix.first(), point->prefix.last()})) return false;
      continue;
    }
    stepper.StepChar(point->set, point->prefix.first(), *arena_, &next);
    if (!next.IsAlive()) return false;
    std::swap(point->set, next);
  }
  return true;
}

absl::Status TokenMatcher::Accept(int32_t token) {
  if (token < 0 || token >= constraint_->vocabulary().size()) {
    return absl::InvalidArgumentError(absl::StrCat("token ", token, " is outside the constraint's vocabulary"));
  }
  const size_t num_nodes = arena_->size();
  const std::string& bytes = constraint_->vocabulary().bytes(token);
  Point next;
  bool may_stand = false;
  if (now().has_ended) {
    may_stand = false;
  } else if (may_end() && IsEndToken(token)) {
    next.has_ended = may_stand = true;
  } else if (!bytes.empty()) {
    next = now();
    may_stand = StepText(bytes, &next);
  } else if (now().prefix.empty()) {
    PlaceStepper(*constraint_).StepToken(now().set, static_cast<uint32_t>(token), *arena_, &next.set);
    may_stand = next.set.IsAlive();
  }
  if (!may_stand) {
    arena_->Truncate(num_nodes);
    return absl::InvalidArgumentError(
        absl::StrCat("token ", token, " may not stand at place ", num_tokens_, " of the constrained answer"));
  }
  points_.push_back(std::move(next));
  if (points_.size() > kRollbackMax + 1) points_.pop_front();
  ++num_tokens_;
  if (arena_->size() > num_nodes_to_compact_) CompactNodes();
  return absl::OkStatus();
}

void TokenMatcher::Rollback(int num_tokens) {
  TANDEM_CHECK(num_tokens >= 0 && static_cast<size_t>(num_tokens) < points_.size(), "tokens that can be taken back");
  points_.erase(points_.end() - num_tokens, points_.end());
  num_tokens_ -= num_tokens;
}

// Keeps the nodes that a point stands on, directly or through callers. Depth is bounded, so the recursion is.
void TokenMatcher::CompactNodes() {
  auto kept = std::make_unique<CallArena>();
  absl::flat_hash_map<const CallNode*, const CallNode*> moved;
  const auto move = [&](const CallNode* node, const auto& self) -> const CallNode* {
    if (const auto it = moved.find(node); it != moved.end()) return it->second;
    CallNode* copy = kept->New(node->called, node->depth);
    moved.emplace(node, copy);
    for (const CallNode::Caller& caller : node->callers) {
      copy->callers.push_back({.to = caller.to, .node = self(caller.node, self)});
    }
    return copy;
  };
  for (Point& point : points_) {
    for (Place& place : point.set.places) place.node = move(place.node, move);
  }
  arena_ = std::move(kept);
  num_nodes_to_compact_ = std::max(kNodesMin, 2 * arena_->size());
}

}  // namespace tandem::model
