// Prefill's side of every KV transfer: announces what is complete, keeps it readable, lets go when told.
//
// A pure state machine, like TransferTarget: inputs are member functions called by the engine's thread, everything it
// wants done is an output, taken with TakeOutputs() after each input and carried out in order. It serves any number of
// decode workers. Copyable.
//
// The life of an epoch, seen by the engine: AdmitRequest, then Accept() once it has pages (or Fail()), then Complete()
// for each piece of KV that will not change any more and FirstToken() for each choice; and exactly one EndRequest for
// each AdmitRequest, after which the engine stops computing for it and frees what it holds. Inputs for an epoch that
// has ended are ignored: the engine learns of it from the outputs.
//
// Invariants: pages are pinned from Accept to EndRequest; an epoch is readable from Accept until just before
// EndRequest; an epoch that has ended never starts again (a tombstone stays, also of one aborted before its Start).
// Every message of D is idempotent here and may come in any order.
// Tested by transfer_protocol_test.cc, transfer_faults_test.cc and transfer_enumeration_test.cc (all interleavings).
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "kvcache/kv_layout.h"
#include "kvtransfer/page_memory.h"
#include "kvtransfer/readable_epochs.h"
#include "kvtransfer/source_epoch.h"
#include "proto/kv_transfer.pb.h"

namespace tandem::kvtransfer {

struct SourceOptions {
  uint64_t incarnation = 0;  // of this prefill worker
  kvcache::KvLayout layout;  // of its pool
  // How long pages are kept for a decode worker whose control stream is gone. When it greets again, or a new
  // incarnation of it does, what the old stream carried ends at once.
  absl::Duration lease = absl::Seconds(2);
  // An Abort of ours that is not acknowledged is said again after this long. Of several Repeats within half of it, one
  // is answered: decode asks again where that was lost.
  absl::Duration repeat_interval = absl::Seconds(1);
  int max_prompt_tokens = 1 << 20;  // a longer Start is refused
};

struct EpochId {
  uint64_t target_incarnation = 0;
  uint64_t epoch = 0;
  auto operator<=>(const EpochId&) const = default;
};

// ---- Outputs ----

struct SendToTarget {
  uint64_t target_incarnation = 0;
  proto::TransferMessage message;
};
struct AdmitRequest {
  EpochId id;
  StartRequest start;
};
// OK: D has every byte. Otherwise why not: CANCELLED or D's cause, UNAVAILABLE (D is gone), ABORTED (superseded by a
// later attempt), DEADLINE_EXCEEDED, or what the engine gave to Fail().
struct EndRequest {
  EpochId id;
  absl::Status status;
};

using SourceOutput = std::variant<SendToTarget, AdmitRequest, EndRequest>;

// What is held now: all zero at rest.
struct SourceLedger {
  int64_t open_epochs = 0;     // started or still to be confirmed by D
  int64_t pinned_pages = 0;    // (rank, page), counted once per epoch
  int64_t lapsing_leases = 0;  // decode workers whose stream is gone while they hold epochs here
  int64_t announced_undone_bytes = 0;
  bool operator==(const SourceLedger&) const = default;
};

struct SourceCounters {
  int64_t epochs_started = 0;
  int64_t epochs_done = 0;
  int64_t epochs_aborted_by_target = 0;
  int64_t epochs_failed_here = 0;
  int64_t leases_lapsed = 0;
  int64_t announced_bytes = 0;
  int64_t refused_starts = 0;  // dead epoch, stale attempt, contradiction
  int64_t stale_messages = 0;  // another incarnation or another request under a known epoch
  int64_t unknown_epochs = 0;  // messages other than Start, Abort and Done of epochs that are not open
  int64_t repeats_answered = 0;
};

class TransferSource final {
 public:
  // `memory`: one for each source rank, in rank order. `readable` may be null where no lane asks. All outlive the
  // machine and its copies.
  TransferSource(const SourceOptions& options, std::vector<const PageMemory*> memory, const base::Clock* clock,
                 ReadableEpochs* readable);

  // ---- Decode workers ----

