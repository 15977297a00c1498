#include "kvtransfer/enumeration_world.h"

#include <algorithm>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace tandem::kvtransfer {
namespace {

constexpr char kPeer[] = "prefill:8998";
constexpr uint64_t kGarbage = 0xdead;

// The world that the machines' clock and memories stand for: the one whose method runs.
const World* current = nullptr;

kvcache::KvLayout Layout(int num_pages) { return {.num_layers = 1, .num_pages = num_pages}; }

void Mix(uint64_t value, Digest& digest) {
  digest.low = (digest.low ^ value) * 0x100000001b3;
  digest.low ^= digest.low >> 29;
  digest.high = (digest.high + value) * 0xbf58476d1ce4e5b9;
  digest.high ^= digest.high >> 32;
}

// The kind and number of the page that begins at this offset.
std::pair<int, int> PageAt(const kvcache::KvLayout& layout, uint64_t offset) {
  for (int kind = 0; kind < 2; ++kind) {
    for (int page = 0; page < layout.num_pages; ++page) {
      if (offset == static_cast<uint64_t>(layout.PageOffset(static_cast<kvcache::RecordKind>(kind), 0, page))) {
        return {kind, page};
      }
    }
  }
  TANDEM_CHECK(false, "an offset inside a page");
}

proto::FirstToken Token42() {
  proto::FirstToken token;
  token.set_token(42);
  token.set_logprob(-0.5f);
  return token;
}

}  // namespace

class WorldClock final : public base::Clock {
 public:
  absl::Duration Now() const override { return current == nullptr ? absl::Seconds(1) : current->now_; }
  absl::Time WallTime() const override { return absl::UnixEpoch(); }
};

class WorldMemory final : public PageMemory {
 public:
  explicit WorldMemory(bool is_target) : is_target_(is_target) {}
  uint64_t ContentSum(kvcache::RecordKind kind, int layer, int32_t page) const override {
    return (is_target_ ? current->target_pool_ : current->source_pool_)[page][static_cast<int>(kind)];
  }
  void ZeroTokensFrom(int, int32_t, int) override {}  // prompts are whole pages

 private:
  const bool is_target_;
};

namespace {

WorldClock world_clock;
WorldMemory target_memory(/*is_target=*/true);
WorldMemory source_memory(/*is_target=*/false);

}  // namespace

World::World(const Scenario& scenario)
    : scenario_(scenario),
      target_({.incarnation = target_incarnation_, .layout = Layout(scenario.num_pages)}, &target_memory, &world_clock),
      source_({.incarnation = source_incarnation_, .layout = Layout(scenario.num_pages)}, {&source_memory},
              &world_clock, nullptr),
      requests_(scenario.num_requests),
      faults_left_(scenario.num_faults) {
  current = this;
  Link();
  Drain();
}

// ---- What may happen ----

std::vector<Action> World::Steps() const {
  std::vector<Action> actions;
  if (is_target_alive_ && is_source_alive_ && !is_linked_) actions.push_back({.step = Step::kConnect});
  if (!to_source_.empty()) actions.push_back({.step = Step::kDeliverToSource});
  if (!to_target_.empty()) actions.push_back({.step = Step::kDeliverToTarget});
  for (size_t i = 0; i < fetches_.size(); ++i) {
    actions.push_back({.step = Step::kCompleteFetch, .index = static_cast<int>(i)});
  }
  const auto has_free_page = [&](const std::array<int, 2>& owner) {
    return std::count(owner.begin(), owner.begin() + scenario_.num_pages, -1) > 0;
  };
  for (const auto& [id, prefill] : prefills_) {
    if (prefill.page < 0) {
      if (has_free_page(source_owner_)) actions.push_back({.step = Step::kAccept, .id = id});
    } else if (!prefill.is_computed) {
      actions.push_back({.step = Step::kCompute, .id = id});
    } else if (!prefill.has_sampled) {
      actions.push_back({.step = Step::kSample, .id = id});
    }
  }
  if (is_linked_ && has_free_page(target_owner_)) {
    for (int r = 0; r < scenario_.num_requests; ++r) {
      if (requests_[r].fate != Fate::kNotBegun) continue;
      actions.push_back({.step = Step::kBegin, .index = r});
      break;  // in order
    }
  }
  return actions;
}

