// The life of a request, in the order in which it happens. Steps over running sequences: engine_step.cc; routers and
// what they are told: engine_routers.cc.
#include "decode_worker/engine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "decode_worker/hisparse/device_pages.h"
#include "decode_worker/token_messages.h"
#include "decode_worker/transfer_report.h"
#include "kvcache/kv_layout.h"
#include "worker_shell/sampling.h"

namespace tandem::decode {
namespace {

// A prefill worker whose model has an MTP layer, too, sends what that needs to go on.
kvtransfer::TargetOptions WithPromptHidden(kvtransfer::TargetOptions options, const model::ModelExecutor& executor) {
  options.prompt_hidden_bytes =
      executor.has_mtp() ? executor.hidden_size() * static_cast<int64_t>(sizeof(kernels::Bf16)) : 0;
  return options;
}

// What goes with the KV of a sequence.
void ForgetWritten(Sequence& sequence) {
  sequence.num_written = 0;
  sequence.counts = {};
  sequence.drafting.Drop();
}

}  // namespace

Engine::Engine(const EngineOptions& options, const base::Clock& clock, model::ModelExecutor& executor,
               const kvcache::KvPool& pool, Outbox& outbox)
    : options_(options),
      clock_(clock),
      executor_(executor),
      pool_(pool),
      outbox_(outbox),
      scheduler_(options.batch),
      constraints_(options.vocabulary),
      drawer_(executor.vocab_size(), constraints_),
      runner_(executor, drawer_, options.batch.num_rows_max),
      speculation_(options.speculative),
      drafter_(executor, drawer_, options.batch.num_rows_max),
      pages_(pool.layout().num_pages),
      device_pages_(options.num_device_pages),
      retracted_(pool, options.retraction_pool),
      page_memory_(pool),
      transfer_(WithPromptHidden(options.transfer, executor), &page_memory_, &clock),
      routers_(options.router_grace),
      vocab_size_(executor.vocab_size()) {
  TANDEM_CHECK(pool.layout() == options.transfer.layout, "the transfer's layout is not the pool's");
  TANDEM_CHECK(!speculation_.is_on() || executor.has_mtp(), "without an MTP layer nobody drafts");
  TANDEM_CHECK(options.context_length_max <= pool.layout().num_pages * kvcache::kPageTokens,
               "the longest sequence does not fit the pool");
  TANDEM_CHECK(options.num_device_pages >= DevicePagesFor(options.context_length_max, options.batch.num_kept_pages_max),
               "the oldest sequence always gets its device buffer");
  if (options.prefix_cache.has_value()) {
    kvcache::PrefixIndexOptions prefix_cache = *options.prefix_cache;
    prefix_cache.covers_next_token |= executor.has_mtp();
    prefixes_.emplace(prefix_cache, pages_);
  }
}

// ---- Arrival ----

absl::Status Engine::Validate(const GenerateRequest& request) const {
  const proto::GenerateHead& head = request.head;
  if (is_draining_) return absl::UnavailableError("decode worker is draining");
  const auto token_bytes = static_cast<uint64_t>(proto::CreditBytesOfToken(head.sampling()));
  if (head.credit_bytes() != 0 && head.credit_bytes() < token_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("credit_bytes ", head.credit_bytes(), " is less than one token's ", token_bytes));
  }
  if (request.prompt_tokens.empty()) return absl::InvalidArgumentError("prompt has no tokens");
  if (head.num_choices() > static_cast<uint32_t>(num_choices_max())) {
    return absl::InvalidArgumentError(
        absl::StrCat("num_choices is ", head.num_choices(), ", at most ", num_choices_max()));
  }
  RETURN_IF_ERROR(ValidateLengths(request));
  RETURN_IF_ERROR(worker_shell::ValidateDrawRules(head.sampling(), head.stopping(), vocab_size_));
  RETURN_IF_ERROR(ValidateChoices(request));
  const auto is_outside = [&](uint32_t token) { return token >= static_cast<uint32_t>(vocab_size_); };
  const auto& prompt = request.prompt_tokens;
  const auto& generated = request.generated_tokens;
  if (const auto it = std::find_if(prompt.begin(), prompt.end(), is_outside); it != prompt.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("prompt token ", *it, " is outside the vocabulary of ", vocab_size_));
  }
  if (const auto it = std::find_if(generated.begin(), generated.end(), is_outside); it != generated.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("generated token ", *it, " is outside the vocabulary of ", vocab_size_));
  }
  if (static_cast<int>(waiting_.size()) >= options_.num_waiting_max) {
    return absl::ResourceExhaustedError(
        absl::StrCat("requests in line: ", waiting_.size(), ", at most ", options_.num_waiting_max));
  }
  return absl::OkStatus();
}

