// What decode knows of one open epoch and of one peer. Details of transfer_target.h; nobody else includes this.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kvtransfer/page_grid.h"
#include "kvtransfer/peer_lanes.h"
#include "kvtransfer/transfer_times.h"
#include "proto/kv_transfer.pb.h"

namespace tandem::kvtransfer {

enum class TargetPhase : uint8_t {
  kOpen,    // Start is sent; tokens, announcements and sums come in
  kReady,   // Done is sent; the pages are the caller's; waits for DoneAck
  kEnding,  // failed or aborted; waits for its own fetches and for the peer
};

struct JudgedCell {
  int layer = 0;
  int page = 0;
  CellVerdict verdict = CellVerdict::kOpen;
};

struct TargetEpoch {
  // What P says of the epoch while it is open. Each takes a second copy of the same; INTERNAL where P contradicts
  // itself, the prompt or its own pool: nothing that comes over the network may become a bad offset.
  absl::Status TakeAccepted(const proto::Accepted& accepted, int64_t num_source_pool_pages);
  absl::Status TakeAnnounce(const proto::Announce& announce);           // what is new of it becomes pending
  absl::StatusOr<bool> TakeFirstToken(const proto::FirstToken& token);  // true where it is new
  absl::Status TakePromptHidden(const proto::PromptHidden& message, int64_t num_bytes);
  absl::StatusOr<std::vector<JudgedCell>> TakeSourceSums(const proto::SourceSums& sums);

  // The first pending piece whose source pages are known; the others were announced before Accepted came.
  std::deque<PagePiece>::iterator FindFetchable();
  bool HasEveryFirstToken() const;

  std::string peer;
  proto::RequestKey key;
  TargetPhase phase = TargetPhase::kOpen;
  PageGrid grid;
  int num_prompt_tokens = 0;
  std::vector<int32_t> target_pages;
  std::vector<std::optional<std::vector<uint32_t>>> source_pages;  // [source rank]
  std::vector<std::optional<uint32_t>> first_tokens;               // [choice]; empty where none is to come
  std::optional<std::string> prompt_hidden;                        // once it has come, until it is handed on
  std::deque<PagePiece> pending;                                   // announced, not yet asked for
  int outstanding_fetches = 0;
  absl::Duration deadline;
  absl::Duration next_repeat;
  proto::Abort abort;            // what is said again until the peer has let go
  bool is_released = false;      // PagesReleased is out
  bool has_peer_let_go = false;  // it said so, or it is down
  bool owes_abort_ack = false;
  TransferTimes times;
};

struct OutstandingFetch {
  uint64_t epoch = 0;
  PagePiece piece;
  int lane = 0;
  int64_t bytes = 0;
  uint64_t peer_session = 0;
  absl::Duration started;
  bool is_second_try = false;  // a lane failed it before
};

struct PeerState {
  uint64_t incarnation = 0;
  uint64_t session = 0;
  int64_t num_pages = 0;
  int num_source_ranks = 1;
  PeerLanes lanes;
  int64_t outstanding_bytes = 0;  // of this session's fetches
  absl::Duration last_fetch_progress;
  std::set<uint64_t> epochs;   // open ones
  std::set<uint64_t> waiting;  // those with pending pieces, oldest first
};

}  // namespace tandem::kvtransfer
