// What ThreadSanitizer has to know about Debian's libraries, none of which is instrumented. Linked under --config=tsan
// alone, into everything that uses Abseil.
//
// Abseil's Mutex, CondVar and Notification: without help, every access under one would be reported as a race. The
// definitions below take the place of the library's in the executable (for gRPC too, whose own mutexes they are), call
// the library's, and say what was acquired and released. Conditions are evaluated by whichever thread unlocks; what
// they read is under the mutex, and is ignored.
// gRPC: what a callback may rely on is said at its doors, below; what the library does inside is ignored.
// Tested by //bazel:sanitizers_test.
#include <dlfcn.h>

#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "grpc/grpc.h"
#include "grpcpp/support/server_callback.h"

extern "C" {
void __tsan_acquire(void* address);
void __tsan_release(void* address);
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);

const char* __tsan_default_suppressions() {
  return
      // gRPC copies, sends and frees what it has handed from thread to thread by atomics of its own.
      "called_from_lib:libgrpc.so.29\n"
      // The same, its portability layer.
      "called_from_lib:libgpr.so.29\n"
      // The same, its C++ layer.
      "called_from_lib:libgrpc++.so.1.51\n"
      // The same, its parser.
      "called_from_lib:libupb.so.29\n"
      // The same: a call's statuses, which gRPC makes on one thread and drops on another, are counted by atomics.
      "called_from_lib:libabsl_status.so\n"
      // The same, what such a status carries.
      "called_from_lib:libabsl_cord.so\n"
      // The same, where gRPC puts one status's message into another's.
      "called_from_lib:libabsl_strings.so\n"
      // The graph by which Abseil sees deadlocks is under a spin lock of the library's own.
      "called_from_lib:libabsl_graphcycles_internal.so\n";
}
}

namespace {

template <typename Function>
Function Next(const char* symbol) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, symbol));
}

}  // namespace

// What was written before a batch of operations was started is seen by the callback that ends it. In between gRPC hands
// it from thread to thread by lock-free queues.
struct grpc_cq_completion;

extern "C" {

grpc_call_error grpc_call_start_batch(grpc_call* call, const grpc_op* ops, size_t num_ops, void* tag, void* reserved) {
  static const auto start = Next<decltype(&grpc_call_start_batch)>("grpc_call_start_batch");
  __tsan_release(tag);
  return start(call, ops, num_ops, tag, reserved);
}

grpc_event grpc_completion_queue_next(grpc_completion_queue* queue, gpr_timespec deadline, void* reserved) {
  static const auto next = Next<decltype(&grpc_completion_queue_next)>("grpc_completion_queue_next");
  const grpc_event event = next(queue, deadline, reserved);
  if (event.type == GRPC_OP_COMPLETE) __tsan_acquire(event.tag);
  return event;
}
}

void grpc_cq_end_op(grpc_completion_queue* queue, void* tag, absl::Status error,
                    void (*done)(void*, grpc_cq_completion*), void* done_argument, grpc_cq_completion* storage,
                    bool is_internal) {
  static const auto end = Next<decltype(&grpc_cq_end_op)>(
      "_Z14grpc_cq_end_opP21grpc_completion_queuePvN4absl7debian36StatusEPFvS1_P18grpc_cq_completionES1_S6_b");
  __tsan_acquire(tag);
  __tsan_release(tag);
  end(queue, tag, std::move(error), done, done_argument, storage, is_internal);
}

namespace grpc::internal {

// The last of a call's callbacks to end has seen what the others did; it may have ended inside the library.
void ServerCallbackCall::ScheduleOnDone(bool is_inline) {
  static const auto schedule =
      Next<void (*)(ServerCallbackCall*, bool)>("_ZN4grpc8internal18ServerCallbackCall14ScheduleOnDoneEb");
  __tsan_acquire(&callbacks_outstanding_);
  schedule(this, is_inline);
}

}  // namespace grpc::internal

