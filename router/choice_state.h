// One choice of a request: its tokens become its text, up to where it ends.
//
// Stop strings are searched in the whole text, reasoning included, but for the text of the first min_new_tokens; what
// the worker ends a sequence with by id is counted but never shown, and so is every special token but the marks of
// thinking and of tool calls. Added tokens that the checkpoint does not flag special (of DeepSeek's: the role marks
// too) are text.
//
// Tokens that were accepted are facts: each position is taken once; an equal duplicate is dropped, an unequal one or a
// gap is a breach.
//
// Logprobs follow the text: a token's entry is due with the first character of its text, or, where it has no text, as
// soon as everything before it is shown; what is due is given out with the next text or with the end. So there is one
// entry for every counted token, but none for a token whose text lies wholly in what a stop string cut away: nothing of
// a stop is ever sent.
// Tested by choice_state_test.cc, and as part of its request by request_state_test.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "router/generated_tokens.h"
#include "router/openai/answer.h"
#include "router/parsing/answer_parser.h"
#include "router/parsing/reasoning_splitter.h"
#include "router/parsing/stop_matcher.h"
#include "router/tokenizer/incremental_detokenizer.h"
#include "router/tokenizer/tokenizer.h"

namespace tandem::router {

class ChoiceState final {
 public:
  // The same for all choices of a request.
  struct Params {
    const Tokenizer* tokenizer = nullptr;  // outlives the state
    std::shared_ptr<const StopSet> stops;  // nullptr = none
    ReasoningSplitter::State start = ReasoningSplitter::State::kContent;
    AnswerRules rules;
    bool separates_reasoning = true;  // else it is the front of the content, with the mark that ends it
    bool streams_reasoning = true;    // else it is given out in one piece, when it has ended
    int64_t max_new_tokens = 1;  // 0: the answer is empty as soon as the worker has drawn a token, which is nobody's
    int64_t min_new_tokens = 0;
    bool wants_logprobs = false;
    size_t num_top_logprobs = 0;  // at most: a worker with a smaller vocabulary sends fewer
    bool wants_tokens = false;    // deltas bring the ids of their tokens
  };

  explicit ChoiceState(const Params& params);

  // While open. Appends to *delta what the tokens make certain. INTERNAL: the worker broke the rules; nothing of the
  // message has been taken.
  absl::Status Take(const GeneratedTokens& message, ChoiceDelta* delta);

  // While open: ends it where it stands. What a stop string or a parser held back is given out first, as at any end.
  void Abort(ChoiceDelta* delta);

  bool is_open() const { return is_open_; }
  const std::vector<TokenId>& generated() const { return generated_; }  // every accepted token
  int64_t num_generated() const { return static_cast<int64_t>(generated_.size()); }
  int64_t num_reasoning_tokens() const { return num_reasoning_tokens_; }

 private:
  struct PendingLogprob {
    TokenLogprob entry;
    size_t due_at = 0;  // bytes of shown text
  };

  // The number of tokens at the message's front that are known already.
  absl::StatusOr<size_t> CheckMessage(const GeneratedTokens& message) const;
  void AppendToken(const GeneratedTokens& message, size_t index, bool is_end, ChoiceDelta* delta);
  bool IsHidden(TokenId token) const;
  void KeepLogprob(const GeneratedTokens& message, size_t index, bool has_text);
  void Show(const std::string& text, ChoiceDelta* delta);
  void FinishText(ChoiceDelta* delta);
  // Where the delta has news: gives out the logprobs that are due, and the tokens.
  void GiveDetails(ChoiceDelta* delta);
  void GiveLogprobs(ChoiceDelta* delta);
  void End(ChoiceEnd end, ChoiceDelta* delta);
  // What no stop holds back: to the parser.
  void Parse(absl::string_view text, ChoiceDelta* delta);
  // What the parser has said, in the form that the client wants. was_reasoning: before it said so.
  void AddParsed(AnswerDelta parsed, bool was_reasoning, bool is_end, AnswerDelta* delta);

  const Params params_;
  IncrementalDetokenizer detokenizer_;
  StopMatcher stop_matcher_;
  std::unique_ptr<AnswerParser> parser_;
  std::string held_reasoning_;
  std::vector<TokenId> generated_;  // up to the end of the choice
  int64_t num_reasoning_tokens_ = 0;
  DraftCounts drafts_, drafts_of_earlier_attempts_;
  size_t num_given_tokens_ = 0;  // of generated_, to deltas
  bool is_open_ = true;

  // Kept only where logprobs are asked for.
  std::vector<PendingLogprob> pending_logprobs_;
  size_t num_text_bytes_ = 0;   // that the detokenizer has given
  int64_t num_text_chars_ = 0;  // the same in code points
  size_t num_shown_bytes_ = 0;  // of them, that no stop holds back
};

}  // namespace tandem::router
