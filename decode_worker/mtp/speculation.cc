#include "decode_worker/mtp/speculation.h"

#include <numeric>
#include <vector>

#include "base/check.h"
#include "decode_worker/mtp/draft_length.h"

namespace tandem::decode {

int64_t SpeculativeCounters::num_drafted() const { return std::accumulate(drafted.begin(), drafted.end(), int64_t{0}); }

int64_t SpeculativeCounters::num_accepted() const {
  return std::accumulate(accepted.begin(), accepted.end(), int64_t{0});
}

double SpeculativeCounters::accept_length() const {
  return windows == 0 ? 0 : static_cast<double>(windows + num_accepted()) / static_cast<double>(windows);
}

Speculation::Speculation(const SpeculativeOptions& options) : options_(options), draft_length_(options.num_steps) {
  TANDEM_CHECK(options.num_steps >= 0 && options.num_steps <= kDraftsMax, "more drafts than a window may have");
}

int Speculation::NextDraftLength(absl::Span<const Acceptance* const> sequences) {
  if (!options_.is_adaptive) return draft_length_;
  std::vector<double> expected_tokens;
  for (int drafts = 0; drafts <= options_.num_steps; ++drafts) {
    double& tokens = expected_tokens.emplace_back(0);
    for (const Acceptance* sequence : sequences) tokens += sequence->ExpectedTokens(drafts);
  }
  draft_length_ = DraftLength({.step = step_times_.fixed(),
                               .row = step_times_.each(),
                               .draft_run = draft_times_.fixed(),
                               .draft_row = draft_times_.each()},
                              expected_tokens, static_cast<int>(sequences.size()));
  if (draft_length_ == options_.num_steps) {
    steps_until_probe_ = kProbeInterval;
  } else if (--steps_until_probe_ == 0) {
    steps_until_probe_ = kProbeInterval;
    return options_.num_steps;
  }
  return draft_length_;
}

void Speculation::NoteStep(int num_rows, absl::Duration time) {
  step_times_.Note(num_rows, absl::ToDoubleSeconds(time));
}

void Speculation::NoteDrafting(int num_runs, int num_rows, absl::Duration time) {
  if (num_runs == 0) return;
  draft_times_.Note(static_cast<double>(num_rows) / num_runs, absl::ToDoubleSeconds(time) / num_runs);
}

void Speculation::NoteWindow(int num_accepted, DraftState& sequence) {
  const auto num_drafts = static_cast<int>(sequence.drafts.size());
  sequence.acceptance.Note(num_drafts, num_accepted);
  ++sequence.num_windows;
  sequence.num_drafted += num_drafts;
  sequence.num_accepted += num_accepted;
  ++counters_.windows;
  for (int place = 0; place < num_drafts; ++place) {
    ++counters_.drafted[static_cast<size_t>(place)];
    if (place < num_accepted) ++counters_.accepted[static_cast<size_t>(place)];
  }
}

}  // namespace tandem::decode