int Engine::num_choices_max() const { return std::min(worker_shell::kChoicesMax, options_.batch.num_sequences_max); }

absl::Status Engine::ValidateLengths(const GenerateRequest& request) const {
  const int64_t num_prompt_tokens = static_cast<int64_t>(request.prompt_tokens.size());
  const int64_t max_new_tokens = request.head.stopping().max_new_tokens();
  bool is_any_wanted = false;
  for (int choice = 0; choice < static_cast<int>(request.num_choices()); ++choice) {
    if (request.HasEnded(choice)) continue;
    is_any_wanted = true;
    const int64_t num_brought = request.num_brought(choice);
    if (num_prompt_tokens + num_brought >= options_.context_length_max) {
      return absl::InvalidArgumentError(absl::StrCat("prompt has ", num_prompt_tokens, " tokens and ", num_brought,
                                                     " generated ones, context_length_max is ",
                                                     options_.context_length_max, " with at least one to generate"));
    }
    if (max_new_tokens <= num_brought) {
      return absl::InvalidArgumentError(absl::StrCat("max_new_tokens ", max_new_tokens, " leaves nothing to generate, ",
                                                     num_brought, " tokens are there already"));
    }
  }
  if (is_any_wanted) return absl::OkStatus();
  return absl::InvalidArgumentError("resumed: every choice has ended already");
}

absl::Status Engine::ValidateChoices(const GenerateRequest& request) const {
  const proto::GenerateHead& head = request.head;
  if (head.resumed_size() > 0 && static_cast<size_t>(head.resumed_size()) != request.num_choices()) {
    return absl::InvalidArgumentError(
        absl::StrCat("resumed has ", head.resumed_size(), " choices, num_choices is ", head.num_choices()));
  }
  if (head.num_choices() <= 1) return absl::OkStatus();
  const auto num_prompt_tokens = static_cast<int64_t>(request.prompt_tokens.size());
  const std::vector<int64_t> num_tokens(head.num_choices(), num_prompt_tokens);
  const Reservation fitting = PlanReservation(num_prompt_tokens, num_tokens, num_choices_max(), pages_.num_pages());
  if (fitting.num_sequences < static_cast<int>(head.num_choices())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "num_choices is ", head.num_choices(), ", a prompt of ", num_prompt_tokens, " tokens fits the KV pool of ",
        pages_.num_pages(), " pages at most ", fitting.num_sequences, " times"));
  }
  return absl::OkStatus();
}

