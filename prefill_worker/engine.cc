#include "prefill_worker/engine.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "kvcache/kv_layout.h"
#include "model/logprobs.h"
#include "prefill_worker/kv_announcer.h"
#include "proto/prompt_logprobs.h"
#include "worker_shell/sampling.h"
#include "worker_shell/trace_log.h"

namespace tandem::prefill {
namespace {

// Rows of a step that prompts with logprobs may have, all together: a row of logits is 0.5 MiB with V3.2's vocabulary.
constexpr int64_t kLogprobRowsMax = 128;

}  // namespace

std::string Engine::Request::Owner() const {
  return absl::StrFormat("request %016x/%d epoch %d of decode %016x", start.key.request_id(), start.key.attempt(),
                         id.epoch, id.target_incarnation);
}

int64_t Engine::Request::NumJoinableTokens() const {
  const auto num_tokens = static_cast<int64_t>(prompt.size()) - 1;
  return WantsPromptLogprobs() ? std::min<int64_t>(num_tokens, start.sampling.prompt_logprobs_begin() - 1) : num_tokens;
}

Engine::Engine(const EngineOptions& options, const base::Clock& clock, model::ModelExecutor& executor,
               const kvcache::KvPool& pool, kvtransfer::ReadableEpochs* readable, Outbox& outbox)
    : options_(options),
      clock_(clock),
      executor_(executor),
      pool_(pool),
      outbox_(outbox),
      constraints_(options.vocabulary),
      sampler_(executor.vocab_size()),
      scheduler_(options.chunks),
      pages_(pool.layout().num_pages),
      page_memory_(pool),
      sums_(page_memory_, pool.layout()),
      transfer_(options.transfer, {&sums_}, &clock, readable) {
  TANDEM_CHECK(pool.layout() == options.transfer.layout, "the transfer's layout is not the pool's");
  if (options.prefix_cache.has_value()) {
    kvcache::PrefixIndexOptions prefix_cache = *options.prefix_cache;
    prefix_cache.covers_next_token |= executor.has_mtp();
    prefix_cache.records_changes = options.publishes_prefix_changes;
    prefixes_.emplace(prefix_cache, pages_);
  }
}

// ---- Decode workers ----

void Engine::TargetUp(uint64_t target_incarnation, const std::string& instance) {
  transfer_.LinkUp(target_incarnation, instance);
  PumpTransfer();
}

void Engine::TargetDown(uint64_t target_incarnation) {
  transfer_.LinkDown(target_incarnation);
  PumpTransfer();
}

void Engine::TargetMessage(uint64_t target_incarnation, const proto::TransferMessage& message) {
  transfer_.Receive(target_incarnation, message);
  PumpTransfer();
}

void Engine::PumpTransfer() {
  for (auto outputs = transfer_.TakeOutputs(); !outputs.empty(); outputs = transfer_.TakeOutputs()) {
    for (kvtransfer::SourceOutput& output : outputs) {
      std::visit([this](auto& kind) { Handle(kind); }, output);
    }
  }
}

void Engine::Handle(kvtransfer::SendToTarget& output) { outbox_.ToTarget(std::move(output)); }

absl::Status Engine::Validate(const kvtransfer::StartRequest& start) const {
  if (is_draining_) return absl::UnavailableError("prefill worker is draining");
  if (start.num_choices > worker_shell::kChoicesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("num_choices is ", start.num_choices, ", at most ", worker_shell::kChoicesMax));
  }
  const auto num_tokens = static_cast<int64_t>(start.prompt_tokens.size());
  const int64_t num_tokens_max = pages_.num_pages() * kvcache::kPageTokens;
  if (num_tokens > num_tokens_max) {
    return absl::InvalidArgumentError(
        absl::StrCat("prompt has ", num_tokens, " tokens, prefill's KV pool holds ", num_tokens_max));
  }
  for (const uint32_t token : start.prompt_tokens) {
    if (token >= static_cast<uint32_t>(executor_.vocab_size())) {
      return absl::InvalidArgumentError(
          absl::StrCat("prompt token ", token, " is outside the vocabulary of ", executor_.vocab_size()));
    }
  }
  const int64_t num_logprobs = num_tokens - start.sampling.prompt_logprobs_begin();
  const int64_t num_logprobs_max = proto::PromptLogprobsMax(start.sampling.num_top_logprobs());
  if (start.sampling.prompt_logprobs_begin() > 0 && num_logprobs > num_logprobs_max) {
    return absl::InvalidArgumentError(
        absl::StrCat("logprobs of ", num_logprobs, " prompt tokens are asked for, at most ", num_logprobs_max));
  }
  RETURN_IF_ERROR(worker_shell::ValidateDrawRules(start.sampling, start.stopping, executor_.vocab_size()));
  if (static_cast<int>(waiting_.size()) >= options_.num_waiting_max) {
    return absl::ResourceExhaustedError(
        absl::StrCat("prompts in line: ", waiting_.size(), ", at most ", options_.num_waiting_max));
  }
  return absl::OkStatus();
}

