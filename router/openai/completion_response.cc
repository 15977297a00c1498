#include "router/openai/completion_response.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "router/openai/json_text.h"
#include "router/openai/logprobs_text.h"

namespace tandem::router {
namespace {

constexpr char kObject[] = "text_completion";
constexpr char kNotEnded[] = ",\"finish_reason\":null}";

// The echo's tokens with their logprobs; none where these never came (the answer was aborted before).
std::vector<TokenLogprob> TokensOf(const CompletionFormat::Echo& echo, const PromptLogprobs* logprobs) {
  if (logprobs == nullptr && echo.tokens.size() > 1) return {};
  std::vector<TokenLogprob> tokens = echo.tokens;
  for (size_t i = 1; i < tokens.size(); ++i) {
    tokens[i].logprob = logprobs->logprobs[i - 1];
    if (!logprobs->top.empty()) tokens[i].top = logprobs->top[i - 1];
  }
  return tokens;
}

double MeanLogprob(const WholeChoice& choice) {
  if (choice.logprobs.empty()) return -std::numeric_limits<double>::infinity();
  const double sum = std::accumulate(choice.logprobs.begin(), choice.logprobs.end(), 0.0,
                                     [](double total, const TokenLogprob& entry) { return total + entry.logprob; });
  return sum / static_cast<double>(choice.logprobs.size());
}

}  // namespace

CompletionFormat::CompletionFormat(const AnswerIdentity& identity, Options options, const Tokenizer* tokenizer)
    : frame_(identity, kObject, kObject, options.has_usage_field),
      options_(std::move(options)),
      tokenizer_(tokenizer) {}

const CompletionFormat::Echo* CompletionFormat::EchoOf(int index) const {
  return options_.echoes.empty() ? nullptr : &options_.echoes[index / options_.choices_per_prompt];
}

void CompletionFormat::AppendChoice(std::string& out, int index, int source, const Piece& piece) const {
  absl::StrAppend(&out, "{\"index\":", index, ",\"text\":\"");
  if (piece.echo != nullptr) AppendJsonEscaped(out, piece.echo->text);
  AppendJsonEscaped(out, piece.text);
  out += "\",\"logprobs\":";
  if (piece.has_logprobs) {
    const std::vector<TokenLogprob> prompt =
        piece.echo == nullptr ? std::vector<TokenLogprob>() : TokensOf(*piece.echo, piece.prompt_logprobs);
    const Echo* echo = EchoOf(source);
    AppendCompletionLogprobs(out, prompt, piece.logprobs, echo == nullptr ? 0 : echo->num_characters, *tokenizer_);
  } else {
    out += "null";
  }
}

void CompletionFormat::AppendOpening(std::string& out, int index) const {
  const Echo* echo = EchoOf(index);
  if (echo == nullptr || echo->text.empty() || !echo->tokens.empty()) return;
  out += frame_.event_head();
  AppendChoice(out, index, index, {.echo = echo});
  absl::StrAppend(&out, kNotEnded, frame_.event_end());
}

void CompletionFormat::AppendDelta(std::string& out, int index, const ChoiceDelta& delta) {
  const Echo* echo = EchoOf(index);
  if (echo != nullptr && !echo->tokens.empty() && (delta.prompt_logprobs != nullptr || echo->tokens.size() == 1)) {
    if (is_echoed_.insert(index).second) {
      out += frame_.event_head();
      AppendChoice(out, index, index,
                   {.echo = echo, .prompt_logprobs = delta.prompt_logprobs.get(), .has_logprobs = true});
      absl::StrAppend(&out, kNotEnded, frame_.event_end());
    }
  }
  absl::Span<const TokenLogprob> logprobs = delta.logprobs;  // until an event has taken them
  if (!delta.text.content.empty()) {
    out += frame_.event_head();
    AppendChoice(out, index, index,
                 {.text = delta.text.content, .logprobs = logprobs, .has_logprobs = !logprobs.empty()});
    absl::StrAppend(&out, kNotEnded, frame_.event_end());
    logprobs = {};
  }
  if (!delta.end.has_value()) return;
  out += frame_.event_head();
  AppendChoice(out, index, index, {.logprobs = logprobs, .has_logprobs = !logprobs.empty()});
  out += ',';
  AppendEndMembers(out, *delta.end);
  absl::StrAppend(&out, "}", frame_.event_end());
}

std::vector<int> CompletionFormat::Returned(absl::Span<const WholeChoice> choices) const {
  std::vector<int> returned(choices.size());
  std::iota(returned.begin(), returned.end(), 0);
  const int num_drawn = options_.choices_per_prompt;
  const int num_returned = options_.num_returned;
  if (num_returned == 0 || num_returned == num_drawn) return returned;
  std::vector<int> best;
  for (auto begin = returned.begin(); begin != returned.end(); begin += num_drawn) {
    std::stable_sort(begin, begin + num_drawn,
                     [&](int a, int b) { return MeanLogprob(choices[a]) > MeanLogprob(choices[b]); });
    best.insert(best.end(), begin, begin + num_returned);
  }
  return best;
}

void CompletionFormat::AppendUsage(std::string& out, const Usage& usage) const { frame_.AppendUsageEvent(out, usage); }

std::string CompletionFormat::WholeBody(absl::Span<const WholeChoice> choices, const Usage& usage) const {
  const std::vector<int> returned = Returned(choices);
  return frame_.WholeBody(returned.size(), usage, [&](std::string& out, int index) {
    const int source = returned[static_cast<size_t>(index)];
    const WholeChoice& choice = choices[source];
    AppendChoice(out, index, source,
                 {.echo = EchoOf(source),
                  .prompt_logprobs = choice.prompt_logprobs.get(),
                  .text = choice.text.content,
                  .logprobs = choice.logprobs,
                  .has_logprobs = options_.has_logprobs});
    out += ',';
    AppendEndMembers(out, choice.end);
    out += '}';
  });
}

}  // namespace tandem::router
