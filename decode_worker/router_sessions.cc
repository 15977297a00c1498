#include "decode_worker/router_sessions.h"

#include <algorithm>
#include <utility>

namespace tandem::decode {

std::vector<uint64_t> RouterSessions::Attach(uint64_t stream_id, const proto::Identity& router, uint64_t arrival_mark) {
  std::vector<uint64_t> lapsed;
  for (auto it = routers_.begin(); it != routers_.end();) {
    if (it->second.instance == router.instance() && it->first != router.incarnation()) {
      lapsed.push_back(it->first);
      it = routers_.erase(it);
    } else {
      ++it;
    }
  }
  Router& known = routers_[router.incarnation()];
  known.instance = router.instance();
  known.stream_id = stream_id;
  known.lapses_at = absl::InfiniteDuration();
  known.arrival_mark = arrival_mark;
  known.is_in_step = false;
  known.positions.clear();
  return lapsed;
}

std::optional<std::vector<proto::Reattach::Position>> RouterSessions::AddPositions(uint64_t stream_id,
                                                                                   const proto::Reattach& part) {
  const auto it = routers_.find(IncarnationOf(stream_id));
  if (it == routers_.end() || it->second.is_in_step) return std::nullopt;
  Router& router = it->second;
  router.positions.insert(router.positions.end(), part.positions().begin(), part.positions().end());
  if (!part.is_last()) return std::nullopt;
  router.is_in_step = true;
  return std::exchange(router.positions, {});
}

bool RouterSessions::Detach(uint64_t stream_id, absl::Duration now) {
  for (auto& [incarnation, router] : routers_) {
    if (router.stream_id != stream_id) continue;
    router.stream_id = 0;
    router.is_in_step = false;
    router.positions.clear();
    router.lapses_at = now + grace_;
    return true;
  }
  return false;
}

std::vector<uint64_t> RouterSessions::TakeLapsed(absl::Duration now) {
  std::vector<uint64_t> lapsed;
  for (auto it = routers_.begin(); it != routers_.end();) {
    if (it->second.lapses_at <= now) {
      lapsed.push_back(it->first);
      it = routers_.erase(it);
    } else {
      ++it;
    }
  }
  return lapsed;
}

absl::Duration RouterSessions::NextLapse() const {
  absl::Duration next = absl::InfiniteDuration();
  for (const auto& [incarnation, router] : routers_) next = std::min(next, router.lapses_at);
  return next;
}

uint64_t RouterSessions::StreamOf(uint64_t incarnation) const {
  const auto it = routers_.find(incarnation);
  return it == routers_.end() ? 0 : it->second.stream_id;
}

bool RouterSessions::IsAttached(uint64_t incarnation) const { return StreamOf(incarnation) != 0; }

bool RouterSessions::IsInStep(uint64_t incarnation) const {
  const auto it = routers_.find(incarnation);
  return it != routers_.end() && it->second.is_in_step;
}

uint64_t RouterSessions::IncarnationOf(uint64_t stream_id) const {
  for (const auto& [incarnation, router] : routers_) {
    if (router.stream_id == stream_id) return incarnation;
  }
  return 0;
}

uint64_t RouterSessions::ArrivalMark(uint64_t incarnation) const {
  const auto it = routers_.find(incarnation);
  return it == routers_.end() ? 0 : it->second.arrival_mark;
}

std::vector<uint64_t> RouterSessions::AttachedStreams() const {
  std::vector<uint64_t> streams;
  for (const auto& [incarnation, router] : routers_) {
    if (router.stream_id != 0) streams.push_back(router.stream_id);
  }
  return streams;
}

void RouterSessions::SetPrefillPeers(uint64_t incarnation, std::vector<std::string> addresses) {
  const auto it = routers_.find(incarnation);
  if (it != routers_.end()) it->second.prefill_peers = std::move(addresses);
}

std::set<std::string> RouterSessions::PrefillPeers() const {
  std::set<std::string> peers;
  for (const auto& [incarnation, router] : routers_) {
    peers.insert(router.prefill_peers.begin(), router.prefill_peers.end());
  }
  return peers;
}

}  // namespace tandem::decode