void Engine::Handle(kvtransfer::AdmitRequest& output) {
  ++counters_.requests_received;
  absl::Status valid = Validate(output.start);
  std::shared_ptr<const model::Constraint> constraint;
  if (valid.ok() && output.start.sampling.has_constraint()) {
    auto prepared = constraints_.Prepare(output.start.sampling.constraint());
    valid = prepared.status();
    if (valid.ok()) constraint = *std::move(prepared);
  }
  Request& request = requests_[output.id];
  request.id = output.id;
  request.start = std::move(output.start);
  request.place = worker_shell::PlaceOf(options_.schedule_policy, request.start.priority, next_arrival_++);
  if (!valid.ok()) {
    ++counters_.requests_refused;
    transfer_.Fail(request.id, valid);
    return;
  }
  request.prompt.assign(request.start.prompt_tokens.begin(), request.start.prompt_tokens.end());
  request.draws = worker_shell::DrawRulesFrom(request.start.sampling, request.start.stopping,
                                              static_cast<int64_t>(request.prompt.size()));
  request.draws.constraint = std::move(constraint);
  waiting_.emplace(request.place, &request);
  has_work_ = true;
  worker_shell::LogIfTraced(absl::StrFormat("%016x/%d", request.start.key.request_id(), request.start.key.attempt()),
                            request.start.trace_parent, request.prompt.size());
}

void Engine::Handle(kvtransfer::EndRequest& output) {
  const auto it = requests_.find(output.id);
  TANDEM_CHECK(it != requests_.end(), "a request ended that was never admitted");
  Request& request = it->second;
  ++(output.status.ok() ? counters_.requests_done : counters_.requests_ended);
  waiting_.erase(request.place);
  active_.erase(request.place);
  if (prefixes_.has_value() && absl::IsDataLoss(output.status)) {
    ++counters_.prefix_distrusts;
    prefixes_->Drop(request.Prefix());
  }
  pages_.ReleaseAll(request.Owner());
  std::erase_if(step_, [&request](const Chunk& chunk) { return chunk.request == &request; });
  requests_.erase(it);
  has_work_ = true;  // somebody in line may have its pages
}

// ---- Work ----

void Engine::Step() {
  has_work_ = false;
  transfer_.Tick();
  PumpTransfer();
  Admit();
  PumpTransfer();
  StepChunks();
  PumpTransfer();
}

absl::Duration Engine::NextWake() const { return has_work_ ? absl::ZeroDuration() : transfer_.NextTick(); }

void Engine::Admit() {
  while (!waiting_.empty()) {
    Request& request = *waiting_.begin()->second;
    if (!TakePages(request)) return;  // in this order: nobody overtakes; pages come back by EndRequest
    waiting_.erase(waiting_.begin());
    worker_shell::CountOvertaken(request.place, waiting_);
    request.num_overtaken = 0;
    active_.emplace(request.place, &request);
    transfer_.Accept(request.id, {request.pages});
    const auto num_cached_pages = static_cast<int>(request.num_published);
    if (num_cached_pages > 0) transfer_.Complete(request.id, 0, 0, executor_.num_layers(), 0, num_cached_pages);
  }
}

