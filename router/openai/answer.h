// What an answer is made of, in no API's words yet: deltas and ends of its choices, logprobs, usage.
//
// RequestState makes them, an AnswerFormat (answer_format.h) writes them down.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "router/parsing/answer_delta.h"
#include "router/tokenizer/token_id.h"

namespace tandem::router {

enum class AnswerFinish { kStop, kLength, kToolCalls, kAbort };

inline const char* AnswerFinishName(AnswerFinish finish) {
  switch (finish) {
    case AnswerFinish::kLength:
      return "length";
    case AnswerFinish::kToolCalls:
      return "tool_calls";
    case AnswerFinish::kAbort:
      return "abort";
    case AnswerFinish::kStop:
      break;
  }
  return "stop";
}

// Why a choice ended, and what it stopped at: nothing (length, abort), a token by its id, or a stop string.
// Steps of a choice in which its decode worker might draft, and what came of it.
struct DraftCounts {
  int64_t windows = 0;
  int64_t drafted = 0;
  int64_t accepted = 0;

  DraftCounts& operator+=(const DraftCounts& other) {
    windows += other.windows;
    drafted += other.drafted;
    accepted += other.accepted;
    return *this;
  }
};

struct ChoiceEnd {
  AnswerFinish finish = AnswerFinish::kStop;
  std::variant<std::monostate, TokenId, std::string> matched_stop;
  absl::Duration after = absl::ZeroDuration();  // since the request came in
  DraftCounts drafts = {};
};

struct LikelyToken {
  TokenId token = 0;
  float logprob = 0;
};

// One generated token as logprobs show it.
struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0;
  std::vector<LikelyToken> top;  // likeliest first; as many as were asked for
  int64_t text_offset = 0;       // where its text begins in the choice's text, in characters (Unicode code points)
};

// Of prompt tokens, one after the other: raw, as the workers say them.
struct PromptLogprobs {
  std::vector<float> logprobs;
  std::vector<std::vector<LikelyToken>> top;  // of each; empty unless asked for
};

// What is new of one choice.
struct ChoiceDelta {
  int choice = 0;
  AnswerDelta text;
  std::vector<TokenLogprob> logprobs;  // empty unless asked for; else only with text or an end
  std::vector<TokenId> tokens;         // the same; every token that is counted, shown or not
  // The prompt's, where asked for: with the first news of each choice.
  std::shared_ptr<const PromptLogprobs> prompt_logprobs;
  std::optional<int64_t> num_cached_tokens;  // of the prompt: with the first news of each choice
  std::optional<ChoiceEnd> end;

  bool has_text() const { return !text.empty(); }
  bool has_news() const { return has_text() || end.has_value(); }
};

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t truncated_tokens = 0;   // that prompts have lost because they were too long; not of prompt_tokens
  int64_t cached_tokens = 0;      // of prompt_tokens, that no worker had to compute
  int64_t completion_tokens = 0;  // of all choices
  int64_t reasoning_tokens = 0;   // of completion_tokens

  void Add(const Usage& other) {
    prompt_tokens += other.prompt_tokens;
    truncated_tokens += other.truncated_tokens;
    completion_tokens += other.completion_tokens;
    cached_tokens += other.cached_tokens;
    reasoning_tokens += other.reasoning_tokens;
  }
};

}  // namespace tandem::router
