#include "model/token_mask/token_masker.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace tandem::model {

// One walk below a node of a trie. sets[depth] are the places behind `depth` bytes.
struct TokenMasker::Walk {
  const TokenTrie& trie;
  PlaceStepper& stepper;
  std::vector<PlaceSet>& sets;
  CallArena& arena;
  TokenMask* allowed;
  std::vector<StateMask::Return>* returns;  // null where all callers are known
  bool is_plain_trie = false;

  // Children of `parent`; sets[depth] and `prefix` are what stands behind it.
  void Children(uint32_t parent, size_t depth, const CharPrefix& prefix) {
    const absl::Span<const TokenTrie::Node> nodes = trie.nodes();
    if (sets.size() < depth + 2) sets.resize(depth + 2);
    for (uint32_t child = parent + 1; child < nodes[parent].end; child = nodes[child].end) {
      const TokenTrie::Node& node = nodes[child];
      CharPrefix next = prefix;
      const CharPrefix::Result result = next.Append(node.byte);
      if (result == CharPrefix::Result::kInvalid) continue;
      const size_t num_nodes = arena.size();
      PlaceSet& after = sets[depth + 1];
      if (result == CharPrefix::Result::kPartial) {
        if (!stepper.MayStep(sets[depth], {next.first(), next.last()})) continue;
        after.Clear();
        after.places.assign(sets[depth].places.begin(), sets[depth].places.end());
      } else {
        stepper.StepChar(sets[depth], next.first(), arena, &after);
      }
      if (after.IsAlive()) {
        for (const int32_t token : trie.TokensAt(node)) allowed->Allow(token);
        const bool has_children = node.end > child + 1;
        if (has_children && after.has_returned && returns != nullptr) {
          returns->push_back({.is_plain = is_plain_trie, .node = child});
        }
        if (has_children && !after.places.empty()) Children(child, depth + 1, next);
      }
      arena.Truncate(num_nodes);
    }
  }
};

void TokenMasker::DropOldest() {
  const Kept& oldest = kept_.back();
  kept_bytes_ -= oldest.mask.num_bytes();
  by_key_.erase(oldest.key);
  kept_.pop_back();
}

const TokenMasker::StateMask& TokenMasker::MaskOf(const std::shared_ptr<const Constraint>& constraint, uint32_t state) {
  const Key key = {.constraint = constraint.get(), .state = state};
  if (const auto it = by_key_.find(key); it != by_key_.end()) {
    kept_.splice(kept_.begin(), kept_, it->second);
    return it->second->mask;
  }
  kept_.push_front({.key = key, .constraint = constraint, .mask = Compute(*constraint, state)});
  by_key_.emplace(key, kept_.begin());
  kept_bytes_ += kept_.front().mask.num_bytes();
  while (kept_bytes_ > kept_bytes_max_ && kept_.size() > 1) DropOldest();
  return kept_.front().mask;
}

// The state's own steps alone: what it calls are places of their own.
TokenMasker::StateMask TokenMasker::Compute(const Constraint& constraint, uint32_t state) {
  const Vocabulary& vocabulary = constraint.vocabulary();
  StateMask result{.allowed = TokenMask(vocabulary.size())};
  PlaceStepper stepper(constraint);
  const size_t num_nodes = arena_.size();
  CallNode* unknown = arena_.New(0, 0);
  unknown->is_unknown = !constraint.is_outermost(state);
  if (sets_.empty()) sets_.resize(1);
  sets_[0].Clear();
  sets_[0].places.push_back({.state = state, .node = unknown});
  const auto walk = [&](const TokenTrie& trie, bool is_plain_trie) {
    ++num_walks_;
    Walk{.trie = trie,
         .stepper = stepper,
         .sets = sets_,
         .arena = arena_,
         .allowed = &result.allowed,
         .returns = &result.returns,
         .is_plain_trie = is_plain_trie}
        .Children(0, 0, CharPrefix());
  };
  const int plain_run = constraint.PlainRun(state);
  if (plain_run > 0) {
    result.allowed.AllowAllOf(vocabulary.PlainUpTo(plain_run));
    result.reach = constraint.PlainRunReach(state);
  } else {
    walk(vocabulary.plain(), true);
  }
  walk(vocabulary.rest(), false);
  for (const ConstraintState::Step& step : constraint.state(state).tokens) {
    if (constraint.need(step.to) > Constraint::kCallDepthMax) continue;
    result.allowed.Allow(static_cast<int32_t>(step.what));
    result.reach = std::max(result.reach, constraint.need(step.to));
  }
  result.reach = std::max(result.reach, stepper.reach());
  arena_.Truncate(num_nodes);
  return result;
}