void Engine::Generate(GenerateRequest generate) {
  ++counters_.requests_received;
  const RequestKey key = generate.key;
  const absl::Duration now = clock_.Now();
  if (!routers_.IsKnown(key.router_incarnation) || requests_.contains(key) || cancelled_early_.Contains(key, now)) {
    ++counters_.requests_dropped;
    return;
  }
  auto owned = std::make_unique<Request>();
  Request& request = *owned;
  request.generate = std::move(generate);
  request.arrival = next_arrival_++;
  request.place = worker_shell::PlaceOf(options_.schedule_policy, request.generate.head.priority(), request.arrival);
  request.arrived_at = clock_.Now();
  const proto::GenerateHead& head = request.generate.head;
  if (head.remaining_time_us() > 0) {
    request.deadline =
        now + absl::Microseconds(static_cast<int64_t>(std::min<uint64_t>(head.remaining_time_us(), uint64_t{1} << 52)));
  }
  absl::Status status = SupersedeOtherAttempts(key);
  if (status.ok()) status = Validate(request.generate);
  std::shared_ptr<const model::Constraint> constraint;
  if (status.ok() && head.sampling().has_constraint()) {
    auto prepared = constraints_.Prepare(head.sampling().constraint());
    status = prepared.status();
    if (status.ok()) constraint = *std::move(prepared);
  }
  if (!status.ok()) ++counters_.requests_refused;
  requests_.emplace(key, std::move(owned));
  if (status.ok()) {
    request.draws = worker_shell::DrawRulesFrom(head.sampling(), head.stopping(),
                                                static_cast<int64_t>(request.num_prompt_tokens()));
    request.draws.constraint = std::move(constraint);
    MakeSequences(request);
    waiting_.emplace(request.place, &request);
  } else {
    End(request, {.error = std::move(status)});
  }
  PumpTransfer();
}

void Engine::MakeSequences(Request& request) const {
  int64_t num_brought = 0;
  for (const proto::ResumedChoice& choice : request.generate.head.resumed()) num_brought += choice.num_tokens();
  TANDEM_CHECK(num_brought == static_cast<int64_t>(request.generate.generated_tokens.size()),
               "the assembler has let through a request that is not whole");
  auto brought = request.generate.generated_tokens.cbegin();
  request.sequences.resize(request.generate.num_choices());
  for (int choice = 0; choice < static_cast<int>(request.sequences.size()); ++choice) {
    Sequence& sequence = request.sequences[choice];
    sequence.choice = choice;
    sequence.credit_tokens = request.CreditTokens(request.generate.head.credit_bytes());
    sequence.has_ended = request.generate.HasEnded(choice);
    const auto end = brought + request.generate.num_brought(choice);
    sequence.generated.assign(brought, end);
    brought = end;
  }
  request.generate.generated_tokens = std::vector<uint32_t>();  // not {}: that keeps the memory
}

// The router has given up on an attempt before it starts the next: whatever still runs of it computes for nobody.
absl::Status Engine::SupersedeOtherAttempts(const RequestKey& key) {
  std::vector<Request*> older;
  for (auto& [other, request] : requests_) {
    if (other.router_incarnation != key.router_incarnation || other.request_id != key.request_id) continue;
    if (other.attempt > key.attempt) {
      return absl::AbortedError(absl::StrCat("attempt ", key.attempt, " came after attempt ", other.attempt));
    }
    older.push_back(request.get());
  }
  for (Request* request : older) {
    End(*request, {.error = absl::AbortedError(absl::StrCat("superseded by attempt ", key.attempt))});
  }
  return absl::OkStatus();
}

// ---- Pages and transfer ----

// Those of its sequences that the whole pool has room for; all of them where it is new.
void Engine::PumpTransfer() {
  for (auto outputs = transfer_.TakeOutputs(); !outputs.empty(); outputs = transfer_.TakeOutputs()) {
    for (kvtransfer::TargetOutput& output : outputs) {
      std::visit([this](auto& kind) { Handle(kind); }, output);
    }
  }
}

void Engine::Handle(kvtransfer::SendMessage& output) { outbox_.ToPeer(std::move(output)); }

void Engine::Handle(kvtransfer::StartFetch& output) { outbox_.Fetch(std::move(output)); }

void Engine::Handle(kvtransfer::CancelFetches& output) { outbox_.Cancel(std::move(output)); }

