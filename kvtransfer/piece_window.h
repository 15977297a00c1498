// Fetches cut into pieces that a source is asked for: which to ask for next, which are unanswered, whose fetch has
// ended. What every lane with an answering source does between its orders and its connection.
//
// Invariants: at most num_unanswered_max pieces are unanswered, which bounds memory on both sides; a fetch ends exactly
// once, and its `done` is called from CallDone alone; a piece whose fetch has ended is still awaited, but not wanted:
// its bytes are drained. No thread, no I/O. Tested by piece_window_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "kvtransfer/byte_run.h"

namespace tandem::kvtransfer {

struct PieceLimits {
  uint64_t num_bytes_max = 0;  // of a piece
  size_t num_runs_max = 0;     // of a piece
  size_t num_unanswered_max = 0;
};

struct Piece {
  uint64_t request = 0;  // counts from 1, never reused
  uint64_t epoch = 0;
  std::vector<ByteRun> runs;
};

class PieceWindow final {
 public:
  PieceWindow(const PieceLimits& limits, uint64_t source_bytes, uint64_t target_bytes);

  // OUT_OF_RANGE for runs outside of the pools, OK for none, and what Break was given: ends at once.
  void Add(uint64_t epoch, std::vector<ByteRun> runs, std::function<void(absl::Status)> done);
  void Cancel(uint64_t epoch);
  // Ends every fetch that is there.
  void FailAll(const absl::Status& status);
  // The connection is lost: every fetch, now and later, ends with this status (the first that was given), and nothing
  // is unanswered any more.
  void Break(const absl::Status& status);
  const absl::Status& status() const { return status_; }  // OK until Break

  // The next piece to ask for, unanswered from now on; null where there is none or the window is full. Valid until it
  // is answered, or Break.
  const Piece* AskNext();
  // Of what was asked for: null where that request is not unanswered; where there is none.
  const Piece* Find(uint64_t request) const;
  const Piece* Oldest() const;
  bool HasUnanswered() const { return !unanswered_.empty(); }
  // Whether its bytes may land.
  bool IsWanted(uint64_t request) const;
  // OK: its bytes have landed, where they are wanted. Otherwise its fetch ends with that.
  void Answer(uint64_t request, absl::Status status);

  // Calls `done` of what has ended. False where nothing has.
  bool CallDone();

 private:
  struct Fetch {
    uint64_t epoch = 0;
    RunCutter cutter{{}};
    std::function<void(absl::Status)> done;
    int num_unanswered = 0;
    bool has_ended = false;
  };
  struct Asked {
    Piece piece;
    std::shared_ptr<Fetch> fetch;
  };

  void End(const std::shared_ptr<Fetch>& fetch, absl::Status status);

  const PieceLimits limits_;
  const uint64_t source_bytes_;
  const uint64_t target_bytes_;
  absl::Status status_;
  std::deque<std::shared_ptr<Fetch>> unsent_;  // with pieces to ask for, in order of arrival
  std::map<uint64_t, Asked> unanswered_;       // by request
  uint64_t last_request_ = 0;
  std::map<Fetch*, std::shared_ptr<Fetch>> live_;
  std::vector<std::pair<std::shared_ptr<Fetch>, absl::Status>> ended_;
};

}  // namespace tandem::kvtransfer
