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
    : identity_(identity), options_(std::move(options)), tokenizer_(tokenizer) {
  head_ = "data: ";
  AppendIdentity(head_, identity, kObject);
  head_ += ",\"choices\":[";
  end_ = options_.has_usage_field ? "],\"usage\":null}\n\n" : "]}\n\n";
}

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
  out += head_;
  AppendChoice(out, index, echo, "", {}, false);
  absl::StrAppend(&out, kNotEnded, end_);
}

void CompletionFormat::AppendDelta(std::string& out, int index, const ChoiceDelta& delta) {
  absl::Span<const TokenLogprob> logprobs = delta.logprobs;  // until an event has taken them
  if (!delta.text.content.empty()) {
    out += head_;
    AppendChoice(out, index, "", delta.text.content, logprobs, !logprobs.empty());
    absl::StrAppend(&out, kNotEnded, end_);
    logprobs = {};
  }
  if (!delta.end.has_value()) return;
  out += head_;
  AppendChoice(out, index, "", "", logprobs, !logprobs.empty());
  out += ',';
  AppendEndMembers(out, *delta.end);
  absl::StrAppend(&out, "}", end_);
}

void CompletionFormat::AppendUsage(std::string& out, const Usage& usage) const {
  absl::StrAppend(&out, head_, "],\"usage\":");
  AppendUsageObject(out, usage);
  out += "}\n\n";
}

std::string CompletionFormat::WholeBody(absl::Span<const WholeChoice> choices, const Usage& usage) const {
  std::string out;
  AppendIdentity(out, identity_, kObject);
  out += ",\"choices\":[";
  for (size_t i = 0; i < choices.size(); ++i) {
    const int index = static_cast<int>(i);
    if (i > 0) out += ',';
    AppendChoice(out, index, EchoOf(index), choices[i].text.content, choices[i].logprobs, options_.has_logprobs);
    out += ',';
    AppendEndMembers(out, choices[i].end);
    out += '}';
  }
  out += "],\"usage\":";
  AppendUsageObject(out, usage);
  out += '}';
  return out;
}

}  // namespace tandem::router
