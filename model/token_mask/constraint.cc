#include "model/token_mask/constraint.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace tandem::model {
namespace {

constexpr uint32_t kCharMax = 0x10FFFF;
constexpr int kNoStep = -1;     // no plain character may follow
constexpr int kMixedStep = -2;  // some, or not all in the same way

absl::Status Invalid(const std::string& what) { return absl::InvalidArgumentError(absl::StrCat("constraint: ", what)); }

absl::Status ValidateSet(absl::Span<const CharRange> ranges, size_t index) {
  uint32_t next = 0;
  for (const CharRange& range : ranges) {
    const bool has_surrogates = range.first <= 0xDFFF && range.last >= 0xD800;
    if (range.first < next || range.last < range.first || range.last > kCharMax || has_surrogates) {
      return Invalid(absl::StrCat("character set ", index, " is not of ascending ranges of characters"));
    }
    next = range.last + 1;
  }
  return absl::OkStatus();
}

}  // namespace

CharSet::CharSet(absl::Span<const CharRange> ranges) : ranges_(ranges) {
  for (const CharRange& range : ranges_) {
    for (uint32_t c = range.first; c <= std::min<uint32_t>(range.last, 127); ++c) {
      ascii_[c >> 6] |= uint64_t{1} << (c & 63);
    }
  }
}

bool CharSet::Intersects(CharRange range) const {
  const auto it = std::lower_bound(ranges_.begin(), ranges_.end(), range.first,
                                   [](const CharRange& r, uint32_t first) { return r.last < first; });
  return it != ranges_.end() && it->first <= range.last;
}

bool CharSet::Covers(absl::Span<const CharRange> ranges) const {
  return std::all_of(ranges.begin(), ranges.end(), [this](const CharRange& range) {
    return std::any_of(ranges_.begin(), ranges_.end(),
                       [&](const CharRange& own) { return own.first <= range.first && own.last >= range.last; });
  });
}

absl::StatusOr<std::shared_ptr<const Constraint>> Constraint::Build(ConstraintSpec spec,
                                                                    std::shared_ptr<const Vocabulary> vocabulary) {
  std::shared_ptr<Constraint> constraint(new Constraint(std::move(spec), std::move(vocabulary)));
  for (const std::vector<CharRange>& ranges : constraint->spec_.char_sets) {
    RETURN_IF_ERROR(ValidateSet(ranges, constraint->char_sets_.size()));
    constraint->char_sets_.emplace_back(ranges);
  }
  RETURN_IF_ERROR(constraint->Validate());
  constraint->ComputeNeed();
  if (constraint->need(constraint->first_state()) > kCallDepthMax) {
    return Invalid(absl::StrCat("no answer fits it within ", kCallDepthMax, " nested calls"));
  }
  constraint->ComputeOutermost();
  return std::shared_ptr<const Constraint>(std::move(constraint));
}

absl::Status Constraint::Validate() {
  size_t num_char_edges = 0;
  char_edges_.resize(num_states());
  const size_t num_states = spec_.states.size();
  if (num_states > kStatesMax) return Invalid(absl::StrCat("has ", num_states, " states, at most ", kStatesMax));
  if (spec_.first_state >= num_states) return Invalid("its first state is none of its states");
  const auto size = static_cast<uint32_t>(vocabulary_->size());
  for (const uint32_t token : spec_.end_tokens) {
    if (token >= size) return Invalid(absl::StrCat("end token ", token, " is outside the vocabulary of ", size));
  }
  for (size_t index = 0; index < num_states; ++index) {
    const ConstraintState& state = spec_.states[index];
    const auto check = [&](const std::vector<ConstraintState::Step>& steps, size_t what_end) {
      return std::all_of(steps.begin(), steps.end(), [&](const ConstraintState::Step& step) {
        return step.what < what_end && step.to < num_states;
      });
    };
    if (!check(state.chars, char_sets_.size()) || !check(state.tokens, size) || !check(state.calls, num_states)) {
      return Invalid(absl::StrCat("state ", index, " names what is not there"));
    }
    for (const ConstraintState::Step& token : state.tokens) {
      if (vocabulary_->bytes(static_cast<int32_t>(token.what)).empty()) continue;
      return Invalid(absl::StrCat("state ", index, " names token ", token.what, ", which is text"));
    }
    for (const ConstraintState::Step& call : state.calls) {
      if (spec_.states[call.what].is_accepting)
        return Invalid(absl::StrCat("state ", call.what, " is called, accepts"));
    }
    std::vector<CharEdge> edges;
    for (const ConstraintState::Step& step : state.chars) {
      for (const CharRange& range : char_sets_[step.what].ranges()) edges.push_back({range.first, range.last, step.to});
    }
    std::sort(edges.begin(), edges.end(), [](const CharEdge& a, const CharEdge& b) { return a.first < b.first; });
    for (size_t i = 1; i < edges.size(); ++i) {
      if (edges[i].first > edges[i - 1].last) continue;
      return Invalid(absl::StrCat("state ", index, " reads a character in two ways"));
    }
    if (state.chars.size() < kSetsToIndex || num_char_edges + edges.size() > kCharEdgesMax) continue;
    num_char_edges += edges.size();
    char_edges_[index] = std::move(edges);
  }
  return absl::OkStatus();
}

