// One decode step: who is in it, the forward pass, what becomes of the drawn tokens. See engine.h.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "decode_worker/engine.h"
#include "decode_worker/stopping.h"
#include "decode_worker/token_messages.h"
#include "kvcache/kv_layout.h"

namespace tandem::decode {
namespace {

// Hidden states that a sequence without drafts gathers before the MTP layer takes them in: weights are read once for so
// many rows then.
constexpr int64_t kPendingRowsMax = 32;

DrawPlace PlaceOf(const Request& request, Sequence& sequence) {
  return {.choice = static_cast<uint32_t>(sequence.choice),
          .draws = &request.draws,
          .counts = &sequence.counts,
          .matcher = sequence.matcher.has_value() ? &*sequence.matcher : nullptr};
}

}  // namespace

int Engine::NextDraftLength() {
  if (!speculation_.is_on()) return 0;
  std::vector<const Acceptance*> drafting;
  for (const auto& [place, request] : holders_) {
    if (request->phase != Phase::kRunning) continue;
    for (const Sequence& sequence : request->sequences) {
      const bool drafts = sequence.HoldsPages() && request->HasCredit(sequence) &&
                          request->num_tokens(sequence) - sequence.num_written == 1;
      if (drafts) drafting.push_back(&sequence.drafting.acceptance);
    }
  }
  return drafting.empty() ? 0 : speculation_.NextDraftLength(drafting);
}

int Engine::DraftsWanted(const Request& request, const Sequence& sequence, int draft_length) const {
  if (request.num_tokens(sequence) - sequence.num_written != 1) return 0;  // it replays
  const int64_t num_tokens_max = std::min<int64_t>(
      request.num_prompt_tokens() + request.generate.head.stopping().max_new_tokens(), options_.context_length_max);
  // A window brings one token more than it has drafts.
  const int64_t room = std::min(num_tokens_max - request.num_tokens(sequence), request.unused_credit(sequence)) - 1;
  return static_cast<int>(std::clamp<int64_t>(room, 0, draft_length));
}

// members[i] is what the plan's index i stands for.
StepPlan Engine::PlanStep(int draft_length, std::vector<Member>& members) const {
  std::vector<SequenceView> views;
  // However the rows are dealt out, sequences grow by no more pages than this.
  int64_t num_growth_max = options_.batch.num_rows_max / kvcache::kPageTokens + 1;
  int64_t num_pages_returning = 0;
  for (const auto& [place, request] : holders_) {
    if (request->phase == Phase::kReleasing) {
      num_pages_returning += request->num_pages();
      continue;
    }
    if (request->phase == Phase::kTransferring) {
      members.push_back({.request = request});
      views.push_back({.is_runnable = false, .num_pages = request->num_pages()});
      continue;
    }
    bool is_oldest_holder = true;  // the shared pages come back with the last sequence that is retracted
    for (Sequence& sequence : request->sequences) {
      if (!sequence.HoldsPages()) continue;
      members.push_back({.request = request, .sequence = &sequence});
      views.push_back({.is_runnable = true,
                       .has_credit = request->HasCredit(sequence),
                       .num_rows_pending = static_cast<int>(request->num_tokens(sequence) - sequence.num_written),
                       .num_drafts = DraftsWanted(*request, sequence, draft_length),
                       .num_tokens = sequence.num_written,
                       .num_pages = static_cast<int>(sequence.pages.size()),
                       .num_pages_shared = is_oldest_holder ? 0 : request->num_shared_pages(),
                       .num_device_pages = static_cast<int>(sequence.device_pages.size())});
      is_oldest_holder = false;
      num_growth_max += 2;  // a part of a page at either end of its rows
    }
  }
  if (prefixes_.has_value() && num_pages_available() < num_growth_max) CountSharedPages(members, views);
  return scheduler_.PlanStep({.sequences = views,
                              .num_pages_free = num_pages_available(),
                              .num_pages_returning = num_pages_returning,
                              .num_device_pages_free = device_pages_.num_free()});
}

// A page comes back with the last of those that hold it, and the youngest are retracted first: it counts as that of the
// oldest.
void Engine::CountSharedPages(const std::vector<Member>& members, std::vector<SequenceView>& views) const {
  absl::flat_hash_set<kvcache::PageId> counted;
  const auto count = [&](const Request& request, const Sequence& sequence) {
    int num_new = 0;
    for (const kvcache::PageId page : pages_.PagesOf(request.Owner(sequence))) num_new += counted.insert(page).second;
    return num_new;
  };
  for (const auto& [place, request] : holders_) {
    if (request->phase != Phase::kReleasing) continue;  // their pages come back by themselves
    for (const Sequence& sequence : request->sequences) count(*request, sequence);
  }
  for (size_t i = 0; i < members.size(); ++i) {
    int num_own = 0;
    for (const Sequence& sequence : members[i].request->sequences) {
      if (members[i].sequence == nullptr || members[i].sequence == &sequence) {
        num_own += count(*members[i].request, sequence);
      }
    }
    views[i].num_pages_shared = views[i].num_pages - num_own;
  }
}

void Engine::StepRunning() {
  std::vector<Member> members;
  const int draft_length = NextDraftLength();
  StepPlan plan = PlanStep(draft_length, members);
  if (plan.num_without_credit > 0 && (plan.num_sitting_out > 0 || !plan.retracted.empty())) {
    // Pages are short: those go first who could not use theirs anyway.
    RetractWithoutCredit(absl::ZeroDuration());
    members.clear();
    plan = PlanStep(draft_length, members);
  }
  num_without_credit_ = plan.num_without_credit;
  for (const int victim : plan.retracted) {
    ++counters_.retractions;
    Retract(members[victim]);
  }
  for (const int index : plan.swapped_out) SwapOut(members[index]);
  std::erase_if(plan.rows,
                [&](const PlannedRows& rows) { return !members[rows.sequence_index].sequence->HoldsPages(); });
  if (plan.rows.empty()) return;

  for (const PlannedRows& rows : plan.rows) {
    const Member& member = members[rows.sequence_index];
    Grow(*member.request, *member.sequence, rows);
  }
  const absl::Status drafted = Draft(plan, members);
  std::vector<StepRows> step;
  int num_rows = 0;
  for (const PlannedRows& rows : plan.rows) {
    const Request& request = *members[rows.sequence_index].request;
    Sequence& sequence = *members[rows.sequence_index].sequence;
    const size_t first = sequence.num_written - request.num_prompt_tokens();
    step.push_back({.tokens = absl::MakeConstSpan(sequence.generated).subspan(first, rows.num_rows),
                    .drafts = sequence.drafting.drafts,
                    .first_position = sequence.num_written,
                    .page_table = sequence.pages,
                    .device_pages = sequence.device_pages,
                    .place = PlaceOf(request, sequence)});
    num_rows += static_cast<int>(step.back().tokens.size() + step.back().drafts.size());
  }
  const absl::Duration begin = clock_.Now();
  using Results = absl::StatusOr<absl::Span<const StepRunner::Result>>;
  const Results drawn = drafted.ok() ? runner_.Run(step, speculation_.is_on()) : Results(drafted);
  speculation_.NoteStep(num_rows, clock_.Now() - begin);
  ++counters_.steps;
  counters_.rows += num_rows;
  has_work_ = true;

  absl::btree_map<uint64_t, proto::TokenBatch> batches;  // by router
  // What comes of each request of the step; sequences of one request stand side by side.
  struct Result {
    Request* request = nullptr;
    absl::Status status;
    std::vector<Sequence*> finished;
  };
  std::vector<Result> results;
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const Member& member = members[plan.rows[i].sequence_index];
    if (results.empty() || results.back().request != member.request) results.push_back({.request = member.request});
    Result& result = results.back();
    if (!drawn.ok()) {
      result.status = drawn.status();
      continue;
    }
    result.status.Update(TakeDraws(*member.request, *member.sequence, (*drawn)[i],
                                   batches[member.request->generate.key.router_incarnation]));
    if (member.sequence->finish_reason != proto::FINISH_REASON_UNSPECIFIED) result.finished.push_back(member.sequence);
  }
  for (auto& [router, batch] : batches) {
    if (batch.sequences_size() > 0) SendTokens(router, std::move(batch));
  }
  for (Result& result : results) {
    if (!result.status.ok()) {
      End(*result.request, {.error = std::move(result.status)});
      continue;
    }
    // The request may be gone after its last sequence's end.
    for (Sequence* sequence : result.finished) EndSequence(*result.request, *sequence);
  }
}

