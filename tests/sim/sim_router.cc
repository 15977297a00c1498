#include "tests/sim/sim_router.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "proto/credit.h"
#include "router/failover.h"
#include "router/pair_picker.h"
#include "tests/sim/sim_prefill.h"

namespace tandem::sim {

// ---- Channels ----

class SimRouter::Channel final : public router::WorkerChannel {
 public:
  Channel(std::shared_ptr<SimChannelClient> client, std::weak_ptr<SimLiveServer> server)
      : client_(std::move(client)), server_(std::move(server)) {}
  ~Channel() override {
    client_->events = nullptr;
    client_->link->Close(LinkEnd::kClient);
  }
  void Send(proto::RouterMessage message) override {
    client_->link->Send(LinkEnd::kClient, 0, [server = server_, link = client_->link, message = std::move(message)] {
      if (const auto alive = server.lock()) alive->Receive(link, message);
    });
  }
  void SendPart(proto::GeneratePart part) override {
    client_->link->Send(LinkEnd::kClient, 1, [server = server_, link = client_->link, part = std::move(part)] {
      if (const auto alive = server.lock()) alive->ReceivePart(link, part);
    });
  }

 private:
  const std::shared_ptr<SimChannelClient> client_;
  const std::weak_ptr<SimLiveServer> server_;
};

std::unique_ptr<router::WorkerChannel> SimRouter::Connect(const std::string& address,
                                                          router::WorkerChannel::Events channel_events) {
  auto client = std::make_shared<SimChannelClient>();
  client->link = std::make_shared<SimLink>(events_, plan_);
  client->events = std::make_shared<router::WorkerChannel::Events>(std::move(channel_events));
  links_.push_back(client->link);
  client->link->OnClosed(LinkEnd::kClient, [client] {
    // The owner may destroy the channel, and silence the events, from inside the call.
    const auto listeners = client->events;
    if (listeners != nullptr) listeners->on_closed(absl::UnavailableError("connection is lost"));
  });
  const std::shared_ptr<SimLiveServer> server = find_worker_(address);
  if (server != nullptr) {
    server->Open(client);
  } else {
    client->link->Cut();
  }
  return std::make_unique<Channel>(std::move(client), server);
}

void SimRouter::CutOneLink() {
  std::vector<std::shared_ptr<SimLink>> open;
  for (const auto& weak : links_) {
    if (auto link = weak.lock(); link != nullptr && !link->is_cut()) open.push_back(std::move(link));
  }
  if (!open.empty()) open[events_.DrawInt(0, static_cast<int64_t>(open.size()) - 1)]->Cut();
}

// ---- Requests ----

// The part of router/request_pipeline.cc that is no socket: hands events to the state, carries out what it says.
class SimRouter::Run final : public router::RequestListener {
 public:
  Run(SimRouter& router, std::shared_ptr<ClientRequest> client, const router::PairChoice& pair)
      : router_(router),
        client_(std::move(client)),
        state_(ParamsOf(router, *client_)),
        started_at_(router.events_.now()) {
    request_id_ = router_.cluster_->Generate(pair, OrderNow(), this);
  }
  ~Run() override { router_.cluster_->Forget(request_id_); }

  void OnTokens(router::GeneratedTokens tokens) override {
    int64_t& num_in_line = num_tokens_in_line_[tokens.choice];
    num_in_line += static_cast<int64_t>(tokens.tokens.size());
    const int64_t num_granted = CreditTokens();
    if (num_in_line > num_granted) {
      router_.violations_.Add(absl::StrCat(client_->Name(), ": ", num_in_line, " tokens of choice ", tokens.choice,
                                           " wait for its client, ", num_granted, " were granted"));
    }
    line_.push_back([this, tokens = std::move(tokens)] { TakeTokens(tokens); });
    TakeLine();
  }
  void OnEnded(const absl::Status& error, bool is_cancelled) override {
    line_.push_back([this, error, is_cancelled] {
      if (error.ok() || !state_.may_go_on()) return Apply(state_.OnEnded(error, is_cancelled));
      OnAttemptFailed(error, /*is_worker_lost=*/false);
    });
    TakeLine();
  }
  void OnWorkerLost(const absl::Status& cause) override {
    line_.push_back([this, cause] {
      if (!state_.may_go_on()) return Apply(state_.OnWorkerLost(cause));
      OnAttemptFailed(cause, /*is_worker_lost=*/true);
    });
    TakeLine();
  }

