// The workers of one router shard: their links, what is known of them, and which request runs where.
//
// The only writer of the shard's ClusterView. Sends every decode worker the set of prefill workers, cuts prompts into
// parts, hands tokens and ends to the request they belong to, and ends the requests of a decode worker that is lost. A
// lost stream alone ends nothing: when the worker is back in time it is told which position each request needs next and
// what was granted to it, and says the rest again. A prefill worker that is lost ends nothing here: decode owns the
// life of a request and reports what it cannot save. cluster.cc has the workers, cluster_requests.cc the requests.
// A process that is listed under two addresses is used under the one that it was first met at: the other link is held
// while that one has it, since each greeting would end the other's stream.
// Tokens of a request that nobody here knows (it was given up) are answered with a Cancel, once.
// All methods and events belong to the shard's thread. Tested by cluster_test.cc and cluster_requests_test.cc
// (fake channels, fake time).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "router/cluster_view.h"
#include "router/generated_tokens.h"
#include "router/outlier_ejection.h"
#include "router/pair_picker.h"
#include "router/prefix_mirror.h"
#include "router/worker_link.h"

namespace tandem::router {

// What goes to the decode worker beside the pair's prefill address.
struct GenerateOrder {
  std::vector<TokenId> prompt;
  int64_t num_truncated = 0;  // tokens that the prompt has lost from its left; stays with the router
  float temperature = 0;      // 0 = argmax
  float top_p = 1;            // 1 = off
  int32_t top_k = 0;          // 0 = off
  float min_p = 0;            // 0 = off
  float repetition_penalty = 1;
  float frequency_penalty = 0;
  float presence_penalty = 0;
  std::vector<std::pair<TokenId, float>> logit_bias;
  uint64_t seed = 0;
  bool wants_logprobs = false;
  uint32_t num_top_logprobs = 0;
  uint32_t prompt_logprobs_begin = 0;  // 0 = none; else an index of the prompt
  uint32_t num_choices = 1;
  uint32_t max_new_tokens = 1;
  bool is_prompt_only = false;  // the one token that workers must draw is not the answer's
  uint32_t min_new_tokens = 0;
  std::vector<TokenId> stop_token_ids;
  std::shared_ptr<const proto::Constraint> constraint;   // on every choice; null: none
  absl::Duration remaining_time = absl::ZeroDuration();  // zero = no deadline
  std::string trace_parent;
  std::string cache_salt;  // KV is shared between requests of equal salts only
  int32_t priority = 0;    // higher ones first, where workers go by it
};

// Where a request hears of itself.
class RequestListener {
 public:
  virtual ~RequestListener() = default;
  virtual void OnTokens(GeneratedTokens tokens) = 0;
  virtual void OnEnded(const absl::Status& error, bool is_cancelled) = 0;
  virtual void OnWorkerLost(const absl::Status& cause) = 0;
  // Just before OnEnded(), where its worker tells.
  virtual void OnTransfer(const proto::TransferReport& report) {}
};

class Cluster final : private WorkerLinkListener {
 public:
  struct Options {
    std::vector<std::string> prefill_workers;  // host:port of their gRPC services
    std::vector<std::string> decode_workers;
    proto::Identity identity;  // of this shard
    LinkTimes times;
    // That a worker may send of one choice beyond what has been taken (proto/credit.h); at least four tokens.
    int64_t credit_bytes = 16 * 1024;
    bool follows_prefix_caches = false;  // asks prefill workers what they have cached, for CachedTokens()
  };
  // Since the start; never goes back.
  struct Counters {
    int64_t streams_lost = 0;
    int64_t streams_reattached = 0;  // the worker was still there, and in time
    int64_t workers_lost = 0;        // with all that ran there
    int64_t ejections = 0;           // of workers that failed again and again
    int64_t prefix_snapshots = 0;    // asked of prefill workers
    int64_t prefix_gaps = 0;         // of these, because what was told could not be right
  };

  static constexpr size_t kTokensPerPart = 48 * 1024;    // at most 5 bytes each: under 256 KiB with the head
  static constexpr int kPositionsPerMessage = 3 * 1024;  // of Reattach, at most 60 bytes each

