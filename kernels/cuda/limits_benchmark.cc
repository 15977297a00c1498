// The device's limits alone: what every benchmark measures first, and the tensor cores' rates.
#include <string>

#include "kernels/cuda/device_benchmark.h"
#include "kernels/cuda/device_limits.h"

namespace tandem::kernels::cuda {
namespace {

void Cases(DeviceBenchmark& benchmark) {
  // Reading buffers that are cold, one a launch: the floor under an op that reads so much.
  constexpr int64_t kMebibyte = int64_t{1} << 20;
  const auto data = DeviceArray<float>::Normal(benchmark, 512 * kMebibyte / 4, 1.0f);
  for (const int64_t mebibytes : {1, 2, 4, 8, 16, 32, 64, 128}) {
    benchmark.Measure({.op = "cold read",
                       .shape = std::to_string(mebibytes) + " MiB",
                       .bytes = static_cast<double>(mebibytes * kMebibyte),
                       .num_sets = static_cast<int>(512 / mebibytes),
                       .launch = [&](Stream stream, int64_t set) {
                         return LimitRead(stream, data.data() + set * mebibytes * kMebibyte / 4, mebibytes * kMebibyte);
                       }});
  }
  for (const TensorRate rate : {TensorRate::kBf16, TensorRate::kFp8}) {
    if (const absl::Status status = benchmark.MeasureTensorLimit(rate); !status.ok()) benchmark.Fail(status.ToString());
  }
}

}  // namespace
}  // namespace tandem::kernels::cuda

int main(int argc, char** argv) {
  return tandem::kernels::cuda::DeviceBenchmarkMain(argc, argv, tandem::kernels::cuda::Cases);
}