void Engine::RetractWithoutCredit(absl::Duration patience) {
  const absl::Duration now = clock_.Now();
  std::vector<Member> retracted;
  for (const auto& [place, request] : holders_) {
    for (Sequence& sequence : request->sequences) {
      const bool sits_out = request->phase == Phase::kRunning && sequence.HoldsPages() && !request->HasCredit(sequence);
      if (!sits_out) {
        sequence.without_credit_since = absl::InfiniteDuration();
        continue;
      }
      if (sequence.without_credit_since == absl::InfiniteDuration()) sequence.without_credit_since = now;
      if (now - sequence.without_credit_since >= patience) retracted.push_back({request, &sequence});
    }
  }
  for (const Member& member : retracted) {
    ++counters_.credit_retractions;
    member.sequence->without_credit_since = absl::InfiniteDuration();
    Retract(member);
  }
}

void Engine::Grow(const Request& request, Sequence& sequence, const PlannedRows& rows) {
  if (rows.num_new_pages > 0) {
    for (const kvcache::PageId page : TakePages(rows.num_new_pages, request.Owner(sequence))) {
      pool_.ZeroPage(page);
      sequence.pages.push_back(page);
    }
  }
  if (rows.num_new_device_pages > 0) {
    auto pages = device_pages_.Allocate(rows.num_new_device_pages, request.Owner(sequence));
    TANDEM_CHECK(pages.ok(), "a planned device page is not free");
    sequence.device_pages.insert(sequence.device_pages.end(), pages->begin(), pages->end());
  }
}

