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

// At most 5 bytes a token on the wire: parts stay below 256 KiB.
constexpr size_t kTokensPerPart = 50'000;
constexpr double kCompletionDecay = 0.9;

bool IsSameKey(const proto::RequestKey& a, const proto::RequestKey& b) {
  return a.router_incarnation() == b.router_incarnation() && a.request_id() == b.request_id() &&
         a.attempt() == b.attempt();
}

absl::Status ToStatus(const proto::Error& error) {
  const auto code = static_cast<absl::StatusCode>(error.code());
  if (code == absl::StatusCode::kOk) return absl::InternalError("prefill aborted without a cause");
  return absl::Status(code, error.message());
}

absl::Status ValidateRequest(const TransferRequest& request, const kvcache::KvLayout& layout) {
  const auto num_tokens = static_cast<int64_t>(request.prompt_tokens.size());
  if (num_tokens == 0) return absl::InvalidArgumentError("prompt is empty");
  const int num_pages = kvcache::PagesForTokens(num_tokens);
  if (static_cast<int>(request.target_pages.size()) != num_pages) {
    return absl::InvalidArgumentError(absl::StrCat("a prompt of ", num_tokens, " tokens needs ", num_pages,
                                                   " target pages, got ", request.target_pages.size()));
  }
  for (const int32_t page : request.target_pages) {
    if (page < 0 || page >= layout.num_pages) {
      return absl::InvalidArgumentError(
          absl::StrCat("target page ", page, " is not in the pool of ", layout.num_pages));
    }
  }
  const int held = request.num_prefix_tokens_held;
  if (held < 0 || held > num_tokens || held % kvcache::kPageTokens != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("held prefix of ", held, " tokens is not whole pages of a prompt of ", num_tokens));
  }
  if (request.num_choices < 1) return absl::InvalidArgumentError("num_choices is below 1");
  if (!request.generated_tokens.empty() && request.num_choices != 1) {
    return absl::InvalidArgumentError(absl::StrCat("generated tokens belong to one choice, got ", request.num_choices));
  }
  if (request.remaining_time <= absl::ZeroDuration()) return absl::DeadlineExceededError("no time is left");
  return absl::OkStatus();
}

// The first piece whose source pages are known; the others were announced before Accepted came.
std::deque<PagePiece>::iterator FindFetchable(TargetEpoch& epoch) {
  return std::find_if(epoch.pending.begin(), epoch.pending.end(),
                      [&](const PagePiece& piece) { return epoch.source_pages[piece.rank].has_value(); });
}

int64_t CellBytes() { return kvcache::kLatentPageBytes + kvcache::kIndexPageBytes; }

}  // namespace

TransferTarget::TransferTarget(const TargetOptions& options, PageMemory* memory, const base::Clock* clock)
    : options_(options), memory_(memory), clock_(clock) {
  TANDEM_CHECK(options.incarnation != 0, "an incarnation is never zero");
  TANDEM_CHECK(options.layout.num_layers > 0, "a pool has layers");
}

// ---- Peers ----

