#include "router/answer_writer.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "router/openai/api_error.h"

namespace tandem::router {
namespace {

constexpr char kEventStream[] = "text/event-stream; charset=utf-8";
constexpr char kCommentProbe[] = ":\n\n";
constexpr char kEmptyLine[] = "\n";
constexpr absl::Duration kRetryAfterDefault = absl::Seconds(2);  // a worker that is back is connected by then

constexpr size_t kLikelyTokenBytes = 64;  // as chat writes one: text, number, bytes

size_t WholeBytes(const ChoiceDelta& delta) {
  size_t num_likely = 0;
  for (const TokenLogprob& entry : delta.logprobs) num_likely += 1 + entry.top.size();
  if (delta.prompt_logprobs != nullptr) {
    num_likely += delta.prompt_logprobs->logprobs.size();
    for (const std::vector<LikelyToken>& top : delta.prompt_logprobs->top) num_likely += top.size();
  }
  size_t num_bytes = delta.text.reasoning.size() + delta.text.content.size() + num_likely * kLikelyTokenBytes;
  for (const ToolCallDelta& call : delta.text.tool_calls) num_bytes += call.name.size() + call.arguments.size();
  return num_bytes + delta.tokens.size() * sizeof(TokenId);
}

}  // namespace

HttpResponse ErrorResponse(const absl::Status& error) {
  HttpResponse response;
  response.status = HttpStatusOf(error);
  response.body = ErrorBody(error);
  if (response.status == 429 || response.status == 503) {
    const absl::Duration after = RetryAfterOf(error);
    response.headers.emplace_back(
        "Retry-After",
        absl::StrCat(absl::ToInt64Seconds(after == absl::InfiniteDuration() ? kRetryAfterDefault : after)));
  }
  return response;
}

AnswerWriter::AnswerWriter(std::shared_ptr<Exchange> exchange, std::unique_ptr<AnswerFormat> format, const Form& form)
    : exchange_(std::move(exchange)), format_(std::move(format)), form_(form) {
  if (form.is_stream) {
    is_opened_.resize(static_cast<size_t>(form.num_choices));
  } else {
    choices_.resize(static_cast<size_t>(form.num_choices));
  }
}

void AnswerWriter::Write(int index, ChoiceDelta delta) {
  if (!delta.has_news()) return;
  if (!delta.text.content.empty() || !delta.text.tool_calls.empty()) has_content_ = true;
  if (form_.is_stream) {
    OpenStream();
    pending_.clear();
    if (!is_opened_[index]) format_->AppendOpening(pending_, index);
    is_opened_[index] = true;
    format_->AppendDelta(pending_, index, delta);
    if (!pending_.empty()) exchange_->Write(pending_);
    return;
  }
  num_whole_bytes_ += WholeBytes(delta);
  WholeChoice& choice = choices_[index];
  choice.text.reasoning += delta.text.reasoning;
  choice.text.content += delta.text.content;
  for (ToolCallDelta& call : delta.text.tool_calls) {
    if (call.name.empty()) {
      choice.text.tool_calls.back().arguments += call.arguments;
    } else {
      choice.text.tool_calls.push_back(std::move(call));
    }
  }
  std::move(delta.logprobs.begin(), delta.logprobs.end(), std::back_inserter(choice.logprobs));
  choice.tokens.insert(choice.tokens.end(), delta.tokens.begin(), delta.tokens.end());
  if (delta.prompt_logprobs != nullptr) choice.prompt_logprobs = std::move(delta.prompt_logprobs);
  if (delta.num_cached_tokens.has_value()) choice.num_cached_tokens = *delta.num_cached_tokens;
  if (delta.end.has_value()) choice.end = *std::move(delta.end);
}

void AnswerWriter::Complete(const Usage& usage) {
  if (!form_.is_stream) {
    HttpResponse response;
    response.body = format_->WholeBody(choices_, usage);
    exchange_->Respond(std::move(response));
    return;
  }
  pending_.clear();
  if (form_.includes_usage) format_->AppendUsage(pending_, usage);
  AppendDoneEvent(pending_);
  exchange_->Write(pending_);
  exchange_->Finish();
}

void AnswerWriter::Fail(const absl::Status& error) {
  if (!is_stream_open_) {
    choices_ = {};
    exchange_->Respond(ErrorResponse(error));
    return;
  }
  pending_.clear();
  AppendErrorEvent(pending_, ErrorBody(error));
  AppendDoneEvent(pending_);
  exchange_->Write(pending_);
  exchange_->Finish();
}

void AnswerWriter::OpenStream() {
  if (!std::exchange(is_stream_open_, true)) {
    exchange_->StartStream(kEventStream, form_.allows_comments ? kCommentProbe : kEmptyLine);
  }
}

void AnswerWriter::WriteKeepalive() {
  if (!form_.is_stream) return;
  OpenStream();
  pending_.clear();
  if (form_.allows_comments) {
    AppendKeepaliveEvent(pending_);
  } else {
    pending_ += kEmptyLine;
  }
  exchange_->Write(pending_);
}

}  // namespace tandem::router
