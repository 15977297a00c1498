#include "kernels/thread_pool.h"

#include <sched.h>

#include <algorithm>

#include "base/check.h"

namespace tandem::kernels {
namespace {

// Some tens of microseconds of looking before a wait costs a system call.
constexpr int kLooks = 2000;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

ThreadPool::ThreadPool(int num_threads) {
  TANDEM_CHECK(num_threads >= 1, "a pool counts its caller");
  helpers_.reserve(static_cast<size_t>(num_threads - 1));
  for (int i = 1; i < num_threads; ++i) helpers_.emplace_back([this] { HelperMain(); });
}

ThreadPool::~ThreadPool() {
  num_opened_.store(-1);
  num_opened_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

void ThreadPool::Work(Loop& loop) {
  for (int64_t i = loop.next.fetch_add(1, std::memory_order_relaxed); i < loop.num_tasks;
       i = loop.next.fetch_add(1, std::memory_order_relaxed)) {
    loop.task(i);
  }
}

void ThreadPool::Run(int64_t num_tasks, absl::FunctionRef<void(int64_t)> task) {
  Loop loop{task, num_tasks};
  if (helpers_.empty() || num_tasks <= 1) return Work(loop);
  {
    const std::lock_guard lock(mutex_);
    open_loop_ = &loop;
  }
  num_opened_.fetch_add(1);
  num_opened_.notify_all();
  Work(loop);
  {
    const std::lock_guard lock(mutex_);
    open_loop_ = nullptr;
  }
  for (int looks = 0; num_joined_.load(std::memory_order_acquire) != 0; ++looks) {
    if (looks < kLooks) {
      Pause();
    } else if (const int joined = num_joined_.load(std::memory_order_acquire); joined != 0) {
      num_joined_.wait(joined);
    }
  }
}

int64_t ThreadPool::AwaitLoopAfter(int64_t seen) {
  for (int look = 0; look < kLooks; ++look) {
    if (const int64_t opened = num_opened_.load(std::memory_order_acquire); opened != seen) return opened;
    Pause();
  }
  num_opened_.wait(seen);
  return num_opened_.load(std::memory_order_acquire);
}

void ThreadPool::HelperMain() {
  int64_t seen = 0;
  while ((seen = AwaitLoopAfter(seen)) >= 0) {
    Loop* loop = nullptr;
    {
      const std::lock_guard lock(mutex_);
      loop = open_loop_;
      if (loop != nullptr) num_joined_.fetch_add(1);
    }
    if (loop == nullptr) continue;
    Work(*loop);
    num_joined_.fetch_sub(1, std::memory_order_release);
    num_joined_.notify_one();
  }
}

void RunTasks(ThreadPool* threads, int64_t num_tasks, absl::FunctionRef<void(int64_t)> task) {
  if (threads != nullptr) return threads->Run(num_tasks, task);
  for (int64_t i = 0; i < num_tasks; ++i) task(i);
}

int NumUsableProcessors() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

}  // namespace tandem::kernels
