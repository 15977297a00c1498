#include "decode_worker/mtp/speculation.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"

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
  expected_tokens_.assign(options_.num_steps + 1, 0);
  for (int drafts = 0; drafts <= options_.num_steps; ++drafts) {
    for (const Acceptance* sequence : sequences) expected_tokens_[drafts] += sequence->ExpectedTokens(drafts);
  }
  num_sequences_ = static_cast<int>(sequences.size());
  times_ = {.step = step_times_.fixed(),
            .row = step_times_.each(),
            .draft_run = draft_times_.fixed(),
            .draft_row = draft_times_.each()};
  draft_length_ = DraftLength(times_, expected_tokens_, num_sequences_);
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
  ++counters_.windows_by_accepted[static_cast<size_t>(num_accepted)];
  for (int place = 0; place < num_drafts; ++place) {
    ++counters_.drafted[static_cast<size_t>(place)];
    if (place < num_accepted) ++counters_.accepted[static_cast<size_t>(place)];
  }
}

void Speculation::NoteAnswer(const DraftState& sequence) {
  const int64_t windows = sequence.num_windows;
  if (windows == 0) return;
  ++counters_.answers_by_length[static_cast<size_t>((2 * sequence.num_accepted + windows - 1) / windows)];
  counters_.answer_lengths_sum += static_cast<double>(windows + sequence.num_accepted) / static_cast<double>(windows);
}

std::string Speculation::Describe() const {
  std::string text = absl::StrFormat(
      "mtp: %d drafts a window now, %d at most, %s; %d windows brought %.2f tokens each\n"
      "draft drafted came_true\n",
      draft_length_, options_.num_steps,
      options_.is_adaptive ? "as many as bring the most tokens a second" : "always as many", counters_.windows,
      counters_.accept_length());
  for (int place = 0; place < options_.num_steps; ++place) {
    const int64_t drafted = counters_.drafted[place], accepted = counters_.accepted[place];
    absl::StrAppendFormat(&text, "%d %d %.1f%%\n", place + 1, drafted,
                          drafted == 0 ? 0 : 100 * static_cast<double>(accepted) / static_cast<double>(drafted));
  }
  if (expected_tokens_.empty()) return text;
  absl::StrAppendFormat(&text,
                        "of the last step's %d sequences, by what windows brought and steps took of late:\n"
                        "drafts expected_tokens expected_ms tokens_a_second\n",
                        num_sequences_);
  for (int drafts = 0; drafts <= options_.num_steps; ++drafts) {
    const double seconds = StepSeconds(times_, drafts, num_sequences_);
    absl::StrAppendFormat(&text, "%d %.2f %.3f %s%s\n", drafts, expected_tokens_[drafts], 1e3 * seconds,
                          seconds > 0 ? absl::StrFormat("%.0f", expected_tokens_[drafts] / seconds) : "unknown",
                          drafts == draft_length_ ? " <- chosen" : "");
  }
  return text;
}

}  // namespace tandem::decode
