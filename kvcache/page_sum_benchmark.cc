// GB/s of ContentSum on one core, beside memcpy of the same bytes, from one page to far beyond the caches.
#include <cstring>
#include <vector>

#include "benchmark/benchmark.h"
#include "kvcache/page_sum.h"

namespace tandem::kvcache {
namespace {

constexpr int64_t kLatentPageBytes = LatentPageBytes(KvCacheDtype::kFp8E4m3);

void BM_ContentSum(benchmark::State& state) {
  const std::vector<std::byte> bytes(state.range(0), std::byte{0x5a});
  for (auto _ : state) benchmark::DoNotOptimize(ContentSum(bytes));
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_ContentSum)->Arg(kIndexPageBytes)->Arg(kLatentPageBytes)->Arg(256 << 20);

void BM_Memcpy(benchmark::State& state) {
  const std::vector<std::byte> source(state.range(0), std::byte{0x5a});
  std::vector<std::byte> target(state.range(0));
  for (auto _ : state) {
    std::memcpy(target.data(), source.data(), source.size());
    benchmark::DoNotOptimize(target.data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_Memcpy)->Arg(kIndexPageBytes)->Arg(kLatentPageBytes)->Arg(256 << 20);

}  // namespace
}  // namespace tandem::kvcache

BENCHMARK_MAIN();
