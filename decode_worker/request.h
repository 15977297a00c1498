// One request as the engine holds it, from its arrival until its Ended, and its sequences, one for each choice.
//
//   waiting      in line, holds nothing; of its retracted sequences copies may be kept on the host
//   transferring holds its pages; its prompt is on its way from prefill
//   running      its prompt is in place; those of its sequences that hold pages are stepped
//   releasing    gives back what it holds, here and on its peer; then it ends, waits again, or is parked
//   parked       holds nothing; waits again as soon as its reader has room
//
// A sequence of a running request without pages has ended, or was retracted alone: then it goes on when the request is
// admitted again, which is when none of its sequences holds pages any more.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "decode_worker/generate_request.h"
#include "decode_worker/mtp/draft_state.h"
#include "decode_worker/page_sharing.h"
#include "kvcache/page_allocator.h"
#include "kvcache/prefix_index.h"
#include "model/logprobs.h"
#include "model/token_counts.h"
#include "model/token_mask/token_matcher.h"
#include "proto/credit.h"
#include "worker_shell/request_order.h"
#include "worker_shell/sampling.h"

namespace tandem::decode {

enum class Phase { kWaiting, kTransferring, kRunning, kReleasing, kParked };

struct Outcome {
  absl::Status error;  // OK: finished
  bool is_cancelled = false;
};

struct Sequence {
  int choice = 0;
  std::vector<uint32_t> generated;  // accepted by the router before, then sent to it
  // Of generated, without those that the router brought; empty unless wanted.
  std::vector<model::TokenLogprobs> logprobs;
  proto::FinishReason finish_reason = proto::FINISH_REASON_UNSPECIFIED;
  bool has_ended = false;                      // finished, or cancelled alone
  int64_t num_written = 0;                     // positions whose KV is in the pages
  model::TokenCounts counts;                   // of the prompt and of the generated tokens whose KV is written
  std::optional<model::TokenMatcher> matcher;  // of the same generated tokens, where the answer is constrained
  DraftState drafting;                         // where the MTP layer drafts
  std::vector<kvcache::PageId> pages;          // page table; the first SharedPages() of them are its siblings', too
  std::vector<kvcache::PageId> device_pages;   // HiSparse: its buffer; empty: it has none now
  // Retracted to the host: copies of its own pages (retracted_pages.h), of all positions that are written.
  std::vector<kvcache::PageId> kept_pages;

  // That its reader takes in all, beside those that the router brought itself.
  int64_t credit_tokens = kNoBound;
  absl::Duration without_credit_since = absl::InfiniteDuration();  // point of the clock; while it sits out for it

  static constexpr int64_t kNoBound = std::numeric_limits<int64_t>::max();
  bool HoldsPages() const { return !pages.empty(); }
  bool IsKept() const { return !kept_pages.empty(); }
};

struct Request {
  GenerateRequest generate;
  worker_shell::DrawRules draws;
  uint64_t arrival = 0;
  worker_shell::Place place;  // age: lower is older
  int num_overtaken = 0;
  absl::Duration arrived_at;                           // point of the clock
  absl::Duration deadline = absl::InfiniteDuration();  // point of the clock
  Phase phase = Phase::kWaiting;
  std::vector<Sequence> sequences;        // by choice
  uint32_t num_cached_prompt_tokens = 0;  // prefill's, once a choice has its first token
  proto::PromptLogprobs prompt_logprobs;  // prefill's, once choice 0 has its first token; empty unless wanted

  std::vector<kvcache::PageId> kept_prompt_pages;  // those that its sequences share, while one of them is kept

  int num_joined_pages = 0;                      // of the prompt: held before its transfer began, and not fetched
  uint64_t epoch = 0;                            // of the transfer under way, 0 where there is none
  int num_open_epochs = 0;                       // not yet confirmed by the peer
  std::vector<proto::TransferReport> transfers;  // kTransferReportsMax at most
  std::optional<Outcome> outcome;                // set: it ends as soon as nothing is held any more
  bool was_retried_stale = false;                // ABORTED and DATA_LOSS are each tried again once
  bool was_retried_data_loss = false;