bool Engine::TakePages(Request& request) {
  const auto num_tokens = static_cast<int64_t>(request.prompt.size());
  const std::string owner = request.Owner();
  if (prefixes_.has_value()) request.pages = prefixes_->Match(request.Prefix(), request.NumJoinableTokens());
  const auto num_cached_pages = static_cast<int64_t>(request.pages.size());
  const int64_t num_own_pages = kvcache::PagesForTokens(num_tokens) - num_cached_pages;
  const int64_t num_idle_joined = std::count_if(request.pages.begin(), request.pages.end(),
                                                [this](kvcache::PageId page) { return pages_.num_holds(page) == 0; });
  if (num_own_pages > pages_.num_free() + pages_.num_idle() - num_idle_joined) {
    request.pages.clear();
    return false;
  }
  pages_.Hold(request.pages, owner);
  if (prefixes_.has_value()) {
    prefixes_->Touch(request.Prefix(), num_cached_pages);
    prefixes_->Evict(num_own_pages - pages_.num_free());
  }
  const auto own_pages = pages_.Allocate(num_own_pages, owner);
  TANDEM_CHECK(own_pages.ok(), "an idle page could not be evicted");
  sums_.Forget(*own_pages);
  // The last page's rest goes over the wire and into its sum: nothing of its last tenant may be there. Of the MTP layer
  // the last record is rest, too.
  if (num_tokens % kvcache::kPageTokens != 0 || executor_.has_mtp()) pool_.ZeroPage(own_pages->back());
  request.pages.insert(request.pages.end(), own_pages->begin(), own_pages->end());
  request.num_published = num_cached_pages;
  request.num_cached = request.num_computed = num_cached_pages * kvcache::kPageTokens;
  if (num_cached_pages > 0) ++counters_.prefix_hits;
  counters_.cached_prompt_tokens += request.num_cached;
  return true;
}

// Pages before the last token's: that one is never joined, and the MTP layer's last record of a page is whole only with
// the token behind it.
void Engine::PublishPages(Request& request) {
  if (!prefixes_.has_value()) return;
  const auto num_tokens = static_cast<int64_t>(request.prompt.size());
  const int64_t num_pages = std::min(request.num_computed, num_tokens - 1) / kvcache::kPageTokens;
  if (num_pages <= request.num_published) return;
  request.num_published = num_pages;
  prefixes_->Add(request.Prefix(), absl::MakeConstSpan(request.pages).first(num_pages), request.Owner());
}

void Engine::FlushPrefixCache() {
  ++counters_.prefix_flushes;
  if (prefixes_.has_value()) prefixes_->Flush();
}

void Engine::StepChunks() {
  std::vector<Request*> candidates;
  std::vector<int64_t> num_tokens_left;
  int64_t num_logprob_rows_left = kLogprobRowsMax;  // the oldest first, as of the step itself
  for (const auto& [arrival, request] : active_) {
    int64_t num_left = request->num_left();
    if (request->WantsPromptLogprobs()) {
      num_left = std::min(num_left, num_logprob_rows_left);
      num_logprob_rows_left -= num_left;
    }
    candidates.push_back(request);
    num_tokens_left.push_back(num_left);
  }
  std::vector<int32_t> tokens, logits_rows;
  std::vector<model::Segment> segments;
  step_.clear();
  for (const PlannedChunk& planned : scheduler_.Plan(num_tokens_left)) {
    Request* request = candidates[planned.request_index];
    const auto row_begin = static_cast<int>(tokens.size());
    const auto chunk = request->prompt.begin() + request->num_computed;
    tokens.insert(tokens.end(), chunk, chunk + planned.num_tokens);
    segments.push_back({.row_begin = row_begin,
                        .num_rows = planned.num_tokens,
                        .first_position = request->num_computed,
                        .page_table = request->pages});
    for (int i = 0; i < planned.num_tokens; ++i) {
      if (request->WantsLogprobBehind(request->num_computed + i)) logits_rows.push_back(row_begin + i);
    }
    const bool is_last_chunk = planned.num_tokens == request->num_left();
    if (is_last_chunk && request->SamplesFirstTokens()) {
      logits_rows.push_back(static_cast<int32_t>(tokens.size()) - 1);
    }
    step_.push_back({.request = request,
                     .row_begin = row_begin,
                     .first_position = request->num_computed,
                     .num_tokens = planned.num_tokens});
  }
  if (step_.empty()) return;

  std::vector<float> logits(logits_rows.size() * executor_.vocab_size());
  ++counters_.steps;
  counters_.prompt_tokens += static_cast<int64_t>(tokens.size());
  has_work_ = true;
  const model::RowBatch batch{.tokens = tokens, .segments = segments, .logits_rows = logits_rows};
  const auto announce = [this](int layer) { AnnounceLayer(layer); };
  std::vector<kernels::Bf16> hidden;
  absl::Status status;
  if (executor_.has_mtp()) {
    hidden.resize(tokens.size() * executor_.hidden_size());
    status = executor_.ForwardWithHidden(batch, announce, absl::MakeSpan(logits), absl::MakeSpan(hidden));
  } else {
    status = executor_.Forward(batch, announce, absl::MakeSpan(logits));
  }
  if (status.ok()) FinishChunks(logits);
  if (status.ok() && executor_.has_mtp()) {
    PumpTransfer();  // first tokens leave before the MTP layer runs
    status = RunMtp(std::move(hidden));
  }
  for (const Chunk& chunk : step_) {
    if (status.ok()) PublishPages(*chunk.request);
  }
  if (!status.ok()) {
    for (const Chunk& chunk : step_) transfer_.Fail(chunk.request->id, status);
  }
  step_.clear();
}