  void SetReading(bool is_reading) {
    is_reading_ = is_reading;
    TakeLine();
  }
  void LeaveClient() {
    if (state_.is_answer_open()) client_->end = RequestEnd::kClientLeft;
    Apply(state_.OnClientLeft(now()));
    TakeLine();
  }
  void OnTime() {
    if (now() >= look_at_) GoOnElsewhere();
    if (now() < state_.NextWakeup()) return;
    const bool was_with_workers = !state_.is_released() && look_at_ == absl::InfiniteDuration();
    Apply(state_.OnTime(now()));
    if (was_with_workers && state_.is_released()) {
      router_.violations_.Add(absl::StrCat(client_->Name(), ": its workers never confirmed that it has ended"));
    }
    TakeLine();
  }
  ClientRequest& client() { return *client_; }

 private:
  static router::RequestState::Params ParamsOf(const SimRouter& router, const ClientRequest& client) {
    router::RequestState::Params params;
    params.choice.tokenizer = &router.tokenizer_;
    params.choice.max_new_tokens = client.order.max_new_tokens;
    params.choice.min_new_tokens = client.order.min_new_tokens;
    params.choice.wants_logprobs = client.order.wants_logprobs;
    params.choice.num_top_logprobs = client.order.num_top_logprobs;
    if (client.stop_word.has_value()) {
      auto stops = router::StopSet::Build({absl::StrCat(*client.stop_word, " ")});
      TANDEM_CHECK(stops.ok(), "a stop string is refused");
      params.choice.stops = std::make_shared<const router::StopSet>(*std::move(stops));
    }
    params.num_choices = static_cast<int>(client.order.num_choices);
    params.num_prompt_tokens = static_cast<int64_t>(client.order.prompt.size());
    params.started_at = router.events_.now();
    params.deadline = router.events_.now() + client.time_limit;
    return params;
  }
  absl::Duration now() const { return router_.events_.now(); }
  router::GenerateOrder OrderNow() const {
    router::GenerateOrder order = client_->order;
    order.remaining_time = absl::ZeroDuration();  // none
    if (client_->time_limit < absl::InfiniteDuration()) {
      order.remaining_time = std::max(client_->time_limit - (now() - started_at_), absl::Microseconds(1));
    }
    return order;
  }
  // That a choice may have on its way: its log-probabilities count too, but four tokens are granted whatever they take.
  int64_t CreditTokens() const {
    proto::Sampling sampling;
    sampling.set_wants_logprobs(client_->order.wants_logprobs);
    sampling.set_num_top_logprobs(client_->order.num_top_logprobs);
    return std::max<int64_t>(4, router_.plan_.credit_bytes / proto::CreditBytesOfToken(sampling));
  }
  // As long as the client reads; what concerns nobody any more is taken at once.
  void TakeLine() {
    while (!line_.empty() && (is_reading_ || !state_.is_answer_open())) {
      const std::function<void()> event = std::move(line_.front());
      line_.pop_front();
      event();
    }
  }
  void TakeTokens(const router::GeneratedTokens& tokens) {
    num_tokens_in_line_[tokens.choice] -= static_cast<int64_t>(tokens.tokens.size());
    router_.cluster_->TokensTaken(request_id_, tokens.choice,
                                  tokens.first_position + static_cast<int64_t>(tokens.tokens.size()));
    if (state_.is_answer_open()) client_->CheckTokens(tokens, router_.violations_);
    Apply(state_.OnTokens(tokens, now()));
  }
  // What workers have failed goes on elsewhere, as in router/prompt_run.cc.
  void OnAttemptFailed(const absl::Status& cause, bool is_worker_lost) {
    line_.clear();
    num_tokens_in_line_.clear();
    client_->CountFailure();
    const auto decision = failover_.OnFailure(cause, is_worker_lost, state_.num_generated(), now());
    state_.EndAttempt();
    router_.cluster_->EndAttempt(request_id_);
    Follow(decision);
    if (now() >= look_at_) GoOnElsewhere();
  }
  void Follow(const router::Failover::Decision& decision) {
    look_at_ = decision.look_at;
    if (decision.error.ok()) return;
    look_at_ = absl::InfiniteDuration();
    Apply(state_.OnGiveUp(decision.error, now()));
  }
  void GoOnElsewhere() {
    const auto pair = router::PickPair(router_.cluster_->view(), client_->order.prompt.size() + 1, router_.turn_++);
    if (!pair.ok()) return Follow(failover_.OnNoPair(pair.status(), router_.cluster_->AwaitsWorkers(), now()));
    look_at_ = absl::InfiniteDuration();
    ++client_->num_attempts;
    client_->was_resumed |= state_.num_generated() > 0;
    state_.BeginAttempt();
    router_.cluster_->GenerateAgain(request_id_, *pair, OrderNow(), state_.resumed_choices());
  }

