// A decode and a prefill worker without engines or networks: both protocol machines over real KV pools, with messages
// and fetches that wait until the test lets them go. What the machines put out is kept as lines that read as sentences.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "kvcache/kv_pool.h"
#include "kvtransfer/page_memory.h"
#include "kvtransfer/readable_epochs.h"
#include "kvtransfer/transfer_source.h"
#include "kvtransfer/transfer_target.h"

namespace tandem::kvtransfer {

inline constexpr uint64_t kDecode = 100;  // incarnations
inline constexpr uint64_t kPrefill = 200;
inline constexpr char kPeer[] = "prefill:8998";

// A pool in memory of its own, filled with a byte that no page may keep.
class RigPool {
 public:
  explicit RigPool(const kvcache::KvLayout& layout);
  const kvcache::KvPool& pool() const { return *pool_; }

 private:
  std::unique_ptr<std::byte[], void (*)(std::byte*)> memory_;
  std::unique_ptr<kvcache::KvPool> pool_;
};

struct RigOptions {
  int num_layers = 2;
  int num_source_ranks = 1;
  int num_lanes = 2;
  int64_t num_source_pages = 16;  // unlike the target's: offsets differ on the two sides
  int64_t num_target_pages = 12;
  kvcache::KvCacheDtype kv_cache_dtype = kvcache::KvCacheDtype::kFp8E4m3;
  int64_t prompt_hidden_bytes = 0;
  int64_t window_bytes = int64_t{64} << 20;
  absl::Duration lease = absl::Seconds(2);
};

class TransferRig {
 public:
  explicit TransferRig(const RigOptions& options = {});

  // ---- Decode ----
  // A request for a prompt of this many tokens, into target pages 0, 2, 4, ... (never contiguous) or from `first` on.
  TransferRequest Request(int num_tokens, int first_page = 0) const;
  uint64_t Begin(TransferRequest request);
  // ---- Prefill's engine ----
  EpochId Id(uint64_t epoch) const { return {.target_incarnation = kDecode, .epoch = epoch}; }
  // Gives the epoch source pages `first`, `first` + 1, ... at every rank.
  void Accept(uint64_t epoch, int first_page = 0);
  // Writes these pages at `rank`, bytes that depend on all of (epoch, rank, layer, page), and completes them.
  void Compute(uint64_t epoch, int layer_begin, int layer_end, int page_begin, int page_end, int rank = 0);
  void Sample(uint64_t epoch, int choice, uint32_t token);
  // ---- The world between ----
  // Delivers messages both ways until none is left; fetches stay.
  void Deliver();
  // Copies the bytes of the oldest outstanding fetch, or of all, into place and completes it.
  void CompleteFetch(const absl::Status& status = absl::OkStatus(), bool corrupts = false);
  void CompleteFetches();
  void Advance(absl::Duration by);  // and ticks both machines
  // Takes what the machines put out: messages to the queues, fetches to theirs, the rest to `lines`.
  void Drain();

  // The pages of the epoch hold at decode what was computed for it; behind the prompt's end, zeroes.
  bool HoldsPrompt(uint64_t epoch, int rank_of_layer0 = 0, int rank_of_layer1 = 0) const;
  bool IsAtRest() const;

  base::FakeClock clock;
  RigOptions options;
  RigPool target_pool;
  std::vector<RigPool> source_pools;
  HostPageMemory target_memory;
  std::vector<std::unique_ptr<HostPageMemory>> source_memories;
  ReadableEpochs readable;
  TransferTarget target;
  TransferSource source;
  std::deque<proto::TransferMessage> to_source;
  std::deque<proto::TransferMessage> to_target;
  std::deque<StartFetch> fetches;
  std::vector<std::string> lines;
  std::vector<proto::FirstToken> first_tokens;
  TransferTimes last_times;                   // of the transfer that was ready last
  std::map<uint64_t, StartRequest> admitted;  // by epoch

 private:
  std::byte ByteOf(uint64_t epoch, int rank, int layer, int page, int kind, size_t index) const;

  std::map<uint64_t, TransferRequest> requests_;  // by epoch
  std::map<uint64_t, int> first_source_page_;
};

// Of a message, for tests that look for one: "start", "accepted", ...
std::string NameOf(const proto::TransferMessage& message);

}  // namespace tandem::kvtransfer
