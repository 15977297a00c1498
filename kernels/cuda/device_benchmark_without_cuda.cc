// Builds without CUDA have nothing to measure.
#include <cstdio>

#include "kernels/cuda/device_benchmark.h"
#include "kernels/cuda/device_limits.h"

namespace tandem::kernels::cuda {
namespace {

absl::Status NoCuda() { return absl::UnimplementedError("this build has no CUDA"); }

}  // namespace

absl::Status FillNormal(Stream, Bf16*, int64_t, uint64_t, float) { return NoCuda(); }
absl::Status FillNormal(Stream, float*, int64_t, uint64_t, float) { return NoCuda(); }
absl::Status FillNormal(Stream, E4m3*, int64_t, uint64_t, float) { return NoCuda(); }
absl::Status FillUniform(Stream, float*, int64_t, uint64_t, float, float) { return NoCuda(); }
absl::Status FillPowersOfTwo(Stream, float*, int64_t, uint64_t, int, int) { return NoCuda(); }
absl::Status FillZeros(Stream, void*, int64_t) { return NoCuda(); }

absl::Status LimitRead(Stream, const void*, int64_t) { return NoCuda(); }

int DeviceBenchmark::NumSets(int64_t) { return 1; }
void DeviceBenchmark::Measure(const BenchmarkCase&) {}
bool DeviceBenchmark::Wants(absl::string_view, absl::string_view) const { return false; }
absl::Status DeviceBenchmark::MeasureTensorLimit(TensorRate) { return NoCuda(); }
void DeviceBenchmark::Fail(const std::string&) { has_failed_ = true; }

int DeviceBenchmarkMain(int, char**, const std::function<void(DeviceBenchmark&)>&) {
  std::printf("no device to measure: %s\n", NoCuda().ToString().c_str());
  return 0;
}

}  // namespace tandem::kernels::cuda
