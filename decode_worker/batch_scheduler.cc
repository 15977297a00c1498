#include "decode_worker/batch_scheduler.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "decode_worker/hisparse/device_pages.h"
#include "kvcache/kv_layout.h"

namespace tandem::decode {

BatchScheduler::BatchScheduler(const BatchLimits& limits) : limits_(limits) {
  TANDEM_CHECK(limits.num_sequences_max >= 1, "a decode worker runs at least one sequence");
  TANDEM_CHECK(limits.num_rows_max >= limits.num_sequences_max, "every running sequence needs a row in every step");
}

StepPlan BatchScheduler::PlanStep(const StepSnapshot& snapshot) const {
  StepPlan plan;
  const auto& sequences = snapshot.sequences;
  int64_t free = snapshot.num_pages_free;
  int64_t returning = snapshot.num_pages_returning;
  int end = static_cast<int>(sequences.size());  // sequences from here on are retracted
  std::vector<int> num_device_pages;
  for (const SequenceView& sequence : sequences) num_device_pages.push_back(sequence.num_device_pages);
  DevicePagePlan device(snapshot.num_device_pages_free, std::move(num_device_pages));

  // Every runnable sequence whose reader has room has one row; what is left over of the step goes to replays, the
  // oldest first.
  const auto is_stepped = [](const SequenceView& sequence) { return sequence.is_runnable && sequence.has_credit; };
  int stepped_behind = 0;
  for (const SequenceView& sequence : sequences) {
    stepped_behind += is_stepped(sequence) ? 1 : 0;
    plan.num_without_credit += sequence.is_runnable && !sequence.has_credit ? 1 : 0;
  }
  int rows_left = limits_.num_rows_max;
  for (int i = 0; i < end; ++i) {
    const SequenceView& sequence = sequences[i];
    if (!is_stepped(sequence)) continue;
    --stepped_behind;
    const int num_rows =
        std::min({sequence.num_rows_pending, rows_left - stepped_behind, limits_.num_rows_per_sequence_max});
    TANDEM_CHECK(num_rows >= 1, "a runnable sequence has no row to run");
    const int num_new_pages = std::max(0, kvcache::PagesForTokens(sequence.num_tokens + num_rows) - sequence.num_pages);
    while (num_new_pages > free + returning && end > i + 1) {
      --end;
      plan.retracted.push_back(end);
      // A running sequence's pages are free at once; those of a transfer return when its fetches have drained.
      (sequences[end].is_runnable ? free : returning) += sequences[end].num_pages - sequences[end].num_pages_shared;
      device.Return(end);
      stepped_behind -= is_stepped(sequences[end]) ? 1 : 0;
    }
    const int num_new_device_pages =
        std::max(0, DevicePagesFor(sequence.num_tokens + num_rows, limits_.num_kept_pages_max) - device.held(i));
    if (num_new_pages > free || !device.Take(i, num_new_device_pages, end)) {
      ++plan.num_sitting_out;
      continue;
    }
    free -= num_new_pages;
    rows_left -= num_rows;
    plan.rows.push_back({.sequence_index = i,
                         .num_rows = num_rows,
                         .num_new_pages = num_new_pages,
                         .num_new_device_pages = num_new_device_pages});
  }
  GrantDrafts(sequences, rows_left, free, plan);
  plan.swapped_out = std::move(device.swapped_out());
  return plan;
}

// The oldest first; a window is cut to the pages that there are. As many as there are sequences stay free, so that in
// the next step each can grow.
void BatchScheduler::GrantDrafts(absl::Span<const SequenceView> sequences, int rows_left, int64_t free,
                                 StepPlan& plan) const {
  free = std::max<int64_t>(0, free - static_cast<int64_t>(sequences.size()));
  for (PlannedRows& rows : plan.rows) {
    const SequenceView& sequence = sequences[rows.sequence_index];
    if (rows.num_rows < sequence.num_rows_pending) continue;
    const int64_t num_tokens = sequence.num_tokens + rows.num_rows;
    const int64_t num_pages = sequence.num_pages + rows.num_new_pages;
    int64_t room = (num_pages + free) * kvcache::kPageTokens - num_tokens;
    room = std::min<int64_t>(room, limits_.num_rows_per_sequence_max - rows.num_rows);
    if (DevicePagesFor(num_tokens + sequence.num_drafts, limits_.num_kept_pages_max) >
        DevicePagesFor(num_tokens, limits_.num_kept_pages_max)) {
      room = std::min(room, kvcache::PagesForTokens(num_tokens) * int64_t{kvcache::kPageTokens} - num_tokens);
    }
    rows.num_drafts = static_cast<int>(std::min<int64_t>({sequence.num_drafts, rows_left, room}));
    const int64_t num_pages_more =
        std::max<int64_t>(0, kvcache::PagesForTokens(num_tokens + rows.num_drafts) - num_pages);
    rows.num_new_pages += static_cast<int>(num_pages_more);
    free -= num_pages_more;
    rows_left -= rows.num_drafts;
  }
}

int BatchScheduler::PlanAdmission(const AdmissionSnapshot& snapshot) const {
  int64_t free = snapshot.num_pages_free;
  int64_t device_free = snapshot.num_device_pages - snapshot.num_device_pages_promised;
  int num_holders = snapshot.num_holders;
  int num_admitted = 0;
  for (const Reservation& wanted : snapshot.wanted) {
    if (num_holders + wanted.num_sequences > limits_.num_sequences_max) break;
    if (wanted.num_pages + num_holders > free) break;
    if (num_holders > 0 && wanted.num_device_pages > device_free) break;
    free -= wanted.num_pages;
    device_free -= wanted.num_device_pages;
    num_holders += wanted.num_sequences;
    ++num_admitted;
  }
  return num_admitted;
}

}  // namespace tandem::decode
