// What one router shard knows of the workers at one moment: plain values, read by the pair picker, /readyz, /statusz.
//
// Written by Cluster alone (cluster.h), on the shard's thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace tandem::router {

// As the worker last reported it.
struct WorkerLoad {
  uint32_t running_sequences = 0;
  uint32_t waiting_requests = 0;
  uint64_t waiting_tokens = 0;
  uint64_t kv_pages_free = 0;
  uint64_t kv_pages_total = 0;
  uint64_t spec_windows = 0;  // since its start; 0 where it does not draft
  uint64_t spec_accepted_tokens = 0;
  // Since its start.
  uint64_t prompt_tokens = 0;         // prefill: computed
  uint64_t cached_prompt_tokens = 0;  // prefill: not computed, decode: not fetched
  uint64_t generated_tokens = 0;      // decode
  uint64_t transferred_kv_bytes = 0;  // prefill: announced, decode: fetched
  uint64_t hisparse_hits = 0;         // selected tokens that were on the device
  uint64_t hisparse_misses = 0;
  uint64_t device_pages_used = 0;  // of device buffers, now
  uint64_t device_pages_total = 0;
};

struct WorkerView {
  std::string address;  // of its gRPC service; empty: nobody is at this place
  bool is_up = false;
  bool is_draining = false;
  bool is_removed = false;  // no longer listed: gets nothing new, and its place is free once nothing of ours is there
  bool is_ejected = false;  // has failed again and again: others first (outlier_ejection.h)
  std::string detail;       // why it is not up
  std::string instance;
  uint64_t incarnation = 0;
  uint32_t context_length_max = 0;  // tokens; 0 = not said
  uint64_t kv_tokens_capacity = 0;  // tokens; 0 = not said
  WorkerLoad load;
  // Of this shard's requests: on decode until they end, on prefill until their first token.
  int requests_in_flight = 0;
  int64_t prompt_tokens_in_flight = 0;  // of those on prefill
  // On decode: pages that what this shard has sent since the last report will take, which that report has as free.
  int64_t kv_pages_sent = 0;
};

struct PrefillView : WorkerView {
  std::string bootstrap_address;  // from its hello; kept while it is down
};

// A decode worker's word on one of its prefill peers.
struct PeerView {
  bool is_usable = false;
  std::string detail;
  std::string lane;
  double lane_bytes_per_second = 0;
  absl::Duration lost_at = -absl::InfiniteDuration();  // the tick at which it ceased to be usable
};

struct DecodeView : WorkerView {
  std::map<std::string, PeerView> peers;  // by bootstrap address
};

// A worker keeps its place, so that its index stays good while requests run; the place of one that has left is empty
// until another takes it.
struct ClusterView {
  std::vector<PrefillView> prefills;
  std::vector<DecodeView> decodes;
};

}  // namespace tandem::router