namespace absl {
ABSL_NAMESPACE_BEGIN

void Mutex::Lock() {
  static const auto lock = Next<void (*)(Mutex*)>("_ZN4absl7debian35Mutex4LockEv");
  lock(this);
  __tsan_acquire(this);
}

void Mutex::Unlock() {
  static const auto unlock = Next<void (*)(Mutex*)>("_ZN4absl7debian35Mutex6UnlockEv");
  __tsan_release(this);
  unlock(this);
}

bool Mutex::TryLock() {
  static const auto try_lock = Next<bool (*)(Mutex*)>("_ZN4absl7debian35Mutex7TryLockEv");
  if (!try_lock(this)) return false;
  __tsan_acquire(this);
  return true;
}

void Mutex::ReaderLock() {
  static const auto lock = Next<void (*)(Mutex*)>("_ZN4absl7debian35Mutex10ReaderLockEv");
  lock(this);
  __tsan_acquire(this);
}

void Mutex::ReaderUnlock() {
  static const auto unlock = Next<void (*)(Mutex*)>("_ZN4absl7debian35Mutex12ReaderUnlockEv");
  __tsan_release(this);
  unlock(this);
}

void Mutex::Await(const Condition& condition) {
  static const auto await = Next<void (*)(Mutex*, const Condition&)>("_ZN4absl7debian35Mutex5AwaitERKNS0_9ConditionE");
  __tsan_release(this);
  await(this, condition);
  __tsan_acquire(this);
}

bool Mutex::AwaitWithTimeout(const Condition& condition, Duration timeout) {
  static const auto await = Next<bool (*)(Mutex*, const Condition&, Duration)>(
      "_ZN4absl7debian35Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE");
  __tsan_release(this);
  const bool is_true = await(this, condition, timeout);
  __tsan_acquire(this);
  return is_true;
}

bool Mutex::AwaitWithDeadline(const Condition& condition, Time deadline) {
  static const auto await = Next<bool (*)(Mutex*, const Condition&, Time)>(
      "_ZN4absl7debian35Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE");
  __tsan_release(this);
  const bool is_true = await(this, condition, deadline);
  __tsan_acquire(this);
  return is_true;
}

bool Condition::Eval() const {
  static const auto eval = Next<bool (*)(const Condition*)>("_ZNK4absl7debian39Condition4EvalEv");
  AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
  AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  const bool is_true = eval(this);
  AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
  AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  return is_true;
}

// The waits of a CondVar let go of the mutex and take it again inside the library.
void CondVar::Wait(Mutex* mutex) {
  static const auto wait = Next<void (*)(CondVar*, Mutex*)>("_ZN4absl7debian37CondVar4WaitEPNS0_5MutexE");
  __tsan_release(mutex);
  wait(this, mutex);
  __tsan_acquire(mutex);
}

bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  static const auto wait = Next<bool (*)(CondVar*, Mutex*, Duration)>(
      "_ZN4absl7debian37CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE");
  __tsan_release(mutex);
  const bool is_over = wait(this, mutex, timeout);
  __tsan_acquire(mutex);
  return is_over;
}

bool CondVar::WaitWithDeadline(Mutex* mutex, Time deadline) {
  static const auto wait =
      Next<bool (*)(CondVar*, Mutex*, Time)>("_ZN4absl7debian37CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE");
  __tsan_release(mutex);
  const bool is_over = wait(this, mutex, deadline);
  __tsan_acquire(mutex);
  return is_over;
}

// HasBeenNotified() is inline: an acquire of the word that follows the mutex.
void Notification::Notify() {
  static const auto notify = Next<void (*)(Notification*)>("_ZN4absl7debian312Notification6NotifyEv");
  __tsan_release(&notified_yet_);
  notify(this);
}

void Notification::WaitForNotification() const {
  static const auto wait =
      Next<void (*)(const Notification*)>("_ZNK4absl7debian312Notification19WaitForNotificationEv");
  wait(this);
  __tsan_acquire(const_cast<std::atomic<bool>*>(&notified_yet_));
}

bool Notification::WaitForNotificationWithTimeout(Duration timeout) const {
  static const auto wait = Next<bool (*)(const Notification*, Duration)>(
      "_ZNK4absl7debian312Notification30WaitForNotificationWithTimeoutENS0_8DurationE");
  const bool is_notified = wait(this, timeout);
  if (is_notified) __tsan_acquire(const_cast<std::atomic<bool>*>(&notified_yet_));
  return is_notified;
}

ABSL_NAMESPACE_END
}  // namespace absl