absl::Status Engine::RunMtp(std::vector<kernels::Bf16> hidden) {
  const auto width = static_cast<size_t>(executor_.hidden_size());
  std::vector<int32_t> next_tokens;
  std::vector<model::Segment> segments;
  for (const Chunk& chunk : step_) {
    const auto row = hidden.begin() + static_cast<ptrdiff_t>(chunk.row_begin * width);
    const auto past_end = row + static_cast<ptrdiff_t>(chunk.num_tokens * width);
    if (chunk.is_last()) {
      const auto* bytes = reinterpret_cast<const char*>(&*(past_end - static_cast<ptrdiff_t>(width)));
      transfer_.PromptHidden(chunk.request->id, std::string(bytes, width * sizeof(kernels::Bf16)));
    }
    const int num_rows = chunk.num_tokens - (chunk.is_last() ? 1 : 0);
    if (num_rows == 0) continue;
    segments.push_back({.row_begin = static_cast<int>(next_tokens.size()),
                        .num_rows = num_rows,
                        .first_position = chunk.first_position,
                        .page_table = chunk.request->pages});
    // Rows close up over those that are left out.
    std::copy(row, row + static_cast<ptrdiff_t>(num_rows * width),
              hidden.begin() + static_cast<ptrdiff_t>(next_tokens.size() * width));
    const auto next = chunk.request->prompt.begin() + chunk.first_position + 1;
    next_tokens.insert(next_tokens.end(), next, next + num_rows);
  }
  const int layer = executor_.num_layers() - 1;
  if (next_tokens.empty()) {
    AnnounceLayer(layer);
    return absl::OkStatus();
  }
  hidden.resize(next_tokens.size() * width);
  return executor_.RunMtp({.tokens = next_tokens, .segments = segments, .logits_rows = {}}, hidden,
                          [this](int done) { AnnounceLayer(done); }, {}, {});
}

// Within the forward pass: what is announced here is fetched while the next layer computes. Only messages leave;
// requests that end are dealt with after the step, which still uses them.
void Engine::AnnounceLayer(int layer) {
  for (const Chunk& chunk : step_) {
    const Request& request = *chunk.request;
    const PageRange pages =
        PagesCompletedBy(chunk.first_position, chunk.end(), static_cast<int64_t>(request.prompt.size()));
    if (!pages.empty()) transfer_.Complete(request.id, 0, layer, layer + 1, pages.begin, pages.end);
  }
  for (kvtransfer::SourceOutput& output : transfer_.TakeOutputs()) {
    if (auto* message = std::get_if<kvtransfer::SendToTarget>(&output)) {
      Handle(*message);
    } else {
      TANDEM_CHECK(false, "an announcement ended or admitted a request");
    }
  }
}

void Engine::FinishChunks(absl::Span<const float> logits) {
  const size_t vocab_size = executor_.vocab_size();
  for (const Chunk& chunk : step_) {
    Request& request = *chunk.request;
    const int64_t first_position = request.num_computed;
    request.num_computed += chunk.num_tokens;
    for (int64_t position = first_position; position < request.num_computed; ++position) {
      if (!request.WantsLogprobBehind(position)) continue;
      TakePromptLogprob(request, position, logits.first(vocab_size));
      logits.remove_prefix(vocab_size);
    }
    if (request.num_left() > 0) continue;
    active_.erase(request.place);
    worker_shell::CountOvertaken(request.place, active_);
    if (!request.SamplesFirstTokens()) continue;
    SampleFirstTokens(request, logits.first(vocab_size));
    logits.remove_prefix(vocab_size);
  }
}

