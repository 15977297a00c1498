// Decode's side of every KV transfer: reserves, pulls, checks, and only then lets a sequence start.
//
// A pure state machine: no thread, no wait, no I/O, no clock but the one given. Inputs are member functions, called by
// the engine's thread; everything it wants done is an output, taken with TakeOutputs() after each input and carried
// out in order. Copyable, so that tests can enumerate it.
//
// The life of an epoch, seen by the caller: Begin, then any of FirstTokenArrived (before the pages have landed), then
// exactly one of
//   TransferReady: every page is in place, its sums agree, every first token has arrived, and the hidden state of the
//   prompt's end where there is to be one. The pages are the caller's.
//
//   PagesReleased, after TransferFailed or Abort(): nothing is outstanding into the pages, and nothing ever will be.
//
// and last, exactly once, EpochClosed: the peer has confirmed that it holds nothing either, or is gone.
//
// Invariants: a fetch is started only into pages of an open epoch; the pages of an epoch are handed on only when its
// outstanding fetches are zero; a page counts as arrived only when the sum over its final place equals P's.
// Every message of P is idempotent here and may come in any order; one of an unknown epoch is answered with Abort, one
// of another incarnation is counted and ignored.
// Tested by transfer_protocol_test.cc, transfer_faults_test.cc and transfer_enumeration_test.cc (all interleavings).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "kvcache/kv_layout.h"
#include "kvtransfer/fetch_lane.h"
#include "kvtransfer/page_memory.h"
#include "kvtransfer/peer_lanes.h"
#include "kvtransfer/start_parts.h"
#include "kvtransfer/target_epoch.h"
#include "kvtransfer/transfer_times.h"
#include "proto/kv_transfer.pb.h"

namespace tandem::kvtransfer {

struct TargetOptions {
  uint64_t incarnation = 0;  // of this decode worker
  kvcache::KvLayout layout;  // of its pool; num_layers equals P's
  // Of the hidden state that P hands over with every prompt, for the MTP layer; 0: none, MTP is off.
  int64_t prompt_hidden_bytes = 0;
  // An epoch that hears nothing for this long says Repeat (or Done, or Abort, again).
  absl::Duration repeat_interval = absl::Seconds(1);
  LanePolicy lane_policy;
  // Fetches are outstanding at a peer and none has completed for this long: the peer is reset.
  absl::Duration fetch_stall_max = absl::Seconds(4);
};

struct SourcePeer {
  uint64_t incarnation = 0;
  uint64_t session = 0;   // of the control stream (PeerUp::session); outputs carry it
  int64_t num_pages = 0;  // of its pool
  int num_source_ranks = 1;
  std::vector<PeerLane> lanes;  // numbered by their place, best first; where there is none, Begin refuses
  std::string detail;           // for people: lanes that are used, and those that are not, with the reason
};

// ---- Outputs ----

struct SendMessage {
  std::string peer;
  uint64_t session = 0;
  proto::TransferMessage message;
};
// To be given to lane `lane` of source rank `source_rank` at `peer`; its `done` comes back as FetchDone(fetch_id, ...).
struct StartFetch {
  std::string peer;
  int source_rank = 0;
  int lane = 0;
  uint64_t epoch = 0;
  uint64_t fetch_id = 0;
  std::vector<ByteRun> runs;
};
// To be given to every lane of the peer: the epoch has ended with fetches under way. Their FetchDone still come.
struct CancelFetches {
  std::string peer;
  uint64_t epoch = 0;
};
// Once for each choice.
struct FirstTokenArrived {
  uint64_t epoch = 0;
  proto::FirstToken first_token;
};
struct TransferReady {
  uint64_t epoch = 0;
  std::string prompt_hidden;  // as many bytes as the options say
  TransferTimes times;
};
// At most once, before PagesReleased. UNAVAILABLE: the peer is silent, gone or its lane is dead. DATA_LOSS: a sum was
// wrong twice. ABORTED: P no longer knows the epoch. DEADLINE_EXCEEDED. INTERNAL: P broke the protocol. Or P's cause.
struct TransferFailed {
  uint64_t epoch = 0;
  absl::Status status;
};
struct PagesReleased {
  uint64_t epoch = 0;
};
struct EpochClosed {
  uint64_t epoch = 0;
};
// A page's bytes did not agree with their sum. It is fetched again, or the transfer has failed.
struct WrongSum {
  std::string peer;
  int lane = 0;
  std::string detail;  // layer, page, rank and kind of lane of the last one
};
// Two wrong sums within quarantine_window: the lane is not used for that long, or until the peer's next PeerUp. While
// no lane is left, Begin answers UNAVAILABLE.
struct LaneQuarantined {
  std::string peer;
  int lane = 0;
  std::string detail;  // kind, rank, layer and page of the last wrong sum
};
// Its lanes hang. The target has taken the peer down already; the owner retires its lanes and calls PeerLink::Reset.
struct ResetPeer {
  std::string peer;
  uint64_t session = 0;
  absl::Status status;
};

using TargetOutput = std::variant<SendMessage, StartFetch, CancelFetches, FirstTokenArrived, TransferReady,
                                  TransferFailed, PagesReleased, EpochClosed, WrongSum, LaneQuarantined, ResetPeer>;

// What is held now: all zero at rest.
struct TargetLedger {
  int64_t open_epochs = 0;
  int64_t held_pages = 0;  // of epochs that are neither ready nor released
  int64_t outstanding_fetches = 0;
  int64_t outstanding_bytes = 0;
  int64_t announced_unfetched_bytes = 0;
  bool operator==(const TargetLedger&) const = default;
};

// What has happened since the start: never goes back.
struct TargetCounters {
  int64_t epochs_begun = 0;
  int64_t epochs_ready = 0;
  int64_t epochs_failed = 0;
  int64_t epochs_aborted = 0;  // by the caller
  int64_t fetched_bytes = 0;
  int64_t wrong_sums = 0;
  int64_t refetched_pages = 0;
  int64_t fetch_errors = 0;
  int64_t stale_messages = 0;  // another incarnation, another request under a known epoch
  int64_t unknown_epochs = 0;  // messages of epochs that are closed
  int64_t repeats_sent = 0;
};

class TransferTarget final {
 public:
  // `memory` and `clock` outlive the machine and all its copies.
  TransferTarget(const TargetOptions& options, PageMemory* memory, const base::Clock* clock);

