// Routers and prefill peers, as the engine sees them: who is there, and who is told what. See engine.h.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "decode_worker/engine.h"
#include "decode_worker/token_messages.h"

namespace tandem::decode {
// ---- Routers ----

void Engine::RouterAttached(uint64_t stream_id, const proto::Identity& router) {
  const uint64_t incarnation = router.incarnation();
  if (routers_.IsKnown(incarnation)) ++counters_.reattached_routers;
  for (const uint64_t lapsed : routers_.Attach(stream_id, router, next_arrival_))
    Forget(lapsed, "its router was restarted");
  proto::WorkerMessage message;
  for (const auto& [address, status] : peers_) {
    *message.mutable_peer_status() = status;
    outbox_.ToRouter(stream_id, message);
  }
  AnnouncePrefillPeers();
  PumpTransfer();
}

void Engine::RouterMessage(uint64_t stream_id, const proto::RouterMessage& message) {
  switch (message.message_case()) {
    case proto::RouterMessage::kPrefillSet: {
      const auto& addresses = message.prefill_set().bootstrap_addresses();
      routers_.SetPrefillPeers(routers_.IncarnationOf(stream_id), {addresses.begin(), addresses.end()});
      AnnouncePrefillPeers();
      break;
    }
    case proto::RouterMessage::kCancel:
      Cancel(message.cancel());
      break;
    case proto::RouterMessage::kCredit: {
      const proto::Credit& credit = message.credit();
      const auto it = requests_.find(RequestKey::From(credit.key()));
      if (it != requests_.end()) TakeCredit(*it->second, credit.choice(), credit.granted_bytes());
      break;
    }
    case proto::RouterMessage::kReattach:
      Reattach(stream_id, message.reattach());
      break;
    case proto::RouterMessage::kEndedReceived:
      ended_.Confirm(routers_.IncarnationOf(stream_id), message.ended_received().number());
      break;
    case proto::RouterMessage::kFlushPrefixCache:
      FlushPrefixCache();
      break;
    case proto::RouterMessage::kPrefixSnapshotWanted:  // asked of prefill workers
    case proto::RouterMessage::kHello:                 // said once, through RouterAttached
    case proto::RouterMessage::kHeartbeat:             // a sign of life: the stream's owner has seen it
    case proto::RouterMessage::MESSAGE_NOT_SET:
      break;
  }
  PumpTransfer();
}

void Engine::Reattach(uint64_t stream_id, const proto::Reattach& part) {
  auto positions = routers_.AddPositions(stream_id, part);
  if (!positions.has_value()) return;
  const uint64_t router = routers_.IncarnationOf(stream_id);
  absl::flat_hash_set<RequestKey> named;
  for (const proto::Reattach::Position& position : *positions) named.insert(RequestKey::From(position.key()));
  std::vector<Request*> given_up;
  for (const auto& [key, request] : requests_) {
    // What came on the new stream is not named yet.
    const bool is_older = request->arrival < routers_.ArrivalMark(router);
    if (key.router_incarnation == router && is_older && !named.contains(key)) given_up.push_back(request.get());
  }
  for (Request* request : given_up) {
    End(*request, {.error = absl::CancelledError("its router has given it up"), .is_cancelled = true});
  }
  ended_.KeepNamed(router, named, routers_.ArrivalMark(router));
  AddNewerThanReattach(router, named, *positions);
  SayAgain(*positions);
}

// A Generate of the new stream can overtake the positions, which do not name it; until they had come, nothing was said
// of it: neither its first tokens nor its end.
void Engine::AddNewerThanReattach(uint64_t router_incarnation, const absl::flat_hash_set<RequestKey>& named,
                                  std::vector<proto::Reattach::Position>& positions) const {
  const auto add = [&](const RequestKey& key, size_t num_choices) {
    if (named.contains(key)) return;
    for (size_t choice = 0; choice < std::max<size_t>(1, num_choices); ++choice) {
      proto::Reattach::Position& position = positions.emplace_back();
      *position.mutable_key() = key.ToProto();
      position.set_choice(static_cast<uint32_t>(choice));
    }
  };
  const uint64_t mark = routers_.ArrivalMark(router_incarnation);
  for (const auto& [key, request] : requests_) {
    if (key.router_incarnation == router_incarnation && request->arrival >= mark) add(key, request->sequences.size());
  }
  for (const EndedLog::Entry* entry : ended_.Since(router_incarnation, mark)) add(entry->key, entry->choices.size());
}

// Tokens of all choices first: a request's Ended is its last message.
void Engine::SayAgain(const std::vector<proto::Reattach::Position>& positions) {
  std::vector<proto::Ended> ends;
  absl::flat_hash_set<RequestKey> ended;
  for (const proto::Reattach::Position& position : positions) {
    const RequestKey key = RequestKey::From(position.key());
    if (const auto live = requests_.find(key); live != requests_.end()) {
      Request& request = *live->second;
      TakeCredit(request, position.choice(), position.granted_bytes());
      if (position.choice() < request.sequences.size()) {
        SendTokensFrom(AllTokensOf(request, request.sequences[position.choice()]), position.next_position());
      }
      continue;
    }
    const EndedLog::Entry* entry = ended_.Find(key);
    if (entry != nullptr && position.choice() < entry->choices.size()) {
      SendTokensFrom(entry->choices[position.choice()], position.next_position());
    }
    if (!ended.insert(key).second) continue;
    if (entry != nullptr) {
      ends.push_back(entry->ended);
      continue;
    }
    ++counters_.requests_not_known;
    cancelled_early_.Add(key, clock_.Now());  // its Generate may still come out of the lost stream
    proto::Ended& end = ends.emplace_back();
    *end.mutable_key() = position.key();
    end.mutable_error()->set_code(static_cast<int>(absl::StatusCode::kUnavailable));
    end.mutable_error()->set_message("decode worker does not know the request: lost on its way");
  }
  for (proto::Ended& end : ends) {
    proto::WorkerMessage message;
    const uint64_t router = end.key().router_incarnation();
    *message.mutable_ended() = std::move(end);
    SendToRouter(router, std::move(message));
  }
}

void Engine::SendTokensFrom(const proto::SequenceTokens& all, uint32_t position) {
  for (proto::SequenceTokens& tokens : CutIntoMessages(all, position)) {
    counters_.tokens_said_again += tokens.tokens_size();
    proto::TokenBatch batch;
    *batch.add_sequences() = std::move(tokens);
    SendTokens(all.key().router_incarnation(), std::move(batch));
  }
}

void Engine::RouterLost(uint64_t stream_id) { routers_.Detach(stream_id, clock_.Now()); }

void Engine::Cancel(const proto::Cancel& cancel) {
  const RequestKey key = RequestKey::From(cancel.key());
  const auto it = requests_.find(key);
  if (cancel.has_choice()) {
    if (it == requests_.end() || cancel.choice() >= it->second->sequences.size()) return;
    EndSequence(*it->second, it->second->sequences[cancel.choice()]);
    return;
  }
  if (it != requests_.end()) {
    End(*it->second, {.error = absl::OkStatus(), .is_cancelled = true});
    return;
  }
  // Ended long ago, or its Generate is still on the way: either way nothing is held of it.
  cancelled_early_.Add(key, clock_.Now());
  proto::WorkerMessage message;
  *message.mutable_ended()->mutable_key() = cancel.key();
  message.mutable_ended()->set_is_cancelled(true);
  SendToRouter(key.router_incarnation, std::move(message));
}

void Engine::TakeCredit(Request& request, uint32_t choice, uint64_t granted_bytes) {
  if (choice >= request.sequences.size() || granted_bytes == 0) return;
  int64_t& credit_tokens = request.sequences[choice].credit_tokens;
  credit_tokens = std::max(credit_tokens, request.CreditTokens(granted_bytes));
  if (request.phase != Phase::kParked || !request.HasCreditToResume()) return;
  parked_.erase(request.place);
  request.phase = Phase::kWaiting;
  waiting_.emplace(request.place, &request);
  has_work_ = true;
}

void Engine::Forget(uint64_t router_incarnation, absl::string_view why) {
  ended_.Forget(router_incarnation);
  std::vector<Request*> orphans;
  for (const auto& [key, request] : requests_) {
    if (key.router_incarnation == router_incarnation) orphans.push_back(request.get());
  }
  for (Request* orphan : orphans) End(*orphan, {.error = absl::CancelledError(why), .is_cancelled = true});
  AnnouncePrefillPeers();
}

void Engine::SendTokens(uint64_t router_incarnation, proto::TokenBatch batch) {
  proto::WorkerMessage message;
  *message.mutable_tokens() = std::move(batch);
  SendToRouter(router_incarnation, std::move(message));
}

void Engine::SendEnded(const Request& request) {
  const uint64_t router = request.generate.key.router_incarnation;
  proto::WorkerMessage message;
  proto::Ended ended;
  *ended.mutable_key() = request.generate.key.ToProto();
  ended.set_is_cancelled(request.outcome->is_cancelled);
  if (const absl::Status& error = request.outcome->error; !error.ok()) {
    ended.mutable_error()->set_code(static_cast<int>(error.code()));
    ended.mutable_error()->set_message(std::string(error.message()));
  }
  ended.mutable_transfers()->Add(request.transfers.begin(), request.transfers.end());
  if (!routers_.IsKnown(router)) return;
  EndedLog::Entry entry{.key = request.generate.key,
                        .arrival = request.arrival,
                        .ended = std::move(ended),
                        .choices = AllTokensOf(request)};
  *message.mutable_ended() = ended_.Add(std::move(entry));
  SendToRouter(router, std::move(message));
}

// A router that is detached, or not in step yet, is told everything when it names its positions.
void Engine::SendToRouter(uint64_t router_incarnation, proto::WorkerMessage message) {
  if (!routers_.IsInStep(router_incarnation)) return;
  outbox_.ToRouter(routers_.StreamOf(router_incarnation), std::move(message));
}

// ---- Prefill peers ----

void Engine::AnnouncePrefillPeers() {
  std::set<std::string> peers = routers_.PrefillPeers();
  if (peers == announced_peers_) return;
  announced_peers_ = std::move(peers);
  std::erase_if(peers_, [this](const auto& peer) { return !announced_peers_.contains(peer.first); });
  outbox_.LinkWith({announced_peers_.begin(), announced_peers_.end()});
}

void Engine::PeerUp(const std::string& peer, const kvtransfer::SourcePeer& source) {
  if (source.lanes.empty()) {
    PeerDown(peer, absl::FailedPreconditionError(source.detail.empty() ? "no lane works" : source.detail));
    return;
  }
  transfer_.PeerUp(peer, source);
  if (announced_peers_.contains(peer)) {
    const kvtransfer::PeerLane& best = source.lanes.front();
    proto::PeerStatus& status = peers_[peer];
    status.Clear();
    status.set_bootstrap_address(peer);
    status.set_is_usable(true);
    status.set_detail(source.detail.empty() ? best.kind : source.detail);
    status.set_lane(best.kind);
    status.set_lane_bytes_per_second(best.bytes_per_second);
    ReportPeer(status);
  }
  PumpTransfer();
}

// A peer whose lanes are all quarantined is up but not usable, for a while: the router must not choose it.
void Engine::ReportQuarantines() {
  for (auto& [peer, status] : peers_) {
    if (!transfer_.IsUp(peer)) continue;
    const bool is_usable = transfer_.IsUsable(peer);
    if (is_usable == status.is_usable()) continue;
    status.set_is_usable(is_usable);
    status.set_detail(is_usable ? status.lane() : "every lane is quarantined for wrong sums");
    ReportPeer(status);
  }
}

void Engine::PeerDown(const std::string& peer, const absl::Status& status) {
  transfer_.PeerDown(peer, status);
  ReportPeerDown(peer, status);
  PumpTransfer();
}

void Engine::PeerMessage(const std::string& peer, const proto::TransferMessage& message) {
  transfer_.Receive(peer, message);
  PumpTransfer();
}

void Engine::FetchDone(uint64_t fetch_id, const absl::Status& status, absl::Duration ended) {
  transfer_.FetchDone(fetch_id, status, ended);
  PumpTransfer();
}

void Engine::Handle(kvtransfer::WrongSum& output) {
  LOG_WARNING("wrong sum of a fetched page", {"peer", output.peer}, {"where", output.detail});
}

void Engine::Handle(kvtransfer::LaneQuarantined& output) {
  LOG_WARNING("lane quarantined: two wrong sums in a minute", {"peer", output.peer}, {"where", output.detail});
  ++counters_.lanes_quarantined;
  ReportQuarantines();
}

void Engine::Handle(kvtransfer::ResetPeer& output) {
  ReportPeerDown(output.peer, output.status);
  outbox_.Reset(std::move(output));
}

void Engine::ReportPeerDown(const std::string& peer, const absl::Status& status) {
  if (!announced_peers_.contains(peer)) return;
  proto::PeerStatus& report = peers_[peer];
  report.Clear();
  report.set_bootstrap_address(peer);
  report.set_detail(status.ToString());
  ReportPeer(report);
}

void Engine::ReportPeer(const proto::PeerStatus& status) {
  proto::WorkerMessage message;
  *message.mutable_peer_status() = status;
  for (const uint64_t stream_id : routers_.AttachedStreams()) outbox_.ToRouter(stream_id, message);
}

}  // namespace tandem::decode
