// Walks every interleaving of one P-D pair with two requests and few pages, under a bounded number of faults, and
// checks in every state:
//   promise 1  a transfer is ready only with exactly the bytes that prefill computed for it;
//   promise 2  a fetch stores only into pages that its own epoch still holds; pages are handed on once;
//   promise 5  where nothing is left to do, both ledgers are zero, every request has ended on both sides, all pages are
//              free;
// and progress: every path comes to rest. Faults: abort from either side at any point (also before Start arrives),
// duplicate, reordered, dropped and stale messages, corrupt and failed fetches, death and restart of either side with a
// new incarnation, death for good, a cut control stream while the data network lives.
// Not here: several source ranks (transfer_protocol_test.cc), real clocks and networks (peer_link_test.cc).
#include <algorithm>
#include <array>
#include <cstdio>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "gtest/gtest.h"
#include "kvtransfer/transfer_source.h"
#include "kvtransfer/transfer_target.h"

namespace tandem::kvtransfer {
namespace {

constexpr int kPagesMax = 2;
constexpr char kPeer[] = "prefill:8998";
constexpr uint64_t kGarbage = 0xdead;

// One word stands for one page of one record kind: the sum is the word.
using Pool = std::array<std::array<uint64_t, 2>, kPagesMax>;

struct World;
const World* current = nullptr;  // what the views below look at

class WorldClock final : public base::Clock {
 public:
  absl::Duration Now() const override;
  absl::Time WallTime() const override { return absl::UnixEpoch(); }
};

class WorldMemory final : public PageMemory {
 public:
  explicit WorldMemory(bool is_target) : is_target_(is_target) {}
  uint64_t ContentSum(kvcache::RecordKind kind, int layer, int32_t page) const override;
  void ZeroTokensFrom(int, int32_t, int) override {}  // prompts of whole pages

 private:
  bool is_target_;
};

WorldClock world_clock;
WorldMemory target_memory(true);
WorldMemory source_memory(false);

enum class Fate { kNotBegun, kOpen, kReady, kReleased, kForgotten };  // of a request at decode

struct Request {
  Fate fate = Fate::kNotBegun;
  uint64_t epoch = 0;
  bool is_closed = false;
  bool has_failed = false;
  bool was_aborted = false;
  bool has_token = false;
  int target_page = -1;
};

struct Prefill {  // of an admitted request at prefill's engine
  int request = 0;
  int page = -1;  // -1: waits for a page
  bool is_computed = false;
  bool has_sampled = false;
};

struct Scenario {
  int num_requests = 2;
  int num_pages = kPagesMax;  // of either pool; each request needs one
  int num_faults = 1;
};

kvcache::KvLayout Layout(int num_pages) { return {.num_layers = 1, .num_pages = num_pages}; }

struct World {
  explicit World(const Scenario& s)
      : scenario(s),
        target({.incarnation = 100, .layout = Layout(s.num_pages)}, &target_memory, &world_clock),
        source({.incarnation = 200, .layout = Layout(s.num_pages)}, {&source_memory}, &world_clock, nullptr),
        requests(s.num_requests),
        faults_left(s.num_faults) {}

