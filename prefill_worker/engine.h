// The prefill worker without threads and sockets: everything that it decides, in one place.
//
// Inputs are member functions, called by one thread; outputs go to the Outbox. Time comes from the clock given. Step()
// does what is due: leases and repeats, admissions, one forward pass over chunks of several prompts. Between steps the
// caller sleeps until NextWake() or the next input.
//
// The life of a request: Start -> waits in line -> pages for its whole prompt, the first of them those that others have
// computed (prefix_cache) -> Accepted, the cached pages announced -> chunk steps over the rest, in which each layer's
// complete pages are announced while the next layer computes -> the first token of every choice, sampled and sent at
// once -> pages kept until decode says Done, aborts, or its lease lapses. Any of these ends it at any point before,
// too. A Start that brings generated tokens gets its prompt's KV and no token: decode replays what it has. Whole pages
// before a prompt's last token are cached as soon as their step is done, while their request lives as well as after its
// end, until somebody else needs the room.
// Where the executor has an MTP layer, it runs behind the others over the same chunk, one token ahead: its record of
// the prompt's last token depends on the first token of each choice, so that one stays zero, decode writes it, and the
// hidden state that it takes for that is sent. The first tokens do not wait for the MTP layer.
//
// Invariants: a prompt holds all of its pages or none; requests are admitted in order of arrival or of priority; at
// rest nobody holds a page (the cached ones are idle) and the transfer ledger is zero. Tested by engine_test.cc and
// //tests/sim.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "kernels/dtypes.h"
#include "kvcache/kv_pool.h"
#include "kvcache/page_allocator.h"
#include "kvcache/prefix_index.h"
#include "kvtransfer/page_memory.h"
#include "kvtransfer/remembered_sums.h"
#include "kvtransfer/transfer_source.h"
#include "model/model_executor.h"
#include "model/sampler.h"
#include "prefill_worker/chunk_scheduler.h"
#include "prefill_worker/outbox.h"
#include "proto/worker.pb.h"
#include "worker_shell/answer_constraints.h"
#include "worker_shell/request_order.h"
#include "worker_shell/sampling.h"

namespace tandem::prefill {

struct EngineOptions {
  ChunkLimits chunks;
  int num_waiting_max = 0;  // requests in line; one more is refused
  worker_shell::SchedulePolicy schedule_policy = worker_shell::SchedulePolicy::kFcfs;
  std::shared_ptr<const model::Vocabulary> vocabulary;      // null: constrained requests are refused
  kvtransfer::SourceOptions transfer;                       // with this worker's incarnation and its pool's layout
  std::optional<kvcache::PrefixIndexOptions> prefix_cache;  // none: every prompt is computed whole
  bool publishes_prefix_changes = false;                    // somebody calls TakePrefixChanges() after each step
};

// What has happened since the start; never goes back.
struct EngineCounters {
  int64_t requests_received = 0;
  int64_t requests_refused = 0;
  int64_t requests_done = 0;   // decode has every byte
  int64_t requests_ended = 0;  // aborted, failed or lapsed
  int64_t prompt_tokens = 0;   // computed
  int64_t first_tokens = 0;    // sampled
  int64_t steps = 0;           // forward passes
  // Of the prefix cache.
  int64_t prefix_hits = 0;           // admitted requests that joined cached pages
  int64_t cached_prompt_tokens = 0;  // that they had not to compute
  int64_t prefix_flushes = 0;
  int64_t prefix_distrusts = 0;  // requests whose sums disagreed at decode: their prefixes were dropped
};

class Engine final {
 public:
  // All outlive the engine; `readable` is what lane threads ask, null where none does.
  Engine(const EngineOptions& options, const base::Clock& clock, model::ModelExecutor& executor,
         const kvcache::KvPool& pool, kvtransfer::ReadableEpochs* readable, Outbox& outbox);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // ---- Decode workers ----
  void TargetUp(uint64_t target_incarnation, const std::string& instance);
  void TargetDown(uint64_t target_incarnation);
  void TargetMessage(uint64_t target_incarnation, const proto::TransferMessage& message);

  // ---- Work ----
  void Step();
  // The point of the clock at which Step() has something to do though no input comes; now or earlier: at once.
  absl::Duration NextWake() const;
  // Refuses every request that comes later with UNAVAILABLE; those that live go on to their end.
  void Drain() { is_draining_ = true; }
  bool is_draining() const { return is_draining_; }
  bool IsAtRest() const { return requests_.empty(); }
  // Forgets every cached page; requests go on with those that they hold.
  void FlushPrefixCache();