std::vector<Action> World::Faults() const {
  std::vector<Action> actions;
  const auto add = [&](Step step, int index = 0) { actions.push_back({.step = step, .index = index}); };
  for (int r = 0; r < scenario_.num_requests; ++r) {
    const Fate fate = requests_[r].fate;
    if (fate != Fate::kNotBegun && fate != Fate::kForgotten) add(Step::kAbortAtTarget, r);
  }
  for (const auto& [id, prefill] : prefills_) actions.push_back({.step = Step::kAbortAtSource, .id = id});
  if (!to_source_.empty()) {
    add(Step::kDuplicateToSource);
    add(Step::kDropToSource);
  }
  if (!to_target_.empty()) {
    add(Step::kDuplicateToTarget);
    add(Step::kDropToTarget);
  }
  if (to_source_.size() > 1) add(Step::kReorderToSource);
  if (to_target_.size() > 1) add(Step::kReorderToTarget);
  if (is_linked_ && last_to_source_ != nullptr) add(Step::kStaleToSource);
  if (is_linked_ && last_to_target_ != nullptr) add(Step::kStaleToTarget);
  for (size_t i = 0; i < fetches_.size(); ++i) {
    add(Step::kCorruptFetch, static_cast<int>(i));
    add(Step::kFailFetch, static_cast<int>(i));
  }
  if (is_linked_) {
    for (const Step step :
         {Step::kCut, Step::kRestartSource, Step::kKillSource, Step::kRestartTarget, Step::kKillTarget}) {
      add(step);
    }
  }
  return actions;
}

absl::Duration World::NextTick() const {
  absl::Duration next = absl::InfiniteDuration();
  if (is_target_alive_) next = std::min(next, target_.NextTick());
  if (is_source_alive_) next = std::min(next, source_.NextTick());
  return next;
}

void World::Apply(const Action& action) {
  current = this;
  const auto take_first = [](std::deque<Mail>& queue) {
    const Mail mail = queue.front();
    queue.pop_front();
    return mail;
  };
  if (action.step >= Step::kAbortAtTarget) --faults_left_;
  switch (action.step) {
    case Step::kConnect:
      Link();
      break;
    case Step::kDeliverToSource:
      Deliver(take_first(to_source_), /*to_source=*/true);
      break;
    case Step::kDeliverToTarget:
      Deliver(take_first(to_target_), /*to_source=*/false);
      break;
    case Step::kCompleteFetch:
      CompleteFetch(action.index, Bytes::kRight);
      break;
    case Step::kAccept:
      Accept(action.id);
      break;
    case Step::kCompute:
      Compute(action.id);
      break;
    case Step::kSample:
      prefills_.at(action.id).has_sampled = true;
      source_.FirstToken(action.id, Token42());
      break;
    case Step::kBegin:
      Begin(action.index);
      break;
    case Step::kTick:
      now_ = std::max(now_, NextTick());
      if (is_target_alive_) target_.Tick();
      if (is_source_alive_) source_.Tick();
      break;
    case Step::kAbortAtTarget: {
      Request& request = requests_[action.index];
      if (request.fate == Fate::kOpen && !request.has_failed) request.was_aborted = true;
      target_.Abort(request.epoch, absl::CancelledError("client left"));
      break;
    }
    case Step::kAbortAtSource:
      source_.Fail(action.id, absl::ResourceExhaustedError("no pages"));
      break;
    case Step::kDuplicateToSource:
      Deliver(to_source_.front(), /*to_source=*/true);
      break;
    case Step::kDuplicateToTarget:
      Deliver(to_target_.front(), /*to_source=*/false);
      break;
    case Step::kDropToSource:
      to_source_.pop_front();
      break;
    case Step::kDropToTarget:
      to_target_.pop_front();
      break;
    case Step::kReorderToSource:
      std::swap(to_source_[0], to_source_[1]);
      break;
    case Step::kReorderToTarget:
      std::swap(to_target_[0], to_target_[1]);
      break;
    case Step::kStaleToSource:
      Deliver(last_to_source_, /*to_source=*/true);
      break;
    case Step::kStaleToTarget:
      Deliver(last_to_target_, /*to_source=*/false);
      break;
    case Step::kCorruptFetch:
      CompleteFetch(action.index, Bytes::kWrong);
      break;
    case Step::kFailFetch:
      CompleteFetch(action.index, Bytes::kError);
      break;
    case Step::kCut:
      Unlink();
      break;
    case Step::kRestartSource:
    case Step::kKillSource:
      KillSource(action.step == Step::kRestartSource);
      break;
    case Step::kRestartTarget:
    case Step::kKillTarget:
      KillTarget(action.step == Step::kRestartTarget);
      break;
  }
  Drain();
}

// ---- How it happens ----