  Cluster(Options options, const WorkerChannelFactory& factory);
  ~Cluster() override;
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  const ClusterView& view() const { return view_; }
  // A pair whose two workers live and that has lost its link is awaited for so long.
  static constexpr absl::Duration kPairReturnMax = absl::Seconds(2);
  // A worker whose stream broke may be back in a moment, or one that is has not told yet whom it can be paired with, or
  // a pair whose link broke may find itself again.
  bool AwaitsWorkers() const;
  // Addresses (host:port) of the workers from here on, none twice. New ones are greeted at the next Tick(). Those that
  // are no longer named get nothing new; their links live on until the last request that counts on them has ended.
  void SetWorkers(const std::vector<std::string>& prefill_workers, const std::vector<std::string>& decode_workers);
  void Tick(absl::Duration now);
  // Tells every worker that is up to forget what it has cached of prompts. Returns how many they are.
  int FlushPrefixCaches();
  // Of this prompt, by place of the prefill worker: what it has cached by its own word.
  std::vector<int64_t> CachedTokens(absl::Span<const TokenId> prompt, absl::string_view cache_salt) const;

  // Sends the request to the pair's decode worker. The listener hears nothing before the call returns, and lives until
  // Forget(). The pair comes from PickPair() over view() in the same turn of the loop.
  uint64_t Generate(const PairChoice& pair, const GenerateOrder& order, RequestListener* listener);
  // Its worker has ended the request or is lost, and its listener looks for others: nothing more is heard of the
  // attempt, and it counts on no worker until GenerateAgain().
  void EndAttempt(uint64_t request_id);
  // The next attempt, after EndAttempt().
  // resumed: one for each choice.
  void GenerateAgain(uint64_t request_id, const PairChoice& pair, const GenerateOrder& order,
                     const std::vector<ResumedChoice>& resumed);
  // The whole request, or one of its choices alone.
  void Cancel(uint64_t request_id, const std::string& reason, std::optional<int> choice = std::nullopt);
  // The tokens of the choice before this position are off the hands of whoever serves its client: there is room for as
  // many more. To be called as the client reads, not as tokens arrive.
  void TokensTaken(uint64_t request_id, int choice, int64_t end_position);
  // Drops what is known of the request; call it once for each Generate().
  void Forget(uint64_t request_id);
  size_t num_requests() const { return requests_.size(); }
  const Counters& counters() const { return counters_; }

 private:
  // What a worker must know of a choice to go on with it after its stream was lost.
  struct Flow {
    uint32_t first_position = 0;  // of this attempt
    uint32_t next_position = 0;   // the first that has not arrived here
    int64_t granted_bytes = 0;
    std::string cancel_reason = {};  // not empty: cancelled alone
  };
  struct Part {     // of one worker in an attempt
    bool is_trial;  // of a worker that was ejected
    bool is_judged;
  };
  struct Request {
    RequestListener* listener = nullptr;
    uint32_t attempt = 0;  // the one that runs; from 1
    int decode = -1;
    int prefill = -1;
    bool counts_on_prefill = false;  // until its first token
    int64_t num_prefill_tokens = 0;  // that prefill has to compute, by what was known when it was chosen
    bool counts_on_decode = false;
    Part prefill_part = {false, true}, decode_part = {false, true};
    bool is_lost = false;       // no worker has it any more; its listener knows
    std::string cancel_reason;  // not empty: cancelled, not yet confirmed
    int64_t token_bytes = 0;    // of credit
    int64_t credit_bytes = 0;   // that may be unused at a time, of each choice
    std::vector<Flow> flows;    // by choice
  };

  absl::Status CheckWorker(const WorkerLink& link, const proto::WorkerHello& hello) override;
  void OnLinkUp(WorkerLink& link, const proto::WorkerHello& hello, bool is_back) override;
  void OnLinkDown(WorkerLink& link, bool was_up, const absl::Status& cause) override;
  void OnWorkerLost(WorkerLink& link, const absl::Status& cause) override;
  void OnLinkMessage(WorkerLink& link, const proto::WorkerMessage& message) override;
  void OnLinkBulkReply(WorkerLink& link, const proto::BulkReply& reply) override;

