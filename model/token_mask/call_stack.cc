#include "model/token_mask/call_stack.h"

#include <algorithm>

#include "absl/types/span.h"

namespace tandem::model {
namespace {

void AddOnce(Place place, std::vector<Place>* places) {
  if (std::find(places->begin(), places->end(), place) == places->end()) places->push_back(place);
}

// The first edge that does not end before the character.
absl::Span<const CharEdge>::iterator FirstFrom(absl::Span<const CharEdge> edges, uint32_t c) {
  return std::lower_bound(edges.begin(), edges.end(), c,
                          [](const CharEdge& edge, uint32_t to) { return edge.last < to; });
}

}  // namespace

bool PlaceStepper::Fits(int depth, uint32_t state) const {
  const int need = constraint_.need(state);
  if (need > Constraint::kCallDepthMax) return false;  // whatever the depth
  reach_ = std::max(reach_, depth + need);
  return depth + need <= Constraint::kCallDepthMax;
}

// Calls begin and called automata return until nothing new comes. Whatever is called reads something before it
// returns, so nobody returns here from a node made here: its callers are complete before they are looked at.
void PlaceStepper::Close(CallArena& arena, PlaceSet* set, size_t begin) {
  for (size_t i = begin; i < set->places.size(); ++i) {
    const Place place = set->places[i];
    const ConstraintState& state = constraint_.state(place.state);
    const int depth = place.node->depth;
    for (const ConstraintState::Step& call : state.calls) {
      if (!Fits(depth, call.to) || !Fits(depth + 1, call.what)) continue;
      const CallNode::Caller caller = {.to = call.to, .node = place.node};
      const auto known = std::find_if(made_.begin(), made_.end(), [&](const CallNode* node) {
        return node->called == call.what && node->depth == depth + 1;
      });
      if (known != made_.end()) {
        auto& callers = (*known)->callers;
        if (std::find(callers.begin(), callers.end(), caller) == callers.end()) callers.push_back(caller);
        continue;
      }
      CallNode* node = arena.New(call.what, depth + 1);
      node->callers.push_back(caller);
      made_.push_back(node);
      set->places.push_back({.state = call.what, .node = node});
    }
    if (!state.is_accepting) continue;
    if (place.node->is_unknown) {
      set->has_returned = true;
    } else if (place.node->callers.empty()) {
      set->may_end = true;
    }
    for (const CallNode::Caller& caller : place.node->callers) {
      AddOnce({.state = caller.to, .node = caller.node}, &set->places);
    }
  }
}

void PlaceStepper::Enter(Place place, CallArena& arena, PlaceSet* to) {
  const size_t begin = to->places.size();
  AddOnce(place, &to->places);
  Close(arena, to, begin);
}

void PlaceStepper::StepChar(const PlaceSet& from, uint32_t c, CallArena& arena, PlaceSet* to) {
  to->Clear();
  BeginSet();
  for (const Place& place : from.places) {
    if (const absl::Span<const CharEdge> edges = constraint_.char_edges(place.state); !edges.empty()) {
      const auto edge = FirstFrom(edges, c);
      if (edge == edges.end() || edge->first > c || !Fits(place.node->depth, edge->to)) continue;
      AddOnce({.state = edge->to, .node = place.node}, &to->places);
      continue;
    }
    for (const ConstraintState::Step& step : constraint_.state(place.state).chars) {
      if (!constraint_.char_set(step.what).Contains(c)) continue;
      if (Fits(place.node->depth, step.to)) AddOnce({.state = step.to, .node = place.node}, &to->places);
    }
  }
  Close(arena, to, 0);
}

void PlaceStepper::StepToken(const PlaceSet& from, uint32_t token, CallArena& arena, PlaceSet* to) {
  to->Clear();
  BeginSet();
  for (const Place& place : from.places) {
    for (const ConstraintState::Step& step : constraint_.state(place.state).tokens) {
      if (step.what != token || !Fits(place.node->depth, step.to)) continue;
      AddOnce({.state = step.to, .node = place.node}, &to->places);
    }
  }
  Close(arena, to, 0);
}

bool PlaceStepper::MayStep(const PlaceSet& from, CharRange range) const {
  for (const Place& place : from.places) {
    if (const absl::Span<const CharEdge> edges = constraint_.char_edges(place.state); !edges.empty()) {
      for (auto edge = FirstFrom(edges, range.first); edge != edges.end() && edge->first <= range.last; ++edge) {
        if (Fits(place.node->depth, edge->to)) return true;
      }
      continue;
    }
    for (const ConstraintState::Step& step : constraint_.state(place.state).chars) {
      if (constraint_.char_set(step.what).Intersects(range) && Fits(place.node->depth, step.to)) return true;
    }
  }
  return false;
}

}  // namespace tandem::model
