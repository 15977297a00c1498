// The decode worker without threads and sockets: everything that it decides, in one place.
//
// Inputs are member functions, called by one thread; outputs go to the Outbox. Time comes from the clock given. Step()
// does what is due: transfers, admissions, one forward pass over the running sequences. Between steps the caller
// sleeps until NextWake() or the next input.
//
// The life of a request: Generate -> waits in line -> takes all pages of its prompt or none -> epoch opened, Start sent
// to the prefill worker that the router chose -> first token to the router at once -> pages in place -> stepped with
// all others -> finish reason -> pages back -> Ended, exactly once, after the peer has confirmed that it holds nothing.
// A request that is retracted, or whose transfer is tried again, keeps its tokens: prefill is told that there are some,
// and their KV is computed here again with forced ids (compared with this worker's own draw). Where the host has room
// its pages are kept there instead (retracted_pages.h), and it goes on from them without prefill.
// A sequence is stepped only while its reader's credit covers the token that may come; one that sits out for longer
// than credit_patience, or whose pages others need, is retracted, and waits in line again once there is room.
// Where the MTP layer drafts, a step of a sequence is a window: its newest token and the drafts behind it, all verified
// by one forward pass (mtp/, docs/mtp.md). No token depends on it. A router whose stream is lost finds its requests as
// they went on meanwhile: what it has not received is said again from the position that it names (Reattach); what it
// does not name is cancelled, or newer and said from its start.
//
// The choices of a request are sequences of their own that share the pages of its prompt (page_sharing.h) and one
// transfer. One that has ended gives back what it alone holds at once; the request ends with its last one.
//
// Invariants: pages are held by exactly the requests in phases transferring, running and releasing; at rest the
// allocator is empty and the transfer ledger zero; tokens of a choice reach a router in order of position.
// Tested by engine_test.cc, engine_*_test.cc and //tests/sim.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "decode_worker/batch_scheduler.h"
#include "decode_worker/cancel_tombstones.h"
#include "decode_worker/ended_log.h"
#include "decode_worker/generate_request.h"
#include "decode_worker/mtp/drafter.h"
#include "decode_worker/mtp/speculation.h"
#include "decode_worker/outbox.h"
#include "decode_worker/request.h"
#include "decode_worker/retracted_pages.h"
#include "decode_worker/router_sessions.h"
#include "decode_worker/step_runner.h"
#include "decode_worker/token_drawer.h"
#include "kvcache/kv_pool.h"
#include "kvcache/page_allocator.h"
#include "kvcache/prefix_index.h"
#include "kvtransfer/page_memory.h"
#include "kvtransfer/transfer_target.h"
#include "model/model_executor.h"
#include "proto/worker.pb.h"
#include "worker_shell/answer_constraints.h"
#include "worker_shell/request_order.h"