  int64_t num_prompt_tokens() const { return static_cast<int64_t>(generate.prompt_tokens.size()); }
  // That the router is told beside the first token of choice 0.
  int64_t num_prompt_logprobs() const {
    const int64_t begin = generate.head.sampling().prompt_logprobs_begin();
    return begin == 0 ? 0 : std::max<int64_t>(num_prompt_tokens() - begin, 0);
  }
  int64_t num_tokens(const Sequence& sequence) const {
    return num_prompt_tokens() + static_cast<int64_t>(sequence.generated.size());
  }
  // What so much credit is in tokens of a choice.
  int64_t CreditTokens(uint64_t granted_bytes) const {
    const int64_t token_bytes = proto::CreditBytesOfToken(generate.head.sampling());
    return granted_bytes == 0 ? Sequence::kNoBound
                              : static_cast<int64_t>(granted_bytes / static_cast<uint64_t>(token_bytes));
  }
  int64_t unused_credit(const Sequence& sequence) const {
    const int64_t num_brought = generate.num_brought(sequence.choice);
    return sequence.credit_tokens - (static_cast<int64_t>(sequence.generated.size()) - num_brought);
  }
  bool HasCredit(const Sequence& sequence) const { return unused_credit(sequence) > 0; }
  bool MayGoOn() const {
    return std::any_of(sequences.begin(), sequences.end(),
                       [this](const Sequence& s) { return !s.has_ended && HasCredit(s); });
  }
  // A choice has room that is worth a prefill: half of what it had at first, or all that it may still generate.
  bool HasCreditToResume() const {
    const int64_t half = std::max<int64_t>(1, CreditTokens(generate.head.credit_bytes()) / 2);
    return std::any_of(sequences.begin(), sequences.end(), [&](const Sequence& s) {
      const int64_t left =
          int64_t{generate.head.stopping().max_new_tokens()} - static_cast<int64_t>(s.generated.size());
      return !s.has_ended && unused_credit(s) >= std::min(left, half);
    });
  }
  // How the prefix index sees it. Generated tokens are no part of it: prefill may compute them in another form.
  kvcache::PrefixTokens Prefix() const {
    return {.tokens = generate.prompt_tokens,
            .num_prompt_tokens = num_prompt_tokens(),
            .cache_salt = generate.head.cache_salt()};
  }
  int num_shared_pages() const { return SharedPages(num_prompt_tokens()); }
  // Who holds a sequence's pages.
  // Routers, and the shards of one, count their requests alike: their names must not meet.
  std::string Owner(const Sequence& sequence) const {
    return absl::StrFormat("request %s choice %d of router %016x", generate.key.ToString(), sequence.choice,
                           generate.key.router_incarnation);
  }
  bool HoldsPages() const {
    return std::any_of(sequences.begin(), sequences.end(), [](const Sequence& s) { return s.HoldsPages(); });
  }
  // Who holds copies of the shared ones.
  std::string OwnerOfPrompt() const {
    return absl::StrFormat("request %s of router %016x", generate.key.ToString(), generate.key.router_incarnation);
  }
  bool IsAnyKept() const {
    return std::any_of(sequences.begin(), sequences.end(), [](const Sequence& s) { return s.IsKept(); });
  }
  bool HaveAllEnded() const {
    return std::all_of(sequences.begin(), sequences.end(), [](const Sequence& s) { return s.has_ended; });
  }
  int num_holding_sequences() const {
    return static_cast<int>(
        std::count_if(sequences.begin(), sequences.end(), [](const Sequence& s) { return s.HoldsPages(); }));
  }
  // Each page once.
  int num_pages() const {
    int num_pages = 0;
    for (const Sequence& sequence : sequences) {
      if (!sequence.HoldsPages()) continue;
      num_pages += static_cast<int>(sequence.pages.size()) - (num_pages == 0 ? 0 : num_shared_pages());
    }
    return num_pages;
  }
  // Of sequences that have not ended.
  int64_t num_tokens_left_to_hold() const {
    int64_t num_tokens_held = 0;
    for (const Sequence& sequence : sequences) num_tokens_held += sequence.has_ended ? 0 : num_tokens(sequence);
    return num_tokens_held;
  }
};

}  // namespace tandem::decode