// What is drafted of the windows of the plan, and the records of the MTP layer that are due.
absl::Status Engine::Draft(const StepPlan& plan, absl::Span<const Member> members) {
  if (!speculation_.is_on()) return absl::OkStatus();
  std::vector<DraftOrder> orders;
  for (const PlannedRows& rows : plan.rows) {
    const Request& request = *members[rows.sequence_index].request;
    Sequence& sequence = *members[rows.sequence_index].sequence;
    sequence.drafting.drafts.clear();
    const auto num_pending = static_cast<int64_t>(sequence.drafting.pending.size()) / executor_.hidden_size();
    if (rows.num_drafts == 0 && num_pending < kPendingRowsMax) continue;
    orders.push_back({.state = &sequence.drafting,
                      .generated = sequence.generated,
                      .num_prompt_tokens = request.num_prompt_tokens(),
                      .page_table = sequence.pages,
                      .place = PlaceOf(request, sequence),
                      .num_drafts = rows.num_drafts});
  }
  const absl::Duration begin = clock_.Now();
  RETURN_IF_ERROR(drafter_.Draft(absl::MakeSpan(orders)));
  speculation_.NoteDrafting(drafter_.num_runs(), drafter_.num_rows(), clock_.Now() - begin);
  return absl::OkStatus();
}

// Of the positions that are written: the MTP layer's that wait for the next drafts, and those that are on the device
// alone.
absl::Status Engine::FinishRecords(const Request& request, Sequence& sequence) {
  if (executor_.has_mtp() && !sequence.drafting.pending.empty()) {
    DraftOrder order{.state = &sequence.drafting,
                     .generated = sequence.generated,
                     .num_prompt_tokens = request.num_prompt_tokens(),
                     .page_table = sequence.pages,
                     .place = PlaceOf(request, sequence)};
    RETURN_IF_ERROR(drafter_.Draft({&order, 1}));
  }
  if (executor_.has_mtp() && sequence.drafting.num_final != sequence.num_written) {
    return absl::FailedPreconditionError("nothing is drafted: the MTP layer's records are not written");
  }
  if (sequence.device_pages.empty()) return absl::OkStatus();
  return executor_.WriteBack(
      {.first_position = sequence.num_written, .page_table = sequence.pages, .device_pages = sequence.device_pages});
}

