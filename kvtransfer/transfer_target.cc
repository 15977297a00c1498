#include "kvtransfer/transfer_target.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "kvcache/page_sum.h"
#include "kvtransfer/plan_runs.h"

namespace tandem::kvtransfer {
namespace {

bool IsSameKey(const proto::RequestKey& a, const proto::RequestKey& b) {
  return a.router_incarnation() == b.router_incarnation() && a.request_id() == b.request_id() &&
         a.attempt() == b.attempt();
}

absl::Status ToStatus(const proto::Error& error) {
  const auto code = static_cast<absl::StatusCode>(error.code());
  if (code == absl::StatusCode::kOk) return absl::InternalError("prefill aborted without a cause");
  return absl::Status(code, error.message());
}

}  // namespace

TransferTarget::TransferTarget(const TargetOptions& options, PageMemory* memory, const base::Clock* clock)
    : options_(options), memory_(memory), clock_(clock) {
  TANDEM_CHECK(options.incarnation != 0, "an incarnation is never zero");
  TANDEM_CHECK(options.layout.num_layers > 0, "a pool has layers");
}

// ---- Peers ----

void TransferTarget::PeerUp(std::string_view peer, const SourcePeer& source) {
  if (IsUp(peer)) PeerDown(peer, absl::UnavailableError("replaced by a new session"));
  peers_.emplace(peer, PeerState{.incarnation = source.incarnation,
                                 .session = source.session,
                                 .num_pages = source.num_pages,
                                 .num_source_ranks = source.num_source_ranks,
                                 .lanes = PeerLanes(options_.lane_policy, source.lanes),
                                 .epochs = {},
                                 .waiting = {}});
}

void TransferTarget::PeerDown(std::string_view peer, const absl::Status& status) {
  TakeDown(std::string(peer), status);
}

void TransferTarget::TakeDown(const std::string& peer, const absl::Status& status) {
  const auto it = peers_.find(peer);
  if (it == peers_.end()) return;
  const std::set<uint64_t> ids = std::move(it->second.epochs);
  peers_.erase(it);  // from here on nothing is said to it
  for (const uint64_t id : ids) {
    TargetEpoch& epoch = epochs_.at(id);
    epoch.has_peer_let_go = true;
    if (epoch.phase == TargetPhase::kOpen) {
      Fail(id, epoch, absl::UnavailableError(absl::StrCat("prefill ", peer, ": ", status.message())));
    }
    Settle(id);
  }
}

bool TransferTarget::IsUp(std::string_view peer) const { return peers_.find(peer) != peers_.end(); }

bool TransferTarget::IsUsable(std::string_view peer) const {
  const auto it = peers_.find(peer);
  return it != peers_.end() && it->second.lanes.HasUsable(clock_->Now());
}

// ---- Requests ----

absl::StatusOr<uint64_t> TransferTarget::Begin(std::string_view peer_name, TransferRequest request) {
  const auto it = peers_.find(peer_name);
  if (it == peers_.end()) return absl::UnavailableError(absl::StrCat("prefill ", std::string(peer_name), " is not up"));
  PeerState& peer = it->second;
  const absl::Duration now = clock_->Now();
  if (!peer.lanes.HasUsable(now)) {
    return absl::UnavailableError(absl::StrCat("prefill ", it->first, " has no lane that may be used"));
  }
  RETURN_IF_ERROR(ValidateRequest(request, options_.layout));
  const std::vector<proto::Start> parts = BuildStartParts(request);

  const uint64_t id = ++last_epoch_;
  const int num_pages = static_cast<int>(request.target_pages.size());
  const int first_page = request.num_prefix_tokens_held / kvcache::kPageTokens;
  TargetEpoch epoch{.peer = it->first,
                    .key = request.key,
                    .grid = PageGrid(options_.layout.num_layers, first_page, num_pages),
                    .num_prompt_tokens = static_cast<int>(request.prompt_tokens.size()),
                    .target_pages = std::move(request.target_pages),
                    .source_pages = {},
                    .first_tokens = {},
                    .prompt_hidden = {},
                    .pending = {},
                    .deadline = now + request.remaining_time,
                    .next_repeat = now + options_.repeat_interval,
                    .abort = {}};
  epoch.times.started = now;
  epoch.source_pages.resize(peer.num_source_ranks);
  if (request.generated_tokens.empty()) epoch.first_tokens.resize(request.num_choices);
  const TargetEpoch& stored = epochs_.emplace(id, std::move(epoch)).first->second;
  peer.epochs.insert(id);
  ++counters_.epochs_begun;

  for (const proto::Start& part : parts) {
    proto::TransferMessage message = Envelope(id, stored);
    *message.mutable_start() = part;
    Say(stored.peer, std::move(message));
  }
  return id;
}

void TransferTarget::Abort(uint64_t id, const absl::Status& cause) {
  const auto it = epochs_.find(id);
  if (it == epochs_.end() || it->second.phase != TargetPhase::kOpen) return;
  ++counters_.epochs_aborted;
  End(id, it->second, cause.ok() ? absl::CancelledError("no longer wanted") : cause);
  Settle(id);
}

// ---- What comes back ----

void TransferTarget::Receive(std::string_view peer_name, const proto::TransferMessage& message) {
  const auto peer = peers_.find(peer_name);
  if (peer == peers_.end() || message.sender_incarnation() != peer->second.incarnation ||
      message.receiver_incarnation() != options_.incarnation) {
    ++counters_.stale_messages;
    return;
  }
  const auto it = epochs_.find(message.epoch());
  if (it == epochs_.end()) return OnUnknownEpoch(peer->first, message);
  TargetEpoch& epoch = it->second;
  if (epoch.peer != peer->first || !IsSameKey(epoch.key, message.key())) {
    ++counters_.stale_messages;
    return;
  }
  const uint64_t id = it->first;
  epoch.next_repeat = clock_->Now() + options_.repeat_interval;
  switch (message.message_case()) {
    case proto::TransferMessage::kAbort:
      epoch.has_peer_let_go = true;
      epoch.owes_abort_ack = true;
      if (epoch.phase == TargetPhase::kOpen) Fail(id, epoch, ToStatus(message.abort().cause()));
      return Settle(id);
    case proto::TransferMessage::kAbortAck:
    case proto::TransferMessage::kDoneAck: {
      const TargetPhase acknowledged = message.has_done_ack() ? TargetPhase::kReady : TargetPhase::kEnding;
      if (epoch.phase != acknowledged) {
        ++counters_.stale_messages;
        return;
      }
      epoch.has_peer_let_go = true;
      return Settle(id);
    }
    default:
      break;
  }
  if (epoch.phase != TargetPhase::kOpen) return;  // said before P heard of the end
  if (const absl::Status status = OnOpenMessage(id, epoch, message); !status.ok()) Fail(id, epoch, status);
  StrikeWrongLanes(peer->first);
  Advance(id);
}

absl::Status TransferTarget::OnOpenMessage(uint64_t id, TargetEpoch& epoch, const proto::TransferMessage& message) {
  switch (message.message_case()) {
    case proto::TransferMessage::kAccepted:
      epoch.times.accepted = std::min(epoch.times.accepted, clock_->Now());
      return epoch.TakeAccepted(message.accepted(), peers_.at(epoch.peer).num_pages);
    case proto::TransferMessage::kAnnounce:
      RETURN_IF_ERROR(epoch.TakeAnnounce(message.announce()));
      NoteAnnounce(epoch, message.announce());
      return absl::OkStatus();
    case proto::TransferMessage::kFirstToken: {
      const proto::FirstToken& token = message.first_token();
      ASSIGN_OR_RETURN(const bool is_new, epoch.TakeFirstToken(token));
      if (is_new) {
        epoch.times.first_token = std::min(epoch.times.first_token, clock_->Now());
        outputs_.push_back(FirstTokenArrived{.epoch = id, .first_token = token});
      }
      return absl::OkStatus();
    }
    case proto::TransferMessage::kPromptHidden:
      return epoch.TakePromptHidden(message.prompt_hidden(), options_.prompt_hidden_bytes);
    case proto::TransferMessage::kSourceSums: {
      ASSIGN_OR_RETURN(const std::vector<JudgedCell> judged, epoch.TakeSourceSums(message.source_sums()));
      for (const JudgedCell& cell : judged) RETURN_IF_ERROR(Judge(epoch, cell.layer, cell.page, cell.verdict));
      return absl::OkStatus();
    }
    default:
      return absl::InternalError(
          absl::StrCat("prefill sent a message of type ", static_cast<int>(message.message_case())));
  }
}

// A chunk is complete with its last layer; repeats say nothing new.
void TransferTarget::NoteAnnounce(TargetEpoch& epoch, const proto::Announce& announce) const {
  TransferTimes& times = epoch.times;
  const absl::Duration now = clock_->Now();
  times.first_announced = std::min(times.first_announced, now);
  const int num_before = times.chunks.empty() ? 0 : times.chunks.back().num_pages;
  const int num_pages = static_cast<int>(announce.page_end());
  if (static_cast<int64_t>(announce.layer_end()) != options_.layout.num_layers || num_pages <= num_before) return;
  if (times.chunks.size() < TransferTimes::kChunksMax) times.chunks.push_back({.num_pages = num_pages, .at = now});
}

void TransferTarget::OnUnknownEpoch(const std::string& peer, const proto::TransferMessage& message) {
  proto::TransferMessage reply;
  reply.set_sender_incarnation(options_.incarnation);
  reply.set_receiver_incarnation(message.sender_incarnation());
  *reply.mutable_key() = message.key();
  reply.set_epoch(message.epoch());
  switch (message.message_case()) {
    case proto::TransferMessage::kAbort:  // our acknowledgement was lost, or the abort came twice
      reply.mutable_abort_ack();
      break;
    case proto::TransferMessage::kAbortAck:
    case proto::TransferMessage::kDoneAck:
      return;
    default: {
      ++counters_.unknown_epochs;
      proto::Error& cause = *reply.mutable_abort()->mutable_cause();
      cause.set_code(static_cast<int>(absl::StatusCode::kAborted));
      cause.set_message(absl::StrCat("epoch ", message.epoch(), " is not open at decode"));
    }
  }
  Say(peer, std::move(reply));
}

// ---- Fetching ----

void TransferTarget::FetchDone(uint64_t fetch_id, const absl::Status& status, absl::Duration ended) {
  const auto it = fetches_.find(fetch_id);
  TANDEM_CHECK(it != fetches_.end(), "a fetch was done twice");
  const OutstandingFetch fetch = it->second;
  fetches_.erase(it);
  TargetEpoch& epoch = epochs_.at(fetch.epoch);
  --epoch.outstanding_fetches;

  const auto peer = peers_.find(epoch.peer);
  if (peer != peers_.end() && peer->second.session == fetch.peer_session) {
    PeerState& state = peer->second;
    const absl::Duration now = clock_->Now();
    state.outstanding_bytes -= fetch.bytes;
    state.last_fetch_progress = now;
    state.lanes.CountCompletion(fetch.lane, status.ok() ? fetch.bytes : 0,
                                {.started = fetch.started, .ended = std::min(ended, now), .heard = now});
  }
  if (!status.ok()) ++counters_.fetch_errors;
  if (epoch.phase == TargetPhase::kOpen) {
    const absl::Status landed = status.ok() ? LandPiece(fetch.epoch, epoch, fetch.piece, fetch.lane)
                                            : RetryPiece(fetch.epoch, epoch, fetch, status);
    if (!landed.ok()) Fail(fetch.epoch, epoch, landed);
    StrikeWrongLanes(epoch.peer);
  }
  Advance(fetch.epoch);
}

absl::Status TransferTarget::LandPiece(uint64_t id, TargetEpoch& epoch, const PagePiece& piece, int lane) {
  counters_.fetched_bytes += (piece.page_end - piece.page_begin) * options_.layout.page_bytes();
  for (int page = piece.page_begin; page < piece.page_end; ++page) {
    const auto bound_sum = [&](kvcache::RecordKind kind) {
      return kvcache::BindSum(memory_->ContentSum(kind, piece.layer, epoch.target_pages[page]),
                              {.kind = kind,
                               .layer = static_cast<uint32_t>(piece.layer),
                               .logical_page = static_cast<uint32_t>(page),
                               .incarnation = options_.incarnation,
                               .epoch = id});
    };
    const CellSums sums{.latent = bound_sum(kvcache::RecordKind::kLatent),
                        .index = bound_sum(kvcache::RecordKind::kIndex)};
    RETURN_IF_ERROR(Judge(epoch, piece.layer, page, epoch.grid.Landed(piece.layer, page, lane, sums)));
  }
  return absl::OkStatus();
}

absl::Status TransferTarget::Judge(TargetEpoch& epoch, int layer, int page, CellVerdict verdict) {
  if (verdict == CellVerdict::kOpen || verdict == CellVerdict::kAgrees) return absl::OkStatus();
  ++counters_.wrong_sums;
  const int rank = epoch.grid.rank(layer, page);
  const int lane = epoch.grid.lane(layer, page);
  const std::string& kind = peers_.at(epoch.peer).lanes.kind(lane);
  const std::string where = absl::StrCat("layer ", layer, " page ", page, " of rank ", rank, " by lane ", kind);
  wrong_lanes_[lane] = where;
  if (verdict == CellVerdict::kWrongTwice) {
    epoch.abort.set_rank(rank);
    epoch.abort.set_lane(kind);
    return absl::DataLossError(absl::StrCat("the sum is wrong after the refetch of ", where));
  }
  ++counters_.refetched_pages;
  epoch.pending.push_front(
      {.rank = rank, .layer = layer, .page_begin = page, .page_end = page + 1, .is_refetch = true});
  return absl::OkStatus();
}

absl::Status TransferTarget::RetryPiece(uint64_t id, TargetEpoch& epoch, const OutstandingFetch& fetch,
                                        const absl::Status& status) {
  PeerState& peer = peers_.at(epoch.peer);
  const std::string& kind = peer.lanes.kind(fetch.lane);
  epoch.abort.set_rank(fetch.piece.rank);
  epoch.abort.set_lane(kind);
  if (absl::IsAborted(status) || absl::IsNotFound(status) || absl::IsFailedPrecondition(status)) {
    return absl::AbortedError(
        absl::StrCat("prefill rank ", fetch.piece.rank, " no longer serves the epoch: ", status.message()));
  }
  const int other = peer.lanes.Pick(clock_->Now(), fetch.lane);
  if (fetch.is_second_try || other == fetch.lane) {
    return absl::UnavailableError(
        absl::StrCat("lane ", kind, " to prefill rank ", fetch.piece.rank, " failed: ", status.message()));
  }
  StartPiece(id, epoch, peer, fetch.piece, other, /*is_second_try=*/true);
  return absl::OkStatus();
}

void TransferTarget::StrikeWrongLanes(const std::string& peer_name) {
  const absl::Duration now = clock_->Now();
  for (auto& [index, where] : std::exchange(wrong_lanes_, {})) {
    outputs_.push_back(WrongSum{.peer = peer_name, .lane = index, .detail = where});
    if (peers_.at(peer_name).lanes.Strike(index, now)) {
      outputs_.push_back(LaneQuarantined{.peer = peer_name, .lane = index, .detail = where});
    }
  }
}

void TransferTarget::Pump(const std::string& peer_name) {
  const auto it = peers_.find(peer_name);
  if (it == peers_.end()) return;
  PeerState& peer = it->second;
  if (peer.waiting.empty()) return;
  const absl::Duration now = clock_->Now();
  const int64_t window_bytes = peer.lanes.WindowBytes(now);
  // Several pieces in flight keep the lane busy while one completes.
  const int64_t piece_bytes_max = std::max(window_bytes / 4, options_.layout.page_bytes());
  for (auto waiting = peer.waiting.begin(); waiting != peer.waiting.end();) {
    const uint64_t id = *waiting;
    TargetEpoch& epoch = epochs_.at(id);
    while (!epoch.pending.empty()) {
      const auto piece = epoch.FindFetchable();
      if (piece == epoch.pending.end()) break;
      const int64_t bytes =
          std::min((piece->page_end - piece->page_begin) * options_.layout.page_bytes(), piece_bytes_max);
      if (peer.outstanding_bytes > 0 && peer.outstanding_bytes + bytes > window_bytes) return;
      PagePiece part = *piece;
      part.page_end = part.page_begin + static_cast<int>(bytes / options_.layout.page_bytes());
      piece->page_begin = part.page_end;
      if (piece->page_begin == piece->page_end) epoch.pending.erase(piece);
      const int avoid = part.is_refetch ? epoch.grid.lane(part.layer, part.page_begin) : PeerLanes::kNone;
      StartPiece(id, epoch, peer, part, peer.lanes.Pick(now, avoid), /*is_second_try=*/false);
    }
    waiting = epoch.pending.empty() ? peer.waiting.erase(waiting) : std::next(waiting);
  }
}

void TransferTarget::StartPiece(uint64_t id, TargetEpoch& epoch, PeerState& peer, const PagePiece& piece, int lane,
                                bool is_second_try) {
  const absl::Duration now = clock_->Now();
  const int64_t bytes = (piece.page_end - piece.page_begin) * options_.layout.page_bytes();
  if (peer.outstanding_bytes == 0) peer.last_fetch_progress = now;
  peer.outstanding_bytes += bytes;
  ++epoch.outstanding_fetches;
  const uint64_t fetch_id = ++last_fetch_;
  fetches_[fetch_id] = {.epoch = id,
                        .piece = piece,
                        .lane = lane,
                        .bytes = bytes,
                        .peer_session = peer.session,
                        .started = now,
                        .is_second_try = is_second_try};
  outputs_.push_back(StartFetch{.peer = epoch.peer,
                                .source_rank = piece.rank,
                                .lane = lane,
                                .epoch = id,
                                .fetch_id = fetch_id,
                                .runs = PlanPiece(epoch, peer, piece)});
}

std::vector<ByteRun> TransferTarget::PlanPiece(const TargetEpoch& epoch, const PeerState& peer,
                                               const PagePiece& piece) const {
  const PageRectangle rectangle{.layer_begin = piece.layer,
                                .layer_end = piece.layer + 1,
                                .page_begin = piece.page_begin,
                                .page_end = piece.page_end};
  absl::StatusOr<std::vector<ByteRun>> runs =
      PlanRuns(rectangle, {.source = {.num_layers = options_.layout.num_layers,
                                      .num_pages = peer.num_pages,
                                      .kv_cache_dtype = options_.layout.kv_cache_dtype},
                           .target = options_.layout,
                           .source_pages = *epoch.source_pages[piece.rank],
                           .target_pages = epoch.target_pages});
  TANDEM_CHECK(runs.ok(), runs.status().ToString());  // both page lists were checked when they came
  return *std::move(runs);
}

// ---- Ends ----

void TransferTarget::Advance(uint64_t id) {
  const auto it = epochs_.find(id);
  if (it == epochs_.end()) return;
  TargetEpoch& epoch = it->second;
  const std::string peer = epoch.peer;
  const bool has_hidden = options_.prompt_hidden_bytes == 0 || epoch.prompt_hidden.has_value();
  if (epoch.phase == TargetPhase::kOpen && epoch.grid.IsComplete() && epoch.HasEveryFirstToken() && has_hidden) {
    TANDEM_CHECK(epoch.outstanding_fetches == 0 && epoch.pending.empty(), "an epoch with fetches is not complete");
    const int tail = epoch.num_prompt_tokens % kvcache::kPageTokens;
    const int last_page = static_cast<int>(epoch.target_pages.size()) - 1;
    if (tail != 0 && epoch.grid.IsWanted(last_page)) {
      for (int layer = 0; layer < options_.layout.num_layers; ++layer) {
        memory_->ZeroTokensFrom(layer, epoch.target_pages[last_page], tail);
      }
    }
    epoch.phase = TargetPhase::kReady;
    epoch.next_repeat = clock_->Now() + options_.repeat_interval;
    ++counters_.epochs_ready;
    epoch.times.ready = clock_->Now();
    outputs_.push_back(
        TransferReady{.epoch = id, .prompt_hidden = epoch.prompt_hidden.value_or(std::string()), .times = epoch.times});
    epoch.prompt_hidden.reset();
    proto::TransferMessage message = Envelope(id, epoch);
    message.mutable_done();
    Say(epoch.peer, std::move(message));
  }
  if (!epoch.pending.empty()) peers_.at(peer).waiting.insert(id);
  Settle(id);
  Pump(peer);
}

void TransferTarget::Fail(uint64_t id, TargetEpoch& epoch, const absl::Status& status) {
  ++counters_.epochs_failed;
  outputs_.push_back(TransferFailed{.epoch = id, .status = status});
  End(id, epoch, status);
}

void TransferTarget::End(uint64_t id, TargetEpoch& epoch, const absl::Status& cause) {
  TANDEM_CHECK(epoch.phase == TargetPhase::kOpen, "an epoch ends once");
  epoch.phase = TargetPhase::kEnding;
  epoch.pending.clear();
  if (const auto peer = peers_.find(epoch.peer); peer != peers_.end()) {
    peer->second.waiting.erase(id);
    if (epoch.outstanding_fetches > 0) outputs_.push_back(CancelFetches{.peer = epoch.peer, .epoch = id});
  }
  epoch.abort.mutable_cause()->set_code(static_cast<int>(cause.code()));
  epoch.abort.mutable_cause()->set_message(std::string(cause.message()));
  if (!epoch.has_peer_let_go) SayAgain(id, epoch);
}

void TransferTarget::Settle(uint64_t id) {
  const auto it = epochs_.find(id);
  if (it == epochs_.end() || it->second.phase == TargetPhase::kOpen) return;
  TargetEpoch& epoch = it->second;
  if (epoch.outstanding_fetches > 0) return;
  if (epoch.phase == TargetPhase::kEnding && !epoch.is_released) {
    epoch.is_released = true;
    outputs_.push_back(PagesReleased{.epoch = id});
  }
  if (epoch.owes_abort_ack) {
    epoch.owes_abort_ack = false;
    proto::TransferMessage message = Envelope(id, epoch);
    message.mutable_abort_ack()->set_pages_freed(static_cast<uint32_t>(epoch.target_pages.size()));
    Say(epoch.peer, std::move(message));
  }
  if (!epoch.has_peer_let_go) return;
  outputs_.push_back(EpochClosed{.epoch = id});
  if (const auto peer = peers_.find(epoch.peer); peer != peers_.end()) peer->second.epochs.erase(id);
  epochs_.erase(it);
}

proto::TransferMessage TransferTarget::Envelope(uint64_t id, const TargetEpoch& epoch) const {
  proto::TransferMessage message;
  message.set_sender_incarnation(options_.incarnation);
  const auto peer = peers_.find(epoch.peer);
  if (peer != peers_.end()) message.set_receiver_incarnation(peer->second.incarnation);
  *message.mutable_key() = epoch.key;
  message.set_epoch(id);
  return message;
}

void TransferTarget::Say(const std::string& peer_name, proto::TransferMessage message) {
  const auto peer = peers_.find(peer_name);
  if (peer == peers_.end()) return;
  outputs_.push_back(SendMessage{.peer = peer_name, .session = peer->second.session, .message = std::move(message)});
}

void TransferTarget::SayAgain(uint64_t id, TargetEpoch& epoch) {
  epoch.next_repeat = clock_->Now() + options_.repeat_interval;
  proto::TransferMessage message = Envelope(id, epoch);
  switch (epoch.phase) {
    case TargetPhase::kOpen:
      message.mutable_repeat();
      break;
    case TargetPhase::kReady:
      message.mutable_done();
      break;
    case TargetPhase::kEnding:
      *message.mutable_abort() = epoch.abort;
      break;
  }
  Say(epoch.peer, std::move(message));
}

// ---- Time ----

void TransferTarget::Tick() {
  const absl::Duration now = clock_->Now();
  std::vector<uint64_t> late;
  for (auto& [id, epoch] : epochs_) {
    if (epoch.phase == TargetPhase::kOpen && now >= epoch.deadline) {
      late.push_back(id);
    } else if (!epoch.has_peer_let_go && now >= epoch.next_repeat) {
      // While fetches are under way the epoch makes progress of its own.
      if (epoch.phase == TargetPhase::kOpen &&
          (epoch.outstanding_fetches > 0 || epoch.FindFetchable() != epoch.pending.end())) {
        epoch.next_repeat = now + options_.repeat_interval;
        continue;
      }
      ++counters_.repeats_sent;
      SayAgain(id, epoch);
    }
  }
  for (const uint64_t id : late) {
    Fail(id, epochs_.at(id), absl::DeadlineExceededError("the deadline passed before the prompt's pages arrived"));
    Settle(id);
  }
  std::vector<std::string> stuck;
  for (const auto& [name, peer] : peers_) {
    if (peer.outstanding_bytes > 0 && now - peer.last_fetch_progress >= options_.fetch_stall_max) stuck.push_back(name);
  }
  for (const std::string& name : stuck) {
    const uint64_t session = peers_.at(name).session;
    const absl::Status status = absl::UnavailableError(
        absl::StrCat("no fetch has completed for ", absl::FormatDuration(options_.fetch_stall_max)));
    TakeDown(name, status);
    outputs_.push_back(ResetPeer{.peer = name, .session = session, .status = status});
  }
}

absl::Duration TransferTarget::NextTick() const {
  absl::Duration next = absl::InfiniteDuration();
  for (const auto& [id, epoch] : epochs_) {
    if (epoch.phase == TargetPhase::kOpen) next = std::min(next, epoch.deadline);
    if (!epoch.has_peer_let_go) next = std::min(next, epoch.next_repeat);
  }
  for (const auto& [name, peer] : peers_) {
    if (peer.outstanding_bytes > 0) next = std::min(next, peer.last_fetch_progress + options_.fetch_stall_max);
  }
  return next;
}

std::vector<TargetOutput> TransferTarget::TakeOutputs() { return std::exchange(outputs_, {}); }

void TransferTarget::AppendState(std::vector<uint64_t>& state) const {
  const absl::Duration now = clock_->Now();
  const auto from_now = [&](absl::Duration point) {
    return point < now ? uint64_t{0} : static_cast<uint64_t>(absl::ToInt64Microseconds(point - now)) + 1;
  };
  for (const auto& [name, peer] : peers_) {
    state.insert(state.end(), {peer.incarnation, peer.session, static_cast<uint64_t>(peer.outstanding_bytes),
                               from_now(peer.last_fetch_progress + options_.fetch_stall_max)});
    peer.lanes.AppendState(now, state);
  }
  for (const auto& [id, epoch] : epochs_) {
    state.insert(
        state.end(),
        {id, epoch.key.request_id(), epoch.key.attempt(), static_cast<uint64_t>(epoch.phase),
         static_cast<uint64_t>(epoch.outstanding_fetches), from_now(epoch.deadline), from_now(epoch.next_repeat),
         uint64_t{epoch.is_released} | uint64_t{epoch.has_peer_let_go} << 1 | uint64_t{epoch.owes_abort_ack} << 2});
    epoch.grid.AppendState(state);
    for (const auto& pages : epoch.source_pages) {
      state.push_back(pages.has_value());
      if (pages.has_value()) state.insert(state.end(), pages->begin(), pages->end());
    }
    for (const auto& token : epoch.first_tokens) state.push_back(token.has_value() ? *token + uint64_t{1} : 0);
    state.push_back(epoch.prompt_hidden.has_value());
    for (const PagePiece& piece : epoch.pending) {
      state.insert(state.end(), {static_cast<uint64_t>(piece.layer), static_cast<uint64_t>(piece.page_begin),
                                 static_cast<uint64_t>(piece.page_end), uint64_t{piece.is_refetch}});
    }
    state.insert(state.end(), epoch.target_pages.begin(), epoch.target_pages.end());
  }
  for (const auto& [id, fetch] : fetches_) {
    state.insert(state.end(),
                 {fetch.epoch, fetch.peer_session, static_cast<uint64_t>(fetch.lane), uint64_t{fetch.is_second_try}});
  }
  state.push_back(last_epoch_);
}

}  // namespace tandem::kvtransfer
