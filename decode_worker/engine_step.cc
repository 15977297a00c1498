// One decode step: who is in it, the forward pass, what becomes of the drawn tokens. See engine.h.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "decode_worker/engine.h"
#include "decode_worker/stopping.h"

namespace tandem::decode {

void Engine::StepRunning() {
  std::vector<Sequence*> sequences;
  std::vector<SequenceView> views;
  int64_t num_pages_returning = 0;
  for (const auto& [arrival, sequence] : holders_) {
    const auto num_pages = static_cast<int>(sequence->pages.size());
    if (sequence->phase == Phase::kReleasing) {
      num_pages_returning += num_pages;
      continue;
    }
    const bool is_runnable = sequence->phase == Phase::kRunning;
    sequences.push_back(sequence);
    views.push_back({.is_runnable = is_runnable,
                     .num_rows_pending = static_cast<int>(sequence->num_tokens() - sequence->num_written),
                     .num_tokens = sequence->num_written,
                     .num_pages = num_pages});
  }
  const StepPlan plan = scheduler_.PlanStep(
      {.sequences = views, .num_pages_free = pages_.num_free(), .num_pages_returning = num_pages_returning});
  for (const int victim : plan.retracted) Retract(*sequences[victim]);
  if (plan.rows.empty()) return;

  std::vector<StepRows> step;
  for (const PlannedRows& rows : plan.rows) {
    Sequence& sequence = *sequences[rows.sequence_index];
    Grow(sequence, rows.num_new_pages);
    const size_t first = sequence.num_written - sequence.num_prompt_tokens();
    step.push_back({.tokens = absl::MakeConstSpan(sequence.generated).subspan(first, rows.num_rows),
                    .first_position = sequence.num_written,
                    .page_table = sequence.pages,
                    .sampling = &sequence.request.head.sampling()});
  }
  const auto drawn = runner_.Run(step);
  ++counters_.steps;
  has_work_ = true;
  if (!drawn.ok()) {
    for (const PlannedRows& rows : plan.rows) End(*sequences[rows.sequence_index], {.error = drawn.status()});
    return;
  }

  absl::btree_map<uint64_t, proto::TokenBatch> batches;  // by router
  std::vector<Sequence*> finished;
  size_t row = 0;
  for (const PlannedRows& rows : plan.rows) {
    Sequence& sequence = *sequences[rows.sequence_index];
    const auto own_draws = drawn->subspan(row, rows.num_rows);
    row += rows.num_rows;
    TakeDraws(sequence, own_draws, batches[sequence.request.key.router_incarnation]);
    if (sequence.finish_reason != proto::FINISH_REASON_UNSPECIFIED) finished.push_back(&sequence);
  }
  counters_.rows += static_cast<int64_t>(row);
  for (auto& [router, batch] : batches) {
    if (batch.sequences_size() > 0) SendTokens(router, std::move(batch));
  }
  for (Sequence* sequence : finished) End(*sequence, {});
}

void Engine::Grow(Sequence& sequence, int num_new_pages) {
  if (num_new_pages == 0) return;
  auto pages = pages_.Allocate(num_new_pages, sequence.Owner());
  TANDEM_CHECK(pages.ok(), "a planned page is not free");
  for (const kvcache::PageId page : *pages) {
    pool_.ZeroPage(page);
    sequence.pages.push_back(page);
  }
}

// draws[i] follows the i-th of the rows just written. All but the newest are known already and only compared.
void Engine::TakeDraws(Sequence& sequence, absl::Span<const uint32_t> draws, proto::TokenBatch& batch) {
  for (const uint32_t draw : draws) {
    const size_t next = ++sequence.num_written - sequence.num_prompt_tokens();
    if (next < sequence.generated.size()) {
      ++counters_.tokens_replayed;
      if (draw != sequence.generated[next]) ++counters_.replay_mismatches;
    } else {
      AppendToken(sequence, draw, batch);
    }
  }
}

void Engine::AppendToken(Sequence& sequence, uint32_t token, proto::TokenBatch& batch) {
  const size_t position = sequence.generated.size();
  sequence.generated.push_back(token);
  ++counters_.tokens_generated;
  sequence.finish_reason =
      FinishAfter(token, static_cast<int64_t>(sequence.generated.size()), sequence.num_prompt_tokens(),
                  sequence.request.head.stopping(), options_.context_length_max);
  proto::SequenceTokens& tokens = *batch.add_sequences();
  *tokens.mutable_key() = sequence.request.key.ToProto();
  tokens.set_first_position(static_cast<uint32_t>(position));
  tokens.add_tokens(token);
  tokens.set_finish_reason(sequence.finish_reason);
}

// Its tokens stay; the KV of all of them is computed again once it has pages again.
void Engine::Retract(Sequence& sequence) {
  ++counters_.retractions;
  const bool is_running = sequence.phase == Phase::kRunning;
  sequence.phase = Phase::kReleasing;
  if (is_running) {
    GiveBackPages(sequence);
  } else {
    transfer_.Abort(sequence.epoch, absl::CancelledError("retracted: decode is out of pages"));
  }
}

}  // namespace tandem::decode