// Tokens that are known already are only compared with what was drawn.
absl::Status Engine::TakeDraws(Request& request, Sequence& sequence, const StepRunner::Result& result,
                               proto::TokenBatch& batch) {
  const size_t num_known = sequence.generated.size();
  size_t num_taken = 0;
  absl::Status status;
  for (const StepRunner::Draw& draw : result.draws) {
    ++num_taken;
    const size_t next = ++sequence.num_written - request.num_prompt_tokens();
    if (next < sequence.generated.size()) {
      ++counters_.tokens_replayed;
      if (!draw.ok() || static_cast<uint32_t>(draw->token) != sequence.generated[next]) ++counters_.replay_mismatches;
      continue;
    }
    status = draw.status();
    if (!status.ok()) break;
    AppendToken(request, sequence, *draw);
    if (sequence.finish_reason != proto::FINISH_REASON_UNSPECIFIED) break;
  }
  const size_t num_new = sequence.generated.size() - num_known;
  if (speculation_.is_on()) {
    DraftState& drafting = sequence.drafting;
    const auto hidden = result.hidden.first(num_taken * static_cast<size_t>(executor_.hidden_size()));
    drafting.pending.insert(drafting.pending.end(), hidden.begin(), hidden.end());
    if (num_new > 0 && num_taken == num_new) speculation_.NoteWindow(static_cast<int>(num_new) - 1, drafting);
  }
  if (num_new > 0) *batch.add_sequences() = TokensOf(request, sequence, num_known, sequence.generated.size());
  return status;
}

void Engine::AppendToken(Request& request, Sequence& sequence, const model::SampledToken& token) {
  sequence.generated.push_back(static_cast<uint32_t>(token.token));
  if (request.draws.params.wants_logprobs) sequence.logprobs.push_back(token.logprobs);
  ++counters_.tokens_generated;
  sequence.finish_reason =
      FinishAfter(static_cast<uint32_t>(token.token), static_cast<int64_t>(sequence.generated.size()),
                  request.num_prompt_tokens(), request.generate.head.stopping(), options_.context_length_max);
}

// Its tokens stay; once it has pages again their KV comes back from the host, or is computed again.
void Engine::Retract(const Member& victim) {
  if (victim.sequence == nullptr) {
    victim.request->phase = Phase::kReleasing;
    transfer_.Abort(victim.request->epoch, absl::CancelledError("retracted: decode is out of pages"));
    return;
  }
  KeepPages(*victim.request, *victim.sequence);
  ReleasePages(*victim.request, *victim.sequence);
  SettleSequences(*victim.request);
}

void Engine::KeepPages(Request& request, Sequence& sequence) {
  const int num_shared = request.num_shared_pages();
  const auto written = absl::MakeConstSpan(sequence.pages).first(kvcache::PagesForTokens(sequence.num_written));
  const auto shared = written.first(num_shared), own = written.subspan(num_shared);
  const bool keeps_prompt = num_shared > 0 && !request.IsAnyKept();  // else a sibling's retraction has done so
  if (!retracted_.HasRoomFor(own.size() + (keeps_prompt ? shared.size() : 0))) return;
  absl::Status status;
  if (!sequence.device_pages.empty()) {
    status = executor_.WriteBack(
        {.first_position = sequence.num_written, .page_table = sequence.pages, .device_pages = sequence.device_pages});
  }
  if (status.ok()) status = executor_.PagesLeave(written);
  if (!status.ok()) {
    LOG_WARNING("a retracted sequence is computed again: its pages cannot leave the device",
                {"request", request.generate.key.ToString()}, {"status", status});
    return;
  }
  if (keeps_prompt) request.kept_prompt_pages = retracted_.Keep(shared, request.OwnerOfPrompt());
  sequence.kept_pages = retracted_.Keep(own, request.Owner(sequence));
  ++counters_.kept_retractions;
}

void Engine::SwapOut(const Member& member) {
  Sequence& sequence = *member.sequence;
  if (sequence.device_pages.empty()) return;  // it has been retracted meanwhile
  ++counters_.swap_outs;
  const absl::Status status = executor_.WriteBack(
      {.first_position = sequence.num_written, .page_table = sequence.pages, .device_pages = sequence.device_pages});
  if (status.ok()) return ReleaseDevicePages(*member.request, sequence);
  LOG_WARNING("a sequence is retracted: its rows cannot leave the device",
              {"request", member.request->generate.key.ToString()}, {"status", status});
  ++counters_.retractions;
  Retract(member);
}

}  // namespace tandem::decode
