// One end of a Control stream over gRPC's callback API: reads one after the other, writes from a bounded queue.
//
// A template over gRPC's client and server reactors, which share StartRead and StartWrite but no base. Included by .cc
// files only. Invariants: one read and one write under way at most; nothing is written after
// StopWriting.
// Tested by peer_link_test.cc.
#pragma once

#include <cstddef>
#include <deque>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "proto/kv_transfer.pb.h"

namespace tandem::kvtransfer {

template <typename Reactor>
class MessageStream : public Reactor {
 public:
  explicit MessageStream(size_t queue_bytes_max) : queue_bytes_max_(queue_bytes_max) {}

  // Queues a copy; a stream that has ended drops it. False where the peer has left more than queue_bytes_max unread.
  [[nodiscard]] bool Send(const proto::TransferMessage& message) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    if (is_stopped_ || is_broken_) return true;
    const size_t bytes = message.ByteSizeLong();
    if (queued_bytes_ + bytes > queue_bytes_max_) return false;
    queued_bytes_ += bytes;
    queue_.push_back(message);
    if (queue_.size() == 1) this->StartWrite(&queue_.front());
    return true;
  }

 protected:
  // Called by gRPC, one at a time.
  virtual void OnMessage(proto::TransferMessage& message) = 0;
  // No more messages will come; called once.
  virtual void OnEnd() = 0;

  void ReadFirst() { this->StartRead(&incoming_); }
  // From now on nothing is written, and what is read ends the stream.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    is_stopped_ = true;
  }

 private:
  void OnReadDone(bool ok) final {
    if (ok && !IsStopped()) OnMessage(incoming_);
    if (!ok || IsStopped()) return OnEnd();
    this->StartRead(&incoming_);
  }
  bool IsStopped() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return is_stopped_;
  }
  void OnWriteDone(bool ok) final ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    queued_bytes_ -= queue_.front().ByteSizeLong();
    queue_.pop_front();
    // A failed write means that the stream is broken: the read, always under way, ends it.
    is_broken_ = is_broken_ || !ok;
    if (!is_broken_ && !is_stopped_ && !queue_.empty()) this->StartWrite(&queue_.front());
  }

  const size_t queue_bytes_max_;
  proto::TransferMessage incoming_;
  absl::Mutex mutex_;
  std::deque<proto::TransferMessage> queue_ ABSL_GUARDED_BY(mutex_);  // the front is being written
  size_t queued_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_stopped_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_broken_ ABSL_GUARDED_BY(mutex_) = false;  // a write failed
};

}  // namespace tandem::kvtransfer