void Engine::TakePromptLogprob(Request& request, int64_t position, absl::Span<const float> logits) const {
  const int num_top = request.draws.params.num_top_logprobs;
  const model::TokenLogprobs logprobs = model::LogprobsOf(logits, request.prompt[position + 1], num_top);
  request.prompt_logprobs.add_logprobs(logprobs.logprob);
  if (num_top > 0) *request.prompt_logprobs.add_top_logprobs() = worker_shell::TopLogprobsToProto(logprobs);
}

void Engine::SampleFirstTokens(Request& request, absl::Span<const float> logits) {
  const auto position = static_cast<int64_t>(request.prompt.size());
  const model::TokenCounts counts = request.draws.params.HasPenalties()
                                        ? model::TokenCounts(request.start.prompt_tokens, /*num_generated_max=*/0)
                                        : model::TokenCounts();
  const model::TokenMask* allowed = nullptr;
  if (request.draws.constraint != nullptr) {
    allowed = &constraints_.MaskAfter(model::TokenMatcher(request.draws.constraint));
  }
  for (int choice = 0; choice < request.start.num_choices; ++choice) {
    const auto drawn = sampler_.Sample({.logits = logits,
                                        .params = request.draws.params,
                                        .counts = counts,
                                        .masked_tokens = request.draws.MaskedAt(position),
                                        .allowed = allowed,
                                        .choice = static_cast<uint32_t>(choice),
                                        .position = position});
    if (!drawn.ok()) return transfer_.Fail(request.id, drawn.status());
    proto::FirstToken first = worker_shell::FirstTokenOf(choice, *drawn, request.draws.params.wants_logprobs);
    first.set_num_cached_tokens(static_cast<uint32_t>(request.num_cached));
    if (choice == 0 && request.WantsPromptLogprobs()) {
      *first.mutable_prompt_logprobs() = std::move(request.prompt_logprobs);
    }
    transfer_.FirstToken(request.id, std::move(first));
    ++counters_.first_tokens;
  }
}

// ---- What others see ----

proto::Load Engine::load() const {
  proto::Load load;
  load.set_running_sequences(static_cast<uint32_t>(active_.size()));
  load.set_waiting_requests(static_cast<uint32_t>(waiting_.size()));
  int64_t waiting_tokens = 0;
  for (const auto& [arrival, request] : waiting_) waiting_tokens += request->num_left();
  for (const auto& [arrival, request] : active_) waiting_tokens += request->num_left();
  load.set_waiting_tokens(waiting_tokens);
  load.set_kv_pages_free(pages_.num_free() + pages_.num_idle());
  load.set_kv_pages_total(pages_.num_pages());
  load.set_engine_steps(counters_.steps);
  load.set_prompt_tokens(counters_.prompt_tokens);
  load.set_cached_prompt_tokens(counters_.cached_prompt_tokens);
  load.set_transferred_kv_bytes(transfer_.counters().announced_bytes);
  return load;
}

std::string Engine::Describe() const {
  std::string text = "request state prompt_tokens cached_tokens computed_tokens pages decode_incarnation\n";
  for (const auto& [id, request] : requests_) {
    const char* state = request.pages.empty() ? "waiting" : request.num_left() > 0 ? "computing" : "kept";
    absl::StrAppendFormat(&text, "%016x/%d %s %d %d %d %d %016x\n", request.start.key.request_id(),
                          request.start.key.attempt(), state, request.prompt.size(), request.num_cached,
                          request.num_computed, request.pages.size(), id.target_incarnation);
  }
  if (prefixes_.has_value()) {
    absl::StrAppendFormat(&text,
                          "\nprefix cache: %d pages, %d of them idle; %d of %d prompt tokens were cached; %d pages "
                          "evicted\n",
                          prefixes_->num_pages(), pages_.num_idle(), counters_.cached_prompt_tokens,
                          counters_.cached_prompt_tokens + counters_.prompt_tokens,
                          prefixes_->counters().pages_evicted);
  } else {
    absl::StrAppend(&text, "\nprefix cache: off\n");
  }
  return absl::StrCat(text, "\n", transfer_.Describe());
}

}  // namespace tandem::prefill