  Scenario scenario;
  absl::Duration now = absl::Seconds(1);
  TransferTarget target;
  TransferSource source;
  uint64_t target_incarnation = 100;
  uint64_t source_incarnation = 200;
  bool is_target_alive = true;
  bool is_source_alive = true;
  bool is_linked = false;
  uint64_t session = 0;
  std::deque<proto::TransferMessage> to_source;
  std::deque<proto::TransferMessage> to_target;
  std::optional<proto::TransferMessage> old_to_target;  // said last, to come again as a stale message
  std::optional<proto::TransferMessage> old_to_source;
  std::deque<std::pair<StartFetch, bool>> fetches;  // and whether its lane is closed
  std::vector<Request> requests;
  std::map<EpochId, Prefill> prefills;
  Pool target_pool{};
  Pool source_pool{};
  std::array<int, kPagesMax> target_owner{-1, -1};  // request, -1: free
  std::array<int, kPagesMax> source_owner{-1, -1};
  int faults_left;
  int num_ticks = 0;
  std::string error;
  std::vector<std::string> path;
};

absl::Duration WorldClock::Now() const { return current == nullptr ? absl::Seconds(1) : current->now; }

uint64_t WorldMemory::ContentSum(kvcache::RecordKind kind, int layer, int32_t page) const {
  return (is_target_ ? current->target_pool : current->source_pool)[page][static_cast<int>(kind)];
}

uint64_t ContentOf(int request, int kind) { return 1000 * (request + 1) + kind; }

void Violate(World& w, std::string text) {
  if (w.error.empty()) w.error = std::move(text);
}

int RequestOfEpoch(const World& w, uint64_t epoch) {
  for (int r = 0; r < static_cast<int>(w.requests.size()); ++r) {
    if (w.requests[r].epoch == epoch) return r;
  }
  return -1;
}

void FreeTargetPage(World& w, Request& request) {
  w.target_owner[request.target_page] = -1;
  request.target_page = -1;
}

void DrainTarget(World& w) {
  for (TargetOutput& output : w.target.TakeOutputs()) {
    if (auto* send = std::get_if<SendMessage>(&output)) {
      if (w.is_linked && send->session == w.session) w.to_source.push_back(std::move(send->message));
    } else if (auto* fetch = std::get_if<StartFetch>(&output)) {
      const int r = RequestOfEpoch(w, fetch->epoch);
      if (r < 0 || w.requests[r].fate != Fate::kOpen) Violate(w, "a fetch started for an epoch that is not open");
      w.fetches.push_back({std::move(*fetch), false});
    } else if (auto* token = std::get_if<FirstTokenArrived>(&output)) {
      Request& request = w.requests[RequestOfEpoch(w, token->epoch)];
      if (request.has_token || request.fate != Fate::kOpen) Violate(w, "a first token came twice or too late");
      request.has_token = true;
    } else if (auto* ready = std::get_if<TransferReady>(&output)) {
      const int r = RequestOfEpoch(w, ready->epoch);
      Request& request = w.requests[r];
      if (request.fate != Fate::kOpen || request.has_failed || request.was_aborted || !request.has_token) {
        Violate(w, "ready twice, after its end, or without a first token");
      }
      request.fate = Fate::kReady;
      for (int kind = 0; kind < 2; ++kind) {
        uint64_t& word = w.target_pool[request.target_page][kind];
        if (word != ContentOf(r, kind)) Violate(w, "promise 1: ready with bytes that prefill did not compute");
        word += 7;  // decode appends: from now on nobody may store here
      }
    } else if (auto* failed = std::get_if<TransferFailed>(&output)) {
      Request& request = w.requests[RequestOfEpoch(w, failed->epoch)];
      if (request.fate != Fate::kOpen || request.has_failed || request.was_aborted) Violate(w, "failed twice");
      request.has_failed = true;
    } else if (auto* released = std::get_if<PagesReleased>(&output)) {
      Request& request = w.requests[RequestOfEpoch(w, released->epoch)];
      if (request.fate != Fate::kOpen || !(request.has_failed || request.was_aborted)) {
        Violate(w, "pages were handed on twice, or for no reason");
        continue;
      }
      request.fate = Fate::kReleased;
      FreeTargetPage(w, request);
    } else if (auto* closed = std::get_if<EpochClosed>(&output)) {
      Request& request = w.requests[RequestOfEpoch(w, closed->epoch)];
      if (request.is_closed || request.fate == Fate::kOpen) Violate(w, "closed twice or while open");
      request.is_closed = true;
      if (request.fate == Fate::kReady) FreeTargetPage(w, request);  // the sequence ends some time
    }
  }
}

void DrainSource(World& w) {
  for (SourceOutput& output : w.source.TakeOutputs()) {
    if (auto* send = std::get_if<SendToTarget>(&output)) {
      if (w.is_linked && send->target_incarnation == w.target_incarnation) {
        w.to_target.push_back(std::move(send->message));
      }
    } else if (auto* admit = std::get_if<AdmitRequest>(&output)) {
      if (w.prefills.contains(admit->id)) Violate(w, "admitted twice");
      if (admit->start.prompt_tokens.size() != kvcache::kPageTokens) Violate(w, "the prompt did not arrive whole");
      w.prefills[admit->id] = {.request = static_cast<int>(admit->start.key.request_id())};
    } else if (auto* end = std::get_if<EndRequest>(&output)) {
      const auto it = w.prefills.find(end->id);
      if (it == w.prefills.end()) {
        Violate(w, "ended twice at prefill");
        continue;
      }
      if (it->second.page >= 0) w.source_owner[it->second.page] = -1;
      w.prefills.erase(it);
      if (w.source.IsReadable(end->id)) Violate(w, "readable after its pages were given back");
    }
  }
}

void Link(World& w) {
  w.is_linked = true;
  w.to_source.clear();
  w.to_target.clear();
  w.source.LinkUp(w.target_incarnation, "decode-0");
  DrainSource(w);
  w.target.PeerUp(kPeer, {.incarnation = w.source_incarnation,
                          .session = ++w.session,
                          .num_pages = w.scenario.num_pages,
                          .num_source_ranks = 1,
                          .lanes = {{.kind = "first"}, {.kind = "second"}}});
  DrainTarget(w);
}

void Unlink(World& w) {
  w.is_linked = false;
  w.to_source.clear();
  w.to_target.clear();
  for (auto& [fetch, is_closed] : w.fetches) is_closed = true;
  w.source.LinkDown(w.target_incarnation);
  DrainSource(w);
  w.target.PeerDown(kPeer, absl::UnavailableError("closed"));
  DrainTarget(w);
}

void Begin(World& w, int r) {
  const auto free = std::find(w.target_owner.begin(), w.target_owner.begin() + w.scenario.num_pages, -1);
  Request& request = w.requests[r];
  request.target_page = static_cast<int>(free - w.target_owner.begin());
  TransferRequest start;
  start.key.set_router_incarnation(1);
  start.key.set_request_id(r);
  start.prompt_tokens.assign(kvcache::kPageTokens, 5);
  start.target_pages = {request.target_page};
  const absl::StatusOr<uint64_t> epoch = w.target.Begin(kPeer, std::move(start));
  if (!epoch.ok()) return;  // quarantined: the request goes to another peer
  *free = r;
  request.fate = Fate::kOpen;
  request.epoch = *epoch;
  DrainTarget(w);
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

enum class Bytes { kRight, kWrong, kError };

void CompleteFetch(World& w, size_t index, Bytes bytes) {
  const auto [fetch, is_closed] = w.fetches[index];
  w.fetches.erase(w.fetches.begin() + index);
  const kvcache::KvLayout layout = Layout(w.scenario.num_pages);
  for (const ByteRun& run : fetch.runs) {
    for (uint64_t done = 0; done < run.num_bytes;) {  // a run may hold several pages, of both kinds
      const auto [kind, from] = PageAt(layout, run.source_offset + done);
      const auto [target_kind, to] = PageAt(layout, run.target_offset + done);
      if (kind != target_kind) return Violate(w, "a run mixes the kinds of records");
      const int owner = w.target_owner[to];
      if (owner < 0 || w.requests[owner].epoch != fetch.epoch || w.requests[owner].fate != Fate::kOpen) {
        Violate(w, "promise 2: a fetch stored into a page that its epoch does not hold");
      }
      w.target_pool[to][kind] = bytes == Bytes::kRight && !is_closed ? w.source_pool[from][kind] : kGarbage + 1;
      done += static_cast<uint64_t>(kvcache::PageBytes(static_cast<kvcache::RecordKind>(kind)));
    }
  }
  const absl::Status status = is_closed                ? absl::CancelledError("lane closed")
                              : bytes == Bytes::kError ? absl::UnavailableError("lane failed")
                                                       : absl::OkStatus();
  w.target.FetchDone(fetch.fetch_id, status);
  DrainTarget(w);
}

void DeliverToSource(World& w, const proto::TransferMessage& message) {
  w.old_to_source = message;
  w.source.Receive(w.target_incarnation, message);
  DrainSource(w);
}

void DeliverToTarget(World& w, const proto::TransferMessage& message) {
  w.old_to_target = message;
  w.target.Receive(kPeer, message);
  DrainTarget(w);
}

void KillSource(World& w, bool restarts) {
  Unlink(w);
  w.prefills.clear();
  w.source_owner.fill(-1);
  for (auto& page : w.source_pool) page.fill(kGarbage);
  w.is_source_alive = restarts;
  ++w.source_incarnation;
  w.source = TransferSource({.incarnation = w.source_incarnation, .layout = Layout(w.scenario.num_pages)},
                            {&source_memory}, &world_clock, nullptr);
}

void KillTarget(World& w, bool restarts) {
  Unlink(w);
  w.fetches.clear();
  w.target_owner.fill(-1);
  for (Request& request : w.requests) {
    if (request.fate == Fate::kNotBegun) continue;
    request.fate = Fate::kForgotten;
    request.epoch = 0;  // its successor counts from 1 again
  }
  w.is_target_alive = restarts;
  ++w.target_incarnation;
  w.target = TransferTarget({.incarnation = w.target_incarnation, .layout = Layout(w.scenario.num_pages)},
                            &target_memory, &world_clock);
}

using Action = std::pair<std::string, std::function<void(World&)>>;

// What happens without a fault.
std::vector<Action> Steps(const World& w) {
  std::vector<Action> actions;
  if (w.is_target_alive && w.is_source_alive && !w.is_linked) actions.push_back({"connect", Link});
  if (!w.to_source.empty()) {
    actions.push_back({absl::StrCat("to P: ", static_cast<int>(w.to_source.front().message_case())), [](World& next) {
                         const proto::TransferMessage message = next.to_source.front();
                         next.to_source.pop_front();
                         DeliverToSource(next, message);
                       }});
  }
  if (!w.to_target.empty()) {
    actions.push_back({absl::StrCat("to D: ", static_cast<int>(w.to_target.front().message_case())), [](World& next) {
                         const proto::TransferMessage message = next.to_target.front();
                         next.to_target.pop_front();
                         DeliverToTarget(next, message);
                       }});
  }
  for (size_t i = 0; i < w.fetches.size(); ++i) {
    actions.push_back({absl::StrCat("fetch ", i), [i](World& next) { CompleteFetch(next, i, Bytes::kRight); }});
  }
  const bool has_source_page =
      std::count(w.source_owner.begin(), w.source_owner.begin() + w.scenario.num_pages, -1) > 0;
  for (const auto& [id, prefill] : w.prefills) {
    if (prefill.page < 0) {
      if (!has_source_page) continue;
      actions.push_back({absl::StrCat("accept ", prefill.request), [id = id](World& next) {
                           const auto free = std::find(next.source_owner.begin(), next.source_owner.end(), -1);
                           Prefill& admitted = next.prefills.at(id);
                           admitted.page = static_cast<int>(free - next.source_owner.begin());
                           *free = admitted.request;
                           next.source.Accept(id, {{admitted.page}});
                           DrainSource(next);
                         }});
    } else if (!prefill.is_computed) {
      actions.push_back({absl::StrCat("compute ", prefill.request), [id = id](World& next) {
                           Prefill& admitted = next.prefills.at(id);
                           for (int kind = 0; kind < 2; ++kind) {
                             next.source_pool[admitted.page][kind] = ContentOf(admitted.request, kind);
                           }
                           admitted.is_computed = true;
                           next.source.Complete(id, 0, 0, 1, 0, 1);
                           DrainSource(next);
                         }});
    } else if (!prefill.has_sampled) {
      actions.push_back({absl::StrCat("sample ", prefill.request), [id = id](World& next) {
                           next.prefills.at(id).has_sampled = true;
                           next.source.FirstToken(id, 0, 42, -0.5f);
                           DrainSource(next);
                         }});
    }
  }
  const bool has_target_page =
      std::count(w.target_owner.begin(), w.target_owner.begin() + w.scenario.num_pages, -1) > 0;
  if (w.is_linked && has_target_page) {
    for (int r = 0; r < w.scenario.num_requests; ++r) {
      if (w.requests[r].fate != Fate::kNotBegun) continue;
      actions.push_back({absl::StrCat("begin ", r), [r](World& next) { Begin(next, r); }});
      break;  // in order
    }
  }
  return actions;
}

std::vector<Action> Faults(const World& w) {
  std::vector<Action> actions;
  const auto add = [&](std::string name, std::function<void(World&)> run) {
    actions.push_back({"FAULT " + std::move(name), std::move(run)});
  };
  for (int r = 0; r < w.scenario.num_requests; ++r) {
    const Request& request = w.requests[r];
    if (request.fate == Fate::kNotBegun || request.fate == Fate::kForgotten) continue;
    add(absl::StrCat("D aborts ", r), [r](World& next) {
      Request& aborted = next.requests[r];
      if (aborted.fate == Fate::kOpen && !aborted.has_failed) aborted.was_aborted = true;
      next.target.Abort(aborted.epoch, absl::CancelledError("client left"));
      DrainTarget(next);
    });
  }
  for (const auto& [id, prefill] : w.prefills) {
    add(absl::StrCat("P aborts ", prefill.request), [id = id](World& next) {
      next.source.Fail(id, absl::ResourceExhaustedError("no pages"));
      DrainSource(next);
    });
  }
  if (!w.to_source.empty()) {
    add("duplicate to P", [](World& next) { DeliverToSource(next, proto::TransferMessage(next.to_source.front())); });
    add("drop to P", [](World& next) { next.to_source.pop_front(); });
  }
  if (!w.to_target.empty()) {
    add("duplicate to D", [](World& next) { DeliverToTarget(next, proto::TransferMessage(next.to_target.front())); });
    add("drop to D", [](World& next) { next.to_target.pop_front(); });
  }
  if (w.to_source.size() > 1) add("reorder to P", [](World& next) { std::swap(next.to_source[0], next.to_source[1]); });
  if (w.to_target.size() > 1) add("reorder to D", [](World& next) { std::swap(next.to_target[0], next.to_target[1]); });
  if (w.is_linked && w.old_to_source.has_value()) {
    add("stale to P", [](World& next) { DeliverToSource(next, proto::TransferMessage(*next.old_to_source)); });
  }
  if (w.is_linked && w.old_to_target.has_value()) {
    add("stale to D", [](World& next) { DeliverToTarget(next, proto::TransferMessage(*next.old_to_target)); });
  }
  for (size_t i = 0; i < w.fetches.size(); ++i) {
    add(absl::StrCat("corrupt fetch ", i), [i](World& next) { CompleteFetch(next, i, Bytes::kWrong); });
    add(absl::StrCat("failed fetch ", i), [i](World& next) { CompleteFetch(next, i, Bytes::kError); });
  }
  if (w.is_linked) {
    add("cut", Unlink);
    add("P restarts", [](World& next) { KillSource(next, true); });
    add("P dies", [](World& next) { KillSource(next, false); });
    add("D restarts", [](World& next) { KillTarget(next, true); });
    add("D dies", [](World& next) { KillTarget(next, false); });
  }
  return actions;
}

struct Digest {
  uint64_t low;
  uint64_t high;
  bool operator==(const Digest&) const = default;
};
struct DigestHash {
  size_t operator()(const Digest& d) const { return d.low; }
};

Digest DigestOf(const World& w) {
  std::vector<uint64_t> state;
  state.reserve(256);
  w.target.AppendState(state);
  state.push_back(~uint64_t{0});
  w.source.AppendState(state);
  std::string text;
  const auto append = [&](const proto::TransferMessage& message) { text += message.SerializeAsString() + "|"; };
  for (const auto& message : w.to_source) append(message);
  text += "#";
  for (const auto& message : w.to_target) append(message);
  text += "#";
  if (w.faults_left > 0) {  // only then can they come again
    if (w.old_to_source.has_value()) append(*w.old_to_source);
    text += "#";
    if (w.old_to_target.has_value()) append(*w.old_to_target);
  }
  for (const auto& [fetch, is_closed] : w.fetches) {
    state.insert(state.end(), {fetch.epoch, static_cast<uint64_t>(fetch.lane), fetch.runs.front().source_offset,
                               fetch.runs.front().target_offset, uint64_t{is_closed}});
  }
  for (const Request& r : w.requests) {
    state.insert(state.end(), {static_cast<uint64_t>(r.fate), r.epoch, static_cast<uint64_t>(r.target_page + 1),
                               uint64_t{r.is_closed} | uint64_t{r.has_failed} << 1 | uint64_t{r.was_aborted} << 2 |
                                   uint64_t{r.has_token} << 3});
  }
  for (const auto& [id, p] : w.prefills) {
    state.insert(state.end(), {id.target_incarnation, id.epoch, static_cast<uint64_t>(p.page + 1),
                               uint64_t{p.is_computed} | uint64_t{p.has_sampled} << 1});
  }
  for (const Pool* pool : {&w.target_pool, &w.source_pool}) {
    for (const auto& page : *pool) state.insert(state.end(), page.begin(), page.end());
  }
  state.insert(state.end(),
               {w.target_incarnation, w.source_incarnation, uint64_t{w.is_linked}, w.session,
                uint64_t{w.is_target_alive} | uint64_t{w.is_source_alive} << 1, static_cast<uint64_t>(w.faults_left)});
  Digest digest{.low = 0xcbf29ce484222325, .high = 0x9e3779b97f4a7c15};
  const auto mix = [&](uint64_t value) {
    digest.low = (digest.low ^ value) * 0x100000001b3;
    digest.low ^= digest.low >> 29;
    digest.high = (digest.high + value) * 0xbf58476d1ce4e5b9;
    digest.high ^= digest.high >> 32;
  };
  for (const uint64_t value : state) mix(value);
  for (const char c : text) mix(static_cast<uint8_t>(c));
  return digest;
}

class Explorer {
 public:
  explicit Explorer(const Scenario& scenario) : scenario_(scenario) {}

  void Run() {
    World world(scenario_);
    current = &world;
    Link(world);
    Explore(world);
    current = nullptr;
  }

  size_t num_states() const { return visited_.size(); }
  size_t num_rests() const { return num_rests_; }
  size_t num_ready() const { return num_ready_; }
  const std::string& failure() const { return failure_; }

 private:
  // Time passes only where nothing else can happen; a path that needs more of it does not come to rest.
  static constexpr int kTicksMax = 12;

  void Explore(const World& world) {
    if (!failure_.empty()) return;
    const Digest digest = DigestOf(world);
    if (!visited_.insert(digest).second) {
      if (on_path_.contains(digest)) Report(world, "progress: the pair runs in a circle");
      return;
    }
    on_path_.insert(digest);
    Continue(world);
    on_path_.erase(digest);
  }

  void Continue(const World& world) {
    std::vector<Action> actions = Steps(world);
    const bool is_idle = actions.empty();
    if (world.faults_left > 0) {
      for (Action& fault : Faults(world)) {
        Take(world, fault, /*is_fault=*/true);
      }
    }
    for (Action& action : actions) Take(world, action, /*is_fault=*/false);
    if (!is_idle || !failure_.empty()) return;
    absl::Duration next = world.is_target_alive ? world.target.NextTick() : absl::InfiniteDuration();
    if (world.is_source_alive) next = std::min(next, world.source.NextTick());
    if (next == absl::InfiniteDuration()) return CheckRest(world);
    if (world.num_ticks >= kTicksMax) return Report(world, "progress: time passes and nothing changes");
    Action tick{"tick", [next](World& later) {
                  later.now = std::max(later.now, next);
                  ++later.num_ticks;
                  if (later.is_target_alive) later.target.Tick();
                  DrainTarget(later);
                  if (later.is_source_alive) later.source.Tick();
                  DrainSource(later);
                }};
    Take(world, tick, false);
  }

  void Take(const World& world, const Action& action, bool is_fault) {
    if (!failure_.empty()) return;
    World next = world;
    current = &next;
    if (is_fault) --next.faults_left;
    next.path.push_back(action.first);
    action.second(next);
    if (!next.error.empty()) {
      Report(next, next.error);
    } else {
      Explore(next);
    }
    current = &world;
  }

  void CheckRest(const World& world) {
    ++num_rests_;
    if (world.is_target_alive && world.target.ledger() != TargetLedger{})
      Report(world, "promise 5: decode holds something at rest");
    if (world.is_source_alive && world.source.ledger() != SourceLedger{})
      Report(world, "promise 5: prefill holds something at rest");
    if (!world.prefills.empty()) Report(world, "promise 5: prefill's engine was not told of an end");
    for (int page = 0; page < world.scenario.num_pages; ++page) {
      if (world.target_owner[page] >= 0 || world.source_owner[page] >= 0)
        Report(world, "promise 5: a page is not free at rest");
    }
    for (const Request& request : world.requests) {
      if (request.fate == Fate::kReady) ++num_ready_;
      const bool has_ended = request.fate == Fate::kForgotten ||
                             (request.is_closed && (request.fate == Fate::kReady || request.fate == Fate::kReleased));
      const bool never_could = request.fate == Fate::kNotBegun && world.faults_left < world.scenario.num_faults;
      if (!has_ended && !never_could) Report(world, "progress: a request has not ended at rest");
      const bool was_undisturbed = world.faults_left == world.scenario.num_faults;
      if (was_undisturbed && request.fate != Fate::kReady) Report(world, "progress: undisturbed, yet not ready");
    }
  }

  void Report(const World& world, const std::string& text) {
    if (!failure_.empty()) return;
    failure_ = text + ", after:";
    for (const std::string& step : world.path) failure_ += "\n  " + step;
  }

  const Scenario scenario_;
  std::unordered_set<Digest, DigestHash> visited_;
  std::unordered_set<Digest, DigestHash> on_path_;  // without their faults, steps must not lead back
  size_t num_rests_ = 0;
  size_t num_ready_ = 0;
  std::string failure_;
};

void ExpectHolds(const Scenario& scenario, size_t num_states_min) {
  Explorer explorer(scenario);
  explorer.Run();
  EXPECT_EQ(explorer.failure(), "");
  std::printf("%zu states, %zu rests, %zu requests ready\n", explorer.num_states(), explorer.num_rests(),
              explorer.num_ready());
  EXPECT_GE(explorer.num_states(), num_states_min);  // else the walk itself is broken
  EXPECT_GT(explorer.num_ready(), 0u);
}

TEST(TransferEnumerationTest, OneRequestSurvivesAnyFourFaults) {
  ExpectHolds({.num_requests = 1, .num_pages = 1, .num_faults = 4}, 20000);
}

TEST(TransferEnumerationTest, TwoRequestsShareTwoPagesUnderAnyTwoFaults) {
  ExpectHolds({.num_requests = 2, .num_pages = 2, .num_faults = 2}, 100000);
}

TEST(TransferEnumerationTest, ASecondRequestReusesThePagesOfTheFirstUnderAnyThreeFaults) {
  ExpectHolds({.num_requests = 2, .num_pages = 1, .num_faults = 3}, 20000);
}

}  // namespace
}  // namespace tandem::kvtransfer
