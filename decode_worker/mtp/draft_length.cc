#include "decode_worker/mtp/draft_length.h"

#include "base/check.h"

namespace tandem::decode {

double StepSeconds(const StepTimes& times, int num_drafts, int num_sequences) {
  const double rows = static_cast<double>(num_sequences) * (1 + num_drafts);
  const double draft_rows = static_cast<double>(num_sequences) * num_drafts;
  return times.step + times.row * rows + times.draft_run * num_drafts + times.draft_row * draft_rows;
}

int DraftLength(const StepTimes& times, absl::Span<const double> expected_tokens, int num_sequences) {
  TANDEM_CHECK(!expected_tokens.empty() && num_sequences >= 1, "a step without a sequence drafts nothing");
  int best = 0;
  double best_tokens = 0, best_seconds = 0;
  for (size_t drafts = 0; drafts < expected_tokens.size(); ++drafts) {
    const double seconds = StepSeconds(times, static_cast<int>(drafts), num_sequences);
    const double tokens = expected_tokens[drafts];
    // Not as quotients: seconds may be 0.
    if (drafts == 0 || tokens * best_seconds >= best_tokens * seconds) {
      best = static_cast<int>(drafts);
      best_tokens = tokens;
      best_seconds = seconds;
    }
  }
  return best;
}

}  // namespace tandem::decode
