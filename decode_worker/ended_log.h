// What the routers may not have heard of requests that have ended: their tokens and their Ended, until confirmed.
//
// A stream that breaks swallows what was on its way, and a request that has ended is nowhere else any more: without
// this a whole answer could be lost with its last message. Ends are numbered for each router; a router confirms all up
// to a number within one of its ticks, or says in Reattach what it still needs. Bounded by kEndsMax for each router,
// the oldest go first. Tested by ended_log_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "decode_worker/generate_request.h"
#include "proto/worker.pb.h"

namespace tandem::decode {

class EndedLog final {
 public:
  static constexpr size_t kEndsMax = 4096;

  struct Entry {
    RequestKey key;
    uint64_t arrival = 0;  // when the request came, as the engine counts
    proto::Ended ended;
    std::vector<proto::SequenceTokens> choices;  // every token of each choice that the router did not bring itself
  };

  // Numbers the end and keeps it; returns what is to be sent.
  const proto::Ended& Add(Entry entry) {
    Ends& ends = routers_[entry.key.router_incarnation];
    entry.ended.set_number(ends.next_number++);
    if (ends.entries.size() == kEndsMax) ends.entries.pop_front();
    ends.entries.push_back(std::move(entry));
    return ends.entries.back().ended;
  }
  void Confirm(uint64_t router_incarnation, uint64_t number) {
    const auto it = routers_.find(router_incarnation);
    if (it == routers_.end()) return;
    std::deque<Entry>& entries = it->second.entries;
    while (!entries.empty() && entries.front().ended.number() <= number) entries.pop_front();
  }
  // A router that comes back has named all that it still needs: its other ends, of requests that came before `arrival`,
  // are known to it. A confirmation that was lost with the stream is never said again.
  void KeepNamed(uint64_t router_incarnation, const absl::flat_hash_set<RequestKey>& named, uint64_t arrival) {
    const auto it = routers_.find(router_incarnation);
    if (it == routers_.end()) return;
    std::erase_if(it->second.entries,
                  [&](const Entry& entry) { return entry.arrival < arrival && !named.contains(entry.key); });
  }
  // nullptr where it has been confirmed, or never ended here.
  const Entry* Find(const RequestKey& key) const {
    const auto it = routers_.find(key.router_incarnation);
    if (it == routers_.end()) return nullptr;
    for (const Entry& entry : it->second.entries) {
      if (entry.key == key) return &entry;
    }
    return nullptr;
  }
  // Ends of this router's requests that came with this arrival or later.
  std::vector<const Entry*> Since(uint64_t router_incarnation, uint64_t arrival) const {
    std::vector<const Entry*> since;
    const auto it = routers_.find(router_incarnation);
    if (it == routers_.end()) return since;
    for (const Entry& entry : it->second.entries) {
      if (entry.arrival >= arrival) since.push_back(&entry);
    }
    return since;
  }
  void Forget(uint64_t router_incarnation) { routers_.erase(router_incarnation); }
  // Ends that are kept for all routers.
  size_t size() const {
    size_t size = 0;
    for (const auto& [incarnation, ends] : routers_) size += ends.entries.size();
    return size;
  }

 private:
  struct Ends {
    uint64_t next_number = 1;
    std::deque<Entry> entries;
  };
  absl::flat_hash_map<uint64_t, Ends> routers_;  // by incarnation
};

}  // namespace tandem::decode
