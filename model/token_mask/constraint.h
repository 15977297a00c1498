// A constraint on an answer: a pushdown automaton over characters and over tokens that stand for themselves.
//
// States read a character of a set, read one token, or call: the automaton that begins at the called state runs to one
// of its accepting states, then the caller goes on behind the call. The answer may end where the outermost automaton
// accepts. A called automaton reads something: no called state accepts at once, so calls and returns at one place are
// finitely many.
//
// Calls nest at most kCallDepthMax deep. So that no answer runs into that bound with no way out, need(state) says how
// deep calls must still nest below it, at least, until its automaton accepts: a step is taken only if the rest fits.
// Immutable once built. Tested by token_matcher_test.cc and //tests/constraints.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "model/token_mask/vocabulary.h"

namespace tandem::model {

// Inclusive range of code points.
struct CharRange {
  uint32_t first = 0;
  uint32_t last = 0;
};

struct ConstraintState {
  struct Step {
    uint32_t what = 0;  // index of a set, a token id, or the first state of what is called
    uint32_t to = 0;
  };
  bool is_accepting = false;
  std::vector<Step> chars;
  std::vector<Step> tokens;
  std::vector<Step> calls;
};

// As it comes from the router.
struct ConstraintSpec {
  std::vector<std::vector<CharRange>> char_sets;
  std::vector<ConstraintState> states;
  uint32_t first_state = 0;
  std::vector<uint32_t> end_tokens;
};

class CharSet final {
 public:
  explicit CharSet(absl::Span<const CharRange> ranges);
  bool Contains(uint32_t c) const {
    return c < 128 ? (ascii_[c >> 6] >> (c & 63) & 1) != 0 : Intersects({.first = c, .last = c});
  }
  bool Intersects(CharRange range) const;
  bool Covers(absl::Span<const CharRange> ranges) const;
  absl::Span<const CharRange> ranges() const { return ranges_; }

 private:
  absl::Span<const CharRange> ranges_;  // ascending, apart; the specification's
  uint64_t ascii_[2] = {0, 0};
};

// Where a state goes with a range of characters.
struct CharEdge {
  uint32_t first = 0;
  uint32_t last = 0;
  uint32_t to = 0;
};

class Constraint final {
 public:
  static constexpr int kCallDepthMax = 100;
  static constexpr size_t kStatesMax = 16384;
  static constexpr int kNeverEnds = 1 << 20;  // need() of a state that cannot reach an end

  static constexpr int kUnbounded = 1 << 20;  // PlainRun() of a state that any number of plain characters may follow

  // INVALID_ARGUMENT: an index out of range, sets of one state that overlap, more states than kStatesMax, a called
  // state that accepts, no answer at all.
  static absl::StatusOr<std::shared_ptr<const Constraint>> Build(ConstraintSpec spec,
                                                                 std::shared_ptr<const Vocabulary> vocabulary);

  uint32_t first_state() const { return spec_.first_state; }
  const ConstraintState& state(uint32_t index) const { return spec_.states[index]; }
  size_t num_states() const { return spec_.states.size(); }
  const CharSet& char_set(uint32_t index) const { return char_sets_[index]; }
  // Of a state that reads many sets: all their ranges, ascending, to be searched; else empty.
  absl::Span<const CharEdge> char_edges(uint32_t state) const { return char_edges_[state]; }
  absl::Span<const uint32_t> end_tokens() const { return spec_.end_tokens; }
  int need(uint32_t state) const { return need_[state]; }
  // Where it is not 0: of texts of up to Vocabulary::kPlainCharsMax plain characters those may follow that are no
  // longer than this, and no call ends in them. 0: the state must be looked at.
  int PlainRun(uint32_t state) const;
  // The greatest need on that run.
  int PlainRunReach(uint32_t state) const;
  // Part of the outermost automaton alone: nothing goes on behind its end.
  bool is_outermost(uint32_t state) const { return is_outermost_[state]; }
  const Vocabulary& vocabulary() const { return *vocabulary_; }

 private:
  explicit Constraint(ConstraintSpec spec, std::shared_ptr<const Vocabulary> vocabulary)
      : spec_(std::move(spec)), vocabulary_(std::move(vocabulary)) {}

  // An enumeration of thousands of words may begin with thousands of letters, each a set of its own.
  static constexpr size_t kSetsToIndex = 16;
  static constexpr size_t kCharEdgesMax = size_t{1} << 20;  // of all states; others are looked through

  // Indexes states that read many sets.
  absl::Status Validate();
  void ComputeNeed();
  void ComputeOutermost();
  int PlainStep(uint32_t state, bool with_calls) const;

  const ConstraintSpec spec_;
  const std::shared_ptr<const Vocabulary> vocabulary_;
  std::vector<CharSet> char_sets_;
  std::vector<std::vector<CharEdge>> char_edges_;  // [num_states]
  std::vector<int> need_;
  std::vector<bool> is_outermost_;
};

}  // namespace tandem::model
