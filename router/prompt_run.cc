#include "router/prompt_run.h"

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "prometheus/counter.h"
#include "prometheus/histogram.h"

namespace tandem::router {

PromptRun::PromptRun(const Parts& parts, const RequestState::Params& params, GenerateOrder order, std::string log_id,
                     std::function<void()> wake)
    : parts_(parts),
      deadline_(params.deadline),
      log_id_(std::move(log_id)),
      inbox_(std::move(wake)),
      state_(params),
      order_(std::move(order)) {}

PromptRun::~PromptRun() {
  if (request_id_ != 0) parts_.cluster->Forget(request_id_);
}

absl::StatusOr<PairChoice> PromptRun::Pick() {
  const ClusterView& view = parts_.cluster->view();
  absl::StatusOr<PairChoice> pair = PickPair(view, order_.prompt.size() + 1, (*parts_.turn)++);
  if (pair.ok()) pair_ = pair->Explain(view);
  return pair;
}

absl::Status PromptRun::Start() {
  const absl::StatusOr<PairChoice> pair = Pick();
  if (!pair.ok()) return pair.status();
  order_.remaining_time = deadline_ - Now();
  parts_.metrics->prompt_tokens.Increment(static_cast<double>(order_.prompt.size()));
  request_id_ = parts_.cluster->Generate(*pair, order_, &inbox_);
  return absl::OkStatus();
}

std::optional<RequestState::Output> PromptRun::TakeEvent() {
  if (inbox_.empty()) return std::nullopt;
  if (auto* front = std::get_if<GeneratedTokens>(&inbox_.front())) {
    const GeneratedTokens tokens = std::move(*front);
    inbox_.Pop();
    return TakeTokens(tokens);
  }
  if (const auto* front = std::get_if<RequestInbox::Ended>(&inbox_.front())) {
    const RequestInbox::Ended ended = *front;
    inbox_.Pop();
    if (TryAgain(ended.error)) return RequestState::Output();
    return CarryOut(state_.OnEnded(ended.error, ended.is_cancelled));
  }
  const absl::Status cause = std::get<RequestInbox::WorkerLost>(inbox_.front()).cause;
  inbox_.Pop();
  if (TryAgain(cause)) return RequestState::Output();
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
    order_.prompt = std::vector<TokenId>();  // not {}: that keeps the memory
    parts_.metrics->generation_tokens.Increment(static_cast<double>(num_new));
    if (num_before == 0) {
      parts_.metrics->time_to_first_token.Observe(absl::ToDoubleSeconds(state_.time_to_first_token()));
    }
    if (before != absl::InfiniteDuration()) {
      const double gap = absl::ToDoubleSeconds(now - before) / static_cast<double>(num_new);
      for (int64_t i = 0; i < num_new; ++i) parts_.metrics->inter_token_latency.Observe(gap);
    }
  }
  return CarryOut(std::move(output));
}

bool PromptRun::TryAgain(const absl::Status& error) {
  if (!absl::IsUnavailable(error) || !state_.may_start_again() || num_attempts_ == kAttemptsMax) return false;
  const absl::Duration remaining_time = deadline_ - Now();
  if (remaining_time < kAttemptTimeMin) return false;
  const absl::StatusOr<PairChoice> pair = Pick();
  if (!pair.ok()) return false;  // the first error says more
  ++num_attempts_;
  parts_.metrics->second_attempts.Increment();
  LOG_WARNING("request starts again", {"req", log_id_}, {"attempt", num_attempts_}, {"cause", error}, {"pair", pair_});
  inbox_.DropWorkerEvents();  // of the attempt that has failed
  order_.remaining_time = remaining_time;
  parts_.cluster->GenerateAgain(request_id_, *pair, order_);
  return true;
}

RequestState::Output PromptRun::OnClientLeft() { return CarryOut(state_.OnClientLeft(Now())); }

RequestState::Output PromptRun::OnGiveUp(const absl::Status& cause) { return CarryOut(state_.OnGiveUp(cause, Now())); }

RequestState::Output PromptRun::OnAbort() { return CarryOut(state_.OnAbort(Now())); }

RequestState::Output PromptRun::OnTime() {
  RequestState::Output output = CarryOut(state_.OnTime(Now()));
  if (output.is_released) {
    parts_.metrics->unconfirmed_releases.Increment();
    LOG_WARNING("release not confirmed", {"req", log_id_}, {"pair", pair_});
  }
  return output;
}

RequestState::Output PromptRun::CarryOut(RequestState::Output output) {
  if (!output.cancel_reason.empty()) {
    parts_.cluster->Cancel(request_id_, output.cancel_reason, output.cancel_choice);
    parts_.metrics->CountCancel(output.cancel_reason);
  }
  return output;
}

}  // namespace tandem::router
