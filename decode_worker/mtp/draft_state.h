// What a sequence carries from step to step so that the MTP layer can draft for it.
//
// The MTP layer's record at position i holds (hidden state of i, token i + 1). A record is final once it is made of the
// model's own hidden state; what drafting writes behind the final ones is made of drafts' and is written over before
// anything reads it again.
// Invariant, between steps of a sequence that drafts: the final records and the pending hidden states together are the
// positions whose KV is written.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/strings/string_view.h"
#include "decode_worker/mtp/acceptance.h"
#include "kernels/dtypes.h"

namespace tandem::decode {

struct DraftState {
  int64_t num_final = 0;               // positions 0 to here have final records
  std::vector<kernels::Bf16> pending;  // hidden states of the positions from there on
  Acceptance acceptance;
  int64_t num_windows = 0, num_drafted = 0, num_accepted = 0;  // since it is here
  std::vector<int32_t> drafts;                                 // of the step under way: tokens behind the newest one

  // Of a sequence whose prompt has just arrived: its last position's record is still to be written.
  // hidden_of_last: its BF16 values, as prefill sends them.
  void Begin(int64_t num_prompt_tokens, absl::string_view hidden_of_last) {
    num_final = num_prompt_tokens - 1;
    pending.resize(hidden_of_last.size() / sizeof(kernels::Bf16));
    std::memcpy(pending.data(), hidden_of_last.data(), pending.size() * sizeof(kernels::Bf16));
    drafts.clear();
  }
  // Its pages are gone; what it has learned stays.
  void Drop() {
    pending = {};
    drafts.clear();
  }
};

}  // namespace tandem::decode