void TokenMasker::AllowBehindReturns(const Constraint& constraint, const Place& place, const StateMask& of_state,
                                     TokenMask* mask) {
  if (of_state.returns.empty() || place.node->callers.empty()) return;
  PlaceStepper stepper(constraint);
  const size_t num_nodes = arena_.size();
  if (sets_.empty()) sets_.resize(1);
  sets_[0].Clear();
  stepper.BeginSet();
  for (const CallNode::Caller& caller : place.node->callers) {
    stepper.Enter({.state = caller.to, .node = caller.node}, arena_, &sets_[0]);
  }
  const Vocabulary& vocabulary = constraint.vocabulary();
  for (const StateMask::Return& at : of_state.returns) {
    Walk{.trie = at.is_plain ? vocabulary.plain() : vocabulary.rest(),
         .stepper = stepper,
         .sets = sets_,
         .arena = arena_,
         .allowed = mask,
         .returns = nullptr}
        .Children(at.node, 0, CharPrefix());
  }
  arena_.Truncate(num_nodes);
}

void TokenMasker::MaskAfter(const TokenMatcher& matcher, TokenMask* mask) {
  const Constraint& constraint = matcher.constraint();
  const Vocabulary& vocabulary = constraint.vocabulary();
  TANDEM_CHECK(mask->vocab_size() == vocabulary.size(), "a mask of the constraint's vocabulary");
  mask->Clear();
  if (matcher.has_ended()) return;
  if (matcher.may_end()) {
    for (const uint32_t token : constraint.end_tokens()) mask->Allow(static_cast<int32_t>(token));
  }
  std::vector<Place> to_walk;  // for which no mask of a state can be used
  for (const Place& place : matcher.places().places) {
    const ConstraintState& state = constraint.state(place.state);
    if (state.chars.empty() && state.tokens.empty()) continue;
    if (!matcher.prefix().empty()) {
      to_walk.push_back(place);
      continue;
    }
    const StateMask& of_state = MaskOf(matcher.shared_constraint(), place.state);
    if (place.node->depth + of_state.reach > Constraint::kCallDepthMax) {
      to_walk.push_back(place);
      continue;
    }
    mask->AllowAllOf(of_state.allowed);
    AllowBehindReturns(constraint, place, of_state, mask);
  }
  if (to_walk.empty()) return;
  PlaceStepper stepper(constraint);
  const size_t num_nodes = arena_.size();
  if (sets_.empty()) sets_.resize(1);
  sets_[0].Clear();
  sets_[0].places = std::move(to_walk);
  for (const TokenTrie* trie : {&vocabulary.plain(), &vocabulary.rest()}) {
    Walk{.trie = *trie, .stepper = stepper, .sets = sets_, .arena = arena_, .allowed = mask, .returns = nullptr}
        .Children(0, 0, matcher.prefix());
  }
  if (matcher.prefix().empty()) {
    for (const Place& place : sets_[0].places) {
      for (const ConstraintState::Step& step : constraint.state(place.state).tokens) {
        const bool fits = place.node->depth + constraint.need(step.to) <= Constraint::kCallDepthMax;
        if (fits) mask->Allow(static_cast<int32_t>(step.what));
      }
    }
  }
  arena_.Truncate(num_nodes);
}

}  // namespace tandem::model