namespace tandem::decode {

struct EngineOptions {
  BatchLimits batch;
  int num_waiting_max = 0;  // requests in line; one more is refused
  worker_shell::SchedulePolicy schedule_policy = worker_shell::SchedulePolicy::kFcfs;
  int64_t context_length_max = 0;  // prompt and generated tokens of one sequence; at most what the pool holds
  absl::Duration router_grace = absl::Seconds(2);
  absl::Duration credit_patience = absl::Seconds(2);    // a sequence whose reader has no room for longer is retracted
  SpeculativeOptions speculative;                       // on only where the executor has an MTP layer
  std::shared_ptr<const model::Vocabulary> vocabulary;  // null: constrained requests are refused
  kvtransfer::TargetOptions transfer;                   // with this worker's incarnation and its pool's layout
  int64_t num_device_pages = 0;                         // HiSparse: of all device buffers together
  // Pages of prompts stay after their requests, and are not fetched again; none: they are freed.
  std::optional<kvcache::PrefixIndexOptions> prefix_cache;
  bool keeps_generated_pages = false;  // those that hold generated tokens stay, too
  // Where the pages of retracted sequences are kept; none: their tokens are computed again. Outlives the engine.
  std::optional<kvcache::KvPool> retraction_pool;
};

// What has happened since the start; never goes back.
struct EngineCounters {
  int64_t requests_received = 0;
  int64_t requests_finished = 0;
  int64_t requests_cancelled = 0;
  int64_t requests_failed = 0;
  int64_t requests_refused = 0;  // on arrival; of those that failed
  int64_t requests_dropped = 0;  // of routers that were gone when they arrived, duplicates, cancelled beforehand
  int64_t tokens_generated = 0;
  int64_t tokens_replayed = 0;
  int64_t replay_mismatches = 0;
  int64_t retractions = 0;         // in page famine
  int64_t credit_retractions = 0;  // of sequences whose reader had no room
  int64_t kept_retractions = 0;    // of both: whose pages were kept on the host
  int64_t kept_resumes = 0;        // sequences that went on from such pages
  int64_t swap_outs = 0;           // of sequences from their device buffers
  int64_t stale_retries = 0;       // ABORTED, tried once more
  int64_t data_loss_retries = 0;   // sums disagreed twice, prefilled once more
  int64_t lanes_quarantined = 0;
  int64_t reattached_routers = 0;
  int64_t tokens_said_again = 0;   // to routers whose stream was lost
  int64_t requests_not_known = 0;  // named by such a router: lost with its stream, or long ended
  int64_t steps = 0;               // forward passes
  int64_t rows = 0;
  int64_t prefix_hits = 0;         // transfers of which the first pages were here
  int64_t held_prompt_tokens = 0;  // that were not fetched for it
  int64_t prefix_flushes = 0;
  int64_t generated_pages_kept = 0;  // by the index, of generated tokens
};

class Engine final {
 public:
  // All outlive the engine. The pool's layout equals options.transfer.layout.
  Engine(const EngineOptions& options, const base::Clock& clock, model::ModelExecutor& executor,
         const kvcache::KvPool& pool, Outbox& outbox);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // ---- Routers. stream_id: not zero, never used again. ----
  void RouterAttached(uint64_t stream_id, const proto::Identity& router);
  void RouterMessage(uint64_t stream_id, const proto::RouterMessage& message);
  void RouterLost(uint64_t stream_id);
  void Generate(GenerateRequest request);

  // ---- Prefill peers, by bootstrap address ----
  void PeerUp(const std::string& peer, const kvtransfer::SourcePeer& source);
  void PeerDown(const std::string& peer, const absl::Status& status);
  void PeerMessage(const std::string& peer, const proto::TransferMessage& message);
  void FetchDone(uint64_t fetch_id, const absl::Status& status, absl::Duration ended = absl::InfiniteDuration());

  // ---- Work ----
  void Step();
  // The point of the clock at which Step() has something to do though no input comes; now or earlier: at once.
  absl::Duration NextWake() const;
  // Refuses every request that comes later with UNAVAILABLE; those that live go on to their end.
  void Drain() { is_draining_ = true; }
  bool is_draining() const { return is_draining_; }
  bool IsAtRest() const { return requests_.empty(); }

  proto::Load load() const;
  const EngineCounters& counters() const { return counters_; }
  const kvtransfer::TransferTarget& transfer() const { return transfer_; }
  const kvcache::PageAllocator& pages() const { return pages_; }
  const kvcache::PageAllocator& device_pages() const { return device_pages_; }
  const RetractedPages& retracted_pages() const { return retracted_; }
  const model::DeviceBufferCounters* device_buffer_counters() const { return executor_.device_buffer_counters(); }
  const Speculation& speculation() const { return speculation_; }
  const kvcache::PrefixIndex* prefix_cache() const { return prefixes_.has_value() ? &*prefixes_ : nullptr; }
  int num_sequences_max() const { return options_.batch.num_sequences_max; }
  int num_parked() const { return static_cast<int>(parked_.size()); }
  int num_without_credit() const { return num_without_credit_; }  // sequences that sat out the last step
  // Ends that routers have not confirmed yet.
  size_t num_unconfirmed_ends() const { return ended_.size(); }
  // A line for each request and each prefill peer: /statusz.
  std::string Describe() const;

