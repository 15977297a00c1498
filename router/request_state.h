// One chat request between its decode worker and its client, as a pure state machine.
//
// Inputs are what happened (tokens, ended, worker lost, client left, time), outputs are what to do (text for the
// client, how the answer ended, a cancel for the worker, release). It owns no socket, no thread and no clock, so that
// tests and
// //tests/sim drive it directly; request_pipeline.cc is the thin shell around it.
//
// Two lives are kept apart: the *answer* (open, then complete, failed or abandoned, exactly once) and the *work* (held
// on the workers until Ended, loss of the worker, or kReleaseWaitMax after it should have ended). A stop string, a
// client that leaves or a deadline ends the answer at once and cancels the work; the request is forgotten when both
// have ended.
//
// Stop strings are searched in the whole text, reasoning included; what the worker ends a sequence with by id is
// counted but never shown, and so is every special token but the marks of thinking and of tool calls. Added tokens that
// the checkpoint does not flag special (of DeepSeek's: the role marks too) are text.
//
// Tokens that were accepted are facts: each position is taken once; an equal duplicate is dropped, an unequal one or a
// gap is a breach that ends the request.
// Tested by request_state_test.cc (scripts) and //tests/sim.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "router/openai/chat_response.h"
#include "router/openai/finish_reason.h"
#include "router/parsing/reasoning_splitter.h"
#include "router/parsing/stop_matcher.h"
#include "router/tokenizer/incremental_detokenizer.h"
#include "router/tokenizer/tokenizer.h"

namespace tandem::router {

class RequestState final {
 public:
  // How long the workers may hold a request after its answer or its generation has ended.
  static constexpr absl::Duration kReleaseWaitMax = absl::Seconds(5);

  struct Params {
    const Tokenizer* tokenizer = nullptr;  // outlives the state
    StopSet stops;
    ReasoningSplitter::State start = ReasoningSplitter::State::kContent;
    int64_t num_prompt_tokens = 0;
    int64_t max_new_tokens = 1;
    absl::Duration started_at;
    absl::Duration deadline = absl::InfiniteDuration();  // on the clock of started_at
  };

  // What a worker said of the sequence's end in the same message as its last tokens.
  enum class SequenceFinish { kNone, kStopToken, kLength };

  struct Output {
    ReasoningDelta delta;                // new text, in this order: reasoning, content
    std::optional<AnswerFinish> finish;  // the answer is complete
    absl::Status error;                  // the answer has failed
    std::string cancel_reason;           // not empty: cancel the request on its worker, once
    bool is_released = false;            // nothing is held any more: forget the request
  };

  explicit RequestState(Params params);
  RequestState(const RequestState&) = delete;
  RequestState& operator=(const RequestState&) = delete;

  // first_position: index of tokens[0] among the generated tokens.
  Output OnTokens(int64_t first_position, absl::Span<const TokenId> tokens, SequenceFinish finish, absl::Duration now);
  // The worker's last word. error: OK where all was well.
  Output OnEnded(const absl::Status& error, bool is_cancelled);
  Output OnWorkerLost(const absl::Status& cause);
  Output OnClientLeft(absl::Duration now);
  // Gives the request up for a reason of the router's own (a stream the client does not read, a drain that ran out).
  Output OnGiveUp(const absl::Status& cause, absl::Duration now);
  // To be called at NextWakeup() or later.
  Output OnTime(absl::Duration now);
  absl::Duration NextWakeup() const;

  // True while nothing has come of the request and nobody has given it up: another worker may do it from the start.
  bool may_start_again() const {
    return is_answer_open_ && !is_cancel_sent_ && !has_sequence_finished_ && generated_.empty();
  }
  bool is_answer_open() const { return is_answer_open_; }
  bool is_released() const { return is_released_; }
  Usage usage() const;
  int64_t num_generated() const { return static_cast<int64_t>(generated_.size()); }
  // Both InfiniteDuration until the first token has come.
  absl::Duration time_to_first_token() const { return first_token_at_ - started_at_; }
  absl::Duration last_token_at() const { return last_token_at_; }

 private:
  // False: the batch breaks the rules of positions; *output has the error.
  bool AcceptPositions(int64_t first_position, absl::Span<const TokenId>* tokens, absl::Duration now, Output* output);
  void AppendToken(TokenId token, Output* output);
  bool IsHidden(TokenId token) const;
  void FlushText(Output* output);
  void Show(const std::string& text, Output* output);
  void CompleteAnswer(AnswerFinish finish, Output* output);
  void FailAnswer(absl::Status error, Output* output);
  void CancelWork(std::string reason, absl::Duration now, Output* output);
  void Release(Output* output);

  const int64_t num_prompt_tokens_;
  const int64_t max_new_tokens_;
  const absl::Duration started_at_;
  const absl::Duration deadline_;
  const Tokenizer* const tokenizer_;
  const bool is_thinking_;
  const StopSet stops_;
  StopMatcher stop_matcher_;
  IncrementalDetokenizer detokenizer_;
  ReasoningSplitter splitter_;

  std::vector<TokenId> generated_;  // every accepted token, up to the end of the answer
  int64_t num_reasoning_tokens_ = 0;
  absl::Duration first_token_at_ = absl::InfiniteDuration();
  absl::Duration last_token_at_ = absl::InfiniteDuration();
  bool is_answer_open_ = true;
  bool has_sequence_finished_ = false;  // the worker said so; Ended follows
  bool is_cancel_sent_ = false;
  bool is_released_ = false;
  absl::Duration release_at_ = absl::InfiniteDuration();  // set when the work should have ended
};

}  // namespace tandem::router