  void Apply(const router::RequestState::Output& output) {
    if (!output.cancel_reason.empty()) {
      router_.cluster_->Cancel(request_id_, output.cancel_reason, output.cancel_choice);
    }
    ClientRequest::Choice& choice = client_->choices[output.delta.choice];
    choice.text += output.delta.text.content;
    choice.has_ended |= output.delta.end.has_value();
    const bool have_all_ended = std::all_of(client_->choices.begin(), client_->choices.end(),
                                            [](const ClientRequest::Choice& c) { return c.has_ended; });
    if (output.delta.end.has_value() && have_all_ended) {
      client_->end = RequestEnd::kComplete;
      client_->CheckComplete(router_.violations_);
    }
    if (!output.error.ok()) {
      client_->end = RequestEnd::kFailed;
      client_->error = output.error;
      client_->CheckFailure(router_.plan_, router_.violations_);
    }
    if (output.is_released) {
      look_at_ = absl::InfiniteDuration();
      client_->is_released = true;
      router_.released_.push_back(client_->number);
    }
  }

  SimRouter& router_;
  const std::shared_ptr<ClientRequest> client_;
  router::RequestState state_;
  router::Failover failover_{kSimFailoverWait};
  absl::Duration look_at_ = absl::InfiniteDuration();
  const absl::Duration started_at_;
  uint64_t request_id_ = 0;
  std::deque<std::function<void()>> line_;     // events of the worker that wait for the client to read
  std::map<int, int64_t> num_tokens_in_line_;  // by choice
  bool is_reading_ = true;
};

SimRouter::SimRouter(EventQueue& events, const FaultPlan& plan, Violations& violations,
                     std::vector<std::string> prefills, std::vector<std::string> decodes, FindWorker find_worker)
    : events_(events),
      plan_(plan),
      violations_(violations),
      find_worker_(std::move(find_worker)),
      tokenizer_(kSimVocab) {
  router::Cluster::Options options;
  options.prefill_workers = std::move(prefills);
  options.decode_workers = std::move(decodes);
  options.identity.set_instance("router");
  options.identity.set_incarnation(events.Draw() | 1);
  options.identity.set_role("router");
  options.identity.set_protocol_version(1);
  options.credit_bytes = plan.credit_bytes;
  cluster_ = std::make_unique<router::Cluster>(
      std::move(options),
      [this](const std::string& address, router::WorkerRole, router::WorkerChannel::Events channel) {
        return Connect(address, std::move(channel));
      });
}

SimRouter::~SimRouter() {
  for (auto& [number, run] : runs_) {
    ClientRequest& client = run->client();
    if (client.end == RequestEnd::kNone) client.end = RequestEnd::kRouterLost;
    client.is_released = true;
  }
  runs_.clear();
}

bool SimRouter::Submit(const std::shared_ptr<ClientRequest>& client) {
  const auto pair = router::PickPair(cluster_->view(), client->order.prompt.size() + 1, turn_++);
  if (!pair.ok()) {
    if (absl::IsInvalidArgument(pair.status()))
      violations_.Add(absl::StrCat(client->Name(), ": ", pair.status().ToString()));
    return false;
  }
  runs_[client->number] = std::make_unique<Run>(*this, client, *pair);
  const auto plan_event = [&](absl::Duration after, std::function<void(Run&)> event) {
    if (after == absl::InfiniteDuration()) return;
    events_.After(after, [weak = weak_from_this(), number = client->number, event = std::move(event)] {
      const auto self = weak.lock();
      if (self == nullptr) return;
      const auto it = self->runs_.find(number);
      if (it != self->runs_.end()) event(*it->second);
    });
  };
  plan_event(client->client_leaves_after, [](Run& run) { run.LeaveClient(); });
  plan_event(client->stops_reading_after, [](Run& run) { run.SetReading(false); });
  plan_event(client->stops_reading_after + client->reads_again_after, [](Run& run) { run.SetReading(true); });
  return true;
}

void SimRouter::Tick() {
  cluster_->Tick(events_.now());
  for (auto& [number, run] : runs_) run->OnTime();
  for (const int number : std::exchange(released_, {})) runs_.erase(number);
  std::erase_if(links_, [](const std::weak_ptr<SimLink>& link) { return link.expired(); });
  events_.After(absl::Milliseconds(50), [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->Tick();
  });
}

}  // namespace tandem::sim
