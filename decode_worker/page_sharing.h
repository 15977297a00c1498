// How the choices of one request share the KV pages of its prompt.
//
// Pages that lie before the prompt's last token are the same for every choice and final: each choice holds them, nobody
// writes them. The page of the prompt's last token is each choice's own copy. Where it is partial, a choice's first
// tokens go behind the prompt; where it is full, the MTP layer's record of that last token depends on the choice's
// first token. Pages behind it belong to one choice anyway.
// Pure. Tested by page_sharing_test.cc.
#pragma once

#include <cstdint>

#include "absl/types/span.h"

namespace tandem::decode {

// num_prompt_tokens: at least 1.
int SharedPages(int64_t num_prompt_tokens);

// What a request takes when it is admitted: all of it or nothing.
struct Reservation {
  int num_sequences = 0;
  int num_pages = 0;
  int num_device_pages = 0;  // HiSparse: taken by and by, as sequences are stepped
  bool operator==(const Reservation&) const = default;
};

// num_tokens: prompt and generated tokens of each sequence that is to go on, in order of choice. As many of them, from
// the first on, as fit a whole pool of num_pages_max and num_sequences_max: no sequence where not even one fits.
Reservation PlanReservation(int64_t num_prompt_tokens, absl::Span<const int64_t> num_tokens, int num_sequences_max,
                            int64_t num_pages_max);

}  // namespace tandem::decode