void World::Link() {
  is_linked_ = true;
  source_.LinkUp(target_incarnation_, "decode-0");
  target_.PeerUp(kPeer, {.incarnation = source_incarnation_,
                         .session = ++session_,
                         .num_pages = scenario_.num_pages,
                         .num_source_ranks = 1,
                         .lanes = {{.kind = "first"}, {.kind = "second"}}});
}

void World::Unlink() {
  is_linked_ = false;
  to_source_.clear();
  to_target_.clear();
  for (Fetch& fetch : fetches_) fetch.is_lane_closed = true;
  source_.LinkDown(target_incarnation_);
  target_.PeerDown(kPeer, absl::UnavailableError("closed"));
  Drain();
}

void World::Begin(int r) {
  const auto free = std::find(target_owner_.begin(), target_owner_.begin() + scenario_.num_pages, -1);
  Request& request = requests_[r];
  TransferRequest start;
  start.key.set_router_incarnation(1);
  start.key.set_request_id(r);
  start.prompt_tokens.assign(kvcache::kPageTokens, 5);
  start.target_pages = {static_cast<int32_t>(free - target_owner_.begin())};
  const absl::StatusOr<uint64_t> epoch = target_.Begin(kPeer, start);
  if (!epoch.ok()) return;  // every lane is quarantined: the request goes to another peer
  *free = r;
  request.target_page = start.target_pages[0];
  request.fate = Fate::kOpen;
  request.epoch = *epoch;
}

void World::Deliver(Mail mail, bool to_source) {
  if (to_source) {
    source_.Receive(target_incarnation_, mail->message);
    last_to_source_ = std::move(mail);
  } else {
    target_.Receive(kPeer, mail->message);
    last_to_target_ = std::move(mail);
  }
}

void World::CompleteFetch(size_t index, Bytes bytes) {
  const Fetch fetch = fetches_[index];
  fetches_.erase(fetches_.begin() + static_cast<std::ptrdiff_t>(index));
  const kvcache::KvLayout layout = Layout(scenario_.num_pages);
  for (const ByteRun& run : fetch.start->runs) {
    for (uint64_t done = 0; done < run.num_bytes;) {  // a run may hold several pages, of both kinds
      const auto [kind, from] = PageAt(layout, run.source_offset + done);
      const auto [target_kind, to] = PageAt(layout, run.target_offset + done);
      if (kind != target_kind) return Violate("a run mixes the kinds of records");
      const int owner = target_owner_[to];
      if (owner < 0 || requests_[owner].epoch != fetch.start->epoch || requests_[owner].fate != Fate::kOpen) {
        Violate("promise 2: a fetch stored into a page that its epoch does not hold");
      }
      const bool is_right = bytes == Bytes::kRight && !fetch.is_lane_closed;
      target_pool_[to][kind] = is_right ? source_pool_[from][kind] : kGarbage + 1;
      done += static_cast<uint64_t>(layout.PageBytes(static_cast<kvcache::RecordKind>(kind)));
    }
  }
  target_.FetchDone(fetch.start->fetch_id, fetch.is_lane_closed     ? absl::CancelledError("lane closed")
                                           : bytes == Bytes::kError ? absl::UnavailableError("lane failed")
                                                                    : absl::OkStatus());
}

void World::Accept(const EpochId& id) {
  const auto free = std::find(source_owner_.begin(), source_owner_.end(), -1);
  Prefill& prefill = prefills_.at(id);
  prefill.page = static_cast<int>(free - source_owner_.begin());
  *free = prefill.request;
  source_.Accept(id, {{prefill.page}});
}

void World::Compute(const EpochId& id) {
  Prefill& prefill = prefills_.at(id);
  for (int kind = 0; kind < 2; ++kind) source_pool_[prefill.page][kind] = ContentOf(prefill.request, kind);
  prefill.is_computed = true;
  source_.Complete(id, 0, 0, 1, 0, 1);
}

void World::KillSource(bool restarts) {
  Unlink();
  prefills_.clear();
  source_owner_.fill(-1);
  for (auto& page : source_pool_) page.fill(kGarbage);
  is_source_alive_ = restarts;
  ++source_incarnation_;
  source_ = TransferSource({.incarnation = source_incarnation_, .layout = Layout(scenario_.num_pages)},
                           {&source_memory}, &world_clock, nullptr);
}

void World::KillTarget(bool restarts) {
  Unlink();
  fetches_.clear();
  target_owner_.fill(-1);
  for (Request& request : requests_) {
    if (request.fate == Fate::kNotBegun) continue;
    request.fate = Fate::kForgotten;
    request.epoch = 0;  // its successor counts from 1 again
  }
  is_target_alive_ = restarts;
  ++target_incarnation_;
  target_ = TransferTarget({.incarnation = target_incarnation_, .layout = Layout(scenario_.num_pages)}, &target_memory,
                           &world_clock);
}