void TransferTarget::PeerUp(std::string_view peer, const SourcePeer& source) {
  if (IsUp(peer)) PeerDown(peer, absl::UnavailableError("replaced by a new session"));
  PeerState& state = peers_[std::string(peer)];
  state = {};
  state.incarnation = source.incarnation;
  state.session = source.session;
  state.num_pages = source.num_pages;
  state.num_source_ranks = source.num_source_ranks;
  for (const PeerLane& lane : source.lanes) {
    state.lanes.push_back({.kind = lane.kind, .bytes_per_second = lane.bytes_per_second});
  }
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

// ---- Requests ----

absl::StatusOr<uint64_t> TransferTarget::Begin(std::string_view peer_name, TransferRequest request) {
  const auto it = peers_.find(peer_name);
  if (it == peers_.end()) return absl::UnavailableError(absl::StrCat("prefill ", std::string(peer_name), " is not up"));
  PeerState& peer = it->second;
  const absl::Duration now = clock_->Now();
  if (std::all_of(peer.lanes.begin(), peer.lanes.end(),
                  [&](const LaneState& lane) { return lane.quarantined_until > now; })) {
    return absl::UnavailableError(absl::StrCat("prefill ", it->first, " has no lane that may be used"));
  }
  RETURN_IF_ERROR(ValidateRequest(request, options_.layout));

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
                    .pending = {},
                    .deadline = now + request.remaining_time,
                    .next_repeat = now + options_.repeat_interval,
                    .abort = {}};
  epoch.source_pages.resize(peer.num_source_ranks);
  if (request.generated_tokens.empty()) epoch.first_tokens.resize(request.num_choices);
  const TargetEpoch& stored = epochs_.emplace(id, std::move(epoch)).first->second;
  peer.epochs.insert(id);
  ++counters_.epochs_begun;

  const std::vector<uint32_t>& tokens = request.prompt_tokens;
  uint32_t part_index = 0;
  for (size_t begin = 0; begin < tokens.size(); begin += kTokensPerPart) {
    const size_t end = std::min(begin + kTokensPerPart, tokens.size());
    proto::TransferMessage message = Envelope(id, stored);
    proto::Start& start = *message.mutable_start();
    start.mutable_tokens()->Add(tokens.begin() + begin, tokens.begin() + end);
    start.set_is_last(end == tokens.size());
    if (part_index == 0) {
      start.set_num_tokens(static_cast<uint32_t>(tokens.size()));
      start.mutable_generated_tokens()->Add(request.generated_tokens.begin(), request.generated_tokens.end());
      *start.mutable_sampling() = request.sampling;
      *start.mutable_stopping() = request.stopping;
      start.set_num_prefix_tokens_held(request.num_prefix_tokens_held);
      start.set_num_choices(request.num_choices);
      if (request.remaining_time < absl::InfiniteDuration()) {
        start.set_remaining_time_us(std::max<int64_t>(1, absl::ToInt64Microseconds(request.remaining_time)));
      }
    }
    start.set_part_index(part_index++);
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
      return OnAccepted(epoch, message.accepted());
    case proto::TransferMessage::kAnnounce:
      return OnAnnounce(epoch, message.announce());
    case proto::TransferMessage::kFirstToken:
      return OnFirstToken(id, epoch, message.first_token());
    case proto::TransferMessage::kSourceSums:
      return OnSourceSums(epoch, message.source_sums());
    default:
      return absl::InternalError(
          absl::StrCat("prefill sent a message of type ", static_cast<int>(message.message_case())));
  }
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

absl::Status TransferTarget::OnAccepted(TargetEpoch& epoch, const proto::Accepted& accepted) {
  const PeerState& peer = peers_.at(epoch.peer);
  if (accepted.source_rank() >= epoch.source_pages.size()) {
    return absl::InternalError(absl::StrCat("source rank ", accepted.source_rank(), " of ", epoch.source_pages.size()));
  }
  std::vector<uint32_t> pages(accepted.source_pages().begin(), accepted.source_pages().end());
  if (pages.size() != epoch.target_pages.size()) {
    return absl::InternalError(
        absl::StrCat("prefill accepted with ", pages.size(), " pages, the prompt has ", epoch.target_pages.size()));
  }
  for (const uint32_t page : pages) {
    if (page >= peer.num_pages) {
      return absl::InternalError(absl::StrCat("source page ", page, " is not in prefill's pool of ", peer.num_pages));
    }
  }
  std::optional<std::vector<uint32_t>>& known = epoch.source_pages[accepted.source_rank()];
  if (known.has_value() && *known != pages) return absl::InternalError("prefill accepted twice, with other pages");
  known = std::move(pages);
  return absl::OkStatus();
}

absl::Status TransferTarget::CheckRect(const TargetEpoch& epoch, uint32_t rank, const PageRect& rect) const {
  if (rank < epoch.source_pages.size() && rect.layer_begin >= 0 && rect.layer_begin < rect.layer_end &&
      rect.layer_end <= options_.layout.num_layers && rect.page_begin >= 0 && rect.page_begin < rect.page_end &&
      rect.page_end <= static_cast<int>(epoch.target_pages.size())) {
    return absl::OkStatus();
  }
  return absl::InternalError(absl::StrCat("prefill rank ", rank, " named layers [", rect.layer_begin, ", ",
                                          rect.layer_end, ") and pages [", rect.page_begin, ", ", rect.page_end,
                                          ") of ", options_.layout.num_layers, " layers and ",
                                          epoch.target_pages.size(), " pages"));
}

absl::Status TransferTarget::OnAnnounce(TargetEpoch& epoch, const proto::Announce& announce) {
  const PageRect rect{.layer_begin = static_cast<int>(announce.layer_begin()),
                      .layer_end = static_cast<int>(announce.layer_end()),
                      .page_begin = static_cast<int>(announce.page_begin()),
                      .page_end = static_cast<int>(announce.page_end())};
  RETURN_IF_ERROR(CheckRect(epoch, announce.source_rank(), rect));
  for (const PagePiece& piece : epoch.grid.Announce(static_cast<int>(announce.source_rank()), rect)) {
    epoch.pending.push_back(piece);
  }
  return absl::OkStatus();
}

absl::Status TransferTarget::OnFirstToken(uint64_t id, TargetEpoch& epoch, const proto::FirstToken& token) {
  if (token.choice() >= epoch.first_tokens.size()) {
    return absl::InternalError(
        absl::StrCat("prefill sampled choice ", token.choice(), " of ", epoch.first_tokens.size()));
  }
  std::optional<FirstTokenValue>& known = epoch.first_tokens[token.choice()];
  if (known.has_value()) {
    if (known->token == token.token()) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("prefill sampled two first tokens for choice ", token.choice(), ": ",
                                            known->token, " and ", token.token()));
  }
  known = FirstTokenValue{.token = token.token(), .logprob = token.logprob()};
  outputs_.push_back(FirstTokenArrived{.epoch = id,
                                       .choice = static_cast<int>(token.choice()),
                                       .token = token.token(),
                                       .logprob = token.logprob(),
                                       .hidden = token.hidden()});
  return absl::OkStatus();
}

