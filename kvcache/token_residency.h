// Which tokens of one sequence have their record of one layer in a device buffer, and in which slot (HiSparse).
//
// A buffer's slots begin with those of the newest tokens, one page of them: the token at position p is written to slot
// p mod 64. Behind them lie kept slots, each with any one token; a table gives a token's slot directly. Attention reads
// whatever slots it is told in the order of the positions, so what is resident where never changes an answer.
//
// Rows are pinned a window at a time: every token of every row of a window is resident together. A row that does not
// fit beside the others begins the next window; one row always fits where there are as many kept slots as it has
// tokens. A token that is missing takes the slot that CLOCK points at: the hand passes slots of this window, passes
// those that were hit since it came by once, and stops at the first other one. Everything follows from the calls, no
// clock and no randomness: the same calls give the same slots.
// Invariant: the table and the slots name each other. Pure state: moves no byte. Tested by token_residency_test.cc.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kvcache/kv_layout.h"

namespace tandem::kvcache {

// Slots of the newest tokens, at the front of a buffer.
inline constexpr int kNewestSlots = kPageTokens;

// The record of this position is to be brought into this slot.
struct SwapIn {
  int32_t position = 0;
  int32_t slot = 0;
  bool operator==(const SwapIn&) const = default;
};

class TokenResidency final {
 public:
  // Kept slots behind the newest; never fewer than before. They come empty.
  void GrowTo(int num_kept_slots);
  int num_kept_slots() const { return static_cast<int>(slots_.size()); }

  // Rows pinned until now may be evicted again.
  void BeginWindow();
  // Pins one row's tokens: positions ascending, each once; those from newest_begin on lie in the slots of the newest.
  // slots[i] becomes positions[i]'s, and what is missing is appended to `missing`. False where the row does not fit
  // beside the window's other rows; then nothing has changed.
  bool Pin(std::span<const int32_t> positions, int64_t newest_begin, std::span<int32_t> slots,
           std::vector<SwapIn>& missing);

  // Tokens from this position on are other ones from now on, or none.
  void ForgetFrom(int64_t position);
  void ForgetAll() { ForgetFrom(0); }

  // -1 where it is in no kept slot.
  int32_t KeptSlotOf(int32_t position) const;
  int num_resident() const { return num_resident_; }  // in kept slots

 private:
  struct Slot {
    int32_t position = -1;
    bool is_referenced = false;
    int64_t window = 0;  // the last that pinned it
  };
  int TakeSlot();

  std::vector<int32_t> slot_by_position_;  // index into slots_, -1: not resident; grows with the positions asked for
  std::vector<Slot> slots_;
  int hand_ = 0;
  int64_t window_ = 1;
  int num_pinned_ = 0;  // by this window
  int num_resident_ = 0;
};

}  // namespace tandem::kvcache
