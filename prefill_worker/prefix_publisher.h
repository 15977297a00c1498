// Tells routers which pages the prefix cache holds: all of them once, then every change.
//
// A router that asks gets a snapshot in numbered parts and from then on every change, in the same numbering. Each
// complete update carries the number of keys and their sum, so that a router that has missed something, or has taken
// something down wrongly, finds out and asks again. Changes of one step travel in one message; a key that comes and
// goes within it does not travel.
// Pure; the engine's thread owns it. Tested by prefix_publisher_test.cc; with its readers by //tests/sim.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "absl/types/span.h"
#include "kvcache/prefix_index.h"
#include "proto/worker.pb.h"

namespace tandem::prefill {

class PrefixPublisher final {
 public:
  static constexpr size_t kKeysPerMessage = 16 * 1024;  // 128 KiB

  struct Told {
    uint64_t stream_id = 0;
    proto::PrefixUpdate update;
  };

  // The router of this stream wants to know: a snapshot of the index, whose changes have all been published.
  std::vector<Told> Subscribe(uint64_t stream_id, const kvcache::PrefixIndex& index);
  void Unsubscribe(uint64_t stream_id) { next_numbers_.erase(stream_id); }
  // What has changed since the last call, which everybody is told.
  std::vector<Told> Publish(absl::Span<const kvcache::PrefixChange> changes);

 private:
  void Take(absl::Span<const kvcache::PrefixChange> changes);
  void Seal(proto::PrefixUpdate& update) const;

  std::map<uint64_t, uint64_t> next_numbers_;  // by stream
  uint64_t num_keys_ = 0;
  uint64_t key_sum_ = 0;
};

}  // namespace tandem::prefill
