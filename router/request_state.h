// One request for one prompt between its decode worker and its client, as a pure state machine.
//
// Inputs are what happened (tokens, ended, worker lost, client left, time), outputs are what to do (text for the
// client, how a choice ended, a cancel for the worker, release). It owns no socket, no thread and no clock, so that
// tests and //tests/sim drive it directly; request_pipeline.cc is the thin shell around it.
//
// Two lives are kept apart: the *answer* (open until its last choice is complete, or it has failed or is abandoned) and
// the *work* (held on the workers until Ended, loss of the worker, or kReleaseWaitMax after it should have ended). A
// choice that ends by a stop string is cancelled on the worker alone, the last one with the whole request; a client
// that leaves or a deadline ends the answer at once and cancels the work. The request is forgotten when both have
// ended. Between two attempts the request has no work: its workers have failed it, others have not been found yet.
//
// What a choice's tokens mean is choice_state.h's business; a breach of its rules ends the request.
// Tested by request_state_test.cc (scripts), request_choices_test.cc and //tests/sim.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "router/choice_state.h"
#include "router/generated_tokens.h"
#include "router/openai/answer.h"

namespace tandem::router {

class RequestState final {
 public:
  // How long the workers may hold a request after its answer or its generation has ended.
  static constexpr absl::Duration kReleaseWaitMax = absl::Seconds(5);

  struct Params {
    ChoiceState::Params choice;
    int num_choices = 1;
    int64_t num_prompt_tokens = 0;
    int64_t num_truncated_tokens = 0;  // that the prompt has lost before
    size_t num_prompt_logprobs = 0;    // that come with the first token
    absl::Duration started_at;
    absl::Duration deadline = absl::InfiniteDuration();  // on the clock of started_at
  };

  struct Output {
    ChoiceDelta delta;                 // of one choice
    absl::Status error;                // the answer has failed
    std::string cancel_reason;         // not empty: cancel on the worker ...
    std::optional<int> cancel_choice;  // ... this choice alone, or the whole request; that once
    bool is_released = false;          // nothing is held any more: forget the request
  };

  explicit RequestState(Params params);
  RequestState(const RequestState&) = delete;
  RequestState& operator=(const RequestState&) = delete;

  Output OnTokens(const GeneratedTokens& tokens, absl::Duration now);
  // The worker's last word. error: OK where all was well.
  Output OnEnded(const absl::Status& error, bool is_cancelled);
  Output OnWorkerLost(const absl::Status& cause);
  Output OnClientLeft(absl::Duration now);
  // Gives the request up for a reason of the router's own (a stream the client does not read, a drain that ran out).
  Output OnGiveUp(const absl::Status& cause, absl::Duration now);
  // Somebody asked for the answer to end where it stands. Each call ends one open choice: to be called for as long as
  // the answer is open.
  Output OnAbort(absl::Duration now);
  // To be called at NextWakeup() or later.
  Output OnTime(absl::Duration now);
  absl::Duration NextWakeup() const;

  // True while somebody wants the answer: where its workers fail, others may go on with what is open of it.
  bool may_go_on() const { return is_answer_open_ && !is_cancel_sent_ && !is_released_; }
  // The attempt is over, in place of OnEnded() or OnWorkerLost(); while may_go_on(). BeginAttempt() or the end of the
  // answer follows.
  void EndAttempt();
  // Others work on it now, from here.
  void BeginAttempt();
  std::vector<ResumedChoice> resumed_choices() const;  // valid until the next event
  bool is_answer_open() const { return is_answer_open_; }
  bool is_released() const { return is_released_; }
  Usage usage() const;
  int64_t num_generated() const { return num_generated_; }  // of all choices
  // Both InfiniteDuration until the first token has come.
  absl::Duration time_to_first_token() const { return first_token_at_ - started_at_; }
  // The same of one choice; also for a choice that does not exist.
  absl::Duration last_token_at(int choice) const;

 private:
  struct Choice {
    explicit Choice(const ChoiceState::Params& params) : state(params) {}
    ChoiceState state;
    absl::Duration last_token_at = absl::InfiniteDuration();
    bool has_prompt_logprobs = false;  // its client has them
    bool runs = true;  // on the worker: it has not said that the sequence finished, nor been told to cancel it
  };

  // INTERNAL: the worker has not sent what was asked for.
  absl::Status TakePromptLogprobs(const GeneratedTokens& tokens);
  bool has_choice(int choice) const { return choice >= 0 && choice < static_cast<int>(choices_.size()); }
  void OnSequenceStops(Choice& choice, absl::Duration now);
  // The choice is complete: what still runs of it on the worker is cancelled for that reason.
  void OnChoiceEnds(int choice, const char* reason, absl::Duration now, Output* output);
  void FailAnswer(absl::Status error, Output* output);
  void CancelWork(std::string reason, absl::Duration now, Output* output);
  void Release(Output* output);

  const int64_t num_prompt_tokens_;
  const int64_t num_truncated_tokens_;
  const size_t num_prompt_logprobs_;
  const size_t num_top_logprobs_;
  const absl::Duration started_at_;
  const absl::Duration deadline_;

  std::vector<Choice> choices_;
  std::shared_ptr<const PromptLogprobs> prompt_logprobs_;
  int num_open_;
  int num_running_;  // choices that run on the worker
  int64_t num_generated_ = 0;
  int64_t num_cached_tokens_ = 0;  // of the prompt
  absl::Duration first_token_at_ = absl::InfiniteDuration();
  bool is_answer_open_ = true;
  bool is_cancel_sent_ = false;  // of the whole request
  bool is_between_attempts_ = false;
  bool is_released_ = false;
  absl::Duration release_at_ = absl::InfiniteDuration();  // set when the work should have ended
};

}  // namespace tandem::router
