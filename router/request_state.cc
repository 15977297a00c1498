#include "router/request_state.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tandem::router {

RequestState::RequestState(Params params)
    : num_prompt_tokens_(params.num_prompt_tokens),
      num_truncated_tokens_(params.num_truncated_tokens),
      num_prompt_logprobs_(params.num_prompt_logprobs),
      num_top_logprobs_(params.choice.num_top_logprobs),
      started_at_(params.started_at),
      deadline_(params.deadline),
      num_open_(params.num_choices),
      num_running_(params.num_choices) {
  choices_.reserve(static_cast<size_t>(params.num_choices));
  for (int i = 0; i < params.num_choices; ++i) choices_.emplace_back(params.choice);
}

RequestState::Output RequestState::OnTokens(const GeneratedTokens& tokens, absl::Duration now) {
  Output output;
  output.delta.choice = tokens.choice;
  if (!has_choice(tokens.choice)) {
    FailAnswer(absl::InternalError(
                   absl::StrCat("worker sent tokens of choice ", tokens.choice, ", there are ", choices_.size())),
               &output);
    CancelWork("breach of the token stream", now, &output);
    return output;
  }
  Choice& choice = choices_[tokens.choice];
  if (tokens.finish != SequenceFinish::kNone) OnSequenceStops(choice, now);
  if (!is_answer_open_ || !choice.state.is_open()) return output;  // under way when the choice ended

  const int64_t num_before = choice.state.num_generated();
  absl::Status breach = TakePromptLogprobs(tokens);
  if (breach.ok()) breach = choice.state.Take(tokens, &output.delta);
  if (!breach.ok()) {
    FailAnswer(std::move(breach), &output);
    CancelWork("breach of the token stream", now, &output);
    return output;
  }
  if (choice.state.num_generated() > num_before) {
    if (num_generated_ == 0) {
      first_token_at_ = now;
      num_cached_tokens_ = std::clamp<int64_t>(tokens.num_cached_prompt_tokens, 0, num_prompt_tokens_);
    }
    choice.last_token_at = now;
    num_generated_ += choice.state.num_generated() - num_before;
  }
  if (output.delta.has_news() && !std::exchange(choice.has_prompt_logprobs, true)) {
    output.delta.prompt_logprobs = prompt_logprobs_;
    output.delta.num_cached_tokens = num_cached_tokens_;
  }
  if (!choice.state.is_open()) OnChoiceEnds(tokens.choice, "stop string", now, &output);
  return output;
}

absl::Status RequestState::TakePromptLogprobs(const GeneratedTokens& tokens) {
  if (num_prompt_logprobs_ == 0 || prompt_logprobs_ != nullptr || tokens.tokens.empty()) return absl::OkStatus();
  if (tokens.prompt_logprobs == nullptr || tokens.prompt_logprobs->logprobs.size() != num_prompt_logprobs_ ||
      (num_top_logprobs_ > 0 && tokens.prompt_logprobs->top.size() != num_prompt_logprobs_)) {
    return absl::InternalError(
        absl::StrCat("worker sent tokens without the logprobs of ", num_prompt_logprobs_, " prompt tokens"));
  }
  prompt_logprobs_ = tokens.prompt_logprobs;
  return absl::OkStatus();
}

void RequestState::OnChoiceEnds(int index, const char* reason, absl::Duration now, Output* output) {
  Choice& choice = choices_[index];
  output->delta.end->after = now - started_at_;
  is_answer_open_ = --num_open_ > 0;
  if (!is_answer_open_) {
    CancelWork(reason, now, output);
  } else if (choice.runs) {
    output->cancel_reason = reason;
    output->cancel_choice = index;
    OnSequenceStops(choice, now);
  }
}

RequestState::Output RequestState::OnAbort(absl::Duration now) {
  Output output;
  if (!is_answer_open_) return output;
  const auto open = std::find_if(choices_.begin(), choices_.end(), [](Choice& c) { return c.state.is_open(); });
  output.delta.choice = static_cast<int>(open - choices_.begin());
  open->state.Abort(&output.delta);
  OnChoiceEnds(output.delta.choice, "abort", now, &output);
  return output;
}

