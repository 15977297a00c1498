// A few threads that share one caller's loops. Work is cut by outputs, never within a sum, so no bit depends on how
// many threads there are or which of them runs what.
//
// One thread at a time may call Run; it works along and returns when all of it is done. A helper that is late (asleep,
// or without a core) is not waited for: it finds the loop closed and sleeps on. Helpers look for more work for some
// microseconds before they sleep, since a forward pass is a sequence of short loops.
// Tested by thread_pool_test.cc.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"

namespace tandem::kernels {

class ThreadPool final {
 public:
  // num_threads counts the caller of Run: 1 starts none.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return static_cast<int>(helpers_.size()) + 1; }

  // Calls task(i) once for every i in [0, num_tasks), on any of the threads and in any order.
  void Run(int64_t num_tasks, absl::FunctionRef<void(int64_t)> task);

 private:
  struct Loop {
    absl::FunctionRef<void(int64_t)> task;
    int64_t num_tasks;
    std::atomic<int64_t> next{0};
  };

  static void Work(Loop& loop);
  void HelperMain();
  // The number of loops opened so far, or -1 when the pool ends, once it is no longer `seen`.
  int64_t AwaitLoopAfter(int64_t seen);

  std::mutex mutex_;
  Loop* open_loop_ = nullptr;           // guarded by mutex_; helpers join while it is set
  std::atomic<int> num_joined_{0};      // helpers inside the open loop; grows under mutex_ alone
  std::atomic<int64_t> num_opened_{0};  // -1: end
  std::vector<std::thread> helpers_;
};

// `threads` may be null: then the caller does all.
void RunTasks(ThreadPool* threads, int64_t num_tasks, absl::FunctionRef<void(int64_t)> task);

// How many processors this process may use: its affinity mask, at least 1.
int NumUsableProcessors();

}  // namespace tandem::kernels
