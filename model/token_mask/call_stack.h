// The stacks of a pushdown automaton that may be in several places at once.
//
// A place is a state and the stack of calls below it. Stacks share what they have in common: a node stands for all that
// was called at one character with one first state, however many callers wait for it, so that places at one character
// are at most as many as states times depths, whatever the grammar. Nodes belong to an arena and only ever grow
// edges in the step that made them.
// Tested by token_matcher_test.cc, against a matcher that keeps each stack by itself.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "model/token_mask/char_prefix.h"
#include "model/token_mask/constraint.h"

namespace tandem::model {

struct CallNode {
  struct Caller {
    uint32_t to = 0;  // the state behind the call
    const CallNode* node = nullptr;
    bool operator==(const Caller&) const = default;
  };
  uint32_t called = 0;  // first state
  int depth = 0;
  bool is_unknown = false;                 // stands for any callers: a walk that must hold for all of them begins here
  absl::InlinedVector<Caller, 2> callers;  // none: the outermost automaton
};

struct Place {
  uint32_t state = 0;
  const CallNode* node = nullptr;
  bool operator==(const Place&) const = default;
};

// Hands out nodes; gives back those handed out last.
class CallArena final {
 public:
  CallNode* New(uint32_t called, int depth) {
    if (size_ == nodes_.size()) nodes_.emplace_back();
    CallNode& node = nodes_[size_++];
    node.called = called;
    node.depth = depth;
    node.is_unknown = false;
    node.callers.clear();
    return &node;
  }
  size_t size() const { return size_; }
  void Truncate(size_t size) { size_ = size; }

 private:
  std::deque<CallNode> nodes_;
  size_t size_ = 0;
};

// Places after a text, and what has happened on the way to its last character.
struct PlaceSet {
  std::vector<Place> places;
  bool may_end = false;       // the outermost automaton accepts here
  bool has_returned = false;  // to callers that are unknown

  void Clear() {
    places.clear();
    may_end = false;
    has_returned = false;
  }
  bool IsAlive() const { return !places.empty() || may_end || has_returned; }
};

// Steps sets of places; new nodes come from `arena`.
class PlaceStepper final {
 public:
  explicit PlaceStepper(const Constraint& constraint) : constraint_(constraint) {}

  // What may follow `from` behind the character; *to is overwritten.
  void StepChar(const PlaceSet& from, uint32_t c, CallArena& arena, PlaceSet* to);
  void StepToken(const PlaceSet& from, uint32_t token, CallArena& arena, PlaceSet* to);
  // Whether a character of the range may follow.
  bool MayStep(const PlaceSet& from, CharRange range) const;
  // Adds a place and all that it leads to without reading anything.
  void Enter(Place place, CallArena& arena, PlaceSet* to);
  // To be called between sets.
  void BeginSet() { made_.clear(); }

  // The deepest that any step since the last ResetReach() needed, kept or not.
  int reach() const { return reach_; }
  void ResetReach() { reach_ = 0; }

 private:
  bool Fits(int depth, uint32_t state) const;
  void Close(CallArena& arena, PlaceSet* set, size_t begin);

  const Constraint& constraint_;
  std::vector<CallNode*> made_;  // in this set
  mutable int reach_ = 0;
};

}  // namespace tandem::model