  // A control stream of this decode worker was opened. `instance` is its stable name: epochs of its other incarnations,
  // and those of an older stream of this one, end with UNAVAILABLE at once.
  void LinkUp(uint64_t target_incarnation, std::string_view instance);
  // Its stream has closed or was silent for too long: the lease begins to run.
  void LinkDown(uint64_t target_incarnation);
  void Receive(uint64_t target_incarnation, const proto::TransferMessage& message);

  // ---- The engine ----

  // Admits the request: `pages[rank]` are the pool pages of the whole prompt at each source rank, in logical order.
  void Accept(const EpochId& id, const std::vector<std::vector<int32_t>>& pages);
  // Logical pages [page_begin, page_end) of layers [layer_begin, layer_end) are final at `rank`: every prompt token in
  // them is computed, and nothing will be written there until EndRequest. Cached prefixes are complete at once.
  void Complete(const EpochId& id, int rank, int layer_begin, int layer_end, int page_begin, int page_end);
  // Sampled, before or after the last Complete; once for each choice.
  void FirstToken(const EpochId& id, proto::FirstToken token);
  // With MTP alone, once: what decode's options say it waits for.
  void PromptHidden(const EpochId& id, std::string hidden);
  // The engine cannot go on (or refuses: RESOURCE_EXHAUSTED, INVALID_ARGUMENT). D is told; EndRequest follows.
  void Fail(const EpochId& id, const absl::Status& status);

  void Tick();
  absl::Duration NextTick() const;  // point of the clock; InfiniteDuration where nothing waits

  std::vector<SourceOutput> TakeOutputs();
  bool IsReadable(const EpochId& id) const;
  SourceLedger ledger() const;
  const SourceCounters& counters() const { return counters_; }
  // A line for each open epoch, for people: what it holds, for whom, and what ends it.
  std::string Describe() const;
  absl::Duration OldestEpochAge() const;  // zero where none is open
  // Everything that decides what it does next, counters left out: for state hashes in enumerations.
  void AppendState(std::vector<uint64_t>& state) const;

 private:
  using EpochMap = std::map<EpochId, SourceEpoch>;

  // Messages of D.
  void OnStart(const EpochId& id, const proto::TransferMessage& message);
  void OnRepeat(const EpochId& id, const proto::TransferMessage& message);
  void OnAbort(const EpochId& id, const proto::TransferMessage& message);
  void OnDone(const EpochId& id, const proto::TransferMessage& message);
  void OnAbortAck(const EpochId& id);
  // OK where the request may start; supersedes an earlier attempt of the same request.
  absl::Status Arbitrate(const EpochId& id, const proto::RequestKey& key);
  void Admit(const EpochId& id, SourceEpoch& epoch);
  void SaySums(const EpochId& id, SourceEpoch& epoch);

  // Ends the epoch at the engine and at the lanes; `epoch` stays open until it is erased by Bury.
  void LetGo(const EpochId& id, SourceEpoch& epoch, const absl::Status& status);
  void Bury(const EpochId& id);
  // LetGo and Bury for every epoch of one decode worker.
  void EndAll(uint64_t target_incarnation, const absl::Status& status);
  // Tells D that the epoch has ended here, for a reason of its own or of the engine.
  void Break(const EpochId& id, SourceEpoch& epoch, const absl::Status& status);
  void Refuse(const EpochId& id, const proto::RequestKey& key, const absl::Status& status);

  proto::TransferMessage Envelope(const EpochId& id, const proto::RequestKey& key) const;
  // Says it now and, on Repeat, again.
  void Tell(const EpochId& id, SourceEpoch& epoch, proto::TransferMessage message);
  void Say(const EpochId& id, proto::TransferMessage message);
  SourceEpoch* FindServing(const EpochId& id);

  SourceOptions options_;
  std::vector<const PageMemory*> memory_;  // [source rank]
  const base::Clock* clock_;
  ReadableEpochs* readable_;
  std::map<uint64_t, TargetLink> links_;  // by target incarnation
  EpochMap epochs_;
  SourceCounters counters_;
  std::vector<SourceOutput> outputs_;
};

}  // namespace tandem::kvtransfer
