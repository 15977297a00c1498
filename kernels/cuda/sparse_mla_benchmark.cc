// Times SparseMla on lists of 2048 random positions: decodes, whose rows have sequences of their own, and a prefill
// chunk of one sequence.
#include <algorithm>
#include <cstring>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/device_benchmark.h"
#include "kernels/cuda/ops.h"
#include "kvcache/kv_layout.h"

namespace tandem::kernels::cuda {
namespace {

using kvcache::KvCacheDtype;

constexpr int64_t kK = 2048;

// Pages of valid records; a few different ones are repeated over the pool.
DeviceArray<uint8_t> Pages(DeviceBenchmark& benchmark, KvCacheDtype dtype, int64_t num_pages) {
  constexpr int64_t kTemplatePages = 64;
  const int64_t page_bytes = kvcache::LatentPageBytes(dtype);
  std::vector<uint8_t> pages(static_cast<size_t>(kTemplatePages * page_bytes));
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (int64_t token = 0; token < kTemplatePages * kvcache::kPageTokens; ++token) {
    uint8_t* record = pages.data() + token * kvcache::LatentRecordBytes(dtype);
    for (int d = 0; d < kvcache::kLatentDim; ++d) {
      if (dtype == KvCacheDtype::kFp8E4m3) {
        record[d] = ToE4m3(100 * normal(random)).bits;
      } else {
        const Bf16 value = ToBf16(normal(random));
        std::memcpy(record + 2 * d, &value, 2);
      }
    }
    const float scale = 0x1p-7f;
    for (int tile = 0; tile < 4 && dtype == KvCacheDtype::kFp8E4m3; ++tile) {
      std::memcpy(record + kvcache::kLatentScaleOffset + 4 * tile, &scale, 4);
    }
    for (int d = 0; d < kvcache::kRopeDim; ++d) {
      const Bf16 value = ToBf16(normal(random));
      std::memcpy(record + kvcache::LatentRopeOffset(dtype) + 2 * d, &value, 2);
    }
  }
  auto pool = DeviceArray<uint8_t>::Zeros(benchmark, num_pages * page_bytes);
  for (int64_t page = 0; page < num_pages; page += kTemplatePages) {
    const absl::Status status = CopyToDevice(benchmark.stream(), pool.data() + page * page_bytes, pages.data(),
                                             std::min(kTemplatePages, num_pages - page) * page_bytes);
    if (!status.ok()) benchmark.Fail(status.ToString());
  }
  return pool;
}

void Case(DeviceBenchmark& benchmark, KvCacheDtype dtype, int64_t rows, int64_t sequences, int64_t heads,
          int64_t context, const std::string& peer) {
  const std::string shape = absl::StrCat(rows, " rows, ", sequences, " sequences of ", context, ", ", heads, " heads");
  const std::string op = absl::StrCat("SparseMla ", KvCacheDtypeName(dtype));
  if (!benchmark.Wants(op, shape)) return;
  const int64_t rows_of_sequence = rows / sequences, table_pages = kvcache::PagesForTokens(context);
  const int64_t record_bytes = kvcache::LatentRecordBytes(dtype);
  const double query_bytes = static_cast<double>(rows * heads) * (576 * 2 + 512 * 2);
  const double bytes = static_cast<double>(std::min(rows * kK, sequences * context) * record_bytes) + query_bytes +
                       static_cast<double>(rows * kK * 4);
  const int num_sets = std::min(DeviceBenchmark::NumSets(static_cast<int64_t>(bytes)), 16);
  // Sets of few rows read the records of other sequences.
  const int64_t pool_sequences = rows_of_sequence == 1 ? sequences * num_sets : sequences;
  const int64_t num_pages = pool_sequences * table_pages;

  std::mt19937 random(2);
  std::vector<int32_t> list, sequence_of, contexts, table(static_cast<size_t>(num_pages));
  for (int64_t set = 0; set < num_sets; ++set) {
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t stride = context / kK;
      for (int64_t j = 0; j < kK; ++j) {
        list.push_back(
            static_cast<int32_t>(j * stride + static_cast<int64_t>(random() % static_cast<uint64_t>(stride))));
      }
      const int64_t of = row / rows_of_sequence;
      sequence_of.push_back(static_cast<int32_t>(pool_sequences == sequences ? of : set * sequences + of));
    }
  }
  contexts.assign(static_cast<size_t>(rows), static_cast<int32_t>(context));
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>(i);
  std::shuffle(table.begin(), table.end(), random);

