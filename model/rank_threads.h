// One thread for each rank of a group but the first, whose thread is the caller's. Tested by rank_threads_test.cc.
#pragma once

#include <cstdint>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"

namespace tandem::model {

class RankThreads final {
 public:
  explicit RankThreads(int num_ranks);  // at least 1
  ~RankThreads();
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;

  // Calls work(rank) on every rank's thread at once and returns when all calls have. One thread at a time.
  void Run(absl::FunctionRef<void(int rank)> work) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Main(int rank) ABSL_LOCKS_EXCLUDED(mutex_);

  absl::Mutex mutex_;
  const absl::FunctionRef<void(int rank)>* work_ ABSL_GUARDED_BY(mutex_) = nullptr;  // of the run under way
  int64_t num_runs_ ABSL_GUARDED_BY(mutex_) = 0;
  int num_busy_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace tandem::model
