// What decode knows of one open epoch and of one peer. Details of transfer_target.h; nobody else includes this.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "kvtransfer/page_grid.h"
#include "proto/kv_transfer.pb.h"

namespace tandem::kvtransfer {

enum class TargetPhase : uint8_t {
  kOpen,    // Start is sent; tokens, announcements and sums come in
  kReady,   // Done is sent; the pages are the caller's; waits for DoneAck
  kEnding,  // failed or aborted; waits for its own fetches and for the peer
};

struct FirstTokenValue {
  uint32_t token = 0;
  float logprob = 0;
};

struct TargetEpoch {
  std::string peer;
  proto::RequestKey key;
  TargetPhase phase = TargetPhase::kOpen;
  PageGrid grid;
  int num_prompt_tokens = 0;
  std::vector<int32_t> target_pages;
  std::vector<std::optional<std::vector<uint32_t>>> source_pages;  // [source rank]
  std::vector<std::optional<FirstTokenValue>> first_tokens;        // [choice]; empty where none is to come
  std::deque<PagePiece> pending;                                   // announced, not yet asked for
  int outstanding_fetches = 0;
  absl::Duration deadline;
  absl::Duration next_repeat;
  proto::Abort abort;            // what is said again until the peer has let go
  bool is_released = false;      // PagesReleased is out
  bool has_peer_let_go = false;  // it said so, or it is down
  bool owes_abort_ack = false;
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

struct LaneState {
  std::string kind;
  double bytes_per_second = 0;
  // Recent bytes and the time they took, each completion weighing 0.9 times the next.
  double recent_bytes = 0;
  double recent_seconds = 0;
  absl::Duration last_completion = -absl::InfiniteDuration();
  absl::Duration last_wrong_sum = -absl::InfiniteDuration();
  absl::Duration quarantined_until = -absl::InfiniteDuration();
};

struct PeerState {
  uint64_t incarnation = 0;
  uint64_t session = 0;
  int64_t num_pages = 0;
  int num_source_ranks = 1;
  std::vector<LaneState> lanes;
  int64_t outstanding_bytes = 0;  // of this session's fetches
  absl::Duration last_fetch_progress;
  std::set<uint64_t> epochs;   // open ones
  std::set<uint64_t> waiting;  // those with pending pieces, oldest first
};

}  // namespace tandem::kvtransfer
