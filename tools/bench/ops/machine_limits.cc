#include "tools/bench/ops/machine_limits.h"

#include <cstdint>
#include <vector>

#include "tools/bench/ops/stopwatch.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tandem::bench {
namespace {

// Many short runs: one of them meets a quiet moment of the machine.
constexpr int kRuns = 20;
constexpr int64_t kRounds = 500'000;
constexpr int kChains = 12;  // independent sums: more than latency times throughput

#if defined(__x86_64__)
// The sums stay in registers; nothing is loaded. The instructions are written out so that no compiler shortens them.
#define TANDEM_CHAINS(instruction)                                                                         \
  instruction(2) instruction(3) instruction(4) instruction(5) instruction(6) instruction(7) instruction(8) \
      instruction(9) instruction(10) instruction(11) instruction(12) instruction(13)
#define TANDEM_DOT_BF16(n) "vdpbf16ps %%zmm0, %%zmm1, %%zmm" #n "\n"
#define TANDEM_FMA(n) "vfmadd231ps %%ymm0, %%ymm1, %%ymm" #n "\n"

double FlopOfDotRounds() {
  if (__builtin_cpu_supports("avx512bf16")) {
    for (int64_t i = 0; i < kRounds; ++i) asm volatile(TANDEM_CHAINS(TANDEM_DOT_BF16)::: "memory");
    return 64.0 * kChains * kRounds;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    for (int64_t i = 0; i < kRounds; ++i) asm volatile(TANDEM_CHAINS(TANDEM_FMA)::: "memory");
    return 16.0 * kChains * kRounds;
  }
  return 0;
}
#else
double FlopOfDotRounds() { return 0; }
#endif

// Adds up memory, 64 bytes at a time.
uint64_t ReadAll(const uint64_t* begin, int64_t count) {
  uint64_t sums[8] = {};
  for (int64_t i = 0; i + 8 <= count; i += 8) {
    for (int64_t j = 0; j < 8; ++j) sums[j] += begin[i + j];
  }
  uint64_t sum = 0;
  for (uint64_t part : sums) sum += part;
  return sum;
}

}  // namespace

MachineLimits MeasureMachineLimits(kernels::ThreadPool& threads) {
  MachineLimits limits;
  const int num_threads = threads.num_threads();
  std::vector<double> flop(static_cast<size_t>(num_threads));
  const double dots = BestOf(kRuns, num_threads, [&](int) {
    threads.Run(num_threads, [&](int64_t t) { flop[static_cast<size_t>(t)] = FlopOfDotRounds(); });
  });
  limits.dot_gflop_per_s = flop[0] * num_threads / dots * 1e-9;

  constexpr int64_t kBytes = int64_t{1} << 28;
  constexpr int64_t kPieces = 64;
  const std::vector<uint64_t> memory(kBytes / 8, 1);
  std::vector<uint64_t> sums(kPieces);
  const double reads = BestOf(kRuns, num_threads, [&](int) {
    threads.Run(kPieces, [&](int64_t piece) {
      const int64_t count = kBytes / 8 / kPieces;
      sums[static_cast<size_t>(piece)] = ReadAll(memory.data() + piece * count, count);
    });
  });
  // The sums are looked at, so that they are made.
  limits.read_gb_per_s = sums[0] == 0 ? 0 : kBytes / reads * 1e-9;
  return limits;
}

}  // namespace tandem::bench
