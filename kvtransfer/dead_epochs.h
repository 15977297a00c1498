// The epochs of one decode worker that have ended at prefill, so that a late or second Start cannot begin them again.
//
// Decode numbers its epochs upwards and never reuses one. The set is bounded: the oldest entries are folded into a
// floor at and below which every epoch that is not open counts as dead. That can refuse a Start that overtook more than
// kTombstonesMax endings, never let a dead epoch live. Tested by dead_epochs_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

namespace tandem::kvtransfer {

class DeadEpochs final {
 public:
  static constexpr size_t kTombstonesMax = 4096;

  void Bury(uint64_t epoch) {
    if (epoch <= floor_) return;
    tombstones_.insert(epoch);
    while (!tombstones_.empty() && (tombstones_.size() > kTombstonesMax || *tombstones_.begin() == floor_ + 1)) {
      floor_ = *tombstones_.begin();
      tombstones_.erase(tombstones_.begin());
    }
  }
  bool IsDead(uint64_t epoch) const { return epoch <= floor_ || tombstones_.contains(epoch); }
  void AppendState(std::vector<uint64_t>& state) const {
    state.push_back(floor_);
    state.insert(state.end(), tombstones_.begin(), tombstones_.end());
  }

 private:
  uint64_t floor_ = 0;  // epochs start at 1
  std::set<uint64_t> tombstones_;
};

}  // namespace tandem::kvtransfer