absl::Status TransferTarget::OnSourceSums(TargetEpoch& epoch, const proto::SourceSums& sums) {
  const PageRect rect{.layer_begin = static_cast<int>(sums.layer_begin()),
                      .layer_end = static_cast<int>(sums.layer_end()),
                      .page_begin = static_cast<int>(sums.page_begin()),
                      .page_end = static_cast<int>(sums.page_end())};
  RETURN_IF_ERROR(CheckRect(epoch, sums.source_rank(), rect));
  const int num_pages = rect.page_end - rect.page_begin;
  const int64_t num_cells = int64_t{rect.layer_end - rect.layer_begin} * num_pages;
  if (sums.latent_sums_size() != num_cells || sums.index_sums_size() != num_cells) {
    return absl::InternalError(absl::StrCat("prefill sent ", sums.latent_sums_size(), " and ", sums.index_sums_size(),
                                            " sums for ", num_cells, " pages"));
  }
  for (int64_t i = 0; i < num_cells; ++i) {
    const int layer = rect.layer_begin + static_cast<int>(i / num_pages);
    const int page = rect.page_begin + static_cast<int>(i % num_pages);
    if (!epoch.grid.IsWanted(page)) continue;
    const CellSums cell{.latent = sums.latent_sums(static_cast<int>(i)), .index = sums.index_sums(static_cast<int>(i))};
    ASSIGN_OR_RETURN(const CellVerdict verdict, epoch.grid.Expect(layer, page, cell));
    RETURN_IF_ERROR(Judge(epoch, layer, page, verdict));
  }
  return absl::OkStatus();
}

// ---- Fetching ----

void TransferTarget::FetchDone(uint64_t fetch_id, const absl::Status& status) {
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
    LaneState& lane = state.lanes[fetch.lane];
    if (status.ok()) {
      lane.recent_bytes = lane.recent_bytes * kCompletionDecay + static_cast<double>(fetch.bytes);
      lane.recent_seconds = lane.recent_seconds * kCompletionDecay +
                            absl::ToDoubleSeconds(now - std::max(lane.last_completion, fetch.started));
      if (lane.recent_seconds > 0) lane.bytes_per_second = lane.recent_bytes / lane.recent_seconds;
    }
    lane.last_completion = now;
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
  counters_.fetched_bytes += (piece.page_end - piece.page_begin) * CellBytes();
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
  const std::string& kind = peers_.at(epoch.peer).lanes[lane].kind;
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
  const std::string& kind = peer.lanes[fetch.lane].kind;
  epoch.abort.set_rank(fetch.piece.rank);
  epoch.abort.set_lane(kind);
  if (absl::IsAborted(status) || absl::IsNotFound(status) || absl::IsFailedPrecondition(status)) {
    return absl::AbortedError(
        absl::StrCat("prefill rank ", fetch.piece.rank, " no longer serves the epoch: ", status.message()));
  }
  const int other = PickLane(peer, fetch.lane);
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
    LaneState& lane = peers_.at(peer_name).lanes[index];
    if (now - lane.last_wrong_sum <= options_.quarantine_window) {
      lane.quarantined_until = now + options_.quarantine_window;
      outputs_.push_back(LaneQuarantined{.peer = peer_name, .lane = index, .detail = where});
    }
    lane.last_wrong_sum = now;
  }
}

int TransferTarget::PickLane(const PeerState& peer, int avoid) const {
  const absl::Duration now = clock_->Now();
  int best = -1;
  for (int i = 0; i < static_cast<int>(peer.lanes.size()); ++i) {
    if (i != avoid && peer.lanes[i].quarantined_until <= now) return i;
    if (best < 0 || (peer.lanes[best].quarantined_until > now && peer.lanes[i].quarantined_until <= now)) best = i;
  }
  return avoid >= 0 ? avoid : best;
}

