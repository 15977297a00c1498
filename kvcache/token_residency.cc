#include "kvcache/token_residency.h"

#include <algorithm>

#include "base/check.h"

namespace tandem::kvcache {

void TokenResidency::GrowTo(int num_kept_slots) {
  TANDEM_CHECK(num_kept_slots >= this->num_kept_slots(), "a device buffer never shrinks");
  slots_.resize(num_kept_slots);
}

void TokenResidency::BeginWindow() {
  ++window_;
  num_pinned_ = 0;
}

int32_t TokenResidency::KeptSlotOf(int32_t position) const {
  if (position >= static_cast<int64_t>(slot_by_position_.size()) || slot_by_position_[position] < 0) return -1;
  return kNewestSlots + slot_by_position_[position];
}

bool TokenResidency::Pin(std::span<const int32_t> positions, int64_t newest_begin, std::span<int32_t> slots,
                         std::vector<SwapIn>& missing) {
  TANDEM_CHECK(positions.size() == slots.size(), "a slot for each position");
  const size_t num_older = std::lower_bound(positions.begin(), positions.end(), newest_begin) - positions.begin();
  if (num_older > 0 && positions[num_older - 1] >= static_cast<int64_t>(slot_by_position_.size())) {
    // By doubling: a sequence grows a token at a time.
    slot_by_position_.resize(std::max<size_t>(positions[num_older - 1] + 1, 2 * slot_by_position_.size()), -1);
  }
  int num_new = 0;  // slots that this row takes of those that the window has not pinned yet
  for (size_t i = 0; i < num_older; ++i) {
    const int32_t slot = slot_by_position_[positions[i]];
    num_new += slot < 0 || slots_[slot].window != window_ ? 1 : 0;
  }
  if (num_pinned_ + num_new > num_kept_slots()) return false;
  num_pinned_ += num_new;

  // Hits first, so that no miss evicts one.
  for (size_t i = 0; i < num_older; ++i) {
    const int32_t slot = slot_by_position_[positions[i]];
    slots[i] = slot;
    if (slot < 0) continue;
    slots_[slot].window = window_;
    slots_[slot].is_referenced = true;
  }
  for (size_t i = 0; i < num_older; ++i) {
    if (slots[i] < 0) {
      slots[i] = TakeSlot();
      slots_[slots[i]] = {.position = positions[i], .window = window_};
      slot_by_position_[positions[i]] = slots[i];
      ++num_resident_;
      missing.push_back({.position = positions[i], .slot = kNewestSlots + slots[i]});
    }
    slots[i] += kNewestSlots;
  }
  for (size_t i = num_older; i < positions.size(); ++i) slots[i] = positions[i] % kNewestSlots;
  return true;
}

// There is one that the window has not pinned.
int TokenResidency::TakeSlot() {
  while (true) {
    const int slot = hand_;
    Slot& candidate = slots_[slot];
    hand_ = hand_ + 1 == num_kept_slots() ? 0 : hand_ + 1;
    if (candidate.window == window_) continue;
    if (candidate.position >= 0 && candidate.is_referenced) {
      candidate.is_referenced = false;
      continue;
    }
    if (candidate.position >= 0) {
      slot_by_position_[candidate.position] = -1;
      --num_resident_;
    }
    return slot;
  }
}

void TokenResidency::ForgetFrom(int64_t position) {
  for (int64_t p = position; p < static_cast<int64_t>(slot_by_position_.size()); ++p) {
    if (slot_by_position_[p] < 0) continue;
    slots_[slot_by_position_[p]] = {};
    --num_resident_;
  }
  slot_by_position_.resize(std::min<size_t>(slot_by_position_.size(), position));
}

}  // namespace tandem::kvcache