absl::Duration RequestState::last_token_at(int choice) const {
  return has_choice(choice) ? choices_[choice].last_token_at : absl::InfiniteDuration();
}

// The last one to stop is followed by Ended.
void RequestState::OnSequenceStops(Choice& choice, absl::Duration now) {
  if (!std::exchange(choice.runs, false)) return;
  if (--num_running_ == 0) release_at_ = std::min(release_at_, now + kReleaseWaitMax);
}

void RequestState::FailAnswer(absl::Status error, Output* output) {
  if (!is_answer_open_) return;
  output->error = std::move(error);
  is_answer_open_ = false;
}

void RequestState::CancelWork(std::string reason, absl::Duration now, Output* output) {
  if (is_between_attempts_) return Release(output);
  if (num_running_ == 0 || is_cancel_sent_ || is_released_) return;
  is_cancel_sent_ = true;
  output->cancel_reason = std::move(reason);
  release_at_ = std::min(release_at_, now + kReleaseWaitMax);
}

void RequestState::Release(Output* output) {
  output->is_released = !is_released_;
  is_released_ = true;
}

void RequestState::EndAttempt() {
  is_between_attempts_ = true;
  for (Choice& choice : choices_) choice.runs = false;
  num_running_ = 0;
  release_at_ = absl::InfiniteDuration();
}

void RequestState::BeginAttempt() {
  is_between_attempts_ = false;
  for (Choice& choice : choices_) choice.runs = choice.state.is_open();
  num_running_ = num_open_;
}

std::vector<ResumedChoice> RequestState::resumed_choices() const {
  std::vector<ResumedChoice> choices;
  for (const Choice& choice : choices_) {
    choices.push_back({.has_ended = !choice.state.is_open()});
    if (choice.state.is_open()) choices.back().tokens = choice.state.generated();
  }
  return choices;
}

RequestState::Output RequestState::OnEnded(const absl::Status& error, bool is_cancelled) {
  Output output;
  if (!error.ok()) {
    FailAnswer(error, &output);
  } else if (is_cancelled) {
    FailAnswer(absl::UnavailableError("request was cancelled by its worker"), &output);
  } else {
    FailAnswer(absl::InternalError(
                   absl::StrCat("worker ended the request after ", num_generated(), " tokens without a finish reason")),
               &output);
  }
  Release(&output);
  return output;
}

RequestState::Output RequestState::OnWorkerLost(const absl::Status& cause) {
  Output output;
  FailAnswer(cause, &output);
  Release(&output);
  return output;
}

RequestState::Output RequestState::OnClientLeft(absl::Duration now) {
  Output output;
  is_answer_open_ = false;
  CancelWork("client left", now, &output);
  return output;
}

RequestState::Output RequestState::OnGiveUp(const absl::Status& cause, absl::Duration now) {
  Output output;
  FailAnswer(cause, &output);
  CancelWork(std::string(cause.message()), now, &output);
  return output;
}

RequestState::Output RequestState::OnTime(absl::Duration now) {
  Output output;
  if (is_answer_open_ && now >= deadline_) {
    FailAnswer(
        absl::DeadlineExceededError(absl::StrCat("request reached its deadline after ", num_generated(), " tokens")),
        &output);
    CancelWork("deadline", now, &output);
  }
  if (now >= release_at_) {
    FailAnswer(absl::InternalError("worker finished the sequence but never ended the request"), &output);
    Release(&output);
  }
  return output;
}

absl::Duration RequestState::NextWakeup() const {
  return is_answer_open_ ? std::min(deadline_, release_at_) : release_at_;
}

Usage RequestState::usage() const {
  Usage usage;
  usage.prompt_tokens = num_prompt_tokens_;
  usage.truncated_tokens = num_truncated_tokens_;
  usage.cached_tokens = num_cached_tokens_;
  usage.completion_tokens = num_generated_;
  for (const Choice& choice : choices_) usage.reasoning_tokens += choice.state.num_reasoning_tokens();
  return usage;
}

}  // namespace tandem::router