 private:
  using ByAge = absl::btree_map<worker_shell::Place, Request*>;
  // What one view of the scheduler stands for. No sequence: a request whose transfer is under way.
  struct Member {
    Request* request = nullptr;
    Sequence* sequence = nullptr;
  };

  absl::Status Validate(const GenerateRequest& request) const;
  int num_choices_max() const;
  absl::Status ValidateLengths(const GenerateRequest& request) const;
  absl::Status ValidateChoices(const GenerateRequest& request) const;
  void MakeSequences(Request& request) const;
  // ABORTED where a later attempt of the same request is here; earlier ones end.
  absl::Status SupersedeOtherAttempts(const RequestKey& key);
  void Cancel(const proto::Cancel& cancel);
  // The router is dead: cancels all of its requests and forgets what was kept for it.
  void Forget(uint64_t router_incarnation, absl::string_view why);
  void TakeCredit(Request& request, uint32_t choice, uint64_t granted_bytes);
  void Reattach(uint64_t stream_id, const proto::Reattach& part);
  void AddNewerThanReattach(uint64_t router_incarnation, const absl::flat_hash_set<RequestKey>& named,
                            std::vector<proto::Reattach::Position>& positions) const;
  void SayAgain(const std::vector<proto::Reattach::Position>& positions);
  void ExpireDeadlines();

  Reservation ReservationOf(const Request& request) const;
  int DevicePagesSoon(int64_t num_tokens) const;
  void Admit();
  // Pages that are free, or that become free where nobody holds them.
  int64_t num_pages_available() const { return pages_.num_free() + pages_.num_idle(); }
  // Pages of this prompt that are here and in use: it takes no room for them.
  int NumPagesInUse(const Request& request) const;
  // All of them; there are as many.
  std::vector<kvcache::PageId> TakePages(int64_t num_pages, const std::string& owner);
  void FlushPrefixCache();
  // The whole pages of its prompt are final: later prompts may join them. Returns those that it gave back for pages of
  // the index with the same bits.
  std::vector<kvcache::PageId> IndexPromptPages(const Request& request, Sequence& sequence);
  void BeginTransfer(Request& request, const Reservation& reservation);
  // Those of its sequences that are to have pages are all kept on the host.
  static bool CanGoOnFromHost(const Request& request, const Reservation& reservation);
  void GoOnFromHost(Request& request, const Reservation& reservation);
  void ReservePages(Request& request, const Reservation& reservation);
  void PumpTransfer();
  void Handle(kvtransfer::SendMessage& output);
  void Handle(kvtransfer::StartFetch& output);
  void Handle(kvtransfer::CancelFetches& output);
  void Handle(kvtransfer::FirstTokenArrived& output);
  // Where they are wanted; false: prefill sent others than asked for, and the request ends.
  bool TakePromptLogprobs(Request& request, const proto::FirstToken& first);
  void Handle(kvtransfer::TransferReady& output);
  void Handle(kvtransfer::TransferFailed& output);
  void Handle(kvtransfer::PagesReleased& output);
  void Handle(kvtransfer::EpochClosed& output);
  void Handle(kvtransfer::WrongSum& output);
  void Handle(kvtransfer::LaneQuarantined& output);
  void Handle(kvtransfer::ResetPeer& output);

