#include "router/prompt_run.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "router/pair_question.h"

namespace tandem::router {

PromptRun::PromptRun(const Parts& parts, const RequestState::Params& params, GenerateOrder order, int index,
                     std::string log_id, std::function<void()> wake)
    : parts_(parts),
      deadline_(params.deadline),
      index_(index),
      log_id_(std::move(log_id)),
      inbox_(std::move(wake)),
      state_(params),
      order_(std::move(order)),
      failover_(parts.failover_wait_max) {}

PromptRun::~PromptRun() {
  LookAt(absl::InfiniteDuration());
  if (request_id_ != 0) parts_.cluster->Forget(request_id_);
}

absl::StatusOr<PairChoice> PromptRun::Pick() {
  const ClusterView& view = parts_.cluster->view();
  const PairQuestion question(order_, *parts_.cluster, parts_.policy, (*parts_.turn)++);
  absl::StatusOr<PairChoice> pair = PickPair(view, question.request());
  if (!pair.ok()) return pair;
  pair_ = pair->Explain(view);
  parts_.metrics->routed_cached_tokens.Increment(static_cast<double>(pair->cached_tokens));
  parts_.metrics->routed_forgone_tokens.Increment(static_cast<double>(pair->best_cached_tokens - pair->cached_tokens));
  return pair;
}

absl::Status PromptRun::Start() {
  const absl::StatusOr<PairChoice> pair = Pick();
  if (pair.ok()) {
    Begin(*pair);
    return absl::OkStatus();
  }
  const Failover::Decision decision = failover_.OnNoPair(pair.status(), parts_.cluster->AwaitsWorkers(), Now());
  if (!decision.error.ok()) return decision.error;
  state_.EndAttempt();
  LookAt(decision.look_at);
  return absl::OkStatus();
}

void PromptRun::Begin(const PairChoice& pair) {
  order_.remaining_time = std::max(deadline_ - Now(), kAttemptTimeMin);
  parts_.metrics->prompt_tokens.Increment(static_cast<double>(order_.prompt.size()));
  sent_at_ = Now();
  Note("pick", sent_at_, sent_at_, pair_);
  request_id_ = parts_.cluster->Generate(pair, order_, &inbox_);
}

RequestState::Output PromptRun::BeginLate() {
  const absl::StatusOr<PairChoice> pair = Pick();
  if (!pair.ok()) return Follow(failover_.OnNoPair(pair.status(), parts_.cluster->AwaitsWorkers(), Now()));
  LookAt(absl::InfiniteDuration());
  state_.BeginAttempt();
  Begin(*pair);
  return RequestState::Output();
}

std::optional<RequestState::Output> PromptRun::TakeEvent() {
  if (inbox_.empty()) return std::nullopt;
  if (const auto* front = std::get_if<proto::TransferReport>(&inbox_.front())) {
    NoteTransfer(*front);
    inbox_.Pop();
    return RequestState::Output();
  }
  if (auto* front = std::get_if<GeneratedTokens>(&inbox_.front())) {
    const GeneratedTokens tokens = std::move(*front);
    inbox_.Pop();
    return TakeTokens(tokens);
  }
  if (const auto* front = std::get_if<RequestInbox::Ended>(&inbox_.front())) {
    const RequestInbox::Ended ended = *front;
    inbox_.Pop();
    if (state_.may_go_on() && ended.is_cancelled) {  // though nobody here has asked for it
      return OnAttemptFailed(absl::UnavailableError("request was cancelled by its worker"), /*is_worker_lost=*/false);
    }
    if (state_.may_go_on() && !ended.error.ok()) return OnAttemptFailed(ended.error, /*is_worker_lost=*/false);
    if (ended.error.ok() && !ended.is_cancelled && state_.num_generated() > 0) {
      parts_.metrics->CountFinished(state_.time_to_first_token(),
                                    num_gaps_ > 0 ? sum_of_gaps_ / num_gaps_ : absl::ZeroDuration());
    }
    return CarryOut(state_.OnEnded(ended.error, ended.is_cancelled));
  }
  const absl::Status cause = std::get<RequestInbox::WorkerLost>(inbox_.front()).cause;
  inbox_.Pop();
  if (state_.may_go_on()) return OnAttemptFailed(cause, /*is_worker_lost=*/true);
  return CarryOut(state_.OnWorkerLost(cause));
}

RequestState::Output PromptRun::TakeTokens(const GeneratedTokens& tokens) {
  const int64_t num_before = state_.num_generated();
  const absl::Duration now = Now();
  const absl::Duration before = state_.last_token_at(tokens.choice);
  RequestState::Output output = state_.OnTokens(tokens, now);
  parts_.cluster->TokensTaken(request_id_, tokens.choice,
                              tokens.first_position + static_cast<int64_t>(tokens.tokens.size()));
  const int64_t num_new = state_.num_generated() - num_before;
  if (num_new > 0) {
    NoteTokens(before, now);
    parts_.metrics->generation_tokens.Increment(static_cast<double>(num_new));
    if (num_before == 0) {
      parts_.metrics->time_to_first_token.Observe(absl::ToDoubleSeconds(state_.time_to_first_token()));
    }
    if (before != absl::InfiniteDuration()) {
      const double gap = absl::ToDoubleSeconds(now - before) / static_cast<double>(num_new);
      sum_of_gaps_ += now - before;
      num_gaps_ += num_new;
      for (int64_t i = 0; i < num_new; ++i) parts_.metrics->inter_token_latency.Observe(gap);
    }
  }
  return CarryOut(std::move(output));
}

// Whatever still waits in the inbox is of the attempt that has failed.
RequestState::Output PromptRun::OnAttemptFailed(const absl::Status& cause, bool is_worker_lost) {
  inbox_.DropWorkerEvents();
  Failover::Decision decision = failover_.OnFailure(cause, is_worker_lost, state_.num_generated(), Now());
  if (decision.error.ok()) {
    decision.look_at = std::max(decision.look_at, parts_.resume_pace->Reserve(Now()));
    failover_.LooksFrom(decision.look_at);
  }
  failed_at_ = Now();
  Note("attempt failed", failed_at_, failed_at_, absl::StrCat(state_.num_generated(), " tokens; ", cause.ToString()));
  state_.EndAttempt();
  parts_.cluster->EndAttempt(request_id_);
  RequestState::Output output = Follow(decision);
  return look_at_ <= Now() ? GoOnElsewhere() : output;
}

void PromptRun::LookAt(absl::Duration point) {
  const bool was_looking = look_at_ != absl::InfiniteDuration();
  look_at_ = point;
  const bool is_looking = look_at_ != absl::InfiniteDuration();
  if (is_looking && !was_looking) looks_since_ = Now();
  if (was_looking && !is_looking) Note("wait for workers", looks_since_, Now());
  if (is_looking != was_looking) parts_.metrics->requests_without_worker.Increment(is_looking ? 1 : -1);
}

void PromptRun::Note(const char* name, absl::Duration from, absl::Duration to, absl::string_view detail) {
  if (parts_.timeline != nullptr) parts_.timeline->Add(name, TimelinePlace::kRouter, index_, from, to, detail);
}

// before: of the choice, its token before.
void PromptRun::NoteTokens(absl::Duration before, absl::Duration now) {
  if (parts_.timeline == nullptr) return;
  if (before == absl::InfiniteDuration()) {
    parts_.timeline->Waited(state_.time_to_first_token());
    Note("first token", now, now);
  } else if (now - before > parts_.gap_limit) {
    parts_.timeline->Waited(now - before);
    Note("gap", before, now, absl::StrCat("after ", state_.num_generated() - 1, " tokens of the prompt"));
  }
}

// Decode counts from the arrival of what the router sent; the way there is not in it, so nothing is told too late.
void PromptRun::NoteTransfer(const proto::TransferReport& report) {
  if (parts_.timeline == nullptr) return;
  const auto at = [&](uint64_t us) { return sent_at_ + absl::Microseconds(us); };
  const auto add = [&](const char* name, TimelinePlace place, uint64_t from, uint64_t to, absl::string_view detail) {
    if (to != 0) parts_.timeline->Add(name, place, index_, at(from), at(to), detail);
  };
  add("reserve pages", TimelinePlace::kDecode, 0, report.started_us(), "");
  add("wait for its turn", TimelinePlace::kPrefill, report.started_us(), report.accepted_us(), "");
  uint64_t chunk_began_us = report.accepted_us();
  uint32_t num_pages = 0;
  for (const proto::TransferReport::Chunk& chunk : report.chunks()) {
    add("chunk", TimelinePlace::kPrefill, chunk_began_us, chunk.at_us(),
        absl::StrCat("pages ", num_pages, " to ", chunk.num_pages()));
    chunk_began_us = chunk.at_us();
    num_pages = chunk.num_pages();
  }
  add("sampled", TimelinePlace::kPrefill, report.first_token_us(), report.first_token_us(), "");
  add("transfer", TimelinePlace::kTransfer, report.first_announced_us(), report.ready_us(), "");
}

RequestState::Output PromptRun::Follow(const Failover::Decision& decision) {
  if (decision.error.ok()) {
    LookAt(decision.look_at);
    return RequestState::Output();
  }
  return CarryOut(state_.OnGiveUp(decision.error, Now()));
}

RequestState::Output PromptRun::GoOnElsewhere() {
  const absl::StatusOr<PairChoice> pair = Pick();
  if (!pair.ok()) return Follow(failover_.OnNoPair(pair.status(), parts_.cluster->AwaitsWorkers(), Now()));
  LOG_WARNING("request goes on elsewhere", {"req", log_id_}, {"attempt", failover_.num_failures() + 1},
              {"tokens", state_.num_generated()}, {"after", Now() - failed_at_}, {"cause", failover_.cause()},
              {"pair", pair_});
  prometheus::Counter& failovers =
      state_.num_generated() > 0 ? parts_.metrics->failovers_with_tokens : parts_.metrics->failovers_without_tokens;
  failovers.Increment();
  LookAt(absl::InfiniteDuration());
  // The deadline is RequestState's; a worker is never given none at all.
  order_.remaining_time = std::max(deadline_ - Now(), kAttemptTimeMin);
  state_.BeginAttempt();
  sent_at_ = Now();
  Note("go on elsewhere", sent_at_, sent_at_, pair_);
  parts_.cluster->GenerateAgain(request_id_, *pair, order_, state_.resumed_choices());
  return RequestState::Output();
}

RequestState::Output PromptRun::OnClientLeft() { return CarryOut(state_.OnClientLeft(Now())); }

RequestState::Output PromptRun::OnGiveUp(const absl::Status& cause) { return CarryOut(state_.OnGiveUp(cause, Now())); }

RequestState::Output PromptRun::OnAbort() { return CarryOut(state_.OnAbort(Now())); }

absl::Duration PromptRun::NextWakeup() const { return std::min(state_.NextWakeup(), look_at_); }

RequestState::Output PromptRun::OnTime() {
  if (Now() >= look_at_ && Now() < state_.NextWakeup()) return request_id_ == 0 ? BeginLate() : GoOnElsewhere();
  const bool is_with_workers = look_at_ == absl::InfiniteDuration();
  RequestState::Output output = CarryOut(state_.OnTime(Now()));
  if (output.is_released && is_with_workers) {
    parts_.metrics->unconfirmed_releases.Increment();
    LOG_WARNING("release not confirmed", {"req", log_id_}, {"pair", pair_});
  }
  return output;
}

RequestState::Output PromptRun::CarryOut(RequestState::Output output) {
  if (state_.is_released()) LookAt(absl::InfiniteDuration());
  if (!output.cancel_reason.empty()) {
    parts_.cluster->Cancel(request_id_, output.cancel_reason, output.cancel_choice);
    parts_.metrics->CountCancel(output.cancel_reason);
  }
  return output;
}

}  // namespace tandem::router
