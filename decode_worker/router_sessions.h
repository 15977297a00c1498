// Which routers are attached, whose requests must be cancelled, and which prefill workers they name.
//
// A lost stream is not a dead router: its requests live on for a grace time in which the same incarnation may attach
// again. Another incarnation of the same instance means that the old one is dead: it lapses at once. A router that
// attaches is told nothing of its requests until it has said which positions it needs (Reattach): until then it is
// attached but not in step.
// Knows no socket and no clock; the engine gives it stream ids and time. Tested by router_sessions_test.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/time/time.h"
#include "proto/common.pb.h"
#include "proto/worker.pb.h"

namespace tandem::decode {

class RouterSessions final {
 public:
  explicit RouterSessions(absl::Duration grace) : grace_(grace) {}

  // The stream said hello. A stream of the same incarnation that is still open is replaced. Returns the incarnations
  // that have lapsed by it. arrival_mark: requests that arrive later may have come on the new stream.
  std::vector<uint64_t> Attach(uint64_t stream_id, const proto::Identity& router, uint64_t arrival_mark);
  // False where the stream was replaced or never said hello.
  bool Detach(uint64_t stream_id, absl::Duration now);
  // Removes and returns whoever has been detached for the grace time.
  std::vector<uint64_t> TakeLapsed(absl::Duration now);
  absl::Duration NextLapse() const;  // InfiniteDuration where nobody is detached

  // Collects the positions that come on a stream; all of them with the last message, from which on the router is in
  // step. Nothing before, and for streams that are not its router's newest.
  std::optional<std::vector<proto::Reattach::Position>> AddPositions(uint64_t stream_id, const proto::Reattach& part);

  bool IsKnown(uint64_t incarnation) const { return routers_.contains(incarnation); }
  bool IsAttached(uint64_t incarnation) const;
  // Attached, and may be sent what belongs to its requests.
  bool IsInStep(uint64_t incarnation) const;
  // The stream of that router, 0 where it is detached.
  uint64_t StreamOf(uint64_t incarnation) const;
  // Incarnation of the router on that stream, 0 where there is none.
  uint64_t IncarnationOf(uint64_t stream_id) const;
  std::vector<uint64_t> AttachedStreams() const;
  uint64_t ArrivalMark(uint64_t incarnation) const;  // of its newest stream

  void SetPrefillPeers(uint64_t incarnation, std::vector<std::string> addresses);
  // Of all known routers together, sorted, each once.
  std::set<std::string> PrefillPeers() const;

 private:
  struct Router {
    std::string instance;
    uint64_t stream_id = 0;  // 0: detached
    absl::Duration lapses_at = absl::InfiniteDuration();
    std::vector<std::string> prefill_peers;
    uint64_t arrival_mark = 0;
    bool is_in_step = false;
    std::vector<proto::Reattach::Position> positions;  // come so far
  };
  const absl::Duration grace_;
  absl::btree_map<uint64_t, Router> routers_;  // by incarnation
};

}  // namespace tandem::decode
