// One bidirectional gRPC stream at its server's end: reads in order, writes through a bounded queue, closes once.
//
// Send and Close may be called from any thread at any time, also after the stream has ended. OnMessage and OnEnded come
// one at a time on gRPC's threads and must not block. A client that leaves more than queue_bytes_max unread loses the
// stream: a slow reader may not grow our memory. What waits is kept by the Queue: a FIFO, or one that knows what its
// messages mean (live_mailbox.h). The stream owns itself from Run() until OnEnded has returned.
// Includes gRPC: for .cc files of services only. Tested by live_streams_test.cc.
#pragma once

#include <deque>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/grpcpp.h"

namespace tandem::worker_shell {

template <typename Out>
class FifoQueue final {
 public:
  void Push(Out message) {
    bytes_ += message.ByteSizeLong();
    messages_.push_back(std::move(message));
  }
  Out Take() {
    Out message = std::move(messages_.front());
    messages_.pop_front();
    bytes_ -= message.ByteSizeLong();
    return message;
  }
  void Clear() { *this = FifoQueue(); }
  bool empty() const { return messages_.empty(); }
  size_t bytes() const { return bytes_; }

 private:
  std::deque<Out> messages_;
  size_t bytes_ = 0;
};

template <typename In, typename Out, typename Queue = FifoQueue<Out>>
class ServerStream : public grpc::ServerBidiReactor<In, Out>,
                     public std::enable_shared_from_this<ServerStream<In, Out, Queue>> {
 public:
  ServerStream(grpc::CallbackServerContext* context, size_t queue_bytes_max)
      : context_(context), queue_bytes_max_(queue_bytes_max) {}

  // To be called once, after construction by make_shared; returns what the service method returns.
  grpc::ServerBidiReactor<In, Out>* Run() {
    self_ = this->shared_from_this();
    this->StartRead(&incoming_);
    return this;
  }

  void Send(Out message) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    if (is_closing_ || is_last_words_) return;
    queue_.Push(std::move(message));
    if (queue_.bytes() > queue_bytes_max_) {
      CloseLocked(
          grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                       absl::StrCat("the reader left ", queue_.bytes(), " bytes unread, at most ", queue_bytes_max_)));
    } else if (!is_writing_) {
      WriteNext();
    }
  }

  // The first call decides the status. What is queued is dropped. A client that is being written to at this moment is
  // cut and sees CANCELLED: nobody knows whether it reads.
  void Close(grpc::Status status) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    CloseLocked(std::move(status));
  }

  // As Close, but lets a write under way end, so that a client that reads sees the status. Cut() ends the wait.
  void CloseAfterWrite(grpc::Status status) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    if (is_closing_) return;
    is_closing_ = true;
    close_status_ = std::move(status);
    queue_.Clear();
    if (!is_writing_) this->Finish(close_status_);
  }
  size_t num_queued_bytes() const ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return queue_.bytes();
  }
  // As Close, but everything that is queued is written first; nothing can be sent any more. Cut() ends the wait.
  void CloseAfterQueue(grpc::Status status) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    if (is_closing_ || is_last_words_) return;
    is_last_words_ = true;
    close_status_ = std::move(status);
    if (!is_writing_) FinishLastWords();
  }
  // Ends what CloseAfterWrite and CloseAfterQueue wait for. Nothing happens to a stream that is not closing.
  void Cut() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    if ((is_closing_ || is_last_words_) && is_writing_) context_->TryCancel();
  }

 protected:
  virtual void OnMessage(In message) = 0;
  virtual void OnEnded() = 0;

 private:
  void OnReadDone(bool ok) final {
    if (!ok) {
      Close(grpc::Status::OK);  // the client is done, or the connection is
      return;
    }
    OnMessage(std::move(incoming_));
    incoming_.Clear();
    this->StartRead(&incoming_);
  }
  void OnWriteDone(bool ok) final ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    is_writing_ = false;
    if (is_closing_) {
      this->Finish(close_status_);
    } else if (!ok) {
      CloseLocked(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the stream was cut"));
    } else if (!queue_.empty()) {
      WriteNext();
    } else if (is_last_words_) {
      FinishLastWords();
    }
  }
  void OnCancel() final { Close(grpc::Status::CANCELLED); }
  void OnDone() final {
    OnEnded();
    self_.reset();  // may delete this
  }

  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    is_writing_ = true;
    outgoing_ = queue_.Take();
    this->StartWrite(&outgoing_);
  }
  void CloseLocked(grpc::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (is_closing_) return;
    is_closing_ = true;
    close_status_ = std::move(status);
    queue_.Clear();
    if (!is_writing_) {
      this->Finish(close_status_);
    } else {
      context_->TryCancel();  // else a write that nobody reads would never end
    }
  }

  void FinishLastWords() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    is_closing_ = true;
    this->Finish(close_status_);
  }

  grpc::CallbackServerContext* const context_;
  const size_t queue_bytes_max_;
  In incoming_;
  std::shared_ptr<ServerStream> self_;
  mutable absl::Mutex mutex_;
  Queue queue_ ABSL_GUARDED_BY(mutex_);
  Out outgoing_ ABSL_GUARDED_BY(mutex_);
  bool is_writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_last_words_ ABSL_GUARDED_BY(mutex_) = false;  // closes when the queue is empty
  grpc::Status close_status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem::worker_shell