void Engine::Handle(kvtransfer::FirstTokenArrived& output) {
  Request& request = *by_epoch_.at(output.epoch);
  if (request.phase != Phase::kTransferring) return;
  const proto::FirstToken& first = output.first_token;
  Sequence& sequence = request.sequences[first.choice()];
  if (sequence.has_ended) return;  // cancelled alone
  if (!sequence.generated.empty()) {
    ++counters_.tokens_replayed;
    if (first.token() != sequence.generated.front()) ++counters_.replay_mismatches;
    return;
  }
  if (first.token() >= static_cast<uint32_t>(vocab_size_)) {
    End(request, {.error = absl::InternalError(absl::StrCat("prefill's first token ", first.token(),
                                                            " is outside the vocabulary of ", vocab_size_))});
    return;
  }
  const auto logprobs = worker_shell::LogprobsFrom(first.logprob(), first.top_logprobs());
  if (!logprobs.ok()) {
    End(request, {.error = absl::InternalError(absl::StrCat("prefill's first token: ", logprobs.status().message()))});
    return;
  }
  if (sequence.choice == 0 && !TakePromptLogprobs(request, first)) return;
  request.num_cached_prompt_tokens = first.num_cached_tokens();
  AppendToken(request, sequence, {.token = static_cast<int32_t>(first.token()), .logprobs = *logprobs});
  proto::TokenBatch batch;
  *batch.add_sequences() = TokensOf(request, sequence, 0, 1);
  SendTokens(request.generate.key.router_incarnation, std::move(batch));
  if (sequence.finish_reason != proto::FINISH_REASON_UNSPECIFIED) EndSequence(request, sequence);
}

bool Engine::TakePromptLogprobs(Request& request, const proto::FirstToken& first) {
  const int64_t num_expected = request.num_prompt_logprobs();
  if (num_expected == 0) return true;
  const proto::PromptLogprobs& logprobs = first.prompt_logprobs();
  const bool has_top = request.draws.params.num_top_logprobs > 0;
  if (logprobs.logprobs_size() == num_expected && logprobs.top_logprobs_size() == (has_top ? num_expected : 0)) {
    request.prompt_logprobs = logprobs;
    return true;
  }
  End(request, {.error = absl::InternalError(absl::StrCat("prefill sent ", logprobs.logprobs_size(), " logprobs and ",
                                                          logprobs.top_logprobs_size(), " lists of top_logprobs for ",
                                                          num_expected, " prompt tokens"))});
  return false;
}

void Engine::Handle(kvtransfer::TransferReady& output) {
  Request& request = *by_epoch_.at(output.epoch);
  if (request.transfers.size() < kTransferReportsMax) {
    request.transfers.push_back(ReportOf(output.times, request.arrived_at));
  }
  if (request.phase != Phase::kTransferring) {
    // The transfer was aborted while its last page landed: Ready came first, and the pages are ours to give back.
    GiveBackPages(request);
    return;
  }
  request.phase = Phase::kRunning;
  const proto::Stopping& stopping = request.generate.head.stopping();
  const int64_t num_generated_max =
      std::min<int64_t>(stopping.max_new_tokens(), options_.context_length_max - request.num_prompt_tokens());
  const Sequence* first = nullptr;  // into whose pages the prompt has come
  const int last_prompt_page = request.num_shared_pages();
  std::vector<kvcache::PageId> arrived;
  absl::flat_hash_set<kvcache::PageId> given_back;
  for (Sequence& sequence : request.sequences) {
    if (!sequence.HoldsPages()) continue;
    if (first == nullptr) {
      first = &sequence;
      arrived.assign(first->pages.begin() + request.num_joined_pages, first->pages.begin() + last_prompt_page);
    }
    for (const kvcache::PageId page : IndexPromptPages(request, sequence)) given_back.insert(page);
    if (sequence.has_ended) continue;
    pool_.CopyPage(first->pages[last_prompt_page], sequence.pages[last_prompt_page]);
    arrived.push_back(sequence.pages[last_prompt_page]);
    sequence.num_written = request.num_prompt_tokens();
    if (request.draws.params.HasPenalties()) {
      sequence.counts = model::TokenCounts(request.generate.prompt_tokens, num_generated_max);
    }
    if (request.draws.constraint != nullptr) sequence.matcher.emplace(request.draws.constraint);
    if (speculation_.is_on()) sequence.drafting.Begin(request.num_prompt_tokens(), output.prompt_hidden);
  }
  for (Sequence& sequence : request.sequences) {
    if (sequence.has_ended) ReleasePages(request, sequence);
  }
  std::erase_if(arrived, [&](kvcache::PageId page) { return given_back.contains(page); });
  // Whole, sums verified, and copied for each choice: from here on only the executor writes these pages.
  if (const absl::Status status = executor_.PagesArrived(arrived); !status.ok()) {
    End(request, {.error = status});
    return;
  }
  SettleSequences(request);
}