// Settles states in the order of their need, as Dijkstra does: a state's need follows from those of needs no greater.
void Constraint::ComputeNeed() {
  struct Use {
    uint32_t state;
    int other;  // of a call, the other of its two states; -1: a plain step
    bool is_called;
  };
  std::vector<std::vector<Use>> uses(num_states());
  for (uint32_t index = 0; index < num_states(); ++index) {
    const ConstraintState& state = spec_.states[index];
    for (const auto& step : state.chars) uses[step.to].push_back({index, -1, false});
    for (const auto& step : state.tokens) uses[step.to].push_back({index, -1, false});
    for (const auto& step : state.calls) {
      uses[step.what].push_back({index, static_cast<int>(step.to), true});
      uses[step.to].push_back({index, static_cast<int>(step.what), false});
    }
  }
  need_.assign(num_states(), kNeverEnds);
  std::vector<std::vector<uint32_t>> by_need(kCallDepthMax + 1);
  const auto offer = [&](uint32_t state, int need) {
    if (need > kCallDepthMax || need >= need_[state]) return;
    need_[state] = need;
    by_need[need].push_back(state);
  };
  for (uint32_t index = 0; index < num_states(); ++index) {
    if (spec_.states[index].is_accepting) offer(index, 0);
  }
  for (int need = 0; need <= kCallDepthMax; ++need) {
    for (size_t i = 0; i < by_need[need].size(); ++i) {
      const uint32_t settled = by_need[need][i];
      if (need_[settled] != need) continue;
      for (const Use& use : uses[settled]) {
        if (use.other < 0) {
          offer(use.state, need);
        } else if (use.is_called) {
          offer(use.state, std::max(need + 1, need_[use.other]));
        } else {
          offer(use.state, std::max(need, need_[use.other] + 1));
        }
      }
    }
  }
}

void Constraint::ComputeOutermost() {
  const auto reach = [this](std::vector<uint32_t> front) {
    std::vector<bool> is_reached(num_states(), false);
    for (const uint32_t state : front) is_reached[state] = true;
    while (!front.empty()) {
      const ConstraintState& state = spec_.states[front.back()];
      front.pop_back();
      for (const auto* steps : {&state.chars, &state.tokens, &state.calls}) {
        for (const auto& step : *steps) {
          if (is_reached[step.to]) continue;
          is_reached[step.to] = true;
          front.push_back(step.to);
        }
      }
    }
    return is_reached;
  };
  std::vector<uint32_t> called;
  for (const ConstraintState& state : spec_.states) {
    for (const auto& call : state.calls) called.push_back(call.what);
  }
  const std::vector<bool> is_called = reach(called);
  is_outermost_ = reach({spec_.first_state});
  for (uint32_t state = 0; state < num_states(); ++state) {
    if (is_called[state]) is_outermost_[state] = false;
  }
}

// The state behind any plain character, kNoStep or kMixedStep. with_calls: what the state calls may read it, too.
int Constraint::PlainStep(uint32_t state, bool with_calls) const {
  int to = kNoStep;
  for (const ConstraintState::Step& step : spec_.states[state].chars) {
    const CharSet& set = char_sets_[step.what];
    const bool has_any = std::any_of(Vocabulary::PlainChars().begin(), Vocabulary::PlainChars().end(),
                                     [&](const CharRange& range) { return set.Intersects(range); });
    if (!has_any) continue;
    if (to != kNoStep || !set.Covers(Vocabulary::PlainChars()) || need_[step.to] > kCallDepthMax) return kMixedStep;
    to = static_cast<int>(step.to);
  }
  if (!with_calls) return to;
  std::vector<uint32_t> called;
  for (const ConstraintState::Step& call : spec_.states[state].calls) called.push_back(call.what);
  for (size_t i = 0; i < called.size(); ++i) {
    if (PlainStep(called[i], false) != kNoStep) return kMixedStep;
    for (const ConstraintState::Step& call : spec_.states[called[i]].calls) {
      if (std::find(called.begin(), called.end(), call.what) == called.end()) called.push_back(call.what);
    }
  }
  return to;
}

int Constraint::PlainRun(uint32_t state) const {
  int next = PlainStep(state, /*with_calls=*/false);
  if (next < 0) return 0;
  for (int num_chars = 1; num_chars < Vocabulary::kPlainCharsMax; ++num_chars) {
    const auto at = static_cast<uint32_t>(next);
    if (spec_.states[at].is_accepting && !is_outermost_[at]) return 0;
    next = PlainStep(at, /*with_calls=*/true);
    if (next == kMixedStep) return 0;
    if (next == kNoStep) return num_chars;
  }
  return kUnbounded;
}

int Constraint::PlainRunReach(uint32_t state) const {
  int reach = 0;
  int next = PlainStep(state, /*with_calls=*/false);
  for (int num_chars = 0; num_chars < Vocabulary::kPlainCharsMax && next >= 0; ++num_chars) {
    reach = std::max(reach, need_[next]);
    next = PlainStep(static_cast<uint32_t>(next), /*with_calls=*/true);
  }
  return reach;
}

}  // namespace tandem::model
