// One prompt of a request on the workers: the attempts at it, and what has happened to it and not been looked at yet.
//
// The thin shell around RequestState: hands it events, carries out its cancels, counts its tokens, and gives the prompt
// with all accepted tokens to other workers where its own fail (failover.h decides). What it returns is for the client.
// Belongs to the shard's thread. Tested by worker_loss_integration_test.cc and tests/e2e/failover_test.py.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "router/cluster.h"
#include "router/failover.h"
#include "router/metrics.h"
#include "router/pair_picker.h"
#include "router/request_inbox.h"
#include "router/request_state.h"
#include "router/resume_pace.h"
#include "router/timeline/request_timeline.h"

namespace tandem::router {

class PromptRun final {
 public:
  struct Parts {  // all outlive the run
    const base::Clock* clock = nullptr;
    Cluster* cluster = nullptr;
    RouterMetrics* metrics = nullptr;
    uint64_t* turn = nullptr;  // rotates among equal pairs
    PairPolicy policy = PairPolicy::kLeastLoad;
    ResumePace* resume_pace = nullptr;
    std::optional<absl::Duration> failover_wait_max;  // nullopt: what fails is not tried again
    RequestTimeline* timeline = nullptr;              // nullptr: none is kept
    absl::Duration gap_limit;                         // longer waits for a token are in it
  };

  // index: of the prompt in its request. log_id: of the request, in log lines. wake: called after each event.
  PromptRun(const Parts& parts, const RequestState::Params& params, GenerateOrder order, int index, std::string log_id,
            std::function<void()> wake);
  ~PromptRun();
  PromptRun(const PromptRun&) = delete;
  PromptRun& operator=(const PromptRun&) = delete;

  // Gives the prompt to a pair, or waits for one where a worker whose stream has just broken may be back.
  // INVALID_ARGUMENT or UNAVAILABLE: no pair can take it; nothing was started.
  absl::Status Start();

  // What the next event of the worker means; nullopt where none waits.
  std::optional<RequestState::Output> TakeEvent();
  RequestState::Output OnClientLeft();
  RequestState::Output OnGiveUp(const absl::Status& cause);
  RequestState::Output OnAbort();  // of one choice: call it while the answer is open
  // To be called at NextWakeup() or later.
  RequestState::Output OnTime();
  absl::Duration NextWakeup() const;

  const RequestState& state() const { return state_; }
  const std::string& pair() const { return pair_; }    // "" until it is picked
  uint64_t request_id() const { return request_id_; }  // at the cluster; 0 until it is started

 private:
  static constexpr absl::Duration kAttemptTimeMin = absl::Milliseconds(1);

  // A pair for the prompt as the cluster is now; pair() explains it. Where none can take it, pair() stays.
  absl::StatusOr<PairChoice> Pick();
  void Begin(const PairChoice& pair);
  // Between Start() and the first attempt: looks for a pair and begins there.
  RequestState::Output BeginLate();
  RequestState::Output TakeTokens(const GeneratedTokens& tokens);
  RequestState::Output OnAttemptFailed(const absl::Status& cause, bool is_worker_lost);
  // Between two attempts: looks for a pair and goes on there.
  RequestState::Output GoOnElsewhere();
  RequestState::Output Follow(const Failover::Decision& decision);
  void LookAt(absl::Duration point);
  // Into the timeline, where one is kept.
  void Note(const char* name, absl::Duration from, absl::Duration to, absl::string_view detail = "");
  void NoteTokens(absl::Duration before, absl::Duration now);
  void NoteTransfer(const proto::TransferReport& report);
  RequestState::Output CarryOut(RequestState::Output output);
  absl::Duration Now() const { return parts_.clock->Now(); }

  const Parts parts_;
  const absl::Duration deadline_;
  const int index_;
  const std::string log_id_;
  RequestInbox inbox_;
  RequestState state_;
  GenerateOrder order_;
  Failover failover_;
  absl::Duration failed_at_;                           // the latest attempt
  absl::Duration look_at_ = absl::InfiniteDuration();  // for a pair; before the first attempt or between two only
  absl::Duration looks_since_;                         // while look_at_ is finite
  absl::Duration sent_at_;                             // the latest attempt
  absl::Duration sum_of_gaps_ = absl::ZeroDuration();  // between tokens, of all choices
  int64_t num_gaps_ = 0;
  std::string pair_;
  uint64_t request_id_ = 0;
};

}  // namespace tandem::router
