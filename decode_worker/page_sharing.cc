#include "decode_worker/page_sharing.h"

#include "kvcache/kv_layout.h"

namespace tandem::decode {

int SharedPages(int64_t num_prompt_tokens) { return static_cast<int>((num_prompt_tokens - 1) / kvcache::kPageTokens); }

Reservation PlanReservation(int64_t num_prompt_tokens, absl::Span<const int64_t> num_tokens, int num_sequences_max,
                            int64_t num_pages_max) {
  const int num_shared = SharedPages(num_prompt_tokens);
  Reservation reservation{.num_pages = num_shared};
  for (const int64_t tokens : num_tokens) {
    const int num_own_pages = kvcache::PagesForTokens(tokens) - num_shared;
    if (reservation.num_sequences == num_sequences_max || reservation.num_pages + num_own_pages > num_pages_max) break;
    ++reservation.num_sequences;
    reservation.num_pages += num_own_pages;
  }
  return reservation.num_sequences > 0 ? reservation : Reservation{};
}

}  // namespace tandem::decode
