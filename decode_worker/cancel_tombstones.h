// Cancels that came before their Generate: prompts travel on another connection than cancels, so either may be first.
//
// A tombstone lasts long enough for any Generate that was under way. Bounded: the oldest goes first. Tested by
// engine_test.cc.
#pragma once

#include <cstddef>
#include <deque>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/time/time.h"
#include "decode_worker/generate_request.h"

namespace tandem::decode {

class CancelTombstones final {
 public:
  void Add(const RequestKey& key, absl::Duration now) {
    Expire(now);
    if (keys_.size() >= kTombstonesMax) Drop();
    if (keys_.insert(key).second) by_age_.emplace_back(key, now + kLifetime);
  }
  // True where the key was cancelled before; the tombstone stays for duplicates.
  bool Contains(const RequestKey& key, absl::Duration now) {
    Expire(now);
    return keys_.contains(key);
  }

 private:
  static constexpr size_t kTombstonesMax = 4096;
  static constexpr absl::Duration kLifetime = absl::Seconds(30);

  void Expire(absl::Duration now) {
    while (!by_age_.empty() && by_age_.front().second <= now) Drop();
  }
  void Drop() {
    keys_.erase(by_age_.front().first);
    by_age_.pop_front();
  }

  absl::flat_hash_set<RequestKey> keys_;
  std::deque<std::pair<RequestKey, absl::Duration>> by_age_;
};

}  // namespace tandem::decode
