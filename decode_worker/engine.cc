// The life of a request, in the order in which it happens. Steps over running sequences: engine_step.cc; routers and
// what they are told: engine_routers.cc.
#include "decode_worker/engine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "kvcache/kv_layout.h"
#include "model/sampler.h"
#include "worker_shell/sampling.h"

namespace tandem::decode {
namespace {

const char* NameOf(Phase phase) {
  switch (phase) {
    case Phase::kWaiting:
      return "waiting";
    case Phase::kTransferring:
      return "transferring";
    case Phase::kRunning:
      return "running";
    case Phase::kReleasing:
      return "releasing";
  }
  return "";
}

}  // namespace

Engine::Engine(const EngineOptions& options, const base::Clock& clock, model::ModelExecutor& executor,
               const kvcache::KvPool& pool, Outbox& outbox)
    : options_(options),
      clock_(clock),
      pool_(pool),
      outbox_(outbox),
      scheduler_(options.batch),
      runner_(executor),
      pages_(pool.layout().num_pages),
      page_memory_(pool),
      transfer_(options.transfer, &page_memory_, &clock),
      routers_(options.router_grace),
      vocab_size_(executor.vocab_size()) {
  TANDEM_CHECK(pool.layout() == options.transfer.layout, "the transfer's layout is not the pool's");
  TANDEM_CHECK(options.context_length_max <= pool.layout().num_pages * kvcache::kPageTokens,
               "the longest sequence does not fit the pool");
}

// ---- Arrival ----

absl::Status Engine::Validate(const GenerateRequest& request) const {
  const proto::GenerateHead& head = request.head;
  if (is_draining_) return absl::UnavailableError("decode worker is draining");
  if (head.num_choices() > 1) {
    return absl::InvalidArgumentError(absl::StrCat("num_choices ", head.num_choices(), " is not served, at most 1"));
  }
  if (request.prompt_tokens.empty()) return absl::InvalidArgumentError("prompt has no tokens");
  const auto known = static_cast<int64_t>(request.prompt_tokens.size()) + head.generated_tokens_size();
  if (known >= options_.context_length_max) {
    return absl::InvalidArgumentError(absl::StrCat(
        "prompt has ", request.prompt_tokens.size(), " tokens and ", head.generated_tokens_size(),
        " generated ones, context_length_max is ", options_.context_length_max, " with at least one to generate"));
  }
  const uint32_t max_new_tokens = head.stopping().max_new_tokens();
  if (max_new_tokens <= static_cast<uint32_t>(head.generated_tokens_size())) {
    return absl::InvalidArgumentError(absl::StrCat("max_new_tokens ", max_new_tokens, " leaves nothing to generate, ",
                                                   head.generated_tokens_size(), " tokens are there already"));
  }
  const absl::Status sampling = model::ValidateSamplingParams(worker_shell::SamplingFrom(head.sampling()));
  if (!sampling.ok()) return sampling;
  const auto is_outside = [&](uint32_t token) { return token >= static_cast<uint32_t>(vocab_size_); };
  const auto& prompt = request.prompt_tokens;
  const auto& generated = head.generated_tokens();
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

void Engine::Generate(GenerateRequest request) {
  ++counters_.requests_received;
  const RequestKey key = request.key;
  const absl::Duration now = clock_.Now();
  if (!routers_.IsKnown(key.router_incarnation) || sequences_.contains(key) || cancelled_early_.Contains(key, now)) {
    ++counters_.requests_dropped;
    return;
  }
  auto owned = std::make_unique<Sequence>();
  Sequence& sequence = *owned;
  sequence.request = std::move(request);
  sequence.arrival = next_arrival_++;
  const proto::GenerateHead& head = sequence.request.head;
  sequence.generated.assign(head.generated_tokens().begin(), head.generated_tokens().end());
  if (head.remaining_time_us() > 0) {
    sequence.deadline =
        now + absl::Microseconds(static_cast<int64_t>(std::min<uint64_t>(head.remaining_time_us(), uint64_t{1} << 52)));
  }
  absl::Status status = SupersedeOtherAttempts(key);
  if (status.ok()) status = Validate(sequence.request);
  sequences_.emplace(key, std::move(owned));
  if (status.ok()) {
    waiting_.emplace(sequence.arrival, &sequence);
  } else {
    End(sequence, {.error = std::move(status)});
  }
  PumpTransfer();
}

// The router has given up on an attempt before it starts the next: whatever still runs of it computes for nobody.
absl::Status Engine::SupersedeOtherAttempts(const RequestKey& key) {
  std::vector<Sequence*> older;
  for (auto& [other, sequence] : sequences_) {
    if (other.router_incarnation != key.router_incarnation || other.request_id != key.request_id) continue;
    if (other.attempt > key.attempt) {
      return absl::AbortedError(absl::StrCat("attempt ", key.attempt, " came after attempt ", other.attempt));
    }
    older.push_back(sequence.get());
  }
  for (Sequence* sequence : older) {
    End(*sequence, {.error = absl::AbortedError(absl::StrCat("superseded by attempt ", key.attempt))});
  }
  return absl::OkStatus();
}

// ---- Pages and transfer ----

void Engine::Admit() {
  std::vector<int> num_pages_wanted;
  for (const auto& [arrival, sequence] : waiting_) {
    if (static_cast<int>(num_pages_wanted.size()) == options_.batch.num_sequences_max) break;
    num_pages_wanted.push_back(kvcache::PagesForTokens(sequence->num_tokens()));
  }
  const int num_admitted = scheduler_.PlanAdmission({.num_pages_wanted = num_pages_wanted,
                                                     .num_holders = static_cast<int>(holders_.size()),
                                                     .num_pages_free = pages_.num_free()});
  for (int i = 0; i < num_admitted; ++i) {
    Sequence& sequence = *waiting_.begin()->second;
    waiting_.erase(waiting_.begin());
    BeginTransfer(sequence);
  }
}

void Engine::BeginTransfer(Sequence& sequence) {
  auto pages = pages_.Allocate(kvcache::PagesForTokens(sequence.num_tokens()), sequence.Owner());
  TANDEM_CHECK(pages.ok(), "an admitted request has no pages");
  sequence.pages = *std::move(pages);
  holders_.emplace(sequence.arrival, &sequence);

  const proto::GenerateHead& head = sequence.request.head;
  const int num_prompt_pages = kvcache::PagesForTokens(sequence.num_prompt_tokens());
  kvtransfer::TransferRequest transfer{
      .key = sequence.request.key.ToProto(),
      .prompt_tokens = sequence.request.prompt_tokens,
      .generated_tokens = sequence.generated,
      .sampling = head.sampling(),
      .stopping = head.stopping(),
      .remaining_time = sequence.deadline - clock_.Now(),
      .target_pages = {sequence.pages.begin(), sequence.pages.begin() + num_prompt_pages}};
  const absl::StatusOr<uint64_t> epoch = transfer_.Begin(head.prefill_address(), std::move(transfer));
  if (!epoch.ok()) {
    End(sequence, {.error = epoch.status()});
    return;
  }
  for (size_t i = num_prompt_pages; i < sequence.pages.size(); ++i) pool_.ZeroPage(sequence.pages[i]);
  sequence.epoch = *epoch;
  ++sequence.num_open_epochs;
  sequence.phase = Phase::kTransferring;
  by_epoch_.emplace(*epoch, &sequence);
}

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
  Sequence& sequence = *by_epoch_.at(output.epoch);
  if (sequence.phase != Phase::kTransferring) return;
  TANDEM_CHECK(sequence.generated.empty(), "a first token came for a sequence that has tokens");
  if (output.token >= static_cast<uint32_t>(vocab_size_)) {
    End(sequence, {.error = absl::InternalError(absl::StrCat("prefill's first token ", output.token,
                                                             " is outside the vocabulary of ", vocab_size_))});
    return;
  }
  proto::TokenBatch batch;
  AppendToken(sequence, output.token, batch);
  SendTokens(sequence.request.key.router_incarnation, std::move(batch));
  if (sequence.finish_reason != proto::FINISH_REASON_UNSPECIFIED) End(sequence, {});
}

void Engine::Handle(kvtransfer::TransferReady& output) {
  Sequence& sequence = *by_epoch_.at(output.epoch);
  if (sequence.phase != Phase::kTransferring) {
    // The transfer was aborted while its last page landed: Ready came first, and the pages are ours to give back.
    GiveBackPages(sequence);
    return;
  }
  sequence.phase = Phase::kRunning;
  sequence.num_written = sequence.num_prompt_tokens();
}

void Engine::Handle(kvtransfer::TransferFailed& output) {
  Sequence& sequence = *by_epoch_.at(output.epoch);
  if (sequence.phase != Phase::kTransferring) return;
  sequence.phase = Phase::kReleasing;
  if (absl::IsAborted(output.status) && !sequence.was_retried_stale) {
    sequence.was_retried_stale = true;
    ++counters_.stale_retries;
  } else if (absl::IsDataLoss(output.status) && !sequence.was_retried_data_loss) {
    sequence.was_retried_data_loss = true;
    ++counters_.data_loss_retries;
  } else {
    sequence.outcome = Outcome{.error = output.status};
  }
}

void Engine::Handle(kvtransfer::PagesReleased& output) {
  Sequence& sequence = *by_epoch_.at(output.epoch);
  sequence.epoch = 0;
  GiveBackPages(sequence);
}

void Engine::Handle(kvtransfer::EpochClosed& output) {
  const auto it = by_epoch_.find(output.epoch);
  Sequence& sequence = *it->second;
  by_epoch_.erase(it);
  if (sequence.epoch == output.epoch) sequence.epoch = 0;
  --sequence.num_open_epochs;
  EndIfNothingIsHeld(sequence);
}

// ---- The end ----

void Engine::End(Sequence& sequence, Outcome outcome) {
  if (sequence.outcome.has_value()) return;  // its end is under way already
  sequence.outcome = std::move(outcome);
  switch (sequence.phase) {
    case Phase::kWaiting:
      waiting_.erase(sequence.arrival);
      break;
    case Phase::kTransferring:
      sequence.phase = Phase::kReleasing;
      transfer_.Abort(sequence.epoch, sequence.outcome->error.ok() ? absl::CancelledError("decode needs no more of it")
                                                                   : sequence.outcome->error);
      return;  // PagesReleased comes
    case Phase::kRunning:
    case Phase::kReleasing:
      break;
  }
  if (sequence.phase == Phase::kReleasing && sequence.HoldsPages()) return;  // PagesReleased is under way
  sequence.phase = Phase::kReleasing;
  GiveBackPages(sequence);
}

void Engine::GiveBackPages(Sequence& sequence) {
  if (sequence.HoldsPages()) {
    pages_.Release(sequence.pages, sequence.Owner());
    sequence.pages.clear();
    holders_.erase(sequence.arrival);
    has_work_ = true;  // somebody in line may have them
  }
  sequence.num_written = 0;
  if (!sequence.outcome.has_value()) {
    sequence.phase = Phase::kWaiting;
    waiting_.emplace(sequence.arrival, &sequence);
    return;
  }
  EndIfNothingIsHeld(sequence);
}

void Engine::EndIfNothingIsHeld(Sequence& sequence) {
  if (!sequence.outcome.has_value() || sequence.HoldsPages() || sequence.num_open_epochs > 0) return;
  if (sequence.outcome->is_cancelled) {
    ++counters_.requests_cancelled;
  } else {
    ++(sequence.outcome->error.ok() ? counters_.requests_finished : counters_.requests_failed);
  }
  SendEnded(sequence);
  sequences_.erase(sequence.request.key);
}

void Engine::ExpireDeadlines() {
  const absl::Duration now = clock_.Now();
  std::vector<Sequence*> late;
  for (auto& [key, sequence] : sequences_) {
    if (sequence->deadline <= now && !sequence->outcome.has_value()) late.push_back(sequence.get());
  }
  for (Sequence* sequence : late) {
    End(*sequence, {.error = absl::DeadlineExceededError(
                        absl::StrCat("request is out of time after ", sequence->generated.size(), " tokens"))});
  }
}

void Engine::Step() {
  has_work_ = false;
  transfer_.Tick();
  PumpTransfer();
  for (const uint64_t router : routers_.TakeLapsed(clock_.Now())) Forget(router, "its stream was lost");
  ExpireDeadlines();
  ReportQuarantines();
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
  for (const auto& [key, sequence] : sequences_) {
    if (!sequence->outcome.has_value()) next = std::min(next, sequence->deadline);
  }
  return next;
}

// ---- What others see ----

proto::Load Engine::load() const {
  proto::Load load;
  load.set_running_sequences(static_cast<uint32_t>(holders_.size()));
  load.set_waiting_requests(static_cast<uint32_t>(waiting_.size()));
  int64_t waiting_tokens = 0;
  for (const auto& [arrival, sequence] : waiting_) waiting_tokens += sequence->num_tokens();
  load.set_waiting_tokens(waiting_tokens);
  load.set_kv_pages_free(pages_.num_free());
  load.set_kv_pages_total(pages_.num_pages());
  load.set_engine_steps(counters_.steps);
  return load;
}

std::string Engine::Describe() const {
  std::string text = "request phase prompt_tokens generated_tokens pages open_epochs prefill\n";
  std::vector<const Sequence*> by_age;
  for (const auto& [key, sequence] : sequences_) by_age.push_back(sequence.get());
  std::sort(by_age.begin(), by_age.end(), [](const Sequence* a, const Sequence* b) { return a->arrival < b->arrival; });
  for (const Sequence* sequence : by_age) {
    absl::StrAppendFormat(&text, "%s %s %d %d %d %d %s\n", sequence->request.key.ToString(), NameOf(sequence->phase),
                          sequence->num_prompt_tokens(), sequence->generated.size(), sequence->pages.size(),
                          sequence->num_open_epochs, sequence->request.head.prefill_address());
  }
  return text;
}

}  // namespace tandem::decode
