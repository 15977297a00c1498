// A bounded queue from many threads to the one that owns an engine's state.
//
// Push never blocks: a full mailbox refuses, and the caller says so to whoever asked. Messages that release something
// (cancel, ack, done) go through PushReserved, which is never refused: their number is bounded by the requests that
// were admitted, each of which reserved their slots. Tested by mailbox_test.cc.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tandem::base {

template <typename T>
class Mailbox {
 public:
  explicit Mailbox(size_t capacity) : capacity_(capacity) {}

  // False where the mailbox is full or closed; the message is then untouched.
  [[nodiscard]] bool Push(T& message) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    if (closed_ || messages_.size() >= capacity_) return false;
    messages_.push_back(std::move(message));
    return true;
  }
  // Dropped only where the mailbox is closed.
  void PushReserved(T message) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    if (!closed_) messages_.push_back(std::move(message));
  }
  // Takes everything, in order of arrival; waits up to `wait` for the first message. Empty on time-out or close.
  std::vector<T> TakeAll(absl::Duration wait) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    if (wait > absl::ZeroDuration()) {
      mutex_.AwaitWithTimeout(absl::Condition(this, &Mailbox::HasNews), wait);
    }
    return std::exchange(messages_, {});
  }
  // Refuses what comes later and wakes the owner.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
  }
  size_t size() const ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return messages_.size();
  }
  size_t capacity() const { return capacity_; }

 private:
  bool HasNews() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return closed_ || !messages_.empty(); }

  const size_t capacity_;
  mutable absl::Mutex mutex_;
  std::vector<T> messages_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace tandem::base
