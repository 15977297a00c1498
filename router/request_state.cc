#include "router/request_state.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace tandem::router {
namespace {

// Marks that the parsers of the answer's text look for. A checkpoint may flag them special; they are read, not hidden.
constexpr absl::string_view kParsedMarks[] = {"<think>", "</think>", "｜DSML｜"};

}  // namespace

RequestState::RequestState(Params params)
    : num_prompt_tokens_(params.num_prompt_tokens),
      max_new_tokens_(params.max_new_tokens),
      started_at_(params.started_at),
      deadline_(params.deadline),
      tokenizer_(params.tokenizer),
      is_thinking_(params.start == ReasoningSplitter::State::kReasoning),
      stops_(std::move(params.stops)),
      stop_matcher_(stops_),
      detokenizer_(*params.tokenizer),
      splitter_(params.start) {}

RequestState::Output RequestState::OnTokens(int64_t first_position, absl::Span<const TokenId> tokens,
                                            SequenceFinish finish, absl::Duration now) {
  Output output;
  if (finish != SequenceFinish::kNone) {
    has_sequence_finished_ = true;
    release_at_ = std::min(release_at_, now + kReleaseWaitMax);
  }
  if (!is_answer_open_) return output;  // tokens that were under way when the answer ended
  if (!AcceptPositions(first_position, &tokens, now, &output)) return output;
  if (!tokens.empty()) {
    if (generated_.empty()) first_token_at_ = now;
    last_token_at_ = now;
  }
  for (size_t i = 0; i < tokens.size() && is_answer_open_; ++i) {
    const bool is_stop_token = finish == SequenceFinish::kStopToken && i + 1 == tokens.size();
    if (is_stop_token) {
      generated_.push_back(tokens[i]);  // counted, never shown
    } else {
      AppendToken(tokens[i], &output);
    }
  }
  if (is_answer_open_ && finish != SequenceFinish::kNone) {
    FlushText(&output);
    if (is_answer_open_) {
      CompleteAnswer(finish == SequenceFinish::kLength ? AnswerFinish::kLength : AnswerFinish::kStop, &output);
    }
  }
  if (!is_answer_open_) CancelWork("stop string", now, &output);
  return output;
}

bool RequestState::AcceptPositions(int64_t first_position, absl::Span<const TokenId>* tokens, absl::Duration now,
                                   Output* output) {
  const auto breach = [&](std::string what) {
    FailAnswer(absl::InternalError(std::move(what)), output);
    CancelWork("breach of the token stream", now, output);
    return false;
  };
  if (first_position > num_generated()) {
    return breach(absl::StrCat("token stream has a gap: next position is ", num_generated(), ", got ", first_position));
  }
  const size_t num_known = std::min<size_t>(static_cast<size_t>(num_generated() - first_position), tokens->size());
  for (size_t i = 0; i < num_known; ++i) {
    const size_t position = static_cast<size_t>(first_position) + i;
    if ((*tokens)[i] != generated_[position]) {
      return breach(absl::StrCat("token stream contradicts itself: position ", position, " was ", generated_[position],
                                 ", is now ", (*tokens)[i]));
    }
  }
  tokens->remove_prefix(num_known);
  if (num_generated() + static_cast<int64_t>(tokens->size()) > max_new_tokens_) {
    return breach(absl::StrCat("worker sent ", num_generated() + static_cast<int64_t>(tokens->size()),
                               " tokens, max_new_tokens is ", max_new_tokens_));
  }
  return true;
}

void RequestState::AppendToken(TokenId token, Output* output) {
  generated_.push_back(token);
  if (splitter_.state() == ReasoningSplitter::State::kReasoning) ++num_reasoning_tokens_;
  if (IsHidden(token)) return;
  std::string text;
  detokenizer_.Append(absl::MakeConstSpan(&token, 1), &text);
  Show(text, output);
}

bool RequestState::IsHidden(TokenId token) const {
  if (!tokenizer_->IsSpecial(token)) return false;
  return std::find(std::begin(kParsedMarks), std::end(kParsedMarks), tokenizer_->TokenBytes(token)) ==
         std::end(kParsedMarks);
}

void RequestState::FlushText(Output* output) {
  std::string text;
  detokenizer_.Finish(&text);
  Show(text, output);
  if (!is_answer_open_) return;
  text.clear();
  stop_matcher_.Finish(&text);
  splitter_.Append(text, &output->delta);
}

void RequestState::Show(const std::string& text, Output* output) {
  std::string shown;
  stop_matcher_.Append(text, &shown);
  splitter_.Append(shown, &output->delta);
  if (stop_matcher_.matched().has_value()) CompleteAnswer(AnswerFinish::kStop, output);
}

void RequestState::CompleteAnswer(AnswerFinish finish, Output* output) {
  splitter_.Finish(&output->delta);
  output->finish = finish;
  is_answer_open_ = false;
}

void RequestState::FailAnswer(absl::Status error, Output* output) {
  if (!is_answer_open_) return;
  output->error = std::move(error);
  is_answer_open_ = false;
}

void RequestState::CancelWork(std::string reason, absl::Duration now, Output* output) {
  if (has_sequence_finished_ || is_cancel_sent_ || is_released_) return;
  is_cancel_sent_ = true;
  output->cancel_reason = std::move(reason);
  release_at_ = std::min(release_at_, now + kReleaseWaitMax);
}

void RequestState::Release(Output* output) {
  output->is_released = !is_released_;
  is_released_ = true;
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
  usage.completion_tokens = num_generated();
  if (is_thinking_) usage.reasoning_tokens = num_reasoning_tokens_;
  return usage;
}

}  // namespace tandem::router