// ---- What the machines put out, and whether they may ----

void World::Drain() {
  DrainTarget();
  DrainSource();
}

void World::Violate(std::string text) {
  if (error_.empty()) error_ = std::move(text);
}

World::Request& World::RequestOf(uint64_t epoch) {
  for (Request& request : requests_) {
    if (request.epoch == epoch) return request;
  }
  TANDEM_CHECK(false, "an epoch of no request");
}

World::Mail World::Seal(proto::TransferMessage message) {
  Digest digest{.low = 0xcbf29ce484222325, .high = 0};
  for (const char c : message.SerializeAsString()) Mix(static_cast<uint8_t>(c), digest);
  return std::make_shared<const Letter>(Letter{.message = std::move(message), .digest = digest.low ^ digest.high});
}

void World::DrainTarget() {
  for (TargetOutput& output : target_.TakeOutputs()) {
    if (auto* send = std::get_if<SendMessage>(&output)) {
      if (is_linked_ && send->session == session_) to_source_.push_back(Seal(std::move(send->message)));
    } else if (auto* fetch = std::get_if<StartFetch>(&output)) {
      if (RequestOf(fetch->epoch).fate != Fate::kOpen) Violate("a fetch started for an epoch that is not open");
      fetches_.push_back({.start = std::make_shared<const StartFetch>(std::move(*fetch))});
    } else if (auto* token = std::get_if<FirstTokenArrived>(&output)) {
      Request& request = RequestOf(token->epoch);
      if (request.has_token || request.fate != Fate::kOpen) Violate("a first token came twice or too late");
      request.has_token = true;
    } else if (auto* ready = std::get_if<TransferReady>(&output)) {
      Request& request = RequestOf(ready->epoch);
      if (request.fate != Fate::kOpen || request.has_failed || request.was_aborted || !request.has_token) {
        Violate("ready twice, after its end, or without a first token");
      }
      request.fate = Fate::kReady;
      const int index = static_cast<int>(&request - requests_.data());
      for (int kind = 0; kind < 2; ++kind) {
        uint64_t& word = target_pool_[request.target_page][kind];
        if (word != ContentOf(index, kind)) Violate("promise 1: ready with bytes that prefill did not compute");
        word += 7;  // decode appends: from now on nobody may store here
      }
    } else if (auto* failed = std::get_if<TransferFailed>(&output)) {
      Request& request = RequestOf(failed->epoch);
      if (request.fate != Fate::kOpen || request.has_failed || request.was_aborted) Violate("failed after its end");
      request.has_failed = true;
    } else if (auto* released = std::get_if<PagesReleased>(&output)) {
      Request& request = RequestOf(released->epoch);
      if (request.fate != Fate::kOpen || !(request.has_failed || request.was_aborted)) {
        return Violate("pages were handed on twice, or for no reason");
      }
      request.fate = Fate::kReleased;
      target_owner_[request.target_page] = -1;
    } else if (auto* closed = std::get_if<EpochClosed>(&output)) {
      Request& request = RequestOf(closed->epoch);
      if (request.is_closed || request.fate == Fate::kOpen) Violate("closed twice or while open");
      request.is_closed = true;
      if (request.fate == Fate::kReady) target_owner_[request.target_page] = -1;  // the sequence ends some time
    }
  }
}

void World::DrainSource() {
  for (SourceOutput& output : source_.TakeOutputs()) {
    if (auto* send = std::get_if<SendToTarget>(&output)) {
      if (is_linked_ && send->target_incarnation == target_incarnation_) {
        to_target_.push_back(Seal(std::move(send->message)));
      }
    } else if (auto* admit = std::get_if<AdmitRequest>(&output)) {
      if (prefills_.contains(admit->id)) Violate("admitted twice");
      if (admit->start.prompt_tokens.size() != kvcache::kPageTokens) Violate("the prompt did not arrive whole");
      prefills_[admit->id] = {.request = static_cast<int>(admit->start.key.request_id())};
    } else if (auto* end = std::get_if<EndRequest>(&output)) {
      const auto it = prefills_.find(end->id);
      if (it == prefills_.end()) return Violate("ended twice at prefill");
      if (it->second.page >= 0) source_owner_[it->second.page] = -1;
      prefills_.erase(it);
      if (source_.IsReadable(end->id)) Violate("readable after its pages were given back");
    }
  }
}