  proto::Load load() const;
  const EngineCounters& counters() const { return counters_; }
  const kvtransfer::TransferSource& transfer() const { return transfer_; }
  const kvcache::PageAllocator& pages() const { return pages_; }
  // What of the prefix cache has changed since the last call.
  std::vector<kvcache::PrefixChange> TakePrefixChanges() {
    return prefixes_.has_value() ? prefixes_->TakeChanges() : std::vector<kvcache::PrefixChange>();
  }
  const kvcache::PrefixIndex* prefix_cache() const { return prefixes_.has_value() ? &*prefixes_ : nullptr; }
  // A line for each request: /statusz.
  std::string Describe() const;

 private:
  struct Request {
    kvtransfer::EpochId id;
    kvtransfer::StartRequest start;
    worker_shell::Place place;  // in line, and among those that are computed
    int num_overtaken = 0;
    worker_shell::DrawRules draws;
    std::vector<int32_t> prompt;            // as the executor takes it
    std::vector<kvcache::PageId> pages;     // page table; empty while it waits
    int64_t num_computed = 0;               // the cached ones included
    int64_t num_cached = 0;                 // of these, computed for others before
    int64_t num_published = 0;              // pages that the prefix cache was told of
    proto::PromptLogprobs prompt_logprobs;  // as far as it is computed, where decode wants them

    int64_t num_left() const { return static_cast<int64_t>(prompt.size()) - num_computed; }
    bool SamplesFirstTokens() const { return start.generated_tokens.empty(); }
    // Of prompt tokens, which come with the first tokens.
    bool WantsPromptLogprobs() const { return SamplesFirstTokens() && start.sampling.prompt_logprobs_begin() > 0; }
    // The logits at that position say how likely the next prompt token was, and decode wants to know.
    bool WantsLogprobBehind(int64_t position) const {
      return WantsPromptLogprobs() && position + 1 >= start.sampling.prompt_logprobs_begin() &&
             position + 1 < static_cast<int64_t>(prompt.size());
    }
    std::string Owner() const;
    kvcache::PrefixTokens Prefix() const {
      return {.tokens = start.prompt_tokens,
              .num_prompt_tokens = static_cast<int64_t>(prompt.size()),
              .cache_salt = start.cache_salt};
    }
    // The last prompt token is always computed, and so is every one whose logits are wanted.
    int64_t NumJoinableTokens() const;
  };

  void PumpTransfer();
  void Handle(kvtransfer::SendToTarget& output);
  void Handle(kvtransfer::AdmitRequest& output);
  void Handle(kvtransfer::EndRequest& output);
  absl::Status Validate(const kvtransfer::StartRequest& start) const;
  void Admit();
  // Cached pages and new ones for the whole prompt, or false: not enough are free or idle.
  bool TakePages(Request& request);
  void PublishPages(Request& request);
  void StepChunks();
  void AnnounceLayer(int layer);
  void FinishChunks(absl::Span<const float> logits);
  // The MTP layer over the chunks of the step. hidden: of all of its rows; what the MTP layer does not read is dropped.
  absl::Status RunMtp(std::vector<kernels::Bf16> hidden);
  void TakePromptLogprob(Request& request, int64_t position, absl::Span<const float> logits) const;
  // The first token of every choice, from the logits of the prompt's last row.
  void SampleFirstTokens(Request& request, absl::Span<const float> logits);

  const EngineOptions options_;
  const base::Clock& clock_;
  model::ModelExecutor& executor_;
  const kvcache::KvPool pool_;
  Outbox& outbox_;
  worker_shell::AnswerConstraints constraints_;
  model::Sampler sampler_;
  const ChunkScheduler scheduler_;
  kvcache::PageAllocator pages_;
  std::optional<kvcache::PrefixIndex> prefixes_;
  kvtransfer::HostPageMemory page_memory_;
  kvtransfer::RememberedSums sums_;
  kvtransfer::TransferSource transfer_;

  std::map<kvtransfer::EpochId, Request> requests_;
  absl::btree_map<worker_shell::Place, Request*> waiting_;
  absl::btree_map<worker_shell::Place, Request*> active_;  // has pages and tokens left to compute
  uint64_t next_arrival_ = 1;
  bool is_draining_ = false;
  bool has_work_ = false;  // the next Step() may do something though no input comes
  EngineCounters counters_;

  struct Chunk {
    Request* request = nullptr;
    int row_begin = 0;
    int64_t first_position = 0;
    int num_tokens = 0;

    int64_t end() const { return first_position + num_tokens; }
    bool is_last() const { return end() == static_cast<int64_t>(request->prompt.size()); }
  };
  std::vector<Chunk> step_;  // of the step under way, without those of requests that have ended in it
};

}  // namespace tandem::prefill
