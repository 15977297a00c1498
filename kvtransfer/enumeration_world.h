// A P-D pair small enough to be walked exhaustively: both machines, the messages between them, outstanding fetches, and
// pools in which one word stands for a page. A value: copying it copies the world.
//
// The world also judges: every rule that an output breaks is kept as `error`. It knows the promises of the protocol
// from its specification alone, not from the machines.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "kvtransfer/transfer_source.h"
#include "kvtransfer/transfer_target.h"

namespace tandem::kvtransfer {

struct Scenario {
  int num_requests = 1;
  int num_pages = 1;  // of either pool; each request needs one
  int num_faults = 0;
};

enum class Step {
  kConnect,
  kDeliverToSource,
  kDeliverToTarget,
  kCompleteFetch,  // index: which fetch
  kAccept,         // id: which epoch
  kCompute,
  kSample,
  kBegin,  // index: which request
  kTick,
  // Faults.
  kAbortAtTarget,  // index: which request
  kAbortAtSource,
  kDuplicateToSource,
  kDuplicateToTarget,
  kDropToSource,
  kDropToTarget,
  kReorderToSource,
  kReorderToTarget,
  kStaleToSource,  // the message that came last, once more
  kStaleToTarget,
  kCorruptFetch,
  kFailFetch,
  kCut,
  kRestartSource,
  kKillSource,
  kRestartTarget,
  kKillTarget,
};

struct Action {
  Step step = Step::kTick;
  int index = 0;
  EpochId id;
};
std::string NameOf(const Action& action);

struct Digest {
  uint64_t low = 0;
  uint64_t high = 0;
  bool operator==(const Digest&) const = default;
};

class World {
 public:
  // Linked, nothing begun.
  explicit World(const Scenario& scenario);

  // What may happen next without a fault, time apart; and with one.
  std::vector<Action> Steps() const;
  std::vector<Action> Faults() const;
  // Time passes until the next thing that a machine waits for. InfiniteDuration where neither does.
  absl::Duration NextTick() const;
  void Apply(const Action& action);

  // What must hold where nothing is left to do; empty where it does.
  std::string CheckRest() const;
  const std::string& error() const { return error_; }
  int faults_left() const { return faults_left_; }
  int num_ready() const;
  Digest digest() const;

 private:
  friend class WorldClock;
  friend class WorldMemory;

  // One word stands for one page of one record kind: the sum is the word.
  using Pool = std::array<std::array<uint64_t, 2>, 2>;
  struct Letter {
    proto::TransferMessage message;
    uint64_t digest = 0;
  };
  using Mail = std::shared_ptr<const Letter>;
  enum class Fate { kNotBegun, kOpen, kReady, kReleased, kForgotten };  // of a request at decode
  struct Request {
    Fate fate = Fate::kNotBegun;
    uint64_t epoch = 0;
    bool is_closed = false;
    bool has_failed = false;
    bool was_aborted = false;
    bool has_token = false;
    int target_page = -1;
  };
  struct Prefill {  // of an admitted request at prefill's engine
    int request = 0;
    int page = -1;  // -1: waits for one
    bool is_computed = false;
    bool has_sampled = false;
  };
  struct Fetch {
    std::shared_ptr<const StartFetch> start;
    bool is_lane_closed = false;
  };
  enum class Bytes { kRight, kWrong, kError };

  void Violate(std::string text);
  Request& RequestOf(uint64_t epoch);
  static Mail Seal(proto::TransferMessage message);
  static uint64_t ContentOf(int request, int kind) { return 1000 * (request + 1) + kind; }

  void Link();
  void Unlink();
  void Begin(int request);
  void Deliver(Mail mail, bool to_source);
  void CompleteFetch(size_t index, Bytes bytes);
  void Accept(const EpochId& id);
  void Compute(const EpochId& id);
  void KillSource(bool restarts);
  void KillTarget(bool restarts);
  void Drain();
  void DrainTarget();
  void DrainSource();

  Scenario scenario_;
  absl::Duration now_ = absl::Seconds(1);
  uint64_t target_incarnation_ = 100;
  uint64_t source_incarnation_ = 200;
  TransferTarget target_;
  TransferSource source_;
  uint64_t session_ = 0;
  bool is_target_alive_ = true;
  bool is_source_alive_ = true;
  bool is_linked_ = false;
  std::deque<Mail> to_source_;
  std::deque<Mail> to_target_;
  Mail last_to_source_;  // null before the first
  Mail last_to_target_;
  std::deque<Fetch> fetches_;
  std::vector<Request> requests_;
  std::map<EpochId, Prefill> prefills_;
  Pool target_pool_{};
  Pool source_pool_{};
  std::array<int, 2> target_owner_{-1, -1};  // request, -1: free
  std::array<int, 2> source_owner_{-1, -1};
  int faults_left_;
  std::string error_;
};

}  // namespace tandem::kvtransfer
