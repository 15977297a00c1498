// Decides how many tokens are drafted for each sequence of a step: as many as bring the most tokens a second.
//
// Pure. Drafts cost runs of the MTP layer and rows of the step; they bring tokens as often as they come true. Where
// rows are free, as in small batches on a device that waits for its memory, long windows win; where a row costs as much
// as a step, as in large batches, none do. What things cost is measured (step_times.h), not known.
// Tested by draft_length_test.cc.
#pragma once

#include "absl/types/span.h"

namespace tandem::decode {

// Seconds, of the worker's own steps. All zero: nothing is known yet, or time stands still.
struct StepTimes {
  double step = 0;       // a step, whatever its rows
  double row = 0;        // each of its rows
  double draft_run = 0;  // a run of the MTP layer, whatever its rows
  double draft_row = 0;  // each of its rows
};

// Of a step with so many drafts for each of num_sequences sequences.
double StepSeconds(const StepTimes& times, int num_drafts, int num_sequences);

// expected_tokens[k]: that a step with k drafts for each of num_sequences sequences brings in all, from k = 0 on; not
// falling. The k of the most tokens a second, the greatest among equals.
int DraftLength(const StepTimes& times, absl::Span<const double> expected_tokens, int num_sequences);

}  // namespace tandem::decode
