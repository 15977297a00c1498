// The time of a piece of work: of the clock, or of this thread's processor where one thread does it all, which on a
// machine that others load as well is what it would take on a quiet one. (The processor time of several threads is not
// known to better than a timer tick, longer than most pieces.)
#pragma once

#include <time.h>

#include <algorithm>

namespace tandem::bench {

// The shortest of several runs of work(i), in seconds.
template <typename Work>
double BestOf(int runs, int num_threads, const Work& work) {
  const auto now = [&] {
    timespec time;
    clock_gettime(num_threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  };
  double best = 1e30;
  for (int i = 0; i < runs; ++i) {
    const double start = now();
    work(i);
    best = std::min(best, now() - start);
  }
  return best;
}

}  // namespace tandem::bench