std::string World::CheckRest() const {
  if (is_target_alive_ && target_.ledger() != TargetLedger{}) return "promise 5: decode holds something at rest";
  if (is_source_alive_ && source_.ledger() != SourceLedger{}) return "promise 5: prefill holds something at rest";
  if (!prefills_.empty()) return "promise 5: prefill's engine was not told of an end";
  for (int page = 0; page < scenario_.num_pages; ++page) {
    if (target_owner_[page] >= 0 || source_owner_[page] >= 0) return "promise 5: a page is not free at rest";
  }
  const bool was_disturbed = faults_left_ < scenario_.num_faults;
  for (const Request& request : requests_) {
    const bool has_ended = request.fate == Fate::kForgotten ||
                           (request.is_closed && (request.fate == Fate::kReady || request.fate == Fate::kReleased));
    if (!has_ended && !(was_disturbed && request.fate == Fate::kNotBegun)) {
      return "progress: a request has not ended at rest";
    }
    if (!was_disturbed && request.fate != Fate::kReady) return "progress: undisturbed, yet not ready";
  }
  return "";
}

int World::num_ready() const {
  return static_cast<int>(
      std::count_if(requests_.begin(), requests_.end(), [](const Request& r) { return r.fate == Fate::kReady; }));
}

// ---- Identity ----

Digest World::digest() const {
  current = this;
  std::vector<uint64_t> state;
  state.reserve(256);
  target_.AppendState(state);
  state.push_back(~uint64_t{0});
  source_.AppendState(state);
  for (const std::deque<Mail>* queue : {&to_source_, &to_target_}) {
    state.push_back(~uint64_t{0});
    for (const Mail& mail : *queue) state.push_back(mail->digest);
  }
  if (faults_left_ > 0) {  // only then can they come again
    for (const Mail& mail : {last_to_source_, last_to_target_}) state.push_back(mail == nullptr ? 0 : mail->digest);
  }
  for (const Fetch& fetch : fetches_) {
    state.insert(state.end(),
                 {fetch.start->epoch, static_cast<uint64_t>(fetch.start->lane), fetch.start->runs.front().source_offset,
                  fetch.start->runs.front().target_offset, uint64_t{fetch.is_lane_closed}});
  }
  for (const Request& r : requests_) {
    state.insert(state.end(), {static_cast<uint64_t>(r.fate), r.epoch, static_cast<uint64_t>(r.target_page + 1),
                               uint64_t{r.is_closed} | uint64_t{r.has_failed} << 1 | uint64_t{r.was_aborted} << 2 |
                                   uint64_t{r.has_token} << 3});
  }
  for (const auto& [id, p] : prefills_) {
    state.insert(state.end(), {id.target_incarnation, id.epoch, static_cast<uint64_t>(p.page + 1),
                               uint64_t{p.is_computed} | uint64_t{p.has_sampled} << 1});
  }
  for (const Pool* pool : {&target_pool_, &source_pool_}) {
    for (const auto& page : *pool) state.insert(state.end(), page.begin(), page.end());
  }
  state.insert(state.end(),
               {target_incarnation_, source_incarnation_, session_, uint64_t{is_linked_},
                uint64_t{is_target_alive_} | uint64_t{is_source_alive_} << 1, static_cast<uint64_t>(faults_left_)});
  Digest digest{.low = 0xcbf29ce484222325, .high = 0x9e3779b97f4a7c15};
  for (const uint64_t value : state) Mix(value, digest);
  return digest;
}

std::string NameOf(const Action& action) {
  static constexpr const char* kNames[] = {"connect",
                                           "deliver to P",
                                           "deliver to D",
                                           "complete fetch",
                                           "accept",
                                           "compute",
                                           "sample",
                                           "begin",
                                           "tick",
                                           "FAULT D aborts",
                                           "FAULT P aborts",
                                           "FAULT copy to P",
                                           "FAULT copy to D",
                                           "FAULT drop to P",
                                           "FAULT drop to D",
                                           "FAULT swap to P",
                                           "FAULT swap to D",
                                           "FAULT stale to P",
                                           "FAULT stale to D",
                                           "FAULT corrupt fetch",
                                           "FAULT fail fetch",
                                           "FAULT cut",
                                           "FAULT P restarts",
                                           "FAULT P dies",
                                           "FAULT D restarts",
                                           "FAULT D dies"};
  static_assert(std::size(kNames) == static_cast<size_t>(Step::kKillTarget) + 1);
  return absl::StrCat(kNames[static_cast<size_t>(action.step)], " ", action.index + action.id.epoch);
}

}  // namespace tandem::kvtransfer