  const auto q_latent = DeviceArray<Bf16>::Normal(benchmark, num_sets * rows * heads * 512, 0.2f);
  const auto q_rope = DeviceArray<Bf16>::Normal(benchmark, num_sets * rows * heads * 64, 0.2f);
  const auto out = DeviceArray<Bf16>::Zeros(benchmark, num_sets * rows * heads * 512);
  const auto indices = DeviceArray<int32_t>::Of(benchmark, list);
  const auto sequence = DeviceArray<int32_t>::Of(benchmark, sequence_of);
  const auto context_lengths = DeviceArray<int32_t>::Of(benchmark, contexts);
  const auto tables = DeviceArray<int32_t>::Of(benchmark, table);
  const DeviceArray<uint8_t> pages = Pages(benchmark, dtype, num_pages);
  benchmark.Measure({.op = op,
                     .shape = shape,
                     .bytes = bytes,
                     .flops = static_cast<double>(rows * heads * kK) * (576 + 512) * 2,
                     .tensor_rate = TensorRate::kBf16,
                     .num_sets = num_sets,
                     .launch =
                         [&](Stream stream, int64_t set) {
                           const int64_t first = set * rows;
                           return SparseMla(
                               stream, {.q_latent = {q_latent.data() + first * heads * 512, {rows, heads, 512}},
                                        .q_rope = {q_rope.data() + first * heads * 64, {rows, heads, 64}},
                                        .softmax_scale = 0.1352337789f,
                                        .indices = {indices.data() + first * kK, {rows, kK}},
                                        .rows = {.page_tables = {tables.data(), {pool_sequences, table_pages}},
                                                 .sequence = {sequence.data() + first, {rows}},
                                                 .context_length = {context_lengths.data(), {rows}}},
                                        .kv_cache_dtype = dtype,
                                        .latent_pages = {pages.data(), {num_pages, kvcache::LatentPageBytes(dtype)}},
                                        .out = {out.data() + first * heads * 512, {rows, heads, 512}}});
                         },
                     .peer = peer});
}

void Cases(DeviceBenchmark& benchmark) {
  const KvCacheDtype fp8 = KvCacheDtype::kFp8E4m3, bf16 = KvCacheDtype::kBfloat16;
  Case(benchmark, fp8, 1, 1, 128, 65536, "FlashMLA 17.6 us");
  Case(benchmark, fp8, 8, 8, 128, 65536, "FlashMLA 25.8 us");
  Case(benchmark, fp8, 64, 64, 128, 16384, "FlashMLA 400 TFLOPS");
  Case(benchmark, fp8, 256, 256, 128, 8192, "FlashMLA 360 us");
  Case(benchmark, fp8, 64, 64, 64, 16384, "FlashMLA 74.5 us");
  Case(benchmark, fp8, 64, 64, 16, 16384, "");
  Case(benchmark, fp8, 4096, 1, 128, 65536, "");
  Case(benchmark, bf16, 256, 256, 128, 4096, "");
  Case(benchmark, bf16, 4096, 1, 128, 65536, "FlashMLA 3823 us");
}

}  // namespace
}  // namespace tandem::kernels::cuda

int main(int argc, char** argv) {
  return tandem::kernels::cuda::DeviceBenchmarkMain(argc, argv, tandem::kernels::cuda::Cases);
}
