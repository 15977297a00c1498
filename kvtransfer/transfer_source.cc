#include "kvtransfer/transfer_source.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "kvcache/page_sum.h"

namespace tandem::kvtransfer {
namespace {

// Two sums of 8 bytes each: 64 KiB a message.
constexpr int64_t kSumCellsPerMessage = 4096;
// Decode workers that are gone and hold nothing; what is remembered of them are tombstones.
constexpr size_t kGoneLinksMax = 1024;

bool IsSameRequest(const proto::RequestKey& a, const proto::RequestKey& b) {
  return a.router_incarnation() == b.router_incarnation() && a.request_id() == b.request_id();
}

bool IsSameKey(const proto::RequestKey& a, const proto::RequestKey& b) {
  return IsSameRequest(a, b) && a.attempt() == b.attempt();
}

proto::Abort AbortOf(const absl::Status& status) {
  proto::Abort abort;
  abort.mutable_cause()->set_code(static_cast<int>(status.code()));
  abort.mutable_cause()->set_message(std::string(status.message()));
  return abort;
}

}  // namespace

TransferSource::TransferSource(const SourceOptions& options, std::vector<const PageMemory*> memory,
                               const base::Clock* clock, ReadableEpochs* readable)
    : options_(options), memory_(std::move(memory)), clock_(clock), readable_(readable) {
  TANDEM_CHECK(options.incarnation != 0, "an incarnation is never zero");
  TANDEM_CHECK(options.layout.num_layers > 0 && !memory_.empty(), "a source has layers and ranks");
}

// ---- Decode workers ----

void TransferSource::LinkUp(uint64_t target_incarnation, std::string_view instance_name) {
  const std::string instance(instance_name);
  std::vector<uint64_t> replaced;
  std::vector<uint64_t> gone;
  for (const auto& [incarnation, link] : links_) {
    if (incarnation == target_incarnation) continue;
    if (link.instance == instance) {
      replaced.push_back(incarnation);
    } else if (!link.is_up && link.lapses_at == absl::InfiniteDuration()) {
      gone.push_back(incarnation);
    }
  }
  for (const uint64_t incarnation : replaced) {
    EndAll(incarnation, absl::UnavailableError(absl::StrCat("decode ", instance, " has restarted")));
    links_.erase(incarnation);
  }
  for (size_t i = 0; i + kGoneLinksMax < gone.size(); ++i) links_.erase(gone[i]);
  EndAll(target_incarnation, absl::UnavailableError(absl::StrCat("decode ", instance, " opened a new stream")));
  TargetLink& link = links_[target_incarnation];
  link.instance = instance;
  link.is_up = true;
  link.lapses_at = absl::InfiniteDuration();
}

void TransferSource::LinkDown(uint64_t target_incarnation) {
  const auto it = links_.find(target_incarnation);
  if (it == links_.end() || !it->second.is_up) return;
  it->second.is_up = false;
  it->second.lapses_at = clock_->Now() + options_.lease;
}

void TransferSource::Receive(uint64_t target_incarnation, const proto::TransferMessage& message) {
  const EpochId id{.target_incarnation = target_incarnation, .epoch = message.epoch()};
  const auto link = links_.find(target_incarnation);
  if (link == links_.end() || !link->second.is_up || message.sender_incarnation() != target_incarnation) {
    ++counters_.stale_messages;
    return;
  }
  if (message.receiver_incarnation() != options_.incarnation) {
    ++counters_.stale_messages;
    if (message.has_start()) Refuse(id, message.key(), absl::AbortedError("prefill has restarted"));
    return;
  }
  const auto it = epochs_.find(id);
  if (it != epochs_.end() && !IsSameKey(it->second.key, message.key())) {
    ++counters_.stale_messages;
    return;
  }
  switch (message.message_case()) {
    case proto::TransferMessage::kStart:
      return OnStart(id, message);
    case proto::TransferMessage::kRepeat:
      return OnRepeat(id, message);
    case proto::TransferMessage::kAbort:
      return OnAbort(id, message);
    case proto::TransferMessage::kDone:
      return OnDone(id, message);
    case proto::TransferMessage::kAbortAck:
      return OnAbortAck(id);
    default:
      ++counters_.stale_messages;  // not a message that decode sends
  }
}

void TransferSource::OnStart(const EpochId& id, const proto::TransferMessage& message) {
  const proto::Start& start = message.start();
  auto it = epochs_.find(id);
  if (it == epochs_.end()) {
    if (links_.at(id.target_incarnation).dead.IsDead(id.epoch)) {
      return Refuse(id, message.key(), absl::AbortedError(absl::StrCat("epoch ", id.epoch, " has ended at prefill")));
    }
    if (start.part_index() != 0) {  // the first part was lost: D's Repeat will be told that there is no such epoch
      ++counters_.unknown_epochs;
      return;
    }
    if (const absl::Status status = StartAssembly::ValidateFirst(start, options_.max_prompt_tokens); !status.ok()) {
      return Refuse(id, message.key(), status);
    }
    if (const absl::Status status = Arbitrate(id, message.key()); !status.ok()) {
      return Refuse(id, message.key(), status);
    }
    ++counters_.epochs_started;
    SourceEpoch epoch;
    epoch.key = message.key();
    epoch.start.emplace(message.key(), start, clock_->Now());
    epoch.began = clock_->Now();
    epoch.deadline = epoch.start->request().deadline;
    it = epochs_.emplace(id, std::move(epoch)).first;
  }
  SourceEpoch& epoch = it->second;
  if (epoch.phase != SourcePhase::kStarting) {
    if (start.is_last()) OnRepeat(id, message);
    return;
  }
  epoch.start->Add(start);
  if (epoch.start->IsComplete()) Admit(id, epoch);
}

void TransferSource::Admit(const EpochId& id, SourceEpoch& epoch) {
  if (const absl::Status status = epoch.start->Validate(); !status.ok()) return Break(id, epoch, status);
  StartRequest start = epoch.start->Take();
  epoch.start.reset();
  epoch.phase = SourcePhase::kAdmitting;
  epoch.num_pages = kvcache::PagesForTokens(static_cast<int64_t>(start.prompt_tokens.size()));
  epoch.first_page = start.num_prefix_tokens_held / kvcache::kPageTokens;
  epoch.num_first_tokens = start.generated_tokens.empty() ? start.num_choices : 0;
  outputs_.push_back(AdmitRequest{.id = id, .start = std::move(start)});
}

absl::Status TransferSource::Arbitrate(const EpochId& id, const proto::RequestKey& key) {
  std::vector<EpochId> superseded;
  for (const auto& [other_id, other] : epochs_) {
    if (other.phase == SourcePhase::kEnding || !IsSameRequest(other.key, key)) continue;
    const bool is_later = key.attempt() > other.key.attempt() ||
                          (key.attempt() == other.key.attempt() &&
                           id.target_incarnation == other_id.target_incarnation && id.epoch > other_id.epoch);
    if (!is_later) {
      return absl::AbortedError(
          absl::StrCat("attempt ", key.attempt(), " is stale: attempt ", other.key.attempt(), " is under way"));
    }
    superseded.push_back(other_id);
  }
  for (const EpochId& old : superseded) {
    Break(old, epochs_.at(old), absl::AbortedError(absl::StrCat("superseded by attempt ", key.attempt())));
  }
  return absl::OkStatus();
}

void TransferSource::OnRepeat(const EpochId& id, const proto::TransferMessage& message) {
  const auto it = epochs_.find(id);
  if (it == epochs_.end()) {
    ++counters_.unknown_epochs;
    return Refuse(id, message.key(), absl::AbortedError(absl::StrCat("epoch ", id.epoch, " is not open at prefill")));
  }
  SourceEpoch& epoch = it->second;
  if (epoch.phase == SourcePhase::kStarting) return Break(id, epoch, absl::AbortedError("a part of start was lost"));
  const absl::Duration now = clock_->Now();
  if (now < epoch.next_answer) return;  // several came while the engine was busy
  epoch.next_answer = now + options_.repeat_interval / 2;
  ++counters_.repeats_answered;
  for (const proto::TransferMessage& said : epoch.said) Say(id, said);
}

void TransferSource::OnAbort(const EpochId& id, const proto::TransferMessage& message) {
  uint32_t pages_freed = 0;
  if (const auto it = epochs_.find(id); it != epochs_.end()) {
    SourceEpoch& epoch = it->second;
    if (epoch.phase != SourcePhase::kEnding) ++counters_.epochs_aborted_by_target;
    if (epoch.phase == SourcePhase::kServing) pages_freed = static_cast<uint32_t>(epoch.num_pages);
    const proto::Error& cause = message.abort().cause();
    const auto code = static_cast<absl::StatusCode>(cause.code());
    LetGo(id, epoch,
          code == absl::StatusCode::kOk ? absl::CancelledError("aborted by decode")
                                        : absl::Status(code, cause.message()));
  }
  Bury(id);
  proto::TransferMessage reply = Envelope(id, message.key());
  reply.mutable_abort_ack()->set_pages_freed(pages_freed);
  Say(id, std::move(reply));
}

void TransferSource::OnDone(const EpochId& id, const proto::TransferMessage& message) {
  if (const auto it = epochs_.find(id); it != epochs_.end()) {
    if (it->second.phase != SourcePhase::kEnding) ++counters_.epochs_done;
    LetGo(id, it->second, absl::OkStatus());
  }
  Bury(id);
  proto::TransferMessage reply = Envelope(id, message.key());
  reply.mutable_done_ack();
  Say(id, std::move(reply));
}

void TransferSource::OnAbortAck(const EpochId& id) {
  const auto it = epochs_.find(id);
  if (it == epochs_.end()) return;  // of a refusal, or the second one
  if (it->second.phase != SourcePhase::kEnding) {
    ++counters_.stale_messages;
    return;
  }
  Bury(id);
}

// ---- The engine ----

void TransferSource::Accept(const EpochId& id, const std::vector<std::vector<int32_t>>& pages) {
  const auto it = epochs_.find(id);
  if (it == epochs_.end() || it->second.phase != SourcePhase::kAdmitting) return;
  SourceEpoch& epoch = it->second;
  TANDEM_CHECK(pages.size() == memory_.size(), "pages of every source rank");
  epoch.phase = SourcePhase::kServing;
  epoch.pages = pages;
  const size_t num_cells = static_cast<size_t>(options_.layout.num_layers) * (epoch.num_pages - epoch.first_page);
  epoch.is_complete.resize(num_cells);
  epoch.latent_sums.resize(num_cells);
  epoch.index_sums.resize(num_cells);
  epoch.ranks.resize(num_cells);
  if (readable_ != nullptr) readable_->Open(id.target_incarnation, id.epoch);
  for (size_t rank = 0; rank < pages.size(); ++rank) {
    TANDEM_CHECK(static_cast<int>(pages[rank].size()) == epoch.num_pages, "one page for each logical page");
    proto::TransferMessage message = Envelope(id, epoch.key);
    proto::Accepted& accepted = *message.mutable_accepted();
    accepted.set_source_rank(static_cast<uint32_t>(rank));
    accepted.mutable_source_pages()->Add(pages[rank].begin(), pages[rank].end());
    Tell(id, epoch, std::move(message));
  }
}

SourceEpoch* TransferSource::FindServing(const EpochId& id) {
  const auto it = epochs_.find(id);
  return it != epochs_.end() && it->second.phase == SourcePhase::kServing ? &it->second : nullptr;
}

void TransferSource::Complete(const EpochId& id, int rank, int layer_begin, int layer_end, int page_begin,
                              int page_end) {
  SourceEpoch* epoch = FindServing(id);
  if (epoch == nullptr) return;
  TANDEM_CHECK(rank >= 0 && rank < static_cast<int>(memory_.size()) && layer_begin >= 0 && layer_begin <= layer_end &&
                   layer_end <= options_.layout.num_layers && page_begin >= 0 && page_begin <= page_end &&
                   page_end <= epoch->num_pages,
               "completed pages lie outside the prompt");
  const int first = std::max(page_begin, epoch->first_page);
  if (first >= page_end || layer_begin == layer_end) return;  // D holds them
  proto::TransferMessage message = Envelope(id, epoch->key);
  proto::Announce& announce = *message.mutable_announce();
  announce.set_source_rank(static_cast<uint32_t>(rank));
  announce.set_layer_begin(static_cast<uint32_t>(layer_begin));
  announce.set_layer_end(static_cast<uint32_t>(layer_end));
  announce.set_page_begin(static_cast<uint32_t>(first));
  announce.set_page_end(static_cast<uint32_t>(page_end));
  Tell(id, *epoch, std::move(message));  // before the sums are made: D fetches meanwhile

  const int num_columns = epoch->num_pages - epoch->first_page;
  for (int layer = layer_begin; layer < layer_end; ++layer) {
    for (int page = first; page < page_end; ++page) {
      const size_t cell = static_cast<size_t>(layer) * num_columns + (page - epoch->first_page);
      if (epoch->is_complete[cell]) continue;
      const auto bound_sum = [&](kvcache::RecordKind kind) {
        return kvcache::BindSum(memory_[rank]->ContentSum(kind, layer, epoch->pages[rank][page]),
                                {.kind = kind,
                                 .layer = static_cast<uint32_t>(layer),
                                 .logical_page = static_cast<uint32_t>(page),
                                 .incarnation = id.target_incarnation,
                                 .epoch = id.epoch});
      };
      epoch->is_complete[cell] = 1;
      epoch->ranks[cell] = static_cast<uint8_t>(rank);
      epoch->latent_sums[cell] = bound_sum(kvcache::RecordKind::kLatent);
      epoch->index_sums[cell] = bound_sum(kvcache::RecordKind::kIndex);
      ++epoch->num_complete;
      counters_.announced_bytes += options_.layout.page_bytes();
      if (epoch->num_complete == static_cast<int64_t>(epoch->is_complete.size())) SaySums(id, *epoch);
    }
  }
}

void TransferSource::SaySums(const EpochId& id, SourceEpoch& epoch) {
  const int num_columns = epoch.num_pages - epoch.first_page;
  std::vector<proto::TransferMessage> messages;
  for (int layer = 0; layer < options_.layout.num_layers; ++layer) {
    const size_t row = static_cast<size_t>(layer) * num_columns;
    for (int begin = 0, end = 0; begin < num_columns; begin = end) {
      while (end < num_columns && epoch.ranks[row + end] == epoch.ranks[row + begin]) ++end;
      // Whole rows of one rank share a message, as many as fit.
      proto::SourceSums* last = messages.empty() ? nullptr : messages.back().mutable_source_sums();
      const bool extends = last != nullptr && end - begin == num_columns && last->source_rank() == epoch.ranks[row] &&
                           last->page_end() - last->page_begin() == static_cast<uint32_t>(num_columns) &&
                           last->latent_sums_size() + num_columns <= kSumCellsPerMessage;
      if (!extends) {
        messages.push_back(Envelope(id, epoch.key));
        last = messages.back().mutable_source_sums();
        last->set_source_rank(epoch.ranks[row + begin]);
        last->set_layer_begin(static_cast<uint32_t>(layer));
        last->set_page_begin(static_cast<uint32_t>(epoch.first_page + begin));
        last->set_page_end(static_cast<uint32_t>(epoch.first_page + end));
      }
      last->set_layer_end(static_cast<uint32_t>(layer + 1));
      for (int column = begin; column < end; ++column) {
        last->add_latent_sums(epoch.latent_sums[row + column]);
        last->add_index_sums(epoch.index_sums[row + column]);
      }
    }
  }
  if (!messages.empty()) messages.back().mutable_source_sums()->set_is_last(true);
  for (proto::TransferMessage& message : messages) Tell(id, epoch, std::move(message));
}

void TransferSource::FirstToken(const EpochId& id, proto::FirstToken token) {
  SourceEpoch* epoch = FindServing(id);
  if (epoch == nullptr) return;
  const auto choice = static_cast<int>(token.choice());
  TANDEM_CHECK(choice >= 0 && choice < epoch->num_first_tokens, "a first token that nobody asked for");
  TANDEM_CHECK(epoch->sampled_choices.insert(choice).second, "a choice has one first token");
  proto::TransferMessage message = Envelope(id, epoch->key);
  *message.mutable_first_token() = std::move(token);
  Tell(id, *epoch, std::move(message));
}

void TransferSource::PromptHidden(const EpochId& id, std::string hidden) {
  SourceEpoch* epoch = FindServing(id);
  if (epoch == nullptr) return;
  proto::TransferMessage message = Envelope(id, epoch->key);
  message.mutable_prompt_hidden()->set_hidden(std::move(hidden));
  Tell(id, *epoch, std::move(message));
}

void TransferSource::Fail(const EpochId& id, const absl::Status& status) {
  const auto it = epochs_.find(id);
  if (it == epochs_.end() || it->second.phase == SourcePhase::kEnding) return;
  ++counters_.epochs_failed_here;
  Break(id, it->second, status);
}

// ---- Ends ----

void TransferSource::LetGo(const EpochId& id, SourceEpoch& epoch, const absl::Status& status) {
  if (epoch.phase == SourcePhase::kServing && readable_ != nullptr) readable_->Close(id.target_incarnation, id.epoch);
  if (epoch.phase == SourcePhase::kServing || epoch.phase == SourcePhase::kAdmitting) {
    outputs_.push_back(EndRequest{.id = id, .status = status});
  }
  const proto::RequestKey key = epoch.key;
  epoch = {};
  epoch.key = key;
  epoch.phase = SourcePhase::kEnding;
}

void TransferSource::Bury(const EpochId& id) {
  links_.at(id.target_incarnation).dead.Bury(id.epoch);
  epochs_.erase(id);
}

void TransferSource::EndAll(uint64_t target_incarnation, const absl::Status& status) {
  const auto begin = epochs_.lower_bound({.target_incarnation = target_incarnation, .epoch = 0});
  std::vector<EpochId> ids;
  for (auto it = begin; it != epochs_.end() && it->first.target_incarnation == target_incarnation; ++it) {
    LetGo(it->first, it->second, status);
    ids.push_back(it->first);
  }
  for (const EpochId& id : ids) Bury(id);
}

void TransferSource::Break(const EpochId& id, SourceEpoch& epoch, const absl::Status& status) {
  TANDEM_CHECK(!status.ok(), "an epoch breaks for a reason");
  if (epoch.phase == SourcePhase::kStarting) {  // nobody here has heard of it
    Refuse(id, epoch.key, status);
    return Bury(id);
  }
  LetGo(id, epoch, status);
  proto::TransferMessage message = Envelope(id, epoch.key);
  *message.mutable_abort() = AbortOf(status);
  epoch.next_repeat = clock_->Now() + options_.repeat_interval;
  Tell(id, epoch, std::move(message));
}

void TransferSource::Refuse(const EpochId& id, const proto::RequestKey& key, const absl::Status& status) {
  ++counters_.refused_starts;
  proto::TransferMessage message = Envelope(id, key);
  *message.mutable_abort() = AbortOf(status);
  Say(id, std::move(message));
}

proto::TransferMessage TransferSource::Envelope(const EpochId& id, const proto::RequestKey& key) const {
  proto::TransferMessage message;
  message.set_sender_incarnation(options_.incarnation);
  message.set_receiver_incarnation(id.target_incarnation);
  *message.mutable_key() = key;
  message.set_epoch(id.epoch);
  return message;
}

void TransferSource::Tell(const EpochId& id, SourceEpoch& epoch, proto::TransferMessage message) {
  epoch.said.push_back(message);
  Say(id, std::move(message));
}

void TransferSource::Say(const EpochId& id, proto::TransferMessage message) {
  const auto link = links_.find(id.target_incarnation);
  if (link == links_.end() || !link->second.is_up) return;
  outputs_.push_back(SendToTarget{.target_incarnation = id.target_incarnation, .message = std::move(message)});
}

// ---- Time ----

void TransferSource::Tick() {
  const absl::Duration now = clock_->Now();
  for (auto& [incarnation, link] : links_) {
    if (now < link.lapses_at) continue;
    link.lapses_at = absl::InfiniteDuration();
    const auto first = epochs_.lower_bound({.target_incarnation = incarnation, .epoch = 0});
    if (first == epochs_.end() || first->first.target_incarnation != incarnation) continue;
    ++counters_.leases_lapsed;
    EndAll(incarnation, absl::UnavailableError(absl::StrCat("decode ", link.instance, " has been gone for ",
                                                            absl::FormatDuration(options_.lease))));
  }
  std::vector<EpochId> late;
  for (auto& [id, epoch] : epochs_) {
    if (epoch.phase != SourcePhase::kEnding) {
      if (now >= epoch.deadline) late.push_back(id);
    } else if (now >= epoch.next_repeat) {
      epoch.next_repeat = now + options_.repeat_interval;
      for (const proto::TransferMessage& said : epoch.said) Say(id, said);
    }
  }
  for (const EpochId& id : late) {
    Break(id, epochs_.at(id), absl::DeadlineExceededError("the deadline passed before the prompt was handed over"));
  }
}

absl::Duration TransferSource::NextTick() const {
  absl::Duration next = absl::InfiniteDuration();
  for (const auto& [incarnation, link] : links_) next = std::min(next, link.lapses_at);
  for (const auto& [id, epoch] : epochs_) {
    next = std::min(next, epoch.phase == SourcePhase::kEnding ? epoch.next_repeat : epoch.deadline);
  }
  return next;
}

std::vector<SourceOutput> TransferSource::TakeOutputs() { return std::exchange(outputs_, {}); }

bool TransferSource::IsReadable(const EpochId& id) const {
  const auto it = epochs_.find(id);
  return it != epochs_.end() && it->second.phase == SourcePhase::kServing;
}

SourceLedger TransferSource::ledger() const {
  SourceLedger ledger{.open_epochs = static_cast<int64_t>(epochs_.size())};
  std::set<uint64_t> lapsing;
  for (const auto& [id, epoch] : epochs_) {
    for (const std::vector<int32_t>& pages : epoch.pages) ledger.pinned_pages += static_cast<int64_t>(pages.size());
    ledger.announced_undone_bytes += epoch.num_complete * (options_.layout.page_bytes());
    if (!links_.at(id.target_incarnation).is_up) lapsing.insert(id.target_incarnation);
  }
  ledger.lapsing_leases = static_cast<int64_t>(lapsing.size());
  return ledger;
}

void TransferSource::AppendState(std::vector<uint64_t>& state) const {
  const absl::Duration now = clock_->Now();
  const auto from_now = [&](absl::Duration point) {
    return point < now ? uint64_t{0} : static_cast<uint64_t>(absl::ToInt64Microseconds(point - now)) + 1;
  };
  for (const auto& [incarnation, link] : links_) {
    state.insert(state.end(), {incarnation, uint64_t{link.is_up}, from_now(link.lapses_at)});
    link.dead.AppendState(state);
  }
  for (const auto& [id, epoch] : epochs_) {
    state.insert(
        state.end(),
        {id.target_incarnation, id.epoch, epoch.key.request_id(), epoch.key.attempt(),
         static_cast<uint64_t>(epoch.phase), epoch.start.has_value() ? epoch.start->request().prompt_tokens.size() : 0,
         from_now(epoch.deadline), from_now(epoch.next_repeat), from_now(epoch.next_answer), epoch.said.size()});
    for (const auto& pages : epoch.pages) state.insert(state.end(), pages.begin(), pages.end());
    state.insert(state.end(), epoch.is_complete.begin(), epoch.is_complete.end());
    state.insert(state.end(), epoch.latent_sums.begin(), epoch.latent_sums.end());
    state.insert(state.end(), epoch.sampled_choices.begin(), epoch.sampled_choices.end());
  }
}

}  // namespace tandem::kvtransfer
