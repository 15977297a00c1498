#include "model/rank_threads.h"

#include "base/check.h"

namespace tandem::model {

RankThreads::RankThreads(int num_ranks) {
  TANDEM_CHECK(num_ranks >= 1, "a group has a rank");
  for (int rank = 1; rank < num_ranks; ++rank) threads_.emplace_back([this, rank] { Main(rank); });
}

RankThreads::~RankThreads() {
  {
    absl::MutexLock lock(&mutex_);
    is_ending_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

void RankThreads::Run(absl::FunctionRef<void(int rank)> work) {
  {
    absl::MutexLock lock(&mutex_);
    work_ = &work;
    num_busy_ = static_cast<int>(threads_.size());
    ++num_runs_;
  }
  work(0);
  absl::MutexLock lock(&mutex_);
  const auto all_returned = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return num_busy_ == 0; };
  mutex_.Await(absl::Condition(&all_returned));
  work_ = nullptr;
}

void RankThreads::Main(int rank) {
  int64_t num_seen = 0;
  while (true) {
    const absl::FunctionRef<void(int rank)>* work;
    {
      absl::MutexLock lock(&mutex_);
      const auto is_called = [this, num_seen]()
                                 ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return is_ending_ || num_runs_ > num_seen; };
      mutex_.Await(absl::Condition(&is_called));
      if (is_ending_) return;
      num_seen = num_runs_;
      work = work_;
    }
    (*work)(rank);
    absl::MutexLock lock(&mutex_);
    --num_busy_;
  }
}

}  // namespace tandem::model
