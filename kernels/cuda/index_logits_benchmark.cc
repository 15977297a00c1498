// Times IndexLogits with 64 heads: prefills, whose rows share their keys and are bound by the tensor cores, and
// decodes, whose rows have their own and are bound by memory. FLOP count pairs of a row and a key of its context.
#include <algorithm>
#include <numeric>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/device_benchmark.h"
#include "kernels/cuda/ops.h"
#include "kvcache/kv_layout.h"

namespace tandem::kernels::cuda {
namespace {

constexpr int64_t kHeads = 64;

// sequences rows of `rows` / `sequences` positions each, the last of which ends a context of `context`.
void Case(DeviceBenchmark& benchmark, int64_t rows, int64_t sequences, int64_t context, const std::string& peer) {
  const std::string shape = absl::StrCat(rows, " rows, ", sequences, " sequences of ", context);
  if (!benchmark.Wants("IndexLogits", shape)) return;
  const int64_t rows_of_sequence = rows / sequences, table_pages = kvcache::PagesForTokens(context);
  std::vector<int32_t> contexts, sequence_of;
  double pairs = 0;
  for (int64_t row = 0; row < rows; ++row) {
    sequence_of.push_back(static_cast<int32_t>(row / rows_of_sequence));
    contexts.push_back(static_cast<int32_t>(context - rows_of_sequence + row % rows_of_sequence + 1));
    pairs += contexts.back();
  }
  const double bytes = static_cast<double>(sequences * context * kvcache::kIndexRecordBytes) + 4 * pairs +
                       static_cast<double>(rows * kHeads * kvcache::kIndexDim);
  const int num_sets = std::min(DeviceBenchmark::NumSets(static_cast<int64_t>(bytes)), 16);
  const int64_t pages_of_set = sequences * table_pages, num_pages = num_sets * pages_of_set;

  const auto q = DeviceArray<E4m3>::Normal(benchmark, num_sets * rows * kHeads * kvcache::kIndexDim, 50.0f);
  const auto weights = DeviceArray<float>::Normal(benchmark, rows * kHeads, 1.0f);
  const auto pages = DeviceArray<E4m3>::Normal(benchmark, num_pages * kvcache::kIndexPageBytes, 50.0f);
  for (int64_t page = 0; page < num_pages; ++page) {
    const absl::Status status = FillUniform(
        benchmark.stream(),
        reinterpret_cast<float*>(pages.data() + page * kvcache::kIndexPageBytes + kvcache::kIndexScaleOffset),
        kvcache::kPageTokens, benchmark.NextSeed(), 0.005f, 0.015f);
    if (!status.ok()) return benchmark.Fail(status.ToString());
  }
  std::vector<int32_t> table(static_cast<size_t>(num_pages));
  std::iota(table.begin(), table.end(), 0);
  std::shuffle(table.begin(), table.end(), std::mt19937(1));
  const auto tables = DeviceArray<int32_t>::Of(benchmark, table);
  const auto context_lengths = DeviceArray<int32_t>::Of(benchmark, contexts);
  const auto sequence = DeviceArray<int32_t>::Of(benchmark, sequence_of);
  const auto logits = DeviceArray<float>::Zeros(benchmark, rows * context);
  benchmark.Measure(
      {.op = "IndexLogits",
       .shape = shape,
       .bytes = bytes,
       .flops = pairs * kHeads * kvcache::kIndexDim * 2,
       .tensor_rate = TensorRate::kFp8,
       .num_sets = num_sets,
       .launch =
           [&](Stream stream, int64_t set) {
             return IndexLogits(
                 stream,
                 {.q = {q.data() + set * rows * kHeads * kvcache::kIndexDim, {rows, kHeads, kvcache::kIndexDim}},
                  .weights = {weights.data(), {rows, kHeads}},
                  .rows = {.page_tables = {tables.data() + set * pages_of_set, {sequences, table_pages}},
                           .sequence = {sequence.data(), {rows}},
                           .context_length = {context_lengths.data(), {rows}}},
                  .index_pages = {reinterpret_cast<const uint8_t*>(pages.data()),
                                  {num_pages, kvcache::kIndexPageBytes}},
                  .index_topk = 0,
                  .logits = {logits.data(), {rows, context}}});
           },
       .peer = peer});
}

void Cases(DeviceBenchmark& benchmark) {
  Case(benchmark, 1, 1, 131072, "DeepGEMM 7.95 us");
  Case(benchmark, 8, 8, 131072, "DeepGEMM 38.7 us");
  Case(benchmark, 64, 64, 65536, "DeepGEMM 142 us");
  Case(benchmark, 128, 64, 65536, "DeepGEMM 148 us");
  Case(benchmark, 2048, 1, 4096, "DeepGEMM 99.0 us");
  Case(benchmark, 2048, 1, 65536, "DeepGEMM 1906 us");
  Case(benchmark, 8192, 1, 8192, "DeepGEMM 506 us");
}

}  // namespace
}  // namespace tandem::kernels::cuda

int main(int argc, char** argv) {
  return tandem::kernels::cuda::DeviceBenchmarkMain(argc, argv, tandem::kernels::cuda::Cases);
}