int64_t TransferTarget::WindowBytes(const PeerState& peer) const {
  const double rate = peer.lanes[PickLane(peer, -1)].bytes_per_second;
  const auto bytes = static_cast<int64_t>(rate * absl::ToDoubleSeconds(options_.fetch_window));
  return std::clamp(bytes, options_.window_bytes_min, options_.window_bytes_max);
}

void TransferTarget::Pump(const std::string& peer_name) {
  const auto it = peers_.find(peer_name);
  if (it == peers_.end()) return;
  PeerState& peer = it->second;
  const int64_t window_bytes = WindowBytes(peer);
  // Several pieces in flight keep the lane busy while one completes.
  const int64_t piece_bytes_max = std::max(window_bytes / 4, CellBytes());
  for (auto waiting = peer.waiting.begin(); waiting != peer.waiting.end();) {
    const uint64_t id = *waiting;
    TargetEpoch& epoch = epochs_.at(id);
    while (!epoch.pending.empty()) {
      const auto piece = FindFetchable(epoch);
      if (piece == epoch.pending.end()) break;
      const int64_t bytes = std::min((piece->page_end - piece->page_begin) * CellBytes(), piece_bytes_max);
      if (peer.outstanding_bytes > 0 && peer.outstanding_bytes + bytes > window_bytes) return;
      PagePiece part = *piece;
      part.page_end = part.page_begin + static_cast<int>(bytes / CellBytes());
      piece->page_begin = part.page_end;
      if (piece->page_begin == piece->page_end) epoch.pending.erase(piece);
      const int avoid = part.is_refetch ? epoch.grid.lane(part.layer, part.page_begin) : -1;
      StartPiece(id, epoch, peer, part, PickLane(peer, avoid), /*is_second_try=*/false);
    }
    waiting = epoch.pending.empty() ? peer.waiting.erase(waiting) : std::next(waiting);
  }
}

void TransferTarget::StartPiece(uint64_t id, TargetEpoch& epoch, PeerState& peer, const PagePiece& piece, int lane,
                                bool is_second_try) {
  const absl::Duration now = clock_->Now();
  const int64_t bytes = (piece.page_end - piece.page_begin) * CellBytes();
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
      PlanRuns(rectangle, {.source = {.num_layers = options_.layout.num_layers, .num_pages = peer.num_pages},
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
  if (epoch.phase == TargetPhase::kOpen && epoch.grid.IsComplete() &&
      std::all_of(epoch.first_tokens.begin(), epoch.first_tokens.end(), [](const auto& t) { return t.has_value(); })) {
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
    outputs_.push_back(TransferReady{.epoch = id});
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
          (epoch.outstanding_fetches > 0 || FindFetchable(epoch) != epoch.pending.end())) {
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

TargetLedger TransferTarget::ledger() const {
  TargetLedger ledger{.open_epochs = static_cast<int64_t>(epochs_.size()),
                      .outstanding_fetches = static_cast<int64_t>(fetches_.size())};
  for (const auto& [id, epoch] : epochs_) {
    if (epoch.phase != TargetPhase::kReady && !epoch.is_released) {
      ledger.held_pages += static_cast<int64_t>(epoch.target_pages.size());
    }
    if (epoch.phase == TargetPhase::kOpen) {
      ledger.announced_unfetched_bytes += (epoch.grid.num_announced() - epoch.grid.num_landed()) * CellBytes();
    }
  }
  for (const auto& [id, fetch] : fetches_) ledger.outstanding_bytes += fetch.bytes;
  return ledger;
}

void TransferTarget::AppendState(std::vector<uint64_t>& state) const {
  const absl::Duration now = clock_->Now();
  const auto from_now = [&](absl::Duration point) {
    return point < now ? uint64_t{0} : static_cast<uint64_t>(absl::ToInt64Microseconds(point - now) + 1);
  };
  for (const auto& [name, peer] : peers_) {
    state.insert(state.end(), {peer.incarnation, peer.session, static_cast<uint64_t>(peer.outstanding_bytes),
                               from_now(peer.last_fetch_progress + options_.fetch_stall_max)});
    for (const LaneState& lane : peer.lanes) {
      state.insert(state.end(),
                   {from_now(lane.last_wrong_sum + options_.quarantine_window), from_now(lane.quarantined_until)});
    }
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
    for (const auto& token : epoch.first_tokens) state.push_back(token.has_value() ? token->token + uint64_t{1} : 0);
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

double TransferTarget::LaneRate(std::string_view peer_name, int lane) const {
  const auto peer = peers_.find(peer_name);
  if (peer == peers_.end() || lane < 0 || lane >= static_cast<int>(peer->second.lanes.size())) return 0;
  return peer->second.lanes[lane].bytes_per_second;
}

}  // namespace tandem::kvtransfer
