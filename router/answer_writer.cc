#include "router/answer_writer.h"

#include <utility>

#include "router/openai/api_error.h"

namespace tandem::router {
namespace {

constexpr char kEventStream[] = "text/event-stream; charset=utf-8";
constexpr char kProbe[] = ":\n\n";
constexpr char kRetryAfterSeconds[] = "1";  // a place is free as soon as any request ends; links reconnect within 2 s

}  // namespace

HttpResponse ErrorResponse(const absl::Status& error) {
  HttpResponse response;
  response.status = HttpStatusOf(error);
  response.body = ErrorBody(error);
  if (response.status == 429 || response.status == 503) {
    response.headers.emplace_back("Retry-After", kRetryAfterSeconds);
  }
  return response;
}

AnswerWriter::AnswerWriter(std::shared_ptr<Exchange> exchange, const ChatIdentity& identity, const Form& form)
    : exchange_(std::move(exchange)),
      identity_(identity),
      form_(form),
      frames_(form.is_stream ? std::optional<ChatStreamFrames>(std::in_place, identity, form.includes_usage)
                             : std::nullopt) {
  if (form.is_thinking) answer_.reasoning_content = "";
}

void AnswerWriter::Write(const RequestState::Output& output, const Usage& usage) {
  if (!output.delta.content.empty()) has_content_ = true;
  form_.is_stream ? WriteStream(output, usage) : WriteWhole(output, usage);
}

void AnswerWriter::WriteStream(const RequestState::Output& output, const Usage& usage) {
  if (!output.error.ok() && !is_stream_open_) {
    exchange_->Respond(ErrorResponse(output.error));
    return;
  }
  const bool has_news = !output.delta.reasoning.empty() || !output.delta.content.empty() || output.finish.has_value() ||
                        !output.error.ok();
  if (!has_news) return;
  OpenStream();
  pending_.clear();
  if (!std::exchange(has_role_, true)) frames_->AppendRole(pending_);
  if (!output.delta.reasoning.empty()) frames_->AppendReasoning(pending_, output.delta.reasoning);
  if (!output.delta.content.empty()) frames_->AppendContent(pending_, output.delta.content);
  if (output.finish.has_value()) {
    frames_->AppendFinish(pending_, *output.finish);
    if (form_.includes_usage) frames_->AppendUsage(pending_, usage);
  }
  if (!output.error.ok()) ChatStreamFrames::AppendError(pending_, ErrorBody(output.error));
  const bool is_end = output.finish.has_value() || !output.error.ok();
  if (is_end) ChatStreamFrames::AppendDone(pending_);
  exchange_->Write(pending_);
  if (is_end) exchange_->Finish();
}

void AnswerWriter::OpenStream() {
  if (!std::exchange(is_stream_open_, true)) exchange_->StartStream(kEventStream, kProbe);
}

void AnswerWriter::WriteWhole(const RequestState::Output& output, const Usage& usage) {
  answer_.content += output.delta.content;
  if (form_.is_thinking) *answer_.reasoning_content += output.delta.reasoning;
  if (!output.error.ok()) {
    exchange_->Respond(ErrorResponse(output.error));
  } else if (output.finish.has_value()) {
    answer_.finish = *output.finish;
    answer_.usage = usage;
    HttpResponse response;
    response.body = ChatCompletionBody(identity_, answer_);
    exchange_->Respond(std::move(response));
  }
}

void AnswerWriter::WriteKeepalive() {
  if (!form_.is_stream) return;
  OpenStream();
  pending_.clear();
  ChatStreamFrames::AppendKeepalive(pending_);
  exchange_->Write(pending_);
}

}  // namespace tandem::router