  void SetPool(WorkerRole role, const std::vector<std::string>& addresses);
  void AddLink(WorkerRole role, const std::string& address);
  void ReleaseRemoved();
  bool IsInUse(const WorkerLink& link) const;
  // By place; an entry is nullptr where nobody is.
  const std::vector<std::unique_ptr<WorkerLink>>& LinksOf(WorkerRole role) const;
  // Another link to the process of that incarnation; nullptr where there is none.
  const WorkerLink* FindTwin(const WorkerLink& link, uint64_t incarnation) const;
  void HoldWhereTwin(WorkerLink& link);
  void WarnOfEqualNames(const WorkerLink& link);
  WorkerView& ViewOf(const WorkerLink& link);
  void AskForPrefixes(WorkerLink& link);
  void SendPrefillSet(WorkerLink& link);
  void SendPrefillSets();
  void Reattach(WorkerLink& link);
  void SendCancel(WorkerLink& link, const proto::RequestKey& key, const std::string& reason, std::optional<int> choice);
  void ConfirmEnds(WorkerLink& link);
  void OnTokenBatch(WorkerLink& link, const proto::TokenBatch& batch);
  void OnEnded(WorkerLink& link, const proto::RequestKey& key, const absl::Status& error, bool is_cancelled);
  void OnPeerStatus(int decode, const proto::PeerStatus& status);
  // nullptr where the key is not of a request that runs on this worker.
  Request* FindRequest(const WorkerLink& link, const proto::RequestKey& key);
  // What an attempt says of its workers (outlier_ejection.h), once of each: the first word counts.
  void BeginParts(Request& request);
  void JudgePrefill(Request& request, OutlierEjection::Outcome outcome);
  void JudgeDecode(Request& request, OutlierEjection::Outcome outcome);
  void JudgeEnd(Request& request, const absl::Status& error, bool is_cancelled);
  void Judge(const WorkerLink& link, OutlierEjection::Outcome outcome, bool is_trial);
  OutlierEjection& OutlierOf(const WorkerLink& link);
  void RefreshEjection(const WorkerLink& link);  // in the view, as it is now
  void LeavePrefill(Request& request);
  void LeaveDecode(Request& request);
  void CancelUnknown(WorkerLink& link, const proto::RequestKey& key);
  void StartAttempt(uint64_t request_id, const PairChoice& pair, const GenerateOrder& order,
                    const std::vector<ResumedChoice>& resumed);
  void SendParts(WorkerLink& link, const proto::RequestKey& key, proto::GenerateHead head,
                 absl::Span<const TokenId> prompt, const std::vector<ResumedChoice>& resumed);
  proto::RequestKey KeyOf(uint64_t request_id, uint32_t attempt) const;

  const proto::Identity identity_;
  const int64_t credit_bytes_;
  const bool follows_prefix_caches_;
  const LinkTimes times_;
  const WorkerChannelFactory factory_;
  ClusterView view_;
  // By place, as in view_; nullptr where the place is empty.
  std::vector<std::unique_ptr<WorkerLink>> prefill_links_;
  std::vector<std::unique_ptr<WorkerLink>> decode_links_;
  std::vector<OutlierEjection> prefill_outliers_, decode_outliers_;  // by place, too
  struct PrefixKnowledge {                                           // of one prefill worker
    PageKeyRules rules;
    PrefixMirror mirror;
  };
  std::vector<PrefixKnowledge> prefixes_;        // by place, of prefill workers
  absl::Duration now_ = absl::ZeroDuration();    // of the latest Tick()
  absl::btree_map<uint64_t, Request> requests_;  // in an order that a replay repeats
  // By decode worker: ids that it still works on although they were forgotten; cancelled, not yet confirmed.
  std::vector<absl::flat_hash_set<uint64_t>> unknown_cancelled_;
  struct EndNumbers {  // of one decode worker
    uint64_t received = 0;
    uint64_t confirmed = 0;
  };
  std::vector<EndNumbers> ends_;  // by decode worker
  // By link: the codes of the failures logged since it was last up. Each is logged once, not at every retry.
  absl::flat_hash_map<const WorkerLink*, absl::flat_hash_set<absl::StatusCode>> failures_logged_;
  // By link that is held: the incarnation of its worker, which another link has.
  absl::flat_hash_map<const WorkerLink*, uint64_t> twins_;
  uint64_t last_request_id_ = 0;
  Counters counters_;
};

}  // namespace tandem::router
