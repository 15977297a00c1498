// How many pages of the device pool a sequence's buffer takes, and who gets them in a step (HiSparse).
//
// A buffer has a page for the newest tokens and pages that keep others: as many as its tokens need, up to
// num_kept_pages_max, so that short requests take little and no buffer ever shrinks. Age is everything, as with the
// pool's pages: where a sequence's growth is not free, the youngest that have buffers leave theirs. They keep their KV,
// which is on the host, and their place; they get a buffer again, empty, as soon as one is free, and compute nothing
// again. One that has nobody younger to ask sits the step out. Pure. Tested by device_pages_test.cc.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "kvcache/kv_layout.h"

namespace tandem::decode {

// Of a sequence of so many tokens; 0 without HiSparse (num_kept_pages_max 0).
constexpr int DevicePagesFor(int64_t num_tokens, int num_kept_pages_max) {
  return num_kept_pages_max == 0 ? 0 : 1 + std::min(kvcache::PagesForTokens(num_tokens), num_kept_pages_max);
}

class DevicePagePlan final {
 public:
  // held: by each sequence, oldest first.
  DevicePagePlan(int64_t num_free, std::vector<int> held) : num_free_(num_free), held_(std::move(held)) {}

  int held(int sequence) const { return held_[sequence]; }
  // So many pages more for this sequence, where free ones and the buffers of sequences (sequence, end) hold them; else
  // nothing changes.
  bool Take(int sequence, int num_pages, int end);
  // It gives its pages back.
  void Return(int sequence) { num_free_ += std::exchange(held_[sequence], 0); }
  // Those that leave their buffers, youngest first.
  std::vector<int>& swapped_out() { return swapped_out_; }

 private:
  int64_t num_free_;
  std::vector<int> held_;
  std::vector<int> swapped_out_;
};

}  // namespace tandem::decode
