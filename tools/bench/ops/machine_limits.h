// What this machine can do at most, measured: the ceilings that ops are compared with.
#pragma once

#include "kernels/thread_pool.h"

namespace tandem::bench {

struct MachineLimits {
  double read_gb_per_s = 0;    // from memory, all threads
  double dot_gflop_per_s = 0;  // the widest dot product of BF16 pairs that the processor has, all threads
};

MachineLimits MeasureMachineLimits(kernels::ThreadPool& threads);

}  // namespace tandem::bench
