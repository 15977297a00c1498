// One request as it went. Times are on the clock of the run.
#pragma once

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tools/bench_serving/answer.h"

namespace tandem::bench_serving {

struct Outcome {
  absl::Status status;      // not OK: the kind of failure before the first ": ", then the particulars
  absl::Duration start;     // when it was sent
  absl::Duration end;       // when the last event, or the failure, was read
  absl::Duration lateness;  // sent so long after its time in the plan, where no bound on concurrency held it back
  int prompt_len = 0;       // tokens, as the data set has it
  int output_len_asked = 0;
  Answer answer;
};

}  // namespace tandem::bench_serving
