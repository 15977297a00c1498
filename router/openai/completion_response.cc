#include "router/openai/completion_response.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "router/openai/json_text.h"
#include "router/openai/logprobs_text.h"

namespace tandem::router {
namespace {

constexpr char kObject[] = "text_completion";
constexpr char kNotEnded[] = ",\"finish_reason\":null}";

}  // namespace

CompletionFormat::CompletionFormat(const AnswerIdentity& identity, Options options, const Tokenizer* tokenizer)
    : frame_(identity, kObject, kObject, options.has_usage_field),
      options_(std::move(options)),
      tokenizer_(tokenizer) {}

absl::string_view CompletionFormat::EchoOf(int index) const {
  return options_.echoes.empty() ? absl::string_view() : options_.echoes[index / options_.choices_per_prompt];
}

void CompletionFormat::AppendChoice(std::string& out, int index, absl::string_view echo, absl::string_view text,
                                    absl::Span<const TokenLogprob> logprobs, bool has_logprobs) const {
  absl::StrAppend(&out, "{\"index\":", index, ",\"text\":\"");
  AppendJsonEscaped(out, echo);
  AppendJsonEscaped(out, text);
  out += "\",\"logprobs\":";
  if (has_logprobs) {
    AppendCompletionLogprobs(out, logprobs, *tokenizer_);
  } else {
    out += "null";
  }
}

void CompletionFormat::AppendOpening(std::string& out, int index) const {
  const absl::string_view echo = EchoOf(index);
  if (echo.empty()) return;
  out += frame_.event_head();
  AppendChoice(out, index, echo, "", {}, false);
  absl::StrAppend(&out, kNotEnded, frame_.event_end());
}

void CompletionFormat::AppendDelta(std::string& out, int index, const ChoiceDelta& delta) {
  absl::Span<const TokenLogprob> logprobs = delta.logprobs;  // until an event has taken them
  if (!delta.text.content.empty()) {
    out += frame_.event_head();
    AppendChoice(out, index, "", delta.text.content, logprobs, !logprobs.empty());
    absl::StrAppend(&out, kNotEnded, frame_.event_end());
    logprobs = {};
  }
  if (!delta.end.has_value()) return;
  out += frame_.event_head();
  AppendChoice(out, index, "", "", logprobs, !logprobs.empty());
  out += ',';
  AppendEndMembers(out, *delta.end);
  absl::StrAppend(&out, "}", frame_.event_end());
}

void CompletionFormat::AppendUsage(std::string& out, const Usage& usage) const { frame_.AppendUsageEvent(out, usage); }

std::string CompletionFormat::WholeBody(absl::Span<const WholeChoice> choices, const Usage& usage) const {
  return frame_.WholeBody(choices.size(), usage, [&](std::string& out, int index) {
    const WholeChoice& choice = choices[index];
    AppendChoice(out, index, EchoOf(index), choice.text.content, choice.logprobs, options_.has_logprobs);
    out += ',';
    AppendEndMembers(out, choice.end);
    out += '}';
  });
}

}  // namespace tandem::router
