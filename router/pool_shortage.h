// Which pool of workers is short, prefill or decode, and how many workers each had better have: advice, no action.
//
// A pool's pressure is 1 where it does just what it may, more where it is short:
//   prefill: the time that its line takes at the rate measured while it computes, against the limit of the time to
//     first token; and, while it has a line and decode has room, the share of finished answers that began late.
//   decode: the share of KV pages in use, requests that wait for room (of pages or of running sequences) against those
//     that run, and, while any runs, the share of finished answers whose tokens came too slowly.
// A pool becomes short after its pressure has been at least kEnter at every look for a whole hold time, and ceases to
// be after it has been at most kLeave for as long: between two changes lies a hold time at least. The suggestion is
// more than there are only where the pool is short, twice as many at most; it is one fewer where the others would be
// well below what they may; it is never below one.
// Pure of clocks; one thread. Tested by pool_shortage_test.cc, in a cluster by tests/e2e/pool_shortage_test.py.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"

namespace tandem::router {

// Of the workers that take new requests, as they last reported it.
struct PoolSnapshot {
  struct Prefill {
    uint64_t incarnation = 0;
    uint64_t waiting_tokens = 0;   // of prompts in its line and under way
    uint64_t computed_tokens = 0;  // since its start
  };
  struct Decode {
    uint64_t kv_pages_free = 0;
    uint64_t kv_pages_total = 0;
    uint32_t running_sequences = 0;
    uint32_t waiting_requests = 0;  // for room
  };
  std::vector<Prefill> prefills;
  std::vector<Decode> decodes;
  // Since the router's start; they never fall.
  double finished_answers = 0;
  double late_first_tokens = 0;  // of these
  double slow_answers = 0;       // of these
};

struct PoolState {
  bool is_short = false;
  double pressure = 0;
  int num_workers = 0;
  int num_suggested = 1;
};

// With the numbers that it comes from.
struct PoolShortage {
  PoolState prefill, decode;
  uint64_t waiting_tokens = 0;
  double tokens_per_second = 0;  // of the prefill pool; 0 = not measured yet
  double line_seconds = 0;
  double kv_share = 0;  // in use
  uint64_t running_sequences = 0;
  uint64_t waiting_requests = 0;
  double late_share = 0;  // of answers that have finished lately: their first token; 0 where none has
  double slow_share = 0;  // their further tokens

  // "none", "prefill", "decode" or "both", and the numbers: one line.
  std::string ToString() const;
};

class PoolShortageJudge final {
 public:
  struct Limits {
    absl::Duration time_to_first_token = absl::Seconds(5);
    absl::Duration hold = absl::Seconds(30);
  };
  static constexpr double kEnter = 1, kLeave = 0.7;
  static constexpr double kLateShareMax = 0.1;     // of answers
  static constexpr double kKvShareMax = 0.9;       // of pages
  static constexpr double kWaitingShareMax = 0.1;  // of running sequences

  explicit PoolShortageJudge(const Limits& limits) : limits_(limits) {}

  // now: on any clock that never goes back.
  const PoolShortage& Observe(const PoolSnapshot& snapshot, absl::Duration now);

 private:
  // Follows a value over a threshold once it has stayed there for the hold time.
  class Latch {
   public:
    bool Observe(double value, double enter, double leave, absl::Duration now, absl::Duration hold);

   private:
    bool is_on_ = false;
    std::optional<absl::Duration> turning_since_;
  };
  struct Pool {
    Latch is_short;
    Latch is_spare;
    double use = 0;  // lately
  };

  void ObserveAnswers(const PoolSnapshot& snapshot, absl::Duration elapsed);
  void ObservePrefills(const PoolSnapshot& snapshot, absl::Duration elapsed);
  void ObserveDecodes(const PoolSnapshot& snapshot);
  // use: of the pool now, 1 = all of it.
  void Conclude(int num_workers, double use, Pool& pool, PoolState& state, absl::Duration now, absl::Duration elapsed);

  const Limits limits_;
  std::optional<absl::Duration> last_;
  absl::flat_hash_map<uint64_t, PoolSnapshot::Prefill> last_prefills_;  // by incarnation
  double last_finished_ = 0, last_late_ = 0, last_slow_ = 0;
  // Lately: what is older weighs less.
  double computed_tokens_ = 0, computing_seconds_ = 0;
  double finished_ = 0, late_ = 0, slow_ = 0;
  Pool prefill_, decode_;
  PoolShortage shortage_;
};

}  // namespace tandem::router
