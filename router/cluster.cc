#include "router/cluster.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "proto/page_key.h"

namespace tandem::router {
namespace {

absl::Status StatusOf(const proto::Error& error) {
  auto code = static_cast<absl::StatusCode>(error.code());
  if (code < absl::StatusCode::kCancelled || code > absl::StatusCode::kUnauthenticated) {
    code = absl::StatusCode::kUnknown;
  }
  return absl::Status(code, error.message());
}

WorkerLoad LoadOf(const proto::Load& told) {
  return {.running_sequences = told.running_sequences(),
          .waiting_requests = told.waiting_requests(),
          .waiting_tokens = told.waiting_tokens(),
          .kv_pages_free = told.kv_pages_free(),
          .kv_pages_total = told.kv_pages_total(),
          .spec_windows = told.spec_windows(),
          .spec_accepted_tokens = told.spec_accepted_tokens(),
          .prompt_tokens = told.prompt_tokens(),
          .cached_prompt_tokens = told.cached_prompt_tokens(),
          .generated_tokens = told.generated_tokens(),
          .transferred_kv_bytes = told.transferred_kv_bytes(),
          .hisparse_hits = told.hisparse_hits(),
          .hisparse_misses = told.hisparse_misses(),
          .device_pages_used = told.device_pages_used(),
          .device_pages_total = told.device_pages_total()};
}

}  // namespace

Cluster::Cluster(Options options, const WorkerChannelFactory& factory)
    : identity_(std::move(options.identity)),
      credit_bytes_(options.credit_bytes),
      follows_prefix_caches_(options.follows_prefix_caches),
      times_(options.times),
      factory_(factory) {
  SetWorkers(options.prefill_workers, options.decode_workers);
}

Cluster::~Cluster() = default;

void Cluster::SetWorkers(const std::vector<std::string>& prefill_workers,
                         const std::vector<std::string>& decode_workers) {
  SetPool(WorkerRole::kPrefill, prefill_workers);
  SetPool(WorkerRole::kDecode, decode_workers);
}

void Cluster::SetPool(WorkerRole role, const std::vector<std::string>& addresses) {
  const absl::flat_hash_set<std::string> wanted(addresses.begin(), addresses.end());
  absl::flat_hash_set<std::string> present;
  for (const auto& link : LinksOf(role)) {
    if (link == nullptr) continue;
    ViewOf(*link).is_removed = !wanted.contains(link->address());
    present.insert(link->address());
  }
  for (const std::string& address : addresses) {
    if (!present.contains(address)) AddLink(role, address);
  }
}

void Cluster::AddLink(WorkerRole role, const std::string& address) {
  auto& links = role == WorkerRole::kPrefill ? prefill_links_ : decode_links_;
  const auto place = std::find(links.begin(), links.end(), nullptr);
  const int index = static_cast<int>(place - links.begin());
  if (place == links.end()) {
    links.emplace_back();
    if (role == WorkerRole::kPrefill) {
      view_.prefills.emplace_back();
      prefill_outliers_.emplace_back();
      prefixes_.emplace_back();
    } else {
      decode_outliers_.emplace_back();
      view_.decodes.emplace_back();
      unknown_cancelled_.emplace_back();
      ends_.emplace_back();
    }
  }
  links[index] = std::make_unique<WorkerLink>(address, role, index, identity_, times_, factory_,
                                              static_cast<WorkerLinkListener*>(this));
  ViewOf(*links[index]).address = address;
  ViewOf(*links[index]).detail = "not connected yet";
  OutlierOf(*links[index]) = OutlierEjection();
}

bool Cluster::IsInUse(const WorkerLink& link) const {
  if (link.role() == WorkerRole::kDecode) {
    const EndNumbers& ends = ends_[link.index()];
    // The worker keeps an end until it is confirmed.
    return view_.decodes[link.index()].requests_in_flight > 0 || (link.is_up() && ends.confirmed != ends.received);
  }
  // Until their end, not their first token only: a retracted sequence is prefilled once more where it was before.
  return std::any_of(requests_.begin(), requests_.end(),
                     [&](const auto& entry) { return entry.second.prefill == link.index(); });
}

void Cluster::ReleaseRemoved() {
  for (auto& link : decode_links_) {
    if (link == nullptr || !ViewOf(*link).is_removed || IsInUse(*link)) continue;
    view_.decodes[link->index()] = DecodeView();
    unknown_cancelled_[link->index()].clear();
    ends_[link->index()] = {};
    failures_logged_.erase(link.get());
    twins_.erase(link.get());
    link.reset();
  }
  bool has_prefill_left = false;
  for (auto& link : prefill_links_) {
    if (link == nullptr || !ViewOf(*link).is_removed || IsInUse(*link)) continue;
    view_.prefills[link->index()] = PrefillView();
    prefixes_[link->index()] = {};
    failures_logged_.erase(link.get());
    twins_.erase(link.get());
    link.reset();
    has_prefill_left = true;
  }
  if (has_prefill_left) SendPrefillSets();
}

void Cluster::Tick(absl::Duration now) {
  now_ = now;
  ReleaseRemoved();
  for (auto& link : prefill_links_) {
    if (link == nullptr) continue;
    HoldWhereTwin(*link);
    link->Tick(now);
    RefreshEjection(*link);
  }
  for (auto& link : decode_links_) {
    if (link == nullptr) continue;
    HoldWhereTwin(*link);
    link->Tick(now);
    ConfirmEnds(*link);
    RefreshEjection(*link);
  }
}

bool Cluster::AwaitsWorkers() const {
  const auto is_awaited = [](const auto& link) { return link != nullptr && link->is_awaited(); };
  if (std::any_of(prefill_links_.begin(), prefill_links_.end(), is_awaited)) return true;
  if (std::any_of(decode_links_.begin(), decode_links_.end(), is_awaited)) return true;
  const auto serves = [](const WorkerView& worker) {
    return worker.is_up && !worker.is_draining && !worker.is_removed;
  };
  // The two greet each other again within a few round trips.
  const auto may_be_back = [this](const auto& peer) {
    return !peer.second.is_usable && now_ - peer.second.lost_at < kPairReturnMax;
  };
  const auto is_finding_peers = [&](const DecodeView& decode) {
    return serves(decode) &&
           (decode.peers.empty() || std::any_of(decode.peers.begin(), decode.peers.end(), may_be_back));
  };
  return std::any_of(view_.prefills.begin(), view_.prefills.end(), serves) &&
         std::any_of(view_.decodes.begin(), view_.decodes.end(), is_finding_peers);
}

const std::vector<std::unique_ptr<WorkerLink>>& Cluster::LinksOf(WorkerRole role) const {
  return role == WorkerRole::kPrefill ? prefill_links_ : decode_links_;
}

const WorkerLink* Cluster::FindTwin(const WorkerLink& link, uint64_t incarnation) const {
  for (const auto& other : LinksOf(link.role())) {
    if (other != nullptr && other.get() != &link && other->incarnation() == incarnation) return other.get();
  }
  return nullptr;
}

void Cluster::HoldWhereTwin(WorkerLink& link) {
  const auto it = twins_.find(&link);
  if (it == twins_.end()) return;
  const bool is_held = FindTwin(link, it->second) != nullptr;
  link.Hold(is_held);
  if (!is_held) twins_.erase(it);
}

absl::Status Cluster::CheckWorker(const WorkerLink& link, const proto::WorkerHello& hello) {
  const uint64_t incarnation = hello.identity().incarnation();
  const WorkerLink* const twin = FindTwin(link, incarnation);
  if (twin == nullptr) return absl::OkStatus();
  twins_[&link] = incarnation;
  return absl::AlreadyExistsError(absl::StrCat(link.address(), " is the process that is used as ", twin->address(),
                                               " already: instance \"", hello.identity().instance(), "\""));
}

// Each is used, and logs, metrics and prefill's sessions of decode workers cannot tell them apart.
void Cluster::WarnOfEqualNames(const WorkerLink& link) {
  for (const auto& other : LinksOf(link.role())) {
    if (other == nullptr || other.get() == &link || !other->is_up()) continue;
    if (ViewOf(*other).instance != ViewOf(link).instance) continue;
    LOG_WARNING("two workers have one instance name", {"worker_role", WorkerRoleName(link.role())},
                {"inst", ViewOf(link).instance}, {"address", link.address()}, {"other_address", other->address()});
  }
}

OutlierEjection& Cluster::OutlierOf(const WorkerLink& link) {
  return (link.role() == WorkerRole::kPrefill ? prefill_outliers_ : decode_outliers_)[link.index()];
}

void Cluster::RefreshEjection(const WorkerLink& link) { ViewOf(link).is_ejected = OutlierOf(link).is_out(now_); }

WorkerView& Cluster::ViewOf(const WorkerLink& link) {
  if (link.role() == WorkerRole::kPrefill) return view_.prefills[link.index()];
  return view_.decodes[link.index()];
}

void Cluster::OnLinkUp(WorkerLink& link, const proto::WorkerHello& hello, bool is_back) {
  WorkerView& view = ViewOf(link);
  view.is_up = true;
  view.is_draining = false;
  view.detail.clear();
  failures_logged_.erase(&link);
  view.instance = hello.identity().instance();
  view.incarnation = hello.identity().incarnation();
  view.context_length_max = hello.context_length_max();
  view.kv_tokens_capacity = hello.kv_tokens_capacity();
  view.load = WorkerLoad();
  view.kv_pages_sent = 0;
  LOG_INFO("worker is up", {"worker_role", WorkerRoleName(link.role())}, {"address", link.address()},
           {"inst", view.instance}, {"incarnation", absl::Hex(view.incarnation)}, {"is_back", is_back});
  if (is_back) {
    ++counters_.streams_reattached;
  } else {
    WarnOfEqualNames(link);
  }
  if (link.role() == WorkerRole::kDecode) {
    if (!is_back) ends_[link.index()] = {};
    unknown_cancelled_[link.index()].clear();
    Reattach(link);
    SendPrefillSet(link);
    return;
  }
  PrefixKnowledge& prefixes = prefixes_[link.index()];
  prefixes.rules = {.domain = hello.page_key_domain(), .covers_next_token = hello.page_keys_cover_next_token()};
  prefixes.mirror.Reset();
  if (follows_prefix_caches_ && prefixes.rules.domain != 0) AskForPrefixes(link);
  std::string& bootstrap_address = view_.prefills[link.index()].bootstrap_address;
  if (bootstrap_address == hello.bootstrap_address()) return;
  bootstrap_address = hello.bootstrap_address();
  SendPrefillSets();
}

void Cluster::ConfirmEnds(WorkerLink& link) {
  EndNumbers& ends = ends_[link.index()];
  if (ends.confirmed == ends.received || !link.is_up()) return;
  ends.confirmed = ends.received;
  proto::RouterMessage message;
  message.mutable_ended_received()->set_number(ends.received);
  link.Send(std::move(message));
}

void Cluster::AskForPrefixes(WorkerLink& link) {
  ++counters_.prefix_snapshots;
  proto::RouterMessage message;
  message.mutable_prefix_snapshot_wanted();
  link.Send(std::move(message));
}

std::vector<int64_t> Cluster::CachedTokens(absl::Span<const TokenId> prompt, absl::string_view cache_salt) const {
  std::vector<int64_t> cached(prefixes_.size(), 0);
  PageKeyRules rules;  // of the keys at hand; most often those of all workers
  std::vector<uint64_t> keys;
  for (size_t place = 0; place < prefixes_.size(); ++place) {
    const PrefixKnowledge& prefixes = prefixes_[place];
    if (prefixes.mirror.num_keys() == 0) continue;
    if (prefixes.rules != rules) {
      rules = prefixes.rules;
      keys = PageKeysOf(prompt, cache_salt, rules);
    }
    cached[place] = int64_t{prefixes.mirror.NumCached(keys)} * proto::kPageKeyTokens;
  }
  return cached;
}

int Cluster::FlushPrefixCaches() {
  int num_told = 0;
  for (auto* links : {&prefill_links_, &decode_links_}) {
    for (auto& link : *links) {
      if (link == nullptr || !link->is_up()) continue;
      proto::RouterMessage message;
      message.mutable_flush_prefix_cache();
      link->Send(std::move(message));
      ++num_told;
    }
  }
  return num_told;
}

void Cluster::SendPrefillSets() {
  for (auto& link : decode_links_) {
    if (link != nullptr) SendPrefillSet(*link);
  }
}

void Cluster::SendPrefillSet(WorkerLink& link) {
  proto::RouterMessage message;
  proto::PrefillSet* set = message.mutable_prefill_set();
  for (const PrefillView& prefill : view_.prefills) {
    if (!prefill.bootstrap_address.empty()) set->add_bootstrap_addresses(prefill.bootstrap_address);
  }
  link.Send(std::move(message));
}

void Cluster::OnLinkDown(WorkerLink& link, bool was_up, const absl::Status& cause) {
  WorkerView& view = ViewOf(link);
  view.is_up = false;
  view.is_draining = false;  // it has: what matters now is that it is not there
  view.detail = cause.message().empty() ? absl::StatusCodeToString(cause.code()) : std::string(cause.message());
  const bool is_news = failures_logged_[&link].insert(cause.code()).second;
  if (!was_up) {
    if (is_news) {
      LOG_WARNING("worker cannot be used", {"worker_role", WorkerRoleName(link.role())}, {"address", link.address()},
                  {"cause", cause});
    }
    return;
  }
  LOG_WARNING("worker is down", {"worker_role", WorkerRoleName(link.role())}, {"address", link.address()},
              {"inst", view.instance}, {"cause", cause});
  ++counters_.streams_lost;
  if (link.role() == WorkerRole::kDecode) view_.decodes[link.index()].peers.clear();
}

void Cluster::OnWorkerLost(WorkerLink& link, const absl::Status& cause) {
  ++counters_.workers_lost;
  LOG_WARNING("worker is lost", {"worker_role", WorkerRoleName(link.role())}, {"address", link.address()},
              {"cause", cause});
  // Also where it was on trial: no attempt will say so.
  const bool is_on_trial = ViewOf(link).is_ejected;
  Judge(link, OutlierEjection::Outcome::kFailure, is_on_trial);
  if (link.role() == WorkerRole::kPrefill) return;
  const absl::Status lost = absl::UnavailableError(
      absl::StrCat("decode worker ", link.address(), " is lost: ", std::string(cause.message())));
  std::vector<RequestListener*> listeners;  // each may forget its request from inside the event
  for (auto& [request_id, request] : requests_) {
    if (request.decode != link.index() || request.is_lost) continue;
    request.is_lost = true;
    listeners.push_back(request.listener);
  }
  for (RequestListener* listener : listeners) listener->OnWorkerLost(lost);
}

void Cluster::OnLinkMessage(WorkerLink& link, const proto::WorkerMessage& message) {
  switch (message.message_case()) {
    case proto::WorkerMessage::kTokens:
      return OnTokenBatch(link, message.tokens());
    case proto::WorkerMessage::kEnded: {
      const proto::Ended& ended = message.ended();
      if (link.role() == WorkerRole::kDecode) {
        ends_[link.index()].received = std::max(ends_[link.index()].received, ended.number());
      }
      for (const proto::TransferReport& report : ended.transfers()) {
        if (Request* request = FindRequest(link, ended.key())) request->listener->OnTransfer(report);
      }
      return OnEnded(link, ended.key(), ended.has_error() ? StatusOf(ended.error()) : absl::OkStatus(),
                     ended.is_cancelled());
    }
    case proto::WorkerMessage::kLoad:
      ViewOf(link).load = LoadOf(message.load());
      ViewOf(link).kv_pages_sent = 0;
      return;
    case proto::WorkerMessage::kPeerStatus:
      if (link.role() == WorkerRole::kDecode) OnPeerStatus(link.index(), message.peer_status());
      return;
    case proto::WorkerMessage::kPrefixUpdate:
      if (link.role() != WorkerRole::kPrefill || !follows_prefix_caches_) return;
      if (prefixes_[link.index()].mirror.Take(message.prefix_update())) return;
      ++counters_.prefix_gaps;
      LOG_WARNING("prefix cache is read anew: what was told of it has a gap", {"address", link.address()});
      return AskForPrefixes(link);
    case proto::WorkerMessage::kDraining:
      ViewOf(link).is_draining = true;
      LOG_INFO("worker is draining", {"worker_role", WorkerRoleName(link.role())}, {"address", link.address()});
      return;
    default:
      return;  // a message of a later protocol: adds, never changes
  }
}

void Cluster::OnPeerStatus(int decode, const proto::PeerStatus& status) {
  PeerView& peer = view_.decodes[decode].peers[status.bootstrap_address()];
  if (peer.is_usable != status.is_usable() || peer.detail != status.detail()) {
    LOG_INFO("pair changed", {"decode", view_.decodes[decode].address}, {"prefill", status.bootstrap_address()},
             {"usable", status.is_usable()}, {"lane", status.lane()}, {"detail", status.detail()});
  }
  if (peer.is_usable && !status.is_usable()) peer.lost_at = now_;
  peer.is_usable = status.is_usable();
  peer.detail = status.detail();
  peer.lane = status.lane();
  peer.lane_bytes_per_second = status.lane_bytes_per_second();
}

void Cluster::OnLinkBulkReply(WorkerLink& link, const proto::BulkReply& reply) {
  OnEnded(link, reply.key(), reply.has_error() ? StatusOf(reply.error()) : absl::OkStatus(), false);
}

}  // namespace tandem::router