void Engine::Handle(kvtransfer::TransferFailed& output) {
  Request& request = *by_epoch_.at(output.epoch);
  if (request.phase != Phase::kTransferring) return;
  request.phase = Phase::kReleasing;
  if (absl::IsAborted(output.status) && !request.was_retried_stale) {
    request.was_retried_stale = true;
    ++counters_.stale_retries;
  } else if (absl::IsDataLoss(output.status) && !request.was_retried_data_loss) {
    request.was_retried_data_loss = true;
    ++counters_.data_loss_retries;
  } else {
    request.outcome = Outcome{.error = output.status};
  }
}

void Engine::Handle(kvtransfer::PagesReleased& output) {
  Request& request = *by_epoch_.at(output.epoch);
  request.epoch = 0;
  GiveBackPages(request);
}

void Engine::Handle(kvtransfer::EpochClosed& output) {
  const auto it = by_epoch_.find(output.epoch);
  Request& request = *it->second;
  by_epoch_.erase(it);
  if (request.epoch == output.epoch) request.epoch = 0;
  --request.num_open_epochs;
  EndIfNothingIsHeld(request);
}

// ---- The end ----

void Engine::End(Request& request, Outcome outcome) {
  if (request.outcome.has_value()) return;  // its end is under way already
  request.outcome = std::move(outcome);
  switch (request.phase) {
    case Phase::kWaiting:
      waiting_.erase(request.place);
      break;
    case Phase::kParked:
      parked_.erase(request.place);
      break;
    case Phase::kTransferring:
      request.phase = Phase::kReleasing;
      transfer_.Abort(request.epoch, request.outcome->error.ok() ? absl::CancelledError("decode needs no more of it")
                                                                 : request.outcome->error);
      return;  // PagesReleased comes
    case Phase::kRunning:
      if (request.outcome->is_cancelled || request.outcome->error.ok()) {
        for (Sequence& sequence : request.sequences) KeepGeneratedPages(request, sequence);
      }
      break;
    case Phase::kReleasing:
      break;
  }
  if (request.phase == Phase::kReleasing && request.HoldsPages()) return;  // PagesReleased is under way
  request.phase = Phase::kReleasing;
  GiveBackPages(request);
}

void Engine::EndSequence(Request& request, Sequence& sequence) {
  if (request.outcome.has_value() || sequence.has_ended) return;
  sequence.has_ended = true;
  DropKept(request, sequence);
  if (request.HaveAllEnded()) return End(request, {});
  if (request.phase != Phase::kRunning) return;  // while a transfer is under way, the prompt comes into its pages
  KeepGeneratedPages(request, sequence);
  ReleasePages(request, sequence);
  SettleSequences(request);
}

void Engine::SettleSequences(Request& request) {
  if (!request.HoldsPages()) GiveBackPages(request);
}

