#include "router/request_pipeline.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

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
#include "router/answer_writer.h"
#include "router/openai/api_error.h"
#include "router/pair_picker.h"
#include "router/request_inbox.h"
#include "router/request_state.h"

namespace tandem::router {
namespace asio = boost::asio;

namespace {

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr int kClientLeftStatus = 499;
constexpr int kAttemptsMax = 2;
constexpr absl::Duration kAttemptTimeMin = absl::Milliseconds(1);

// To the client a prompt beyond the workers' memory is the same mistake as one beyond the context.
absl::Status ContextLengthExceeded(const absl::Status& status) {
  return WithDetails(FieldError("messages", std::string(status.message())), "", "context_length_exceeded");
}

void CheckNoException(std::exception_ptr exception) {
  TANDEM_CHECK(exception == nullptr, "a request's coroutine threw");
}

}  // namespace

class RequestPipeline::Run final {
 public:
  Run(RequestPipeline* pipeline, std::shared_ptr<Exchange> exchange)
      : pipeline_(*pipeline),
        parts_(pipeline->parts_),
        settings_(pipeline->settings_),
        exchange_(std::move(exchange)),
        id_(absl::StrCat("chatcmpl-", absl::Hex(base::RandomId(), absl::kZeroPad16))),
        started_at_(Now()),
        wake_(*parts_.io_context),
        inbox_([this] { wake_.cancel(); }) {
    pipeline_.runs_.push_back(this);
    exchange_->SetObserver([this](ExchangeEvent event) {
      event == ExchangeEvent::kClientLeft ? inbox_.OnClientLeft() : inbox_.OnDrained();
    });
  }
  ~Run() {
    exchange_->SetObserver(nullptr);
    if (request_id_ != 0) parts_.cluster->Forget(request_id_);
    pipeline_.runs_.erase(std::find(pipeline_.runs_.begin(), pipeline_.runs_.end(), this));
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  asio::awaitable<void> Serve();
  RequestInbox& inbox() { return inbox_; }
  RequestView View() const;

 private:
  asio::awaitable<absl::StatusOr<PreparedChat>> Prepare();
  // Turns what happens into the answer until the request is released by its workers.
  asio::awaitable<void> Relay();
  asio::awaitable<void> WaitForNews();
  bool TakeOneEvent();
  // Starts the request once more where its worker could not serve it and nothing has come of it yet. False: it failed.
  bool TryAgain(const absl::Status& error);
  void Apply(const RequestState::Output& output);
  void ApplyTokens(const RequestInbox::Tokens& tokens);
  void EndAnswer(const absl::Status& status, const char* finish);
  void Refuse(const absl::Status& error);

  absl::Duration Now() const { return parts_.clock->Now(); }
  bool MustWaitForReader() const { return exchange_->num_unsent_bytes() > settings_.unsent_bytes_max; }

  RequestPipeline& pipeline_;
  const Parts& parts_;
  const PipelineSettings& settings_;
  const std::shared_ptr<Exchange> exchange_;
  const std::string id_;
  const absl::Duration started_at_;
  asio::steady_timer wake_;
  RequestInbox inbox_;
  std::optional<RequestState> state_;
  std::optional<AnswerWriter> writer_;
  std::string pair_;
  GenerateOrder order_;      // its prompt only until the first token
  uint64_t request_id_ = 0;  // at the cluster
  int num_attempts_ = 1;
  absl::Duration news_at_ = absl::ZeroDuration();
  bool is_waiting_for_reader_ = false;
};

asio::awaitable<absl::StatusOr<PreparedChat>> RequestPipeline::Run::Prepare() {
  std::string body = exchange_->TakeBody();
  if (body.size() <= settings_.inline_body_bytes_max) co_return PrepareChat(body, *parts_.context);
  // Named, not a temporary: g++ 12 destroys captures of a lambda inside a co_await expression twice.
  auto prepare = [body = std::move(body), context = parts_.context]() -> asio::awaitable<absl::StatusOr<PreparedChat>> {
    co_return PrepareChat(body, *context);
  };
  absl::StatusOr<PreparedChat> prepared =
      co_await asio::co_spawn(*parts_.thread_pool, std::move(prepare), asio::use_awaitable);
  co_return prepared;
}

void RequestPipeline::Run::Refuse(const absl::Status& error) {
  if (inbox_.has_client_left()) {
    EndAnswer(absl::CancelledError("client left"), "client_left");
    return;
  }
  exchange_->Respond(ErrorResponse(error));
  EndAnswer(error, "refused");
}

void RequestPipeline::Run::EndAnswer(const absl::Status& status, const char* finish) {
  const int http_status = status.code() == absl::StatusCode::kCancelled ? kClientLeftStatus : HttpStatusOf(status);
  parts_.metrics->CountChatRequest(http_status);
  if (state_.has_value()) parts_.metrics->e2e_request_latency.Observe(absl::ToDoubleSeconds(Now() - started_at_));
  const Usage usage = state_.has_value() ? state_->usage() : Usage();
  LOG_INFO("request ended", {"req", id_}, {"worker_req", absl::Hex(request_id_, absl::kZeroPad16)}, {"finish", finish},
           {"status", http_status}, {"error", std::string(status.message())}, {"prompt_tokens", usage.prompt_tokens},
           {"completion_tokens", usage.completion_tokens},
           {"ttft", state_.has_value() ? state_->time_to_first_token() : absl::InfiniteDuration()},
           {"took", Now() - started_at_}, {"pair", pair_});
}

void RequestPipeline::Run::Apply(const RequestState::Output& output) {
  if (!output.cancel_reason.empty()) {
    parts_.cluster->Cancel(request_id_, output.cancel_reason);
    parts_.metrics->CountCancel(output.cancel_reason);
  }
  const bool has_news = !output.delta.content.empty() || !output.delta.reasoning.empty();
  if (has_news || output.finish.has_value() || !output.error.ok()) {
    news_at_ = Now();
    writer_->Write(output, state_->usage());
  }
  if (output.finish.has_value()) {
    if (!writer_->has_content()) parts_.metrics->empty_answers.Increment();
    EndAnswer(absl::OkStatus(), AnswerFinishName(*output.finish));
  }
  if (!output.error.ok()) EndAnswer(output.error, "error");
}

void RequestPipeline::Run::ApplyTokens(const RequestInbox::Tokens& tokens) {
  const absl::Duration before = state_->last_token_at();
  const int64_t num_before = state_->num_generated();
  const RequestState::Output output = state_->OnTokens(tokens.first_position, tokens.tokens, tokens.finish, Now());
  const int64_t num_new = state_->num_generated() - num_before;
  if (num_new > 0) order_.prompt = std::vector<TokenId>();  // not {}: that keeps the memory
  if (num_new > 0) {
    parts_.metrics->generation_tokens.Increment(static_cast<double>(num_new));
    if (num_before == 0) {
      parts_.metrics->time_to_first_token.Observe(absl::ToDoubleSeconds(state_->time_to_first_token()));
    } else {
      const double gap = absl::ToDoubleSeconds(Now() - before) / static_cast<double>(num_new);
      for (int64_t i = 0; i < num_new; ++i) parts_.metrics->inter_token_latency.Observe(gap);
    }
  }
  Apply(output);
}

bool RequestPipeline::Run::TryAgain(const absl::Status& error) {
  if (!absl::IsUnavailable(error) || !state_->may_start_again() || num_attempts_ == kAttemptsMax) return false;
  const absl::Duration remaining_time = settings_.request_time_max - (Now() - started_at_);
  if (remaining_time < kAttemptTimeMin) return false;
  const ClusterView& view = parts_.cluster->view();
  const absl::StatusOr<PairChoice> pair = PickPair(view, order_.prompt.size() + 1, pipeline_.turn_++);
  if (!pair.ok()) return false;  // the first error says more
  ++num_attempts_;
  pair_ = pair->Explain(view);
  LOG_WARNING("request starts again", {"req", id_}, {"attempt", num_attempts_}, {"cause", error}, {"pair", pair_});
  inbox_.DropWorkerEvents();  // of the attempt that has failed
  order_.remaining_time = remaining_time;
  parts_.cluster->GenerateAgain(request_id_, *pair, order_);
  return true;
}

// Takes what goes before everything else, then one event of the worker; false where nothing is left to do now.
bool RequestPipeline::Run::TakeOneEvent() {
  if (inbox_.TakeClientLeft()) {
    const bool was_open = state_->is_answer_open();
    Apply(state_->OnClientLeft(Now()));
    if (was_open) EndAnswer(absl::CancelledError("client left"), "client_left");
  }
  if (const absl::Status cause = inbox_.TakeGiveUp(); !cause.ok()) Apply(state_->OnGiveUp(cause, Now()));
  if (Now() >= state_->NextWakeup()) {
    Apply(state_->OnTime(Now()));
    if (state_->is_released()) {
      parts_.metrics->unconfirmed_releases.Increment();
      LOG_WARNING("release not confirmed", {"req", id_}, {"pair", pair_});
    }
  }
  if (inbox_.TakeDrained()) is_waiting_for_reader_ = false;
  if (is_waiting_for_reader_ && state_->is_answer_open()) return false;
  if (state_->is_answer_open() && MustWaitForReader()) {
    is_waiting_for_reader_ = true;
    parts_.metrics->slow_readers.Increment();
    exchange_->NotifyWhenDrained();
    return false;
  }
  std::optional<RequestInbox::WorkerEvent> event = inbox_.TakeWorkerEvent();
  if (!event.has_value()) return false;
  if (const auto* tokens = std::get_if<RequestInbox::Tokens>(&*event)) ApplyTokens(*tokens);
  if (const auto* ended = std::get_if<RequestInbox::Ended>(&*event)) {
    if (!TryAgain(ended->error)) Apply(state_->OnEnded(ended->error, ended->is_cancelled));
  }
  if (const auto* lost = std::get_if<RequestInbox::WorkerLost>(&*event)) {
    if (!TryAgain(lost->cause)) Apply(state_->OnWorkerLost(lost->cause));
  }
  return true;
}

asio::awaitable<void> RequestPipeline::Run::WaitForNews() {
  absl::Duration until = state_->NextWakeup();
  const bool may_keepalive = settings_.keepalive_interval > absl::ZeroDuration() && state_->is_answer_open();
  if (may_keepalive) until = std::min(until, news_at_ + settings_.keepalive_interval);
  if (until == absl::InfiniteDuration()) {
    wake_.expires_at(asio::steady_timer::time_point::max());
  } else {
    wake_.expires_after(absl::ToChronoNanoseconds(std::max(until - Now(), absl::ZeroDuration())));
  }
  co_await wake_.async_wait(kAwait);
  if (may_keepalive && Now() >= news_at_ + settings_.keepalive_interval) {
    news_at_ = Now();
    if (!inbox_.has_client_left()) writer_->WriteKeepalive();
  }
}

asio::awaitable<void> RequestPipeline::Run::Relay() {
  news_at_ = Now();
  for (;;) {
    while (TakeOneEvent()) {
    }
    if (state_->is_released()) co_return;
    co_await WaitForNews();
  }
}

RequestView RequestPipeline::Run::View() const {
  RequestView view;
  view.id = id_;
  view.pair = pair_;
  view.age = Now() - started_at_;
  if (state_.has_value()) {
    view.num_prompt_tokens = state_->usage().prompt_tokens;
    view.num_generated = state_->num_generated();
  }
  return view;
}

asio::awaitable<void> RequestPipeline::Run::Serve() {
  // Admission: a place for everything that follows.
  absl::StatusOr<Admission::Ticket> ticket = parts_.admission->Admit();
  if (!ticket.ok()) co_return Refuse(ticket.status());

  // Parse, encode the chat, tokenise, plan the sampling.
  absl::StatusOr<PreparedChat> prepared = co_await Prepare();
  exchange_->BodyDone();
  parts_.metrics->preparation_time.Observe(absl::ToDoubleSeconds(Now() - started_at_));
  if (!prepared.ok()) co_return Refuse(prepared.status());
  if (inbox_.has_client_left()) co_return Refuse(absl::CancelledError("client left"));
  if (const absl::Status cause = inbox_.TakeGiveUp(); !cause.ok()) co_return Refuse(cause);

  // Pick the pair.
  order_ = std::move(prepared->order);
  const ClusterView& view = parts_.cluster->view();
  const absl::StatusOr<PairChoice> pair = PickPair(view, order_.prompt.size() + 1, pipeline_.turn_++);
  if (absl::IsInvalidArgument(pair.status())) co_return Refuse(ContextLengthExceeded(pair.status()));
  if (!pair.ok()) co_return Refuse(pair.status());
  pair_ = pair->Explain(view);

  // Make the state that the answer comes from, and the writer that it goes to.
  RequestState::Params params;
  params.tokenizer = parts_.context->tokenizer;
  params.stops = std::move(prepared->stops);
  params.start = prepared->start;
  params.num_prompt_tokens = static_cast<int64_t>(order_.prompt.size());
  params.max_new_tokens = order_.max_new_tokens;
  params.started_at = started_at_;
  params.deadline = started_at_ + settings_.request_time_max;
  state_.emplace(std::move(params));
  const ChatIdentity identity = {id_, absl::ToUnixSeconds(parts_.clock->WallTime()), prepared->request.model};
  writer_.emplace(
      exchange_, identity,
      AnswerWriter::Form{prepared->request.is_stream, prepared->request.includes_usage, prepared->request.is_thinking});

  // Generate, and relay until the workers hold nothing of it.
  order_.remaining_time = settings_.request_time_max - (Now() - started_at_);
  order_.trace_parent = std::string(exchange_->request().Header("traceparent"));
  parts_.metrics->prompt_tokens.Increment(static_cast<double>(order_.prompt.size()));
  parts_.metrics->requests_in_flight.Increment();
  request_id_ = parts_.cluster->Generate(*pair, order_, &inbox_);
  co_await Relay();
  parts_.metrics->requests_in_flight.Decrement();
}

RequestPipeline::RequestPipeline(const Parts& parts, const PipelineSettings& settings)
    : parts_(parts), settings_(settings) {}

RequestPipeline::~RequestPipeline() = default;

void RequestPipeline::ServeChat(std::shared_ptr<Exchange> exchange) {
  auto run = std::make_unique<Run>(this, std::move(exchange));
  asio::co_spawn(
      *parts_.io_context, [run = std::move(run)]() -> asio::awaitable<void> { co_await run->Serve(); },
      CheckNoException);
}

void RequestPipeline::GiveUpAll(const absl::Status& cause) {
  for (Run* run : runs_) run->inbox().OnGiveUp(cause);
}

std::vector<RequestView> RequestPipeline::Requests() const {
  std::vector<RequestView> views;
  for (const Run* run : runs_) views.push_back(run->View());
  return views;
}

}  // namespace tandem::router
