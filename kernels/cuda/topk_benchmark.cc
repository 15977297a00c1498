// Times TopK at k = 2048 on rows of normal logits, and on rows that are hard for a radix select.
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/device_benchmark.h"
#include "kernels/cuda/ops.h"

namespace tandem::kernels::cuda {
namespace {

constexpr int64_t kK = 2048;

template <typename MakeLogits>
void Case(DeviceBenchmark& benchmark, const std::string& kind, int64_t rows, int64_t width, const std::string& peer,
          const MakeLogits& make_logits) {
  const std::string shape = absl::StrCat(rows, " x ", width, kind);
  if (!benchmark.Wants("TopK", shape)) return;
  const int64_t bytes = rows * width * 4 + rows * kK * 4;
  const int num_sets = DeviceBenchmark::NumSets(bytes);
  const DeviceArray<float> logits = make_logits(num_sets * rows * width);
  const auto contexts =
      DeviceArray<int32_t>::Of(benchmark, std::vector<int32_t>(static_cast<size_t>(rows), static_cast<int32_t>(width)));
  const auto indices = DeviceArray<int32_t>::Zeros(benchmark, num_sets * rows * kK);
  const auto nan_count = DeviceArray<int32_t>::Zeros(benchmark, rows);
  benchmark.Measure({.op = "TopK",
                     .shape = shape,
                     .bytes = static_cast<double>(bytes),
                     .num_sets = num_sets,
                     .launch =
                         [&](Stream stream, int64_t set) {
                           return TopK(stream, {.logits = {logits.data() + set * rows * width, {rows, width}},
                                                .context_length = {contexts.data(), {rows}},
                                                .indices = {indices.data() + set * rows * kK, {rows, kK}},
                                                .nan_count = {nan_count.data(), {rows}}});
                         },
                     .peer = peer});
}

void Cases(DeviceBenchmark& benchmark) {
  const auto normal = [&](int64_t count) { return DeviceArray<float>::Normal(benchmark, count, 1.0f); };
  Case(benchmark, "", 1, 131072, "CUB 13.9 us, FlashInfer 38.4", normal);
  Case(benchmark, "", 8, 131072, "CUB 18.9 us, FlashInfer 40.2", normal);
  Case(benchmark, "", 64, 131072, "CUB 59.4 us, FlashInfer 53.7", normal);
  Case(benchmark, "", 256, 131072, "CUB 187 us, FlashInfer 129", normal);
  Case(benchmark, "", 1, 32768, "CUB 11.0 us, FlashInfer 19.8", normal);
  Case(benchmark, "", 64, 32768, "CUB 29.9 us, FlashInfer 21.9", normal);
  Case(benchmark, "", 64, 8192, "CUB 11.5 us, FlashInfer 10.8", normal);
  Case(benchmark, "", 2048, 32768, "", normal);
  Case(benchmark, " peaked", 64, 131072, "CUB 69.4 us, FlashInfer 174",
       [&](int64_t count) { return DeviceArray<float>::Uniform(benchmark, count, 100.0f, 100.01f); });
  Case(benchmark, " of few values", 64, 131072, "CUB 64.6 us on BF16 values",
       [&](int64_t count) { return DeviceArray<float>::PowersOfTwo(benchmark, count, -4, 3); });
  Case(benchmark, " all equal", 64, 131072, "CUB 58.1 us, FlashInfer 179",
       [&](int64_t count) { return DeviceArray<float>::Zeros(benchmark, count); });
}

}  // namespace
}  // namespace tandem::kernels::cuda

int main(int argc, char** argv) {
  return tandem::kernels::cuda::DeviceBenchmarkMain(argc, argv, tandem::kernels::cuda::Cases);
}
