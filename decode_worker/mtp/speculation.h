// What a worker knows of its speculative decoding as a whole: how it is set, what steps and drafts take, how long the
// windows of the next step are and why, and how many drafts came true.
// Tested by speculation_test.cc; what it decides by is draft_length.h.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "decode_worker/mtp/acceptance.h"
#include "decode_worker/mtp/draft_length.h"
#include "decode_worker/mtp/draft_state.h"
#include "decode_worker/mtp/step_times.h"

namespace tandem::decode {

struct SpeculativeOptions {
  int num_steps = 0;        // drafts of a window, at most kDraftsMax; 0: off
  bool is_adaptive = true;  // false: as many always
};

// What has happened since the start; never goes back.
struct SpeculativeCounters {
  int64_t windows = 0;                           // steps of sequences that might draft
  std::array<int64_t, kDraftsMax> drafted = {};  // by place in the window
  std::array<int64_t, kDraftsMax> accepted = {};
  std::array<int64_t, kDraftsMax + 1> windows_by_accepted = {};  // by how many of their drafts came true
  // Answers that drafted, by their accept length rounded up to halves: [0] 1, [1] at most 1.5, [2] 2, ..
  std::array<int64_t, 2 * kDraftsMax + 1> answers_by_length = {};
  double answer_lengths_sum = 0;
  int64_t num_drafted() const;
  int64_t num_accepted() const;
  // Tokens that a window brought in the mean; 0 where there was none.
  double accept_length() const;
};

class Speculation final {
 public:
  explicit Speculation(const SpeculativeOptions& options);

  bool is_on() const { return options_.num_steps > 0; }
  // For a step of these sequences, at least one. Where it is adaptive, one window of kProbeInterval is as long as it
  // may be, so that nothing stays unknown that is not tried.
  int NextDraftLength(absl::Span<const Acceptance* const> sequences);

  // Of the last step: what its forward pass took, and the runs of the MTP layer, if any.
  void NoteStep(int num_rows, absl::Duration time);
  void NoteDrafting(int num_runs, int num_rows, absl::Duration time);
  // One sequence's window: of its drafts so many came true. Its own history is told, too.
  void NoteWindow(int num_accepted, DraftState& sequence);
  // A choice is over; nothing where it had no window.
  void NoteAnswer(const DraftState& sequence);

  int draft_length() const { return draft_length_; }  // last chosen
  // For /statusz: the lengths that came into question for the last step, with what was expected of each, and how often
  // drafts came true by place.
  std::string Describe() const;
  const SpeculativeCounters& counters() const { return counters_; }

  static constexpr int kProbeInterval = 32;

 private:
  const SpeculativeOptions options_;
  RowTimes step_times_, draft_times_;
  SpeculativeCounters counters_;
  // What the last choice was made by.
  StepTimes times_;
  std::vector<double> expected_tokens_;
  int num_sequences_ = 0;
  int draft_length_ = 0;
  int steps_until_probe_ = kProbeInterval;
};

}  // namespace tandem::decode
