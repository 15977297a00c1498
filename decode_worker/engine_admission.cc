// Who of the line may have pages now, which ones, and the transfer that fills them. See engine.h.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/types/span.h"
#include "base/check.h"
#include "base/log.h"
#include "decode_worker/engine.h"
#include "decode_worker/hisparse/device_pages.h"
#include "kvcache/kv_layout.h"

namespace tandem::decode {

Reservation Engine::ReservationOf(const Request& request) const {
  std::vector<int64_t> num_tokens;
  for (const Sequence& sequence : request.sequences) {
    if (!sequence.has_ended) num_tokens.push_back(request.num_tokens(sequence));
  }
  Reservation reservation =
      PlanReservation(request.num_prompt_tokens(), num_tokens, options_.batch.num_sequences_max, pages_.num_pages());
  for (int i = 0; i < reservation.num_sequences; ++i) reservation.num_device_pages += DevicePagesSoon(num_tokens[i]);
  return reservation;
}

// With the next page of its growth.
int Engine::DevicePagesSoon(int64_t num_tokens) const {
  return DevicePagesFor(num_tokens + kvcache::kPageTokens, options_.batch.num_kept_pages_max);
}

void Engine::Admit() {
  std::vector<Reservation> wanted;
  for (const auto& [place, request] : waiting_) {
    if (static_cast<int>(wanted.size()) == options_.batch.num_sequences_max) break;
    wanted.push_back(ReservationOf(*request));
  }
  int num_holders = 0;
  int64_t num_device_pages_promised = 0;
  for (const auto& [place, request] : holders_) {
    num_holders += request->num_holding_sequences();
    for (const Sequence& sequence : request->sequences) {
      if (sequence.HoldsPages()) num_device_pages_promised += DevicePagesSoon(request->num_tokens(sequence));
    }
  }
  const std::vector<Reservation> reservations = wanted;
  const AdmissionSnapshot snapshot{.wanted = wanted,
                                   .num_holders = num_holders,
                                   .num_pages_free = num_pages_available(),
                                   .num_device_pages = device_pages_.num_pages(),
                                   .num_device_pages_promised = num_device_pages_promised};
  int num_admitted = scheduler_.PlanAdmission(snapshot);
  if (prefixes_.has_value()) {
    // Pages that others hold already are no new ones: looked up only where room is short, from the oldest on.
    auto waiting = waiting_.begin();
    for (int i = 0; i < static_cast<int>(wanted.size()) && i <= num_admitted; ++i, ++waiting) {
      if (i < num_admitted) continue;
      wanted[i].num_pages -= NumPagesInUse(*waiting->second);
      num_admitted = scheduler_.PlanAdmission(snapshot);
    }
  }
  std::vector<Request*> admitted;
  for (int i = 0; i < num_admitted; ++i) {
    admitted.push_back(waiting_.begin()->second);
    waiting_.erase(waiting_.begin());
  }
  for (const Request* request : admitted) worker_shell::CountOvertaken(request->place, waiting_);
  for (int i = 0; i < num_admitted; ++i) {
    if (CanGoOnFromHost(*admitted[i], reservations[i])) {
      GoOnFromHost(*admitted[i], reservations[i]);
    } else {
      BeginTransfer(*admitted[i], reservations[i]);
    }
  }
}

void Engine::ReservePages(Request& request, const Reservation& reservation) {
  const int num_shared = request.num_shared_pages();
  const int num_prompt_pages = kvcache::PagesForTokens(request.num_prompt_tokens());
  const Sequence* first = nullptr;
  int num_sequences = 0;
  for (Sequence& sequence : request.sequences) {
    if (sequence.has_ended || num_sequences == reservation.num_sequences) continue;
    ++num_sequences;
    const std::string owner = request.Owner(sequence);
    if (first != nullptr) {
      sequence.pages.assign(first->pages.begin(), first->pages.begin() + num_shared);
      pages_.Hold(sequence.pages, owner);
    } else if (prefixes_.has_value()) {
      sequence.pages = prefixes_->Match(request.Prefix(), int64_t{num_shared} * kvcache::kPageTokens);
      pages_.Hold(sequence.pages, owner);
      request.num_joined_pages = static_cast<int>(sequence.pages.size());
      prefixes_->Touch(request.Prefix(), request.num_joined_pages);
    }
    const int num_own_pages =
        kvcache::PagesForTokens(request.num_tokens(sequence)) - static_cast<int>(sequence.pages.size());
    const std::vector<kvcache::PageId> own_pages = TakePages(num_own_pages, owner);
    sequence.pages.insert(sequence.pages.end(), own_pages.begin(), own_pages.end());
    // Pages of the prompt are overwritten whole.
    for (size_t i = num_prompt_pages; i < sequence.pages.size(); ++i) pool_.ZeroPage(sequence.pages[i]);
    if (first == nullptr) first = &sequence;
  }
  TANDEM_CHECK(request.num_pages() == reservation.num_pages, "a reservation is not what was planned");
}

int Engine::NumPagesInUse(const Request& request) const {
  const int64_t num_tokens = int64_t{request.num_shared_pages()} * kvcache::kPageTokens;
  const std::vector<kvcache::PageId> cached = prefixes_->Match(request.Prefix(), num_tokens);
  return static_cast<int>(
      std::count_if(cached.begin(), cached.end(), [this](kvcache::PageId page) { return pages_.num_holds(page) > 0; }));
}

std::vector<kvcache::PageId> Engine::TakePages(int64_t num_pages, const std::string& owner) {
  if (prefixes_.has_value()) prefixes_->Evict(num_pages - pages_.num_free());
  auto pages = pages_.Allocate(num_pages, owner);
  TANDEM_CHECK(pages.ok(), "planned pages are neither free nor idle");
  return *std::move(pages);
}

// Its tokens are named as those of a prompt: a later turn brings them in one, and a row's bits do not depend on whether
// it was computed in a prompt's chunk or in a step (docs/prefix_cache.md).
void Engine::KeepGeneratedPages(Request& request, Sequence& sequence) {
  if (!options_.keeps_generated_pages || !prefixes_.has_value() || !sequence.HoldsPages()) return;
  const int64_t num_pages = sequence.num_written / kvcache::kPageTokens;
  if (num_pages <= request.num_shared_pages()) return;
  if (const absl::Status status = FinishRecords(request, sequence); !status.ok()) {
    LOG_WARNING("an answer's pages are not kept", {"request", request.generate.key.ToString()}, {"status", status});
    return;
  }
  std::vector<uint32_t> tokens = request.generate.prompt_tokens;
  tokens.insert(tokens.end(), sequence.generated.begin(), sequence.generated.end());
  const kvcache::PrefixTokens prefix{.tokens = tokens,
                                     .num_prompt_tokens = static_cast<int64_t>(tokens.size()),
                                     .cache_salt = request.generate.head.cache_salt()};
  counters_.generated_pages_kept +=
      prefixes_->Add(prefix, absl::MakeConstSpan(sequence.pages).first(num_pages), request.Owner(sequence));
}

// A page that the index has from another request, whose prompt came at the same time, takes the place of the sequence's
// own: whoever holds a page of the index holds all before it, and a sequence that held both would hold a page that
// nobody counts, so that the last one in a full pool could not grow.
std::vector<kvcache::PageId> Engine::IndexPromptPages(const Request& request, Sequence& sequence) {
  std::vector<kvcache::PageId> given_back;
  if (!prefixes_.has_value()) return given_back;
  const int num_shared = request.num_shared_pages();
  const std::string owner = request.Owner(sequence);
  prefixes_->Add(request.Prefix(), absl::MakeConstSpan(sequence.pages).first(num_shared), owner);
  const std::vector<kvcache::PageId> indexed =
      prefixes_->Match(request.Prefix(), int64_t{num_shared} * kvcache::kPageTokens);
  for (size_t i = 0; i < indexed.size(); ++i) {
    if (sequence.pages[i] == indexed[i]) continue;
    given_back.push_back(std::exchange(sequence.pages[i], indexed[i]));
  }
  pages_.Release(given_back, owner);
  return given_back;
}

void Engine::FlushPrefixCache() {
  ++counters_.prefix_flushes;
  if (prefixes_.has_value()) prefixes_->Flush();
}

bool Engine::CanGoOnFromHost(const Request& request, const Reservation& reservation) {
  int num_kept = 0;
  for (const Sequence& sequence : request.sequences) {
    if (sequence.has_ended) continue;
    if (num_kept == reservation.num_sequences) break;
    if (!sequence.IsKept()) return false;
    ++num_kept;
  }
  return true;
}

void Engine::GoOnFromHost(Request& request, const Reservation& reservation) {
  ReservePages(request, reservation);
  holders_.emplace(request.place, &request);
  request.phase = Phase::kRunning;
  const int num_shared = request.num_shared_pages(), num_joined = request.num_joined_pages;
  std::vector<kvcache::PageId> arrived;
  absl::flat_hash_set<kvcache::PageId> given_back;
  const auto restore = [&](absl::Span<const kvcache::PageId> kept, absl::Span<const kvcache::PageId> pages) {
    retracted_.Restore(kept, pages);
    arrived.insert(arrived.end(), pages.begin(), pages.end());
  };
  bool is_first = true;
  for (Sequence& sequence : request.sequences) {
    if (!sequence.HoldsPages()) continue;
    const absl::Span<const kvcache::PageId> pages = sequence.pages;
    if (std::exchange(is_first, false)) {
      restore(absl::MakeConstSpan(request.kept_prompt_pages).subspan(num_joined),
              pages.subspan(num_joined, num_shared - num_joined));
    }
    restore(sequence.kept_pages, pages.subspan(num_shared, sequence.kept_pages.size()));
    for (const kvcache::PageId page : IndexPromptPages(request, sequence)) given_back.insert(page);
    DropKept(request, sequence);
    ++counters_.kept_resumes;
  }
  has_work_ = true;
  std::erase_if(arrived, [&](kvcache::PageId page) { return given_back.contains(page); });
  if (const absl::Status status = executor_.PagesArrived(arrived); !status.ok()) End(request, {.error = status});
}

void Engine::BeginTransfer(Request& request, const Reservation& reservation) {
  for (Sequence& sequence : request.sequences) DropKept(request, sequence);  // some would have to be computed anyway
  ReservePages(request, reservation);
  holders_.emplace(request.place, &request);

  const proto::GenerateHead& head = request.generate.head;
  const int num_prompt_pages = kvcache::PagesForTokens(request.num_prompt_tokens());
  const auto first = std::find_if(request.sequences.begin(), request.sequences.end(),
                                  [](const Sequence& sequence) { return sequence.HoldsPages(); });
  // Prefill samples for all choices or for none: a first token that is known already comes again and is only compared.
  const bool has_first_tokens = std::all_of(request.sequences.begin(), request.sequences.end(),
                                            [](const Sequence& s) { return s.has_ended || !s.generated.empty(); });
  kvtransfer::TransferRequest transfer{
      .key = request.generate.key.ToProto(),
      .prompt_tokens = request.generate.prompt_tokens,
      .generated_tokens = has_first_tokens ? first->generated : std::vector<uint32_t>(),
      .sampling = head.sampling(),
      .stopping = head.stopping(),
      .num_choices = has_first_tokens ? 1 : static_cast<int>(request.sequences.size()),
      .num_prefix_tokens_held = request.num_joined_pages * kvcache::kPageTokens,
      .cache_salt = head.cache_salt(),
      .priority = head.priority(),
      .trace_parent = head.trace_parent(),
      .remaining_time = request.deadline - clock_.Now(),
      .target_pages = {first->pages.begin(), first->pages.begin() + num_prompt_pages}};
  const absl::StatusOr<uint64_t> epoch = transfer_.Begin(head.prefill_address(), std::move(transfer));
  if (!epoch.ok()) {
    End(request, {.error = epoch.status()});
    return;
  }
  if (request.num_joined_pages > 0) ++counters_.prefix_hits;
  counters_.held_prompt_tokens += int64_t{request.num_joined_pages} * kvcache::kPageTokens;
  request.epoch = *epoch;
  ++request.num_open_epochs;
  request.phase = Phase::kTransferring;
  by_epoch_.emplace(*epoch, &request);
}

}  // namespace tandem::decode