  void StepRunning();
  int NextDraftLength();
  // That the window of a sequence has room for, at most draft_length.
  int DraftsWanted(const Request& request, const Sequence& sequence, int draft_length) const;
  StepPlan PlanStep(int draft_length, std::vector<Member>& members) const;
  void CountSharedPages(const std::vector<Member>& members, std::vector<SequenceView>& views) const;
  absl::Status Draft(const StepPlan& plan, absl::Span<const Member> members);
  void Grow(const Request& request, Sequence& sequence, const PlannedRows& rows);
  // The error of a token that could not be drawn.
  absl::Status TakeDraws(Request& request, Sequence& sequence, const StepRunner::Result& result,
                         proto::TokenBatch& batch);
  void Retract(const Member& victim);
  // Copies what it has written to the host, where there is room. Its pages are still its own.
  void KeepPages(Request& request, Sequence& sequence);
  void DropKept(Request& request, Sequence& sequence);
  // HiSparse: it keeps its pages, which then have all that it has computed, and gets another buffer before its next
  // rows. One whose rows cannot be brought back is retracted.
  void SwapOut(const Member& member);
  // Those whose reader has had no room for so long.
  void RetractWithoutCredit(absl::Duration patience);
  void AppendToken(Request& request, Sequence& sequence, const model::SampledToken& token);

  // Stops whatever the request does; it ends with `outcome` once nothing is held.
  void End(Request& request, Outcome outcome);
  // One choice is over: its pages go back as soon as no transfer needs them, and its request ends with the last one.
  void EndSequence(Request& request, Sequence& sequence);
  // After a sequence of a running request has ended or was retracted.
  void SettleSequences(Request& request);
  // Before a sequence that ran gives its pages back: those that its answer has filled are for later turns.
  void KeepGeneratedPages(Request& request, Sequence& sequence);
  absl::Status FinishRecords(const Request& request, Sequence& sequence);
  void ReleasePages(const Request& request, Sequence& sequence);
  void ReleaseDevicePages(const Request& request, Sequence& sequence);
  void GiveBackPages(Request& request);
  void EndIfNothingIsHeld(Request& request);

  void SendTokens(uint64_t router_incarnation, proto::TokenBatch batch);
  void SendTokensFrom(const proto::SequenceTokens& all, uint32_t position);
  void SendEnded(const Request& request);
  void SendToRouter(uint64_t router_incarnation, proto::WorkerMessage message);
  void AnnouncePrefillPeers();
  void ReportQuarantines();
  void ReportPeer(const proto::PeerStatus& status);
  void ReportPeerDown(const std::string& peer, const absl::Status& status);

  const EngineOptions options_;
  const base::Clock& clock_;
  model::ModelExecutor& executor_;
  const kvcache::KvPool pool_;
  Outbox& outbox_;
  const BatchScheduler scheduler_;
  worker_shell::AnswerConstraints constraints_;
  TokenDrawer drawer_;
  StepRunner runner_;
  Speculation speculation_;
  Drafter drafter_;
  kvcache::PageAllocator pages_, device_pages_;
  RetractedPages retracted_;
  std::optional<kvcache::PrefixIndex> prefixes_;
  kvtransfer::HostPageMemory page_memory_;
  kvtransfer::TransferTarget transfer_;
  RouterSessions routers_;
  CancelTombstones cancelled_early_;

  absl::btree_map<RequestKey, std::unique_ptr<Request>> requests_;  // in an order that a replay repeats
  ByAge waiting_;
  ByAge holders_;  // of pages
  ByAge parked_;   // until their reader has room
  absl::flat_hash_map<uint64_t, Request*> by_epoch_;
  EndedLog ended_;
  std::map<std::string, proto::PeerStatus, std::less<>> peers_;  // by bootstrap address, as last reported
  std::set<std::string> announced_peers_;
  const int vocab_size_;
  uint64_t next_arrival_ = 1;
  int num_without_credit_ = 0;
  bool has_work_ = false;  // the next Step() may do something though no input comes
  bool is_draining_ = false;
  EngineCounters counters_;
};

}  // namespace tandem::decode
