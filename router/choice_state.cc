#include "router/choice_state.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "router/tokenizer/utf8.h"

namespace tandem::router {
namespace {

// Marks that the parsers of the answer's text look for. A checkpoint may flag them special; they are read, not hidden.
constexpr absl::string_view kParsedMarks[] = {"<think>",
                                              "</think>",
                                              "｜DSML｜",
                                              "<｜tool▁calls▁begin｜>",
                                              "<｜tool▁calls▁end｜>",
                                              "<｜tool▁call▁begin｜>",
                                              "<｜tool▁call▁end｜>",
                                              "<｜tool▁sep｜>"};

constexpr absl::string_view kReasoningEnd = "</think>";

const StopSet& NoStops() {
  static const StopSet* const kNone = [] {
    absl::StatusOr<StopSet> none = StopSet::Build({});
    TANDEM_CHECK(none.ok(), "no stops are a valid set");
    return new StopSet(*std::move(none));
  }();
  return *kNone;
}

int64_t CountCharacters(absl::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

}  // namespace

ChoiceState::ChoiceState(const Params& params)
    : params_(params),
      detokenizer_(*params.tokenizer),
      stop_matcher_(params_.stops == nullptr ? NoStops() : *params_.stops),
      parser_(MakeAnswerParser(params.start, params.rules)) {}

absl::StatusOr<size_t> ChoiceState::CheckMessage(const GeneratedTokens& message) const {
  const std::vector<TokenId>& tokens = message.tokens;
  if (message.first_position > num_generated()) {
    return absl::InternalError(
        absl::StrCat("token stream has a gap: next position is ", num_generated(), ", got ", message.first_position));
  }
  const size_t num_known =
      std::min<size_t>(static_cast<size_t>(num_generated() - message.first_position), tokens.size());
  for (size_t i = 0; i < num_known; ++i) {
    const size_t position = static_cast<size_t>(message.first_position) + i;
    if (tokens[i] == generated_[position]) continue;
    return absl::InternalError(absl::StrCat("token stream contradicts itself: position ", position, " was ",
                                            generated_[position], ", is now ", tokens[i]));
  }
  const int64_t num_tokens = num_generated() + static_cast<int64_t>(tokens.size() - num_known);
  if (num_tokens > params_.max_new_tokens) {
    return absl::InternalError(
        absl::StrCat("worker sent ", num_tokens, " tokens, max_new_tokens is ", params_.max_new_tokens));
  }
  if (!params_.wants_logprobs) return num_known;
  if (message.logprobs.size() != tokens.size()) {
    return absl::InternalError(
        absl::StrCat("worker sent ", message.logprobs.size(), " logprobs for ", tokens.size(), " tokens"));
  }
  if (params_.num_top_logprobs > 0 && message.top_logprobs.size() != tokens.size()) {
    return absl::InternalError(
        absl::StrCat("worker sent ", message.top_logprobs.size(), " top_logprobs for ", tokens.size(), " tokens"));
  }
  return num_known;
}

absl::Status ChoiceState::Take(const GeneratedTokens& message, ChoiceDelta* delta) {
  if (params_.max_new_tokens == 0) {
    End({AnswerFinish::kLength, {}}, delta);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const size_t num_known, CheckMessage(message));
  // A worker's counts only grow: lower ones are another's, who began anew.
  if (message.drafts.windows < drafts_.windows) drafts_of_earlier_attempts_ += drafts_;
  drafts_ = message.drafts;
  const size_t num_tokens = message.tokens.size();
  for (size_t i = num_known; i < num_tokens && is_open_; ++i) {
    AppendToken(message, i, message.finish == SequenceFinish::kStopToken && i + 1 == num_tokens, delta);
  }
  if (is_open_ && message.finish != SequenceFinish::kNone) FinishText(delta);
  if (is_open_ && message.finish != SequenceFinish::kNone) {
    ChoiceEnd end;
    if (message.finish == SequenceFinish::kLength) end.finish = AnswerFinish::kLength;
    if (message.finish == SequenceFinish::kStopToken && !generated_.empty()) end.matched_stop = generated_.back();
    End(std::move(end), delta);
  }
  GiveDetails(delta);
  return absl::OkStatus();
}

void ChoiceState::Abort(ChoiceDelta* delta) {
  FinishText(delta);
  if (is_open_) End({AnswerFinish::kAbort, {}}, delta);
  GiveDetails(delta);
}

void ChoiceState::AppendToken(const GeneratedTokens& message, size_t index, bool is_end, ChoiceDelta* delta) {
  const TokenId token = message.tokens[index];
  generated_.push_back(token);
  if (!is_end && parser_->is_reasoning()) ++num_reasoning_tokens_;
  const bool is_hidden = is_end || IsHidden(token);
  if (params_.wants_logprobs) KeepLogprob(message, index, !is_hidden && !params_.tokenizer->TokenBytes(token).empty());
  std::string text;
  if (!is_hidden) detokenizer_.Append(absl::MakeConstSpan(&token, 1), &text);
  Show(text, delta);
}

bool ChoiceState::IsHidden(TokenId token) const {
  if (!params_.tokenizer->IsSpecial(token)) return false;
  return std::find(std::begin(kParsedMarks), std::end(kParsedMarks), params_.tokenizer->TokenBytes(token)) ==
         std::end(kParsedMarks);
}

void ChoiceState::KeepLogprob(const GeneratedTokens& message, size_t index, bool has_text) {
  PendingLogprob pending;
  pending.entry.token = message.tokens[index];
  pending.entry.logprob = message.logprobs[index];
  if (params_.num_top_logprobs > 0) pending.entry.top = message.top_logprobs[index];
  // A token's text begins with the next character that the detokenizer gives: bytes it holds belong to that one too,
  // unless the token cannot go on with it and leaves U+FFFD behind.
  const bool leaves_replacement =
      has_text && detokenizer_.num_pending_bytes() > 0 && !detokenizer_.IsContinuedBy(pending.entry.token);
  pending.entry.text_offset = num_text_chars_ + (leaves_replacement ? 1 : 0);
  pending.due_at = num_text_bytes_ + (leaves_replacement ? kReplacementCharacter.size() : 0) + (has_text ? 1 : 0);
  pending_logprobs_.push_back(std::move(pending));
}

void ChoiceState::Show(const std::string& text, ChoiceDelta* delta) {
  if (text.empty()) return;
  std::string shown;
  if (num_generated() <= params_.min_new_tokens) {
    shown = text;
  } else {
    stop_matcher_.Append(text, &shown);
  }
  Parse(shown, delta);
  if (params_.wants_logprobs) {
    num_text_bytes_ += text.size();
    num_text_chars_ += CountCharacters(text);
    num_shown_bytes_ += shown.size();
  }
  if (!is_open_ || !stop_matcher_.matched().has_value()) return;
  End({AnswerFinish::kStop, params_.stops->stops()[*stop_matcher_.matched()]}, delta);
}

void ChoiceState::FinishText(ChoiceDelta* delta) {
  std::string text;
  detokenizer_.Finish(&text);
  Show(text, delta);
  if (!is_open_) return;
  text.clear();
  stop_matcher_.Finish(&text);
  num_shown_bytes_ = num_text_bytes_;
  Parse(text, delta);
}

void ChoiceState::Parse(absl::string_view text, ChoiceDelta* delta) {
  const bool was_reasoning = parser_->is_reasoning();
  AnswerDelta parsed;
  parser_->Append(text, &parsed);
  AddParsed(std::move(parsed), was_reasoning, /*is_end=*/false, &delta->text);
  if (parser_->is_complete()) End({AnswerFinish::kToolCalls, {}}, delta);
}

void ChoiceState::AddParsed(AnswerDelta parsed, bool was_reasoning, bool is_end, AnswerDelta* delta) {
  if (!params_.separates_reasoning) {
    const bool has_ended = was_reasoning && !parser_->is_reasoning();
    parsed.content = absl::StrCat(std::exchange(parsed.reasoning, ""), has_ended ? kReasoningEnd : "", parsed.content);
  } else if (!params_.streams_reasoning) {
    held_reasoning_ += std::exchange(parsed.reasoning, "");
    if (is_end || !parser_->is_reasoning()) parsed.reasoning = std::exchange(held_reasoning_, "");
  }
  delta->reasoning += parsed.reasoning;
  delta->content += parsed.content;
  std::move(parsed.tool_calls.begin(), parsed.tool_calls.end(), std::back_inserter(delta->tool_calls));
}

void ChoiceState::GiveDetails(ChoiceDelta* delta) {
  if (!delta->has_news()) return;
  GiveLogprobs(delta);
  if (!params_.wants_tokens) return;
  delta->tokens.assign(generated_.begin() + static_cast<ptrdiff_t>(num_given_tokens_), generated_.end());
  num_given_tokens_ = generated_.size();
}

void ChoiceState::GiveLogprobs(ChoiceDelta* delta) {
  auto pending = pending_logprobs_.begin();
  for (; pending != pending_logprobs_.end() && pending->due_at <= num_shown_bytes_; ++pending) {
    delta->logprobs.push_back(std::move(pending->entry));
  }
  pending_logprobs_.erase(pending_logprobs_.begin(), pending);
}

void ChoiceState::End(ChoiceEnd end, ChoiceDelta* delta) {
  const bool is_cut = end.finish == AnswerFinish::kLength || end.finish == AnswerFinish::kAbort ||
                      std::holds_alternative<std::string>(end.matched_stop);
  AnswerDelta parsed;
  const bool was_reasoning = parser_->is_reasoning();
  parser_->Finish(is_cut, &parsed);
  AddParsed(std::move(parsed), was_reasoning, /*is_end=*/true, &delta->text);
  const bool has_calls = parser_->num_calls() > 0 && !parser_->has_incomplete_call();
  if (end.finish == AnswerFinish::kStop && has_calls) end.finish = AnswerFinish::kToolCalls;
  end.drafts = drafts_of_earlier_attempts_;
  end.drafts += drafts_;
  delta->end = std::move(end);
  is_open_ = false;
}

}  // namespace tandem::router
