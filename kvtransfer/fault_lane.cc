#include "kvtransfer/fault_lane.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kvtransfer/byte_run.h"

namespace tandem::kvtransfer {
namespace {

// The clock cannot wake a waiter, so waiting fetches are looked at this often.
constexpr absl::Duration kTimerPeriod = absl::Milliseconds(1);

}  // namespace

FaultLane::FaultLane(std::unique_ptr<FetchLane> inner, std::span<std::byte> target, FaultSpec spec,
                     const base::Clock& clock)
    : inner_(std::move(inner)), target_(target), spec_(std::move(spec)), clock_(clock) {
  absl::MutexLock lock(&join_mutex_);
  timer_ = std::thread([this] { RunTimer(); });
}

FaultLane::~FaultLane() { Close(); }

void FaultLane::Fetch(uint64_t epoch, std::vector<ByteRun> runs, std::function<void(absl::Status)> done) {
  std::vector<Held> starting;
  bool is_refused = false;
  {
    absl::MutexLock lock(&mutex_);
    is_refused = is_closed_;
    if (!is_refused) {
      const uint64_t index = next_index_++;
      Held held = {.epoch = epoch,
                   .index = index,
                   .fault = spec_.FaultOf(index),
                   .runs = std::move(runs),
                   .done = std::move(done),
                   .due = clock_.Now()};
      ++counts_[held.fault];
      if (held.fault == Fault::kDrop) held.due = absl::InfiniteDuration();
      if (held.fault == Fault::kDelay || held.fault == Fault::kReorder) held.due += spec_.delay_time;
      if (held.fault == Fault::kStall) stalled_until_ = std::max(stalled_until_, clock_.Now() + spec_.delay_time);
      const bool starts_now = held.due <= clock_.Now() && stalled_until_ <= clock_.Now();
      held_.push_back(std::move(held));
      if (starts_now) {
        starting = TakeDue(false);
        // What was held back to be overtaken has been overtaken now.
        for (Held& other : held_) {
          if (other.fault == Fault::kReorder && other.index < index) other.due = absl::ZeroDuration();
        }
        for (Held& other : TakeDue(false)) starting.push_back(std::move(other));
      }
    }
  }
  if (is_refused) return done(absl::CancelledError("fault lane is closed"));
  for (Held& held : starting) Start(std::move(held));
}

void FaultLane::Cancel(uint64_t epoch) {
  {
    absl::MutexLock lock(&mutex_);
    // A dropped or waiting fetch ends from the timer's thread: `done` never runs within Cancel.
    for (Held& held : held_) {
      if (held.epoch != epoch) continue;
      held.is_cancelled = true;
      held.due = absl::ZeroDuration();
    }
  }
  inner_->Cancel(epoch);
}

void FaultLane::Close() {
  {
    absl::MutexLock lock(&mutex_);
    is_closed_ = true;
  }
  inner_->Close();
  absl::MutexLock lock(&join_mutex_);
  if (timer_.joinable()) timer_.join();
}

std::map<Fault, uint64_t> FaultLane::counts() const {
  absl::MutexLock lock(&mutex_);
  return counts_;
}

void FaultLane::RunTimer() {
  while (true) {
    std::vector<Held> due;
    bool is_last = false;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &FaultLane::IsTimerNeeded));
      is_last = is_closed_;
      due = is_last ? std::exchange(held_, {}) : TakeDue(true);
      if (due.empty() && !is_last) mutex_.AwaitWithTimeout(absl::Condition(&is_closed_), kTimerPeriod);
    }
    for (Held& held : due) {
      if (is_last || held.is_cancelled) {
        held.done(absl::CancelledError(absl::StrCat("epoch ", held.epoch, " is cancelled")));
      } else {
        Start(std::move(held));
      }
    }
    if (is_last) return;
  }
}

bool FaultLane::IsTimerNeeded() const {
  return is_closed_ ||
         std::any_of(held_.begin(), held_.end(), [](const Held& held) { return held.due != absl::InfiniteDuration(); });
}

// Cancelled fetches end in spite of a stall.
std::vector<FaultLane::Held> FaultLane::TakeDue(bool with_cancelled) {
  const absl::Duration now = clock_.Now();
  const bool is_stalled = now < stalled_until_;
  const auto is_waiting = [&](const Held& held) {
    return held.is_cancelled ? !with_cancelled : is_stalled || held.due > now;
  };
  const auto due_begin = std::stable_partition(held_.begin(), held_.end(), is_waiting);
  std::vector<Held> due(std::make_move_iterator(due_begin), std::make_move_iterator(held_.end()));
  held_.erase(due_begin, held_.end());
  return due;
}

void FaultLane::Start(Held held) {
  switch (held.fault) {
    case Fault::kDuplicate: {
      // The first error, or OK once both have arrived.
      struct Both {
        std::atomic<int> num_left = 2;
        absl::Mutex mutex;
        absl::Status status;
        std::function<void(absl::Status)> done;
      };
      auto both = std::make_shared<Both>();
      both->done = std::move(held.done);
      const auto one_done = [both](absl::Status status) {
        {
          absl::MutexLock lock(&both->mutex);
          both->status.Update(std::move(status));
        }
        if (both->num_left.fetch_sub(1) == 1) both->done(both->status);
      };
      inner_->Fetch(held.epoch, held.runs, one_done);
      inner_->Fetch(held.epoch, std::move(held.runs), one_done);
      return;
    }
    case Fault::kFail:
      inner_->Fetch(held.epoch, std::move(held.runs),
                    [done = std::move(held.done)](absl::Status) { done(absl::UnavailableError("injected failure")); });
      return;
    case Fault::kCorrupt: {
      std::vector<ByteRun> runs = held.runs;
      inner_->Fetch(held.epoch, std::move(held.runs),
                    [this, runs = std::move(runs), index = held.index, done = std::move(held.done)](absl::Status s) {
                      if (s.ok()) FlipOneBit(runs, index);
                      done(std::move(s));
                    });
      return;
    }
    default:
      inner_->Fetch(held.epoch, std::move(held.runs), std::move(held.done));
  }
}

void FaultLane::FlipOneBit(const std::vector<ByteRun>& runs, uint64_t index) {
  if (runs.empty()) return;
  uint64_t bit = spec_.Pick(index, TotalBytes(runs) * 8);
  for (const ByteRun& run : runs) {
    if (bit < run.num_bytes * 8) {
      target_[run.target_offset + bit / 8] ^= std::byte{1} << (bit % 8);
      return;
    }
    bit -= run.num_bytes * 8;
  }
}

}  // namespace tandem::kvtransfer