void Engine::ReleasePages(const Request& request, Sequence& sequence) {
  if (!sequence.HoldsPages()) return;
  ReleaseDevicePages(request, sequence);
  pages_.ReleaseAll(request.Owner(sequence));
  sequence.pages.clear();
  if (!sequence.IsKept()) ForgetWritten(sequence);
  has_work_ = true;  // somebody in line may have them
}

void Engine::DropKept(Request& request, Sequence& sequence) {
  if (!sequence.IsKept()) return;
  retracted_.Drop(sequence.kept_pages, request.Owner(sequence));
  if (!sequence.HoldsPages()) ForgetWritten(sequence);
  if (!request.IsAnyKept()) retracted_.Drop(request.kept_prompt_pages, request.OwnerOfPrompt());
}

void Engine::ReleaseDevicePages(const Request& request, Sequence& sequence) {
  if (sequence.device_pages.empty()) return;
  executor_.ForgetBuffer(sequence.device_pages[0]);
  device_pages_.Release(sequence.device_pages, request.Owner(sequence));
  sequence.device_pages.clear();
}

// What is left to generate waits for pages again.
void Engine::GiveBackPages(Request& request) {
  for (Sequence& sequence : request.sequences) ReleasePages(request, sequence);
  holders_.erase(request.place);
  if (!request.outcome.has_value()) {
    const bool may_go_on = request.MayGoOn();
    request.phase = may_go_on ? Phase::kWaiting : Phase::kParked;
    (may_go_on ? waiting_ : parked_).emplace(request.place, &request);
    return;
  }
  EndIfNothingIsHeld(request);
}

void Engine::EndIfNothingIsHeld(Request& request) {
  if (!request.outcome.has_value() || request.HoldsPages() || request.num_open_epochs > 0) return;
  if (request.outcome->is_cancelled) {
    ++counters_.requests_cancelled;
  } else {
    ++(request.outcome->error.ok() ? counters_.requests_finished : counters_.requests_failed);
  }
  for (Sequence& sequence : request.sequences) {
    DropKept(request, sequence);
    speculation_.NoteAnswer(sequence.drafting);
  }
  SendEnded(request);
  requests_.erase(request.generate.key);
}

void Engine::ExpireDeadlines() {
  const absl::Duration now = clock_.Now();
  std::vector<Request*> late;
  for (auto& [key, request] : requests_) {
    if (request->deadline <= now && !request->outcome.has_value()) late.push_back(request.get());
  }
  for (Request* request : late) {
    size_t num_generated = 0;
    for (const Sequence& sequence : request->sequences) num_generated += sequence.generated.size();
    End(*request, {.error = absl::DeadlineExceededError(
                       absl::StrCat("request is out of time after ", num_generated, " tokens"))});
  }
}

void Engine::Step() {
  has_work_ = false;
  transfer_.Tick();
  PumpTransfer();
  for (const uint64_t router : routers_.TakeLapsed(clock_.Now())) Forget(router, "its stream was lost");
  ExpireDeadlines();
  ReportQuarantines();
  RetractWithoutCredit(options_.credit_patience);
  Admit();
  PumpTransfer();
  StepRunning();
  PumpTransfer();
}

absl::Duration Engine::NextWake() const {
  if (has_work_) return absl::ZeroDuration();  // at once, whatever the clock says meanwhile
  absl::Duration next = std::min(transfer_.NextTick(), routers_.NextLapse());
  for (const auto& [peer, status] : peers_) {
    // A quarantine ends some time; a second late is soon enough.
    if (!status.is_usable() && transfer_.IsUp(peer)) next = std::min(next, clock_.Now() + absl::Seconds(1));
  }
  for (const auto& [key, request] : requests_) {
    if (request->outcome.has_value()) continue;
    next = std::min(next, request->deadline);
    for (const Sequence& sequence : request->sequences) {
      next = std::min(next, sequence.without_credit_since + options_.credit_patience);
    }
  }
  return next;
}

}  // namespace tandem::decode
