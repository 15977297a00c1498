// The ops at DeepSeek-V3.2's shapes, each on operands rotated beyond the last cache.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/thread_pool.h"

namespace tandem::bench {

// One row of the table.
struct Measurement {
  std::string op;
  std::string shape;
  double seconds = 0;
  double flop = 0;
  double bytes = 0;  // that must come from memory
};

struct CaseOptions {
  kernels::ThreadPool* threads = nullptr;
  int runs = 5;           // of each case; the best counts
  std::string only = "";  // names of ops that contain it
};

std::vector<Measurement> RunCases(const CaseOptions& options);

}  // namespace tandem::bench
