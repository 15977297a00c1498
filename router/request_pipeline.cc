#include "router/request_pipeline.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/log.h"
#include "base/random.h"
#include "boost/asio/as_tuple.hpp"
#include "boost/asio/awaitable.hpp"
#include "boost/asio/co_spawn.hpp"
#include "boost/asio/io_context.hpp"
#include "boost/asio/steady_timer.hpp"
#include "boost/asio/thread_pool.hpp"
#include "boost/asio/use_awaitable.hpp"
#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "proto/trace_context.h"
#include "router/answer_writer.h"
#include "router/constraint_compilation.h"
#include "router/openai/api_error.h"
#include "router/preparation_threads.h"
#include "router/prompt_run.h"
#include "router/request_state.h"
#include "router/request_trace.h"

namespace tandem::router {
namespace asio = boost::asio;

namespace {

using PrepareFunction = decltype(RequestPipeline::Endpoint::prepare);

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr int kClientLeftStatus = 499;
constexpr size_t kLoggedTokensMax = 1024;            // of a prompt, where prompts are logged
constexpr char kSiblingFailed[] = "sibling failed";  // another prompt of the same request

// To the client a prompt beyond the workers' memory is the same mistake as one beyond the context.
absl::Status ContextLengthExceeded(const char* prompt_field, const absl::Status& status) {
  return WithDetails(FieldError(prompt_field, std::string(status.message())), "", "context_length_exceeded");
}

// What may take long, for the preparation thread: a large body, and the form of answers whatever the body's size.
// prepared: of a short body, else nothing yet.
asio::awaitable<absl::StatusOr<PreparedRequest>> PrepareAside(std::string body, PrepareFunction prepare,
                                                              std::optional<PreparedRequest> prepared,
                                                              const ModelContext* context) {
  if (!prepared.has_value()) {
    absl::StatusOr<PreparedRequest> whole = prepare(body, *context);
    if (!whole.ok()) co_return whole.status();
    prepared = *std::move(whole);
  }
  const absl::Status compiled = CompileForm(*context, &*prepared);
  if (!compiled.ok()) co_return compiled;
  co_return *std::move(prepared);
}

void CheckNoException(std::exception_ptr exception) {
  TANDEM_CHECK(exception == nullptr, "a request's coroutine threw");
}

}  // namespace

class RequestPipeline::Run final {
 public:
  Run(RequestPipeline* pipeline, std::shared_ptr<Exchange> exchange, const Endpoint& endpoint, const HttpId& http_id,
      const Caller& caller)
      : pipeline_(*pipeline),
        parts_(pipeline->parts_),
        settings_(pipeline->settings_),
        exchange_(std::move(exchange)),
        prepare_(endpoint.prepare),
        caller_(caller),
        http_id_(http_id.id),
        trace_parent_(TraceParentOf(exchange_->request())),
        id_(http_id.is_clients ? endpoint.MakeId() : http_id.id),
        started_at_(Now()),
        wake_(*parts_.io_context) {
    BeginTimeline();
    pipeline_.runs_.push_back(this);
    exchange_->SetObserver([this](ExchangeEvent event) {
      if (event == ExchangeEvent::kClientStalled) parts_.metrics->stalled_clients.Increment();
      (event == ExchangeEvent::kDrained ? is_drained_ : has_client_left_) = true;
      OnNews();
    });
  }
  ~Run() {
    exchange_->SetObserver(nullptr);
    if (timeline_ != nullptr) parts_.timelines->End(timeline_, Now());
    pipeline_.runs_.erase(std::find(pipeline_.runs_.begin(), pipeline_.runs_.end(), this));
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  asio::awaitable<void> Serve();
  void GiveUp(const absl::Status& cause) {
    give_up_ = cause;
    OnNews();
  }
  // True where the id is this request's, or one of its prompts'.
  bool Abort(absl::string_view id);
  RequestView View() const;
  bool is_answer_open() const { return is_answer_open_; }

 private:
  void BeginTimeline();
  void Note(const char* name, absl::Duration from, absl::Duration to, absl::string_view detail = "");
  // Waits in line until the request is in flight; what it returns else is the request's end.
  asio::awaitable<absl::Status> TakePlace();
  asio::awaitable<absl::StatusOr<PreparedRequest>> Prepare();
  void TakeIds(const PreparedRequest& prepared);
  void LogBegin(const PreparedRequest& prepared) const;
  void MakePromptRuns(PreparedRequest prepared);
  // Fails the answer where no pair can take one of the prompts.
  void StartPromptRuns(const char* prompt_field);
  // Until every prompt is released by its workers. What happens meanwhile becomes the answer in TakeNews(), at once and
  // without a turn of the coroutine, which only minds the time: a token costs no timer.
  asio::awaitable<void> Relay();
  asio::awaitable<void> WaitForTime();
  void OnNews();
  void TakeNews();
  void TakeClientNews();
  // True while the workers' events must wait for the client to read.
  bool WaitsForReader();
  void Apply(size_t prompt, RequestState::Output output);
  void FailAnswer(const absl::Status& error);
  // Counts what the answer takes. An error where it is no stream and has become too large.
  absl::Status CountWholeBytes();
  void AbortPrompt(size_t prompt);
  // The answer has failed, or nobody wants it any more: no prompt goes on.
  void GiveUpPrompts(const absl::Status& cause);
  void EndAnswer(const absl::Status& status, const char* finish);
  void Refuse(const absl::Status& error);
  // Says when to come again where the router or a worker is full.
  absl::Status Advised(absl::Status error) const;

  absl::Duration Now() const { return parts_.clock->Now(); }
  bool MustWaitForReader() const { return exchange_->num_unsent_bytes() > settings_.unsent_bytes_max; }
  bool IsReleased() const;
  absl::Duration NextWakeup() const;
  Usage TotalUsage() const;

  RequestPipeline& pipeline_;
  const Parts& parts_;
  const PipelineSettings& settings_;
  const std::shared_ptr<Exchange> exchange_;
  const PrepareFunction prepare_;
  const Caller caller_;
  const std::string http_id_;
  const std::string trace_parent_;
  std::string id_;                       // the router's, until the body says that the client has chosen one
  std::vector<std::string> prompt_ids_;  // once it is prepared
  const absl::Duration started_at_;
  asio::steady_timer wake_;
  std::unique_ptr<Admission::Place> place_;
  TimelineStore::Timeline timeline_;  // nullptr: none is kept
  absl::Duration reader_waited_since_;
  std::optional<AnswerWriter> writer_;
  std::vector<std::unique_ptr<PromptRun>> prompts_;
  size_t num_whole_bytes_ = 0;  // its part of the pipeline's
  int num_choices_ = 1;         // of each prompt
  const char* finish_ = "";     // of the choice that ended last
  bool is_answer_open_ = true;
  absl::Duration news_at_ = absl::ZeroDuration();
  absl::Duration waits_until_ = absl::ZeroDuration();  // of the coroutine
  bool is_relaying_ = false;
  bool is_taking_news_ = false;
  bool has_news_ = false;
  bool has_written_ = false;
  bool is_waiting_for_reader_ = false;
  bool has_client_left_ = false;
  bool is_drained_ = false;
  absl::Status give_up_;  // an error: the router gives the request up
};

void RequestPipeline::Run::BeginTimeline() {
  if (parts_.timelines == nullptr) return;
  timeline_ = parts_.timelines->Begin({.id = id_,
                                       .http_id = http_id_,
                                       .trace_parent = trace_parent_,
                                       .began_at = started_at_,
                                       .began_on = parts_.clock->WallTime()});
}

void RequestPipeline::Run::Note(const char* name, absl::Duration from, absl::Duration to, absl::string_view detail) {
  if (timeline_ != nullptr) timeline_->Add(name, TimelinePlace::kRouter, 0, from, to, detail);
}

asio::awaitable<absl::Status> RequestPipeline::Run::TakePlace() {
  absl::StatusOr<std::unique_ptr<Admission::Place>> place =
      parts_.admission->Enter(caller_, [this] { wake_.cancel(); });
  if (!place.ok()) co_return place.status();
  place_ = *std::move(place);
  const absl::Duration queue_time_max = std::min(settings_.queue_time_max, settings_.request_time_max);
  while (!place_->is_admitted()) {
    if (has_client_left_) co_return absl::CancelledError("client left");
    if (!give_up_.ok()) co_return give_up_;
    if (place_->is_sent_away()) co_return parts_.admission->Full();
    const absl::Duration left = started_at_ + queue_time_max - Now();
    if (left <= absl::ZeroDuration()) {
      co_return absl::ResourceExhaustedError(absl::StrCat("no place in flight within ",
                                                          absl::FormatDuration(queue_time_max), ", the limit is ",
                                                          parts_.admission->limits().in_flight_max, " requests"));
    }
    wake_.expires_after(absl::ToChronoNanoseconds(left));
    co_await wake_.async_wait(kAwait);
  }
  Note("queue", started_at_, Now());
  parts_.metrics->admission_wait.Observe(absl::ToDoubleSeconds(Now() - started_at_));
  co_return absl::OkStatus();
}

asio::awaitable<absl::StatusOr<PreparedRequest>> RequestPipeline::Run::Prepare() {
  std::string body = exchange_->TakeBody();
  std::optional<PreparedRequest> short_one;
  if (body.size() <= settings_.inline_body_bytes_max) {
    absl::StatusOr<PreparedRequest> prepared = prepare_(body, *parts_.context);
    if (!prepared.ok() || !prepared->constraint.has_value()) co_return prepared;
    short_one = *std::move(prepared);
  }
  asio::thread_pool& lane = parts_.preparation->For(body.size());
  absl::StatusOr<PreparedRequest> prepared = co_await asio::co_spawn(
      lane, PrepareAside(std::move(body), prepare_, std::move(short_one), parts_.context), asio::use_awaitable);
  co_return prepared;
}

void RequestPipeline::Run::Refuse(const absl::Status& error) {
  if (has_client_left_) {
    EndAnswer(absl::CancelledError("client left"), "client_left");
    return;
  }
  exchange_->Respond(ErrorResponse(Advised(error)));
  EndAnswer(error, "refused");
}

absl::Status RequestPipeline::Run::Advised(absl::Status error) const {
  if (!absl::IsResourceExhausted(error)) return error;
  return WithRetryAfter(std::move(error), parts_.admission->RetryAfter());
}

void RequestPipeline::Run::EndAnswer(const absl::Status& status, const char* finish) {
  is_answer_open_ = false;
  pipeline_.num_whole_bytes_ -= std::exchange(num_whole_bytes_, 0);
  const int http_status = status.code() == absl::StatusCode::kCancelled ? kClientLeftStatus : HttpStatusOf(status);
  parts_.metrics->CountRequest(http_status);
  const Usage usage = TotalUsage();
  if (timeline_ != nullptr) {
    Note("answer ends", Now(), Now(), finish);
    timeline_->Ended({.http_status = http_status,
                      .finish = finish,
                      .error = std::string(status.message()),
                      .num_prompt_tokens = usage.prompt_tokens,
                      .num_generated = usage.completion_tokens,
                      .took = Now() - started_at_});
  }
  if (!prompts_.empty()) parts_.metrics->e2e_request_latency.Observe(absl::ToDoubleSeconds(Now() - started_at_));
  absl::Duration ttft = absl::InfiniteDuration();
  for (const auto& prompt : prompts_) ttft = std::min(ttft, prompt->state().time_to_first_token());
  if (settings_.log == RequestLog::kNone) return;
  LOG_INFO("request ended", {"req", id_}, {"http_req", http_id_}, {"trace", std::string(proto::TraceId(trace_parent_))},
           {"worker_req", absl::Hex(prompts_.empty() ? 0 : prompts_[0]->request_id(), absl::kZeroPad16)},
           {"finish", finish}, {"status", http_status}, {"error", std::string(status.message())},
           {"prompts", prompts_.size()}, {"choices", num_choices_}, {"prompt_tokens", usage.prompt_tokens},
           {"truncated_tokens", usage.truncated_tokens}, {"completion_tokens", usage.completion_tokens}, {"ttft", ttft},
           {"took", Now() - started_at_}, {"pair", prompts_.empty() ? "" : prompts_[0]->pair()});
}

void RequestPipeline::Run::Apply(size_t prompt, RequestState::Output output) {
  if (!is_answer_open_) return;
  if (!output.error.ok()) return FailAnswer(output.error);
  if (!output.delta.has_news()) return;
  has_written_ = true;
  if (output.delta.end.has_value()) finish_ = AnswerFinishName(output.delta.end->finish);
  const int index = static_cast<int>(prompt) * num_choices_ + output.delta.choice;
  writer_->Write(index, std::move(output.delta));
  if (const absl::Status counted = CountWholeBytes(); !counted.ok()) return FailAnswer(counted);
  const auto is_open = [](const std::unique_ptr<PromptRun>& other) { return other->state().is_answer_open(); };
  if (std::any_of(prompts_.begin(), prompts_.end(), is_open)) return;
  writer_->Complete(TotalUsage());
  if (!writer_->has_content()) parts_.metrics->empty_answers.Increment();
  EndAnswer(absl::OkStatus(), finish_);
}

void RequestPipeline::Run::FailAnswer(const absl::Status& error) {
  has_written_ = true;
  writer_->Fail(Advised(error));
  EndAnswer(error, "error");
  GiveUpPrompts(absl::CancelledError(kSiblingFailed));
}

absl::Status RequestPipeline::Run::CountWholeBytes() {
  const size_t num_bytes = writer_->num_whole_bytes();
  pipeline_.num_whole_bytes_ += num_bytes - num_whole_bytes_;
  num_whole_bytes_ = num_bytes;
  if (num_bytes > settings_.whole_answer_bytes_max) {
    return absl::InvalidArgumentError(absl::StrCat("the answer takes more than ", settings_.whole_answer_bytes_max,
                                                   " bytes; ask for a stream, or for fewer tokens, choices, logprobs"));
  }
  if (num_bytes > 0 && pipeline_.num_whole_bytes_ > settings_.whole_answers_bytes_max) {
    return absl::ResourceExhaustedError(absl::StrCat("answers that are no streams take more than ",
                                                     settings_.whole_answers_bytes_max, " bytes; ask for a stream"));
  }
  return absl::OkStatus();
}

void RequestPipeline::Run::GiveUpPrompts(const absl::Status& cause) {
  for (const auto& prompt : prompts_) prompt->OnGiveUp(cause);
}

void RequestPipeline::Run::AbortPrompt(size_t prompt) {
  PromptRun& run = *prompts_[prompt];
  while (is_answer_open_ && run.state().is_answer_open()) Apply(prompt, run.OnAbort());
}

bool RequestPipeline::Run::Abort(absl::string_view id) {
  const bool is_whole = id.empty() || id == id_;
  const auto named = std::find(prompt_ids_.begin(), prompt_ids_.end(), id);
  if (!is_answer_open_ || (!is_whole && named == prompt_ids_.end())) return false;
  if (!is_relaying_) {
    GiveUp(absl::CancelledError("aborted by request"));
    return true;
  }
  if (is_whole) {
    for (size_t i = 0; i < prompts_.size(); ++i) AbortPrompt(i);
  } else {
    AbortPrompt(static_cast<size_t>(named - prompt_ids_.begin()));
  }
  OnNews();
  return true;
}

void RequestPipeline::Run::OnNews() {
  if (!is_relaying_) {
    wake_.cancel();
    return;
  }
  TakeNews();
  if (IsReleased() || NextWakeup() < waits_until_) wake_.cancel();
}

void RequestPipeline::Run::TakeNews() {
  has_news_ = true;
  if (std::exchange(is_taking_news_, true)) return;  // what is done below has made further news
  while (std::exchange(has_news_, false)) {
    TakeClientNews();
    for (size_t i = 0; i < prompts_.size() && !WaitsForReader();) {
      std::optional<RequestState::Output> output = prompts_[i]->TakeEvent();
      if (output.has_value()) {
        Apply(i, *std::move(output));
      } else {
        ++i;
      }
    }
  }
  if (std::exchange(has_written_, false)) news_at_ = Now();
  is_taking_news_ = false;
}

void RequestPipeline::Run::TakeClientNews() {
  if (std::exchange(has_client_left_, false)) {
    for (const auto& prompt : prompts_) prompt->OnClientLeft();
    if (is_answer_open_) EndAnswer(absl::CancelledError("client left"), "client_left");
  }
  if (const absl::Status cause = std::exchange(give_up_, absl::OkStatus()); !cause.ok()) {
    for (size_t i = 0; i < prompts_.size(); ++i) Apply(i, prompts_[i]->OnGiveUp(cause));
  }
  const absl::Duration now = Now();
  for (size_t i = 0; i < prompts_.size(); ++i) {
    if (now >= prompts_[i]->NextWakeup()) Apply(i, prompts_[i]->OnTime());
  }
  if (std::exchange(is_drained_, false) && std::exchange(is_waiting_for_reader_, false) &&
      now - reader_waited_since_ > settings_.timeline_gap) {
    Note("wait for the client to read", reader_waited_since_, now);
  }
}

bool RequestPipeline::Run::WaitsForReader() {
  if (!is_answer_open_) return false;
  if (!is_waiting_for_reader_ && MustWaitForReader()) {
    is_waiting_for_reader_ = true;
    reader_waited_since_ = Now();
    parts_.metrics->slow_readers.Increment();
    exchange_->NotifyWhenDrained();
  }
  return is_waiting_for_reader_;
}

bool RequestPipeline::Run::IsReleased() const {
  return std::all_of(prompts_.begin(), prompts_.end(),
                     [](const auto& prompt) { return prompt->state().is_released(); });
}

absl::Duration RequestPipeline::Run::NextWakeup() const {
  absl::Duration wakeup = absl::InfiniteDuration();
  for (const auto& prompt : prompts_) wakeup = std::min(wakeup, prompt->NextWakeup());
  return wakeup;
}

Usage RequestPipeline::Run::TotalUsage() const {
  Usage usage;
  for (const auto& prompt : prompts_) usage.Add(prompt->state().usage());
  return usage;
}

asio::awaitable<void> RequestPipeline::Run::WaitForTime() {
  const bool may_keepalive = settings_.keepalive_interval > absl::ZeroDuration() && is_answer_open_;
  waits_until_ = NextWakeup();
  if (may_keepalive) waits_until_ = std::min(waits_until_, news_at_ + settings_.keepalive_interval);
  if (waits_until_ == absl::InfiniteDuration()) {
    wake_.expires_at(asio::steady_timer::time_point::max());
  } else {
    wake_.expires_after(absl::ToChronoNanoseconds(std::max(waits_until_ - Now(), absl::ZeroDuration())));
  }
  co_await wake_.async_wait(kAwait);
  if (may_keepalive && is_answer_open_ && Now() >= news_at_ + settings_.keepalive_interval) {
    news_at_ = Now();
    writer_->WriteKeepalive();
  }
}

asio::awaitable<void> RequestPipeline::Run::Relay() {
  news_at_ = Now();
  is_relaying_ = true;
  TakeNews();
  while (!IsReleased()) {
    co_await WaitForTime();
    TakeNews();
  }
}

RequestView RequestPipeline::Run::View() const {
  RequestView view;
  view.id = id_;
  view.age = Now() - started_at_;
  view.is_waiting = place_ == nullptr || !place_->is_admitted();
  if (prompts_.empty()) return view;
  view.pair = prompts_[0]->pair();
  const Usage usage = TotalUsage();
  view.num_prompt_tokens = usage.prompt_tokens;
  view.num_generated = usage.completion_tokens;
  return view;
}

void RequestPipeline::Run::TakeIds(const PreparedRequest& prepared) {
  if (!prepared.id.empty()) {
    id_ = prepared.id;
    if (timeline_ != nullptr) timeline_->Rename(id_);
  }
  prompt_ids_ = prepared.prompt_ids;
  const size_t num_prompts = prepared.orders.size();
  for (size_t i = prompt_ids_.size(); i < num_prompts; ++i) {
    prompt_ids_.push_back(num_prompts == 1 ? id_ : absl::StrCat(id_, "_", i));
  }
}

void RequestPipeline::Run::LogBegin(const PreparedRequest& prepared) const {
  if (settings_.log < RequestLog::kParameters) return;
  const GenerateOrder& order = prepared.orders.front();
  LOG_INFO("request begins", {"req", id_}, {"http_req", http_id_},
           {"trace", std::string(proto::TraceId(trace_parent_))}, {"path", exchange_->request().path},
           {"stream", prepared.is_stream}, {"prompts", prepared.orders.size()}, {"choices", order.num_choices},
           {"prompt_tokens", order.prompt.size()}, {"max_new_tokens", order.max_new_tokens},
           {"temperature", order.temperature}, {"top_p", order.top_p}, {"top_k", order.top_k}, {"min_p", order.min_p},
           {"seed", order.seed}, {"repetition_penalty", order.repetition_penalty},
           {"frequency_penalty", order.frequency_penalty}, {"presence_penalty", order.presence_penalty});
  if (settings_.log < RequestLog::kPrompts) return;
  for (size_t i = 0; i < prepared.orders.size(); ++i) {
    const std::vector<TokenId>& prompt = prepared.orders[i].prompt;
    const size_t num_shown = std::min(prompt.size(), kLoggedTokensMax);
    LOG_INFO("request prompt", {"req", id_}, {"prompt", i}, {"tokens_not_shown", prompt.size() - num_shown},
             {"text", parts_.context->tokenizer->Decode(absl::MakeConstSpan(prompt).first(num_shown))});
  }
}

void RequestPipeline::Run::MakePromptRuns(PreparedRequest prepared) {
  RequestState::Params params;
  params.choice.tokenizer = parts_.context->tokenizer;
  params.choice.stops = std::move(prepared.stops);
  params.choice.start = prepared.start;
  params.choice.rules = std::move(prepared.rules);
  params.choice.wants_tokens = prepared.wants_tokens;
  params.choice.separates_reasoning = prepared.separates_reasoning;
  params.choice.streams_reasoning = prepared.streams_reasoning;
  params.num_choices = num_choices_;
  params.started_at = started_at_;
  params.deadline = started_at_ + std::min(settings_.request_time_max, prepared.time_max);
  const PromptRun::Parts parts = {parts_.clock,
                                  parts_.cluster,
                                  parts_.metrics,
                                  &pipeline_.turn_,
                                  settings_.policy,
                                  &pipeline_.resume_pace_,
                                  settings_.failover_wait_max,
                                  timeline_.get(),
                                  settings_.timeline_gap};
  for (GenerateOrder& order : prepared.orders) {
    params.choice.max_new_tokens = order.is_prompt_only ? 0 : order.max_new_tokens;
    params.choice.min_new_tokens = order.min_new_tokens;
    params.choice.wants_logprobs = order.wants_logprobs;
    params.choice.num_top_logprobs = order.num_top_logprobs;
    params.num_prompt_tokens = static_cast<int64_t>(order.prompt.size());
    params.num_truncated_tokens = order.num_truncated;
    params.num_prompt_logprobs =
        order.prompt_logprobs_begin == 0 ? 0 : order.prompt.size() - order.prompt_logprobs_begin;
    order.trace_parent = trace_parent_;
    prompts_.push_back(std::make_unique<PromptRun>(parts, params, std::move(order), static_cast<int>(prompts_.size()),
                                                   id_, [this] { OnNews(); }));
  }
}

void RequestPipeline::Run::StartPromptRuns(const char* prompt_field) {
  for (size_t i = 0; i < prompts_.size(); ++i) {
    absl::Status started = prompts_[i]->Start();
    if (started.ok()) continue;
    if (absl::IsInvalidArgument(started)) started = ContextLengthExceeded(prompt_field, started);
    prompts_.resize(i);
    writer_->Fail(started);
    EndAnswer(started, "refused");
    GiveUpPrompts(absl::CancelledError(kSiblingFailed));
  }
}

asio::awaitable<void> RequestPipeline::Run::Serve() {
  // Admission: a place for everything that follows, at once or in turn.
  if (const absl::Status admitted = co_await TakePlace(); !admitted.ok()) co_return Refuse(admitted);
  const absl::Duration admitted_at = Now();

  // Parse, encode the chat, tokenise, plan the sampling.
  absl::StatusOr<PreparedRequest> prepared = co_await Prepare();
  exchange_->BodyDone();
  parts_.metrics->preparation_time.Observe(absl::ToDoubleSeconds(Now() - admitted_at));
  Note("parse and tokenise", admitted_at, Now());
  if (!prepared.ok()) co_return Refuse(prepared.status());
  if (has_client_left_) co_return Refuse(absl::CancelledError("client left"));
  if (!give_up_.ok()) co_return Refuse(give_up_);

  // Make the writer that the answer goes to, and what it comes from.
  TakeIds(*prepared);
  LogBegin(*prepared);
  num_choices_ = static_cast<int>(prepared->orders[0].num_choices);
  AnswerWriter::Form form;
  form.is_stream = prepared->is_stream;
  form.includes_usage = prepared->includes_usage;
  form.num_choices = num_choices_ * static_cast<int>(prepared->orders.size());
  form.allows_comments = prepared->allows_comments;
  const AnswerIdentity identity = {id_, absl::ToUnixSeconds(parts_.clock->WallTime()), prepared->model, prompt_ids_};
  writer_.emplace(exchange_, prepared->make_format(identity), form);
  const char* prompt_field = prepared->prompt_field;
  MakePromptRuns(*std::move(prepared));

  // Pick the pairs, generate, and relay until the workers hold nothing of it.
  StartPromptRuns(prompt_field);
  co_await Relay();
}

RequestPipeline::RequestPipeline(const Parts& parts, const PipelineSettings& settings)
    : parts_(parts), settings_(settings), resume_pace_(settings.failovers_per_second) {}

RequestPipeline::~RequestPipeline() = default;

std::string RequestPipeline::Endpoint::MakeId() const {
  return absl::StrCat(id_prefix, absl::Hex(base::RandomId(), absl::kZeroPad16));
}

void RequestPipeline::Serve(std::shared_ptr<Exchange> exchange, const Endpoint& endpoint, const HttpId& http_id,
                            const Caller& caller) {
  auto run = std::make_unique<Run>(this, std::move(exchange), endpoint, http_id, caller);
  asio::co_spawn(
      *parts_.io_context, [run = std::move(run)]() -> asio::awaitable<void> { co_await run->Serve(); },
      CheckNoException);
}

int RequestPipeline::Abort(absl::string_view id) {
  return static_cast<int>(std::count_if(runs_.begin(), runs_.end(), [id](Run* run) { return run->Abort(id); }));
}

int RequestPipeline::GiveUpAll(const absl::Status& cause) {
  int num_given_up = 0;
  for (Run* run : runs_) {
    num_given_up += run->is_answer_open() ? 1 : 0;
    run->GiveUp(cause);
  }
  return num_given_up;
}

std::vector<RequestView> RequestPipeline::Requests(size_t num_max) const {
  std::vector<RequestView> views;
  for (size_t i = 0; i < std::min(num_max, runs_.size()); ++i) views.push_back(runs_[i]->View());
  return views;
}

}  // namespace tandem::router
