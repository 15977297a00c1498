#include "tests/sim/sim_cluster.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/oracle.h"

namespace tandem::sim {
namespace {

constexpr absl::Duration kLoadTime = absl::Seconds(8);     // in which requests arrive
constexpr absl::Duration kEndBound = absl::Seconds(90);    // after the last fault; a quarantine lasts a minute
constexpr absl::Duration kRestBound = absl::Seconds(10);   // after that, for everything to be given back
constexpr absl::Duration kServeBound = absl::Seconds(90);  // for a last request; a quarantine lasts a minute
constexpr uint32_t kStopToken = 3;

}  // namespace

std::string RunSummary::ToString() const {
  return absl::StrCat("complete=", num_complete, " failed=", num_failed, " client_left=", num_client_left,
                      " router_lost=", num_router_lost, " again=", num_again, " resumed=", num_resumed,
                      " of_several_choices=", num_of_several_choices, " retractions=", retractions,
                      " credit_retractions=", credit_retractions, " kept_resumes=", kept_resumes,
                      " swap_outs=", swap_outs, " said_again=", said_again, " drafts_accepted=", drafts_accepted,
                      " replayed=", tokens_replayed, " wrong_sums=", wrong_sums, " leases_lapsed=", leases_lapsed,
                      " events=", num_events, " time=", absl::FormatDuration(simulated_time), "\n  ", plan.ToString());
}

FaultPlan PlanOfSeed(uint64_t seed) {
  EventQueue draws(seed);
  FaultPlan plan = DrawFaultPlan(draws);
  // Not drawn: what a seed once found it still finds.
  if (seed % 3 == 2) plan.num_drafts = 1 + static_cast<int>(seed / 3 % 5);
  return plan;
}

SimCluster::SimCluster(uint64_t seed) : SimCluster(seed, nullptr) {}
SimCluster::SimCluster(uint64_t seed, const FaultPlan& plan) : SimCluster(seed, &plan) {}

SimCluster::SimCluster(uint64_t seed, const FaultPlan* plan)
    : events_(seed), option_draws_(seed), plan_(plan == nullptr ? PlanOfSeed(seed) : *plan) {
  if (plan == nullptr) DrawFaultPlan(events_);  // load and times follow the plan's draws
  for (int i = 0; i < plan_.num_prefills; ++i) {
    prefill_names_.push_back(
        {.rpc_address = absl::StrCat("prefill-", i, ":1"), .bootstrap_address = absl::StrCat("prefill-", i, ":8998")});
  }
  for (int i = 0; i < plan_.num_decodes; ++i) {
    decode_names_.push_back({.rpc_address = absl::StrCat("decode-", i, ":1"), .bootstrap_address = ""});
  }
  prefills_.resize(prefill_names_.size());
  decodes_.resize(decode_names_.size());
}

SimCluster::~SimCluster() {
  router_.reset();
  decodes_.clear();
  prefills_.clear();
}

// ---- Processes ----

void SimCluster::StartPrefill(size_t index) {
  prefills_[index] = std::make_shared<SimPrefill>(events_, plan_, prefill_names_[index]);
  prefills_[index]->Start();
}

void SimCluster::StartDecode(size_t index) {
  decodes_[index] = std::make_shared<SimDecode>(events_, plan_, violations_, decode_names_[index],
                                                [this](const std::string& address) -> std::shared_ptr<SimPrefill> {
                                                  for (size_t i = 0; i < prefill_names_.size(); ++i) {
                                                    if (prefill_names_[i].bootstrap_address == address)
                                                      return prefills_[i];
                                                  }
                                                  return nullptr;
                                                });
  decodes_[index]->Start();
}

void SimCluster::StartRouter() {
  std::vector<std::string> prefills, decodes;
  for (const WorkerName& name : prefill_names_) prefills.push_back(name.rpc_address);
  for (const WorkerName& name : decode_names_) decodes.push_back(name.rpc_address);
  router_ = std::make_shared<SimRouter>(events_, plan_, violations_, std::move(prefills), std::move(decodes),
                                        [this](const std::string& address) -> std::shared_ptr<SimLiveServer> {
                                          for (size_t i = 0; i < prefills_.size(); ++i) {
                                            if (prefill_names_[i].rpc_address == address && prefills_[i] != nullptr) {
                                              return {prefills_[i], &prefills_[i]->live()};
                                            }
                                          }
                                          for (size_t i = 0; i < decodes_.size(); ++i) {
                                            if (decode_names_[i].rpc_address == address && decodes_[i] != nullptr) {
                                              return {decodes_[i], &decodes_[i]->live()};
                                            }
                                          }
                                          return nullptr;
                                        });
  router_->Start();
}

// ---- Load and faults ----

std::shared_ptr<ClientRequest> SimCluster::MakeRequest(absl::Duration submit_at) {
  auto client = std::make_shared<ClientRequest>();
  client->number = static_cast<int>(clients_.size());
  client->submit_at = submit_at;
  const int64_t num_tokens_max = int64_t{std::min(plan_.prefill_pages, plan_.decode_pages)} * kvcache::kPageTokens;
  const int64_t num_prompt_tokens =
      std::min<int64_t>(events_.Chance(0.2) ? events_.DrawInt(1, 300) : events_.DrawInt(1, 130), num_tokens_max - 1);
  router::GenerateOrder& order = client->order;
  // Most begin like another one did, up to somewhere.
  if (!clients_.empty() && events_.Chance(0.6)) {
    const std::vector<uint32_t>& other =
        clients_[events_.DrawInt(0, static_cast<int64_t>(clients_.size()) - 1)]->order.prompt;
    const int64_t num_shared =
        events_.DrawInt(0, std::min<int64_t>(num_prompt_tokens, static_cast<int64_t>(other.size())));
    order.prompt.assign(other.begin(), other.begin() + num_shared);
  }
  while (static_cast<int64_t>(order.prompt.size()) < num_prompt_tokens) {
    order.prompt.push_back(static_cast<uint32_t>(events_.DrawInt(0, kSimVocab - 1)));
  }
  if (events_.Chance(0.1)) order.cache_salt = "tenant";
  order.temperature = events_.Chance(0.3) ? 0.0f : static_cast<float>(events_.DrawInt(1, 12)) / 10.0f;
  order.top_p = events_.Chance(0.5) ? 1.0f : 0.9f;
  order.top_k = events_.Chance(0.7) ? 0 : static_cast<int32_t>(events_.DrawInt(1, 40));
  order.seed = events_.Draw();
  order.max_new_tokens =
      static_cast<uint32_t>(events_.Chance(0.2) ? events_.DrawInt(1, 3) : events_.DrawInt(4, plan_.max_new_tokens));
  if (events_.Chance(0.6)) order.stop_token_ids.push_back(kStopToken);
  if (events_.Chance(plan_.cancel)) {
    client->client_leaves_after = events_.DrawDuration(absl::ZeroDuration(), absl::Milliseconds(1500));
  }
  if (events_.Chance(plan_.slow_reader)) {
    client->stops_reading_after = events_.DrawDuration(absl::ZeroDuration(), absl::Milliseconds(800));
    client->reads_again_after = events_.DrawDuration(absl::Milliseconds(10), absl::Seconds(6));
  }
  if (events_.Chance(plan_.deadline)) {
    client->time_limit = events_.DrawDuration(absl::Milliseconds(20), absl::Seconds(1));
  }
  AddOptions(*client);
  OracleRequest oracle{.prompt_tokens = order.prompt, .sampling = {}, .stopping = {}};
  oracle.sampling.set_temperature(order.temperature);
  oracle.sampling.set_top_p(order.top_p);
  oracle.sampling.set_top_k(order.top_k);
  oracle.sampling.set_min_p(order.min_p);
  oracle.sampling.set_repetition_penalty(order.repetition_penalty);
  oracle.sampling.set_frequency_penalty(order.frequency_penalty);
  oracle.sampling.set_presence_penalty(order.presence_penalty);
  for (const auto& [token, bias] : order.logit_bias) {
    proto::LogitBias& entry = *oracle.sampling.add_logit_bias();
    entry.set_token(token);
    entry.set_bias(bias);
  }
  oracle.sampling.set_seed(order.seed);
  oracle.sampling.set_wants_logprobs(order.wants_logprobs);
  oracle.sampling.set_num_top_logprobs(order.num_top_logprobs);
  oracle.stopping.set_max_new_tokens(order.max_new_tokens);
  oracle.stopping.set_min_new_tokens(order.min_new_tokens);
  oracle.stopping.mutable_stop_token_ids()->Add(order.stop_token_ids.begin(), order.stop_token_ids.end());
  for (uint32_t choice = 0; choice < order.num_choices; ++choice) {
    client->choices.emplace_back().expected = AskOracle(oracle, SimModel(plan_), SimLayers(plan_),
                                                        plan_.decode_pages * int64_t{kvcache::kPageTokens}, choice);
  }
  clients_.push_back(client);
  return client;
}

// What most requests do without: choices, penalties, biases, log-probabilities, least lengths, stop strings.
void SimCluster::AddOptions(ClientRequest& client) {
  EventQueue& draws = option_draws_;
  router::GenerateOrder& order = client.order;
  if (draws.Chance(0.35)) {
    // A page of its own for each choice, where the prompt ends.
    const int num_prompt_pages = kvcache::PagesForTokens(static_cast<int64_t>(order.prompt.size()));
    const int num_choices_max = std::min({4, plan_.max_running_requests, plan_.decode_pages - num_prompt_pages + 1});
    order.num_choices = static_cast<uint32_t>(draws.DrawInt(1, num_choices_max));
  }
  if (draws.Chance(0.2)) order.min_p = static_cast<float>(draws.DrawInt(1, 20)) / 100;
  if (draws.Chance(0.2)) order.repetition_penalty = static_cast<float>(draws.DrawInt(8, 16)) / 10;
  if (draws.Chance(0.2)) order.frequency_penalty = static_cast<float>(draws.DrawInt(-10, 20)) / 10;
  if (draws.Chance(0.2)) order.presence_penalty = static_cast<float>(draws.DrawInt(-10, 20)) / 10;
  for (int i = draws.Chance(0.2) ? 3 : 0; i > 0; --i) {
    const auto token = static_cast<uint32_t>(draws.DrawInt(kStopToken + 1, kSimVocab - 1));
    order.logit_bias.emplace_back(token, draws.Chance(0.3) ? -100.0f : static_cast<float>(draws.DrawInt(-5, 5)));
  }
  order.wants_logprobs = draws.Chance(0.3);
  if (order.wants_logprobs) order.num_top_logprobs = static_cast<uint32_t>(draws.DrawInt(0, 5));
  if (draws.Chance(0.2)) order.min_new_tokens = static_cast<uint32_t>(draws.DrawInt(1, order.max_new_tokens));
  // A word that is part of no other; stop strings wait for the least length, which this does not.
  if (order.min_new_tokens == 0 && draws.Chance(0.3)) client.stop_word = static_cast<uint32_t>(draws.DrawInt(10, 96));
}

void SimCluster::Submit(const std::shared_ptr<ClientRequest>& client) {
  if (router_ != nullptr && router_->Submit(client)) return;
  events_.After(absl::Milliseconds(200), [this, client] { Submit(client); });
}

void SimCluster::PlanLoad() {
  std::vector<absl::Duration> bursts;
  for (int i = 0; i < plan_.num_bursts; ++i) {
    bursts.push_back(events_.DrawDuration(absl::Milliseconds(500), kLoadTime));
  }
  for (int i = 0; i < plan_.num_requests; ++i) {
    const absl::Duration burst = bursts[events_.DrawInt(0, plan_.num_bursts - 1)];
    const auto client = MakeRequest(burst + events_.DrawDuration(absl::ZeroDuration(), absl::Milliseconds(600)));
    events_.After(client->submit_at, [this, client] { Submit(client); });
  }
}

void SimCluster::PlanFaults() {
  const auto strike = [&](int times, std::function<void()> fault) {
    for (int i = 0; i < times; ++i) {
      // Most strike while there is something to hit.
      const absl::Duration when = clients_.empty() || events_.Chance(0.2)
                                      ? events_.DrawDuration(absl::Milliseconds(600), absl::Seconds(10))
                                      : clients_[events_.DrawInt(0, plan_.num_requests - 1)]->submit_at +
                                            events_.DrawDuration(absl::ZeroDuration(), absl::Milliseconds(600));
      events_.After(when, fault);
    }
  };
  const auto draw_down_time = [this] { return events_.DrawDuration(absl::Milliseconds(1), absl::Milliseconds(1500)); };
  strike(plan_.prefill_crashes, [=, this] {
    const size_t index = events_.DrawInt(0, plan_.num_prefills - 1);
    if (prefills_[index] == nullptr) return;
    prefills_[index].reset();
    if (StaysDown(prefills_)) return;
    events_.After(draw_down_time(), [=, this] { StartPrefill(index); });
  });
  strike(plan_.decode_crashes, [=, this] {
    const size_t index = events_.DrawInt(0, plan_.num_decodes - 1);
    if (decodes_[index] == nullptr) return;
    decodes_[index].reset();
    if (StaysDown(decodes_)) return;
    events_.After(draw_down_time(), [=, this] { StartDecode(index); });
  });
  strike(plan_.router_crashes, [=, this] {
    if (router_ == nullptr) return;
    router_.reset();
    events_.After(draw_down_time(), [this] { StartRouter(); });
  });
  strike(plan_.pair_cuts, [this] {
    const auto& prefill = prefills_[events_.DrawInt(0, plan_.num_prefills - 1)];
    if (prefill != nullptr) prefill->CutTargets();
  });
  strike(plan_.router_link_cuts, [this] {
    if (router_ != nullptr) router_->CutOneLink();
  });
  if (plan_.loses_a_holder) LoseAHolder();
}

// Looks for its moment again and again. Requests that find none leave a plan that does not do what it says: a
// violation.
void SimCluster::LoseAHolder() {
  if (events_.now() >= plan_.faults_end) {
    violations_.Add("prefill has never pinned pages for one decode worker alone");
    return;
  }
  const auto is_open = [](const auto& decode) {
    return decode != nullptr && decode->engine().transfer().ledger().open_epochs > 0;
  };
  const bool has_pins = std::any_of(prefills_.begin(), prefills_.end(), [](const auto& prefill) {
    return prefill != nullptr && prefill->engine().transfer().ledger().pinned_pages > 0;
  });
  if (has_pins && std::count_if(decodes_.begin(), decodes_.end(), is_open) == 1) {
    std::find_if(decodes_.begin(), decodes_.end(), is_open)->reset();
    return;
  }
  events_.After(absl::Microseconds(100), [this] { LoseAHolder(); });
}

// Some crashed workers never come back, so that what others keep for them must lapse; one of each kind always does.
template <typename Workers>
bool SimCluster::StaysDown(const Workers& workers) {
  const bool is_another_up = std::any_of(workers.begin(), workers.end(), [](const auto& w) { return w != nullptr; });
  return events_.Chance(0.3) && is_another_up;
}

// ---- Checks ----

template <typename Condition>
bool SimCluster::RunUntil(absl::Duration until, Condition is_done) {
  while (!is_done()) {
    if (!events_.RunNext(until)) return is_done();
  }
  return true;
}

void SimCluster::CheckEnded() {
  for (const auto& client : clients_) {
    if (client->end == RequestEnd::kNone) violations_.Add(absl::StrCat(client->Name(), ": has not ended in time"));
    if (!client->is_released) violations_.Add(absl::StrCat(client->Name(), ": is still held by its workers"));
  }
}

void SimCluster::CheckAtRest() {
  for (const auto& prefill : prefills_) {
    if (prefill == nullptr) continue;  // crashed for good
    const prefill::Engine& engine = prefill->engine();
    const kvtransfer::SourceLedger ledger = engine.transfer().ledger();
    if (!engine.IsAtRest() || engine.pages().num_used() != 0 || ledger != kvtransfer::SourceLedger()) {
      violations_.Add(absl::StrCat("prefill is not at rest: pages=", engine.pages().num_used(), " epochs=",
                                   ledger.open_epochs, " pinned=", ledger.pinned_pages, "\n", engine.Describe()));
    }
  }
  for (const auto& decode : decodes_) {
    if (decode == nullptr) continue;
    const decode::Engine& engine = decode->engine();
    const kvtransfer::TargetLedger ledger = engine.transfer().ledger();
    if (!engine.IsAtRest() || engine.pages().num_used() + engine.device_pages().num_used() != 0 ||
        engine.retracted_pages().pages().num_used() != 0 || ledger != kvtransfer::TargetLedger() ||
        decode->num_fetches() != 0) {
      violations_.Add(absl::StrCat("decode is not at rest: pages=", engine.pages().num_used(),
                                   " epochs=", ledger.open_epochs, " fetches=", ledger.outstanding_fetches, "\n",
                                   engine.Describe()));
    }
    if (engine.num_unconfirmed_ends() != 0) {
      violations_.Add(absl::StrCat("decode keeps ends that no router has confirmed: ", engine.num_unconfirmed_ends()));
    }
    if (engine.counters().replay_mismatches != 0) {
      violations_.Add(absl::StrCat("replayed tokens differ: ", engine.counters().replay_mismatches));
    }
  }
}

void SimCluster::CheckServesAgain() {
  const auto client = MakeRequest(events_.now());
  client->client_leaves_after = absl::InfiniteDuration();
  client->stops_reading_after = absl::InfiniteDuration();
  client->time_limit = absl::InfiniteDuration();
  Submit(client);
  RunUntil(events_.now() + kServeBound, [&] { return client->is_released; });
  if (client->end != RequestEnd::kComplete) {
    violations_.Add(absl::StrCat(client->Name(), ": is not served though all is calm: ", client->error.ToString()));
  }
}

RunSummary SimCluster::Summarise() const {
  RunSummary summary{.plan = plan_, .violations = violations_.found()};
  for (const auto& client : clients_) {
    summary.num_again += client->num_attempts > 1 ? 1 : 0;
    summary.num_resumed += client->was_resumed ? 1 : 0;
    summary.num_of_several_choices += client->choices.size() > 1 ? 1 : 0;
    summary.num_complete += client->end == RequestEnd::kComplete ? 1 : 0;
    summary.num_failed += client->end == RequestEnd::kFailed ? 1 : 0;
    summary.num_client_left += client->end == RequestEnd::kClientLeft ? 1 : 0;
    summary.num_router_lost += client->end == RequestEnd::kRouterLost ? 1 : 0;
  }
  for (const auto& decode : decodes_) {
    if (decode == nullptr) continue;
    summary.retractions += decode->engine().counters().retractions;
    summary.credit_retractions += decode->engine().counters().credit_retractions;
    summary.kept_resumes += decode->engine().counters().kept_resumes;
    summary.swap_outs += decode->engine().counters().swap_outs;
    summary.said_again += decode->engine().counters().tokens_said_again;
    summary.drafts_accepted += decode->engine().speculation().counters().num_accepted();
    summary.tokens_replayed += decode->engine().counters().tokens_replayed;
    summary.wrong_sums += decode->engine().transfer().counters().wrong_sums;
  }
  for (const auto& prefill : prefills_) {
    if (prefill != nullptr) summary.leases_lapsed += prefill->engine().transfer().counters().leases_lapsed;
  }
  summary.num_events = events_.num_run();
  summary.simulated_time = events_.now();
  return summary;
}

RunSummary SimCluster::Run() {
  for (size_t i = 0; i < prefills_.size(); ++i) StartPrefill(i);
  for (size_t i = 0; i < decodes_.size(); ++i) StartDecode(i);
  StartRouter();
  PlanLoad();
  PlanFaults();
  RunUntil(plan_.faults_end, [] { return false; });
  const auto have_all_ended = [this] {
    return std::all_of(clients_.begin(), clients_.end(), [](const auto& client) { return client->is_released; });
  };
  RunUntil(events_.now() + kEndBound, have_all_ended);
  CheckEnded();
  RunUntil(events_.now() + kRestBound, [] { return false; });
  CheckAtRest();
  CheckServesAgain();
  return Summarise();
}

}  // namespace tandem::sim
