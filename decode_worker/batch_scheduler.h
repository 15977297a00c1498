// Decides who is in the next decode step, who grows by a page, who is retracted when pages run out, and who of the
// waiting requests may reserve pages.
//
// Both plans are pure functions of a snapshot: the engine applies them. The scheduler owns no memory, thread or clock.
// Age is everything: sequences are ordered by their place (worker_shell/request_order.h: arrival at this worker, or
// priority before it), "older" means an earlier one, and a page goes to the oldest that needs it.
//   - Where the free pages do not cover a sequence's growth, the youngest holder of pages is retracted, never an older
//     one: it gives all of its pages back, keeps its tokens and waits again, first in line.
//   - A sequence that has nobody younger to retract sits the step out with its pages; it is itself the next victim.
//   - So the oldest is never retracted and never starves: it can take every page of the pool, and requests that would
//     not fit the whole pool are refused on arrival. No cycle of waits can form.
//   - With HiSparse a second pool counts, that of device buffers: hisparse/device_pages.h.
//   - Drafts take what is left: rows behind every known token's, free pages beyond one for every sequence, and no
//   device
//     page. Nobody is retracted, swapped out or made to wait for the sake of a draft.
//   - Choices of one request are as old as it, the first the oldest. Pages that they share come back with the last.
// Tested by batch_scheduler_test.cc (properties, runs to the end under famine) and //tests/sim.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/types/span.h"
#include "decode_worker/page_sharing.h"

namespace tandem::decode {

struct BatchLimits {
  int num_sequences_max = 0;  // max_running_requests: choices that hold pages, running or with their prompt under way
  int num_rows_max = 0;       // rows of one step; at least num_sequences_max
  // HiSparse; without it as here.
  int num_rows_per_sequence_max = std::numeric_limits<int>::max();  // of one step
  int num_kept_pages_max = 0;                                       // of a device buffer, beside its newest page
};

// A sequence that holds pages.
struct SequenceView {
  bool is_runnable = false;  // false: its prompt is still being transferred; it can be retracted all the same
  bool has_credit = true;    // false: its reader has no room for the token that a step brings
  int num_rows_pending = 0;  // tokens whose KV is to be written: 1, or what is left to replay
  int num_drafts = 0;        // rows that it would have behind them; 0 where it replays
  int64_t num_tokens = 0;    // positions whose KV is written
  int num_pages = 0;         // pages it holds
  int num_pages_shared = 0;  // of them those that an older sequence holds, too: they stay when it is retracted
  int num_device_pages = 0;  // of its device buffer; 0: it has none
};

struct StepSnapshot {
  absl::Span<const SequenceView> sequences;  // oldest first
  int64_t num_pages_free = 0;
  int64_t num_pages_returning = 0;  // held by retracted or cancelled transfers that still drain
  int64_t num_device_pages_free = 0;
};

struct PlannedRows {
  int sequence_index = 0;
  int num_rows = 0;       // of known tokens, at least 1
  int num_new_pages = 0;  // to take before the step, for drafts, too
  int num_drafts = 0;     // rows behind those of known tokens
  int num_new_device_pages = 0;

  bool operator==(const PlannedRows&) const = default;
};

struct StepPlan {
  std::vector<PlannedRows> rows;  // oldest first
  std::vector<int> retracted;     // sequence indices, youngest first
  std::vector<int> swapped_out;   // that leave their device buffers before the step and keep their pages
  int num_sitting_out = 0;        // runnable sequences without a page to grow into
  int num_without_credit = 0;     // runnable sequences that wait for their reader; they take no row
};

struct AdmissionSnapshot {
  absl::Span<const Reservation> wanted;  // by each waiting request, oldest first
  int num_holders = 0;                   // sequences that hold pages
  int64_t num_pages_free = 0;
  int64_t num_device_pages = 0;           // of the device pool
  int64_t num_device_pages_promised = 0;  // that the holders have or are about to need
};

class BatchScheduler final {
 public:
  explicit BatchScheduler(const BatchLimits& limits);

  // Never fails: an empty plan is a valid answer. O(sequences).
  StepPlan PlanStep(const StepSnapshot& snapshot) const;

  // How many waiting requests, from the oldest on, may take their pages now: all or none each, nobody overtakes. One
  // free page stays for every holder, so that whoever enters is not retracted by the next step's growth; an empty pool
  // needs no reserve. The device pages of all must fit together, too, but for those of a request that is alone.
  int PlanAdmission(const AdmissionSnapshot& snapshot) const;

 private:
  void GrantDrafts(absl::Span<const SequenceView> sequences, int rows_left, int64_t free, StepPlan& plan) const;

  const BatchLimits limits_;
};

}  // namespace tandem::decode