  // ---- Peers. `peer` is the bootstrap address by which the router names it. ----

  // The handshake has succeeded and the lanes are wired. A peer that is up already goes down first.
  void PeerUp(std::string_view peer, const SourcePeer& source);
  // Fails every transfer of the peer with UNAVAILABLE and `status`'s text at once. Its outstanding fetches must still
  // come back through FetchDone: the owner closes the peer's lanes, on another thread (LaneSet does).
  void PeerDown(std::string_view peer, const absl::Status& status);
  bool IsUp(std::string_view peer) const;
  // Up, and with a lane that is not quarantined: Begin would not refuse it now.
  bool IsUsable(std::string_view peer) const;

  // ---- Requests ----

  // Opens an epoch and sends Start. UNAVAILABLE where the peer is not up or has no usable lane; INVALID_ARGUMENT where
  // the request contradicts itself (page count, held prefix, generated tokens with several choices).
  absl::StatusOr<uint64_t> Begin(std::string_view peer, TransferRequest request);
  // Ends the transfer: cancelled by the client, or its first token ended it. Idempotent, at any point; after Ready and
  // for an unknown epoch it does nothing.
  void Abort(uint64_t epoch, const absl::Status& cause);

  // ---- What comes back ----

  void Receive(std::string_view peer, const proto::TransferMessage& message);
  // ended: when the lane was done with it, where the owner has heard of it later.
  void FetchDone(uint64_t fetch_id, const absl::Status& status, absl::Duration ended = absl::InfiniteDuration());
  // Deadlines and repeats; to be called every few milliseconds, or at NextTick().
  void Tick();
  absl::Duration NextTick() const;  // point of the clock; InfiniteDuration where nothing waits

  std::vector<TargetOutput> TakeOutputs();
  TargetLedger ledger() const;
  const TargetCounters& counters() const { return counters_; }
  // A line for each open epoch, for people: what it holds, for whom, and what ends it.
  std::string Describe() const;
  absl::Duration OldestEpochAge() const;  // zero where none is open
  // Everything that decides what it does next, counters left out: two machines with equal states behave alike. For
  // state hashes in enumerations.
  void AppendState(std::vector<uint64_t>& state) const;
  // Measured bytes per second of a peer's lane, 0 where unknown.
  double LaneRate(std::string_view peer, int lane) const;

 private:
  using EpochMap = std::map<uint64_t, TargetEpoch>;

  // An error fails the epoch.
  absl::Status OnOpenMessage(uint64_t id, TargetEpoch& epoch, const proto::TransferMessage& message);
  void NoteAnnounce(TargetEpoch& epoch, const proto::Announce& announce) const;
  void OnUnknownEpoch(const std::string& peer, const proto::TransferMessage& message);

  // ---- Fetching ----
  absl::Status LandPiece(uint64_t id, TargetEpoch& epoch, const PagePiece& piece, int lane);
  absl::Status Judge(TargetEpoch& epoch, int layer, int page, CellVerdict verdict);
  absl::Status RetryPiece(uint64_t id, TargetEpoch& epoch, const OutstandingFetch& fetch, const absl::Status& status);
  void StrikeWrongLanes(const std::string& peer);
  // Starts what the peer's window allows, oldest epoch first.
  void Pump(const std::string& peer);
  void StartPiece(uint64_t id, TargetEpoch& epoch, PeerState& peer, const PagePiece& piece, int lane,
                  bool is_second_try);
  std::vector<ByteRun> PlanPiece(const TargetEpoch& epoch, const PeerState& peer, const PagePiece& piece) const;

  // ---- Ends ----
  void Advance(uint64_t id);  // Ready where everything has arrived; then starts what is due
  void Fail(uint64_t id, TargetEpoch& epoch, const absl::Status& status);  // once: the caller has not aborted
  void End(uint64_t id, TargetEpoch& epoch, const absl::Status& cause);
  void Settle(uint64_t id);  // releases and closes what can be
  void TakeDown(const std::string& peer, const absl::Status& status);
  // To the epoch's peer; nothing where it is down.
  proto::TransferMessage Envelope(uint64_t id, const TargetEpoch& epoch) const;
  void Say(const std::string& peer, proto::TransferMessage message);
  void SayAgain(uint64_t id, TargetEpoch& epoch);

  TargetOptions options_;
  PageMemory* memory_;
  const base::Clock* clock_;
  std::map<std::string, PeerState, std::less<>> peers_;
  EpochMap epochs_;
  std::map<uint64_t, OutstandingFetch> fetches_;
  uint64_t last_epoch_ = 0;
  uint64_t last_fetch_ = 0;
  std::map<int, std::string> wrong_lanes_;  // found while one input is handled: lane -> where
  TargetCounters counters_;
  std::vector<TargetOutput> outputs_;
};

}  // namespace tandem::kvtransfer
