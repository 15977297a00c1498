// Times the ops that work on rows, at DeepSeek-V3.2's shapes and 1, 64 and 4,096 tokens. All are bound by memory, or at
// few rows by the launch.
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/device_benchmark.h"
#include "kernels/cuda/ops.h"

namespace tandem::kernels::cuda {
namespace {

constexpr int64_t kTokens[] = {1, 64, 4096};
constexpr int64_t kDim = 7168;
constexpr int64_t kTopK = 8;

// The set-th of num_sets matrices that lie one after another.
template <typename T>
Matrix<T> SetOf(const DeviceArray<T>& array, int64_t set, int64_t rows, int64_t width) {
  return Matrix<T>(array.data() + set * rows * width, {rows, width});
}

std::string Shape(int64_t rows, int64_t width) { return absl::StrCat(rows, " x ", width); }

void Norms(DeviceBenchmark& benchmark, int64_t rows, int64_t dim) {
  const int num_sets = DeviceBenchmark::NumSets(rows * dim * 4);
  const auto x = DeviceArray<Bf16>::Normal(benchmark, num_sets * rows * dim, 1.0f);
  const auto residual = DeviceArray<Bf16>::Normal(benchmark, num_sets * rows * dim, 1.0f);
  const auto y = DeviceArray<Bf16>::Zeros(benchmark, num_sets * rows * dim);
  const auto sums = DeviceArray<Bf16>::Zeros(benchmark, num_sets * rows * dim);
  const auto weight = DeviceArray<Bf16>::Normal(benchmark, dim, 1.0f);
  const Vector<const Bf16> weights(weight.data(), {dim});
  benchmark.Measure({.op = "RmsNorm",
                     .shape = Shape(rows, dim),
                     .bytes = 4.0 * rows * dim,
                     .num_sets = num_sets,
                     .launch = [&](Stream stream, int64_t set) {
                       return RmsNorm(
                           stream, {.x = SetOf(x, set, rows, dim), .weight = weights, .y = SetOf(y, set, rows, dim)});
                     }});
  benchmark.Measure({.op = "AddRmsNorm",
                     .shape = Shape(rows, dim),
                     .bytes = 8.0 * rows * dim,
                     .num_sets = num_sets,
                     .launch = [&](Stream stream, int64_t set) {
                       return AddRmsNorm(stream, {.x = SetOf(x, set, rows, dim),
                                                  .residual = SetOf(residual, set, rows, dim),
                                                  .weight = weights,
                                                  .y = SetOf(y, set, rows, dim),
                                                  .residual_out = SetOf(sums, set, rows, dim)});
                     }});
}

void Quantisers(DeviceBenchmark& benchmark, int64_t rows, int64_t dim) {
  const int num_sets = DeviceBenchmark::NumSets(rows * dim * 3);
  const auto x = DeviceArray<Bf16>::Normal(benchmark, num_sets * rows * dim, 1.0f);
  const auto q = DeviceArray<E4m3>::Zeros(benchmark, num_sets * rows * dim);
  const auto scale = DeviceArray<float>::Zeros(benchmark, num_sets * rows * dim / kQuantGroup);
  for (const ScaleFormat format : {ScaleFormat::kUe8m0, ScaleFormat::kFloat32}) {
    benchmark.Measure({.op = format == ScaleFormat::kUe8m0 ? "Quant128 ue8m0" : "Quant128 float32",
                       .shape = Shape(rows, dim),
                       .bytes = (3.0 + 4.0 / kQuantGroup) * rows * dim,
                       .num_sets = num_sets,
                       .launch = [&](Stream stream, int64_t set) {
                         return Quant128(stream, {.x = SetOf(x, set, rows, dim),
                                                  .scale_format = format,
                                                  .q = SetOf(q, set, rows, dim),
                                                  .scale = SetOf(scale, set, rows, dim / kQuantGroup)});
                       }});
  }
}

void Activation(DeviceBenchmark& benchmark, int64_t rows, int64_t dim) {
  const int num_sets = DeviceBenchmark::NumSets(rows * dim * 6);
  const auto gate_up = DeviceArray<Bf16>::Normal(benchmark, num_sets * rows * dim * 2, 2.0f);
  const auto y = DeviceArray<Bf16>::Zeros(benchmark, num_sets * rows * dim);
  benchmark.Measure({.op = "SwiGlu",
                     .shape = Shape(rows, dim),
                     .bytes = 6.0 * rows * dim,
                     .num_sets = num_sets,
                     .launch = [&](Stream stream, int64_t set) {
                       const Matrix<Bf16> both = SetOf(gate_up, set, rows, 2 * dim);
                       return SwiGlu(
                           stream,
                           {.gate = both.Columns(0, dim), .up = both.Columns(dim, dim), .y = SetOf(y, set, rows, dim)});
                     }});
}

void Rotations(DeviceBenchmark& benchmark, int64_t rows) {
  constexpr int64_t kPositions = 163840;
  const auto table = DeviceArray<float>::Uniform(benchmark, kPositions * 64, -1, 1);
  std::vector<int32_t> positions;
  for (int64_t row = 0; row < rows; ++row) positions.push_back(static_cast<int32_t>(row * 37 % kPositions));
  const auto device_positions = DeviceArray<int32_t>::Of(benchmark, positions);
  struct Case {
    const char* name;
    RopeLayout layout;
    int64_t heads, head_dim, offset;
  };
  for (const Case& c : {Case{"Rope queries", RopeLayout::kInterleaved, 128, 192, 128},
                        Case{"Rope index queries", RopeLayout::kHalfSplit, 64, 128, 0}}) {
    const int num_sets = DeviceBenchmark::NumSets(rows * c.heads * 64 * 4);
    const auto x = DeviceArray<Bf16>::Normal(benchmark, num_sets * rows * c.heads * c.head_dim, 1.0f);
    benchmark.Measure({.op = c.name,
                       .shape = absl::StrCat(rows, " x ", c.heads, " x 64 of ", c.head_dim),
                       .bytes = 4.0 * rows * c.heads * 64 + 256.0 * rows,
                       .num_sets = num_sets,
                       .launch = [&](Stream stream, int64_t set) {
                         const Cube<Bf16> rotary =
                             SetOf(x, set, rows, c.heads * c.head_dim).SplitLast(c.head_dim).Columns(c.offset, 64);
                         return Rope(stream, {.layout = c.layout,
                                              .x = rotary,
                                              .positions = Vector<const int32_t>(device_positions.data(), {rows}),
                                              .table = Matrix<const float>(table.data(), {kPositions, 64}),
                                              .y = rotary});
                       }});
  }
  const int num_sets = DeviceBenchmark::NumSets(rows * 64 * 128 * 4);
  const auto x = DeviceArray<Bf16>::Normal(benchmark, num_sets * rows * 64 * 128, 1.0f);
  const auto y = DeviceArray<Bf16>::Zeros(benchmark, num_sets * rows * 64 * 128);
  benchmark.Measure({.op = "Hadamard128",
                     .shape = absl::StrCat(rows, " x 64 x 128"),
                     .bytes = 4.0 * rows * 64 * 128,
                     .num_sets = num_sets,
                     .launch = [&](Stream stream, int64_t set) {
                       return Hadamard128(stream, {.x = SetOf(x, set, rows, 64 * 128).SplitLast(128),
                                                   .y = SetOf(y, set, rows, 64 * 128).SplitLast(128)});
                     }});
}

// Ids of kTopK experts a row, ascending, spread evenly.
std::vector<int32_t> ExpertIds(int64_t rows) {
  std::vector<int32_t> ids;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t j = 0; j < kTopK; ++j) ids.push_back(static_cast<int32_t>(j * 32 + (row * 7 + j * 5) % 32));
  }
  return ids;
}

void Experts(DeviceBenchmark& benchmark, int64_t rows) {
  constexpr int64_t kExperts = 256;
  const int64_t pairs = rows * kTopK;
  const int num_sets = DeviceBenchmark::NumSets(rows * kExperts * 4);
  const auto logits = DeviceArray<float>::Normal(benchmark, num_sets * rows * kExperts, 1.0f);
  const auto bias = DeviceArray<float>::Normal(benchmark, kExperts, 0.1f);
  const auto chosen = DeviceArray<int32_t>::Zeros(benchmark, pairs);
  const auto weights = DeviceArray<float>::Uniform(benchmark, pairs, 0, 1);
  const auto ids = DeviceArray<int32_t>::Of(benchmark, ExpertIds(rows));
  const auto offsets = DeviceArray<int32_t>::Zeros(benchmark, kExperts + 1);
  const auto pair_rows = DeviceArray<int32_t>::Zeros(benchmark, pairs);
  const auto row_pairs = DeviceArray<int32_t>::Zeros(benchmark, pairs);
  benchmark.Measure({.op = "MoeRouter",
                     .shape = absl::StrCat(rows, " x 256, 8 of 4/8 groups"),
                     .bytes = rows * (4.0 * kExperts + 8.0 * kTopK),
                     .num_sets = num_sets,
                     .launch = [&](Stream stream, int64_t set) {
                       return MoeRouter(stream, {.logits = SetOf(logits, set, rows, kExperts),
                                                 .bias = Vector<const float>(bias.data(), {kExperts}),
                                                 .n_group = 8,
                                                 .topk_group = 4,
                                                 .routed_scaling_factor = 2.5f,
                                                 .expert_ids = SetOf(chosen, 0, rows, kTopK),
                                                 .weights = SetOf(weights, 0, rows, kTopK)});
                     }});
  const auto group = [&](Stream stream, int64_t) {
    return MoeGroupRows(stream, {.expert_ids = SetOf(ids, 0, rows, kTopK),
                                 .group_offsets = Vector<int32_t>(offsets.data(), {kExperts + 1}),
                                 .pair_rows = Vector<int32_t>(pair_rows.data(), {pairs}),
                                 .row_pairs = SetOf(row_pairs, 0, rows, kTopK)});
  };
  benchmark.Measure({.op = "MoeGroupRows",
                     .shape = absl::StrCat(rows, " x 8 of 256"),
                     .bytes = 12.0 * pairs + 4.0 * kExperts,
                     .launch = group});
  // Combining needs what grouping left, also where --only leaves grouping out.
  if (const absl::Status status = group(benchmark.stream(), 0); !status.ok()) benchmark.Fail(status.ToString());
  const int64_t bytes = rows * kDim * 2 * (kTopK + 2);
  const int combine_sets = DeviceBenchmark::NumSets(bytes);
  const auto expert_out = DeviceArray<Bf16>::Normal(benchmark, combine_sets * pairs * kDim, 1.0f);
  const auto shared_out = DeviceArray<Bf16>::Normal(benchmark, combine_sets * rows * kDim, 1.0f);
  const auto y = DeviceArray<Bf16>::Zeros(benchmark, combine_sets * rows * kDim);
  benchmark.Measure({.op = "MoeCombine",
                     .shape = absl::StrCat(rows, " x 8 x ", kDim, " and shared"),
                     .bytes = static_cast<double>(bytes),
                     .num_sets = combine_sets,
                     .launch = [&](Stream stream, int64_t set) {
                       return MoeCombine(stream, {.expert_out = SetOf(expert_out, set, pairs, kDim),
                                                  .row_pairs = SetOf(row_pairs, 0, rows, kTopK),
                                                  .weights = SetOf(weights, 0, rows, kTopK),
                                                  .shared_out = SetOf(shared_out, set, rows, kDim),
                                                  .y = SetOf(y, set, rows, kDim)});
                     }});
}

void CacheWrites(DeviceBenchmark& benchmark, int64_t rows) {
  // One sequence of `rows` tokens for prefill's sake, pages in a scattered order.
  const int64_t num_pages = kvcache::PagesForTokens(rows) * 3;
  constexpr auto kDtype = kvcache::KvCacheDtype::kFp8E4m3;
  std::vector<int32_t> table, sequence(static_cast<size_t>(rows), 0), context;
  for (int64_t page = 0; page < kvcache::PagesForTokens(rows); ++page) {
    table.push_back(static_cast<int32_t>(page * 3 + page % 3));
  }
  for (int64_t row = 0; row < rows; ++row) context.push_back(static_cast<int32_t>(row + 1));
  const auto device_table = DeviceArray<int32_t>::Of(benchmark, table);
  const auto device_sequence = DeviceArray<int32_t>::Of(benchmark, sequence);
  const auto device_context = DeviceArray<int32_t>::Of(benchmark, context);
  const PagedRows paged = {
      .page_tables = Matrix<const int32_t>(device_table.data(), {1, static_cast<int64_t>(table.size())}),
      .sequence = Vector<const int32_t>(device_sequence.data(), {rows}),
      .context_length = Vector<const int32_t>(device_context.data(), {rows})};
  const int num_sets = DeviceBenchmark::NumSets(rows * (1152 + 656));
  const auto latent = DeviceArray<Bf16>::Normal(benchmark, num_sets * rows * 576, 1.0f);
  const auto pages = DeviceArray<uint8_t>::Zeros(benchmark, num_sets * num_pages * LatentPageBytes(kDtype));
  benchmark.Measure({.op = "WriteLatent",
                     .shape = absl::StrCat(rows, " x 656 B"),
                     .bytes = rows * (1152.0 + 656.0),
                     .num_sets = num_sets,
                     .launch = [&](Stream stream, int64_t set) {
                       const Matrix<Bf16> both = SetOf(latent, set, rows, 576);
                       return WriteLatent(stream,
                                          {.latent = both.Columns(0, 512),
                                           .rope_key = both.Columns(512, 64),
                                           .rows = paged,
                                           .latent_pages = SetOf(pages, set, num_pages, LatentPageBytes(kDtype))});
                     }});
  const auto key = DeviceArray<E4m3>::Normal(benchmark, num_sets * rows * 128, 64.0f);
  const auto scale = DeviceArray<float>::Uniform(benchmark, num_sets * rows, 0.005f, 0.015f);
  const auto index_pages = DeviceArray<uint8_t>::Zeros(benchmark, num_sets * num_pages * kvcache::kIndexPageBytes);
  benchmark.Measure({.op = "WriteIndexKey",
                     .shape = absl::StrCat(rows, " x 132 B"),
                     .bytes = rows * 264.0,
                     .num_sets = num_sets,
                     .launch = [&](Stream stream, int64_t set) {
                       return WriteIndexKey(
                           stream, {.key = SetOf(key, set, rows, 128),
                                    .scale = SetOf(scale, set, rows, 1),
                                    .rows = paged,
                                    .index_pages = SetOf(index_pages, set, num_pages, kvcache::kIndexPageBytes)});
                     }});
}

void Picking(DeviceBenchmark& benchmark, int64_t rows) {
  constexpr int64_t kVocab = 129280;
  std::vector<int32_t> ids;
  for (int64_t row = 0; row < rows; ++row) ids.push_back(static_cast<int32_t>(row * 7919 % kVocab));
  const auto device_ids = DeviceArray<int32_t>::Of(benchmark, ids);
  const auto table = DeviceArray<Bf16>::Normal(benchmark, kVocab * kDim, 1.0f);
  const auto out = DeviceArray<Bf16>::Zeros(benchmark, rows * kDim);
  benchmark.Measure({.op = "GatherRows",
                     .shape = Shape(rows, kDim),
                     .bytes = 4.0 * rows * kDim,
                     .launch = [&](Stream stream, int64_t) {
                       return GatherRows(stream, {.table = Matrix<const Bf16>(table.data(), {kVocab, kDim}),
                                                  .rows = Vector<const int32_t>(device_ids.data(), {rows}),
                                                  .out = SetOf(out, 0, rows, kDim)});
                     }});
}

void Argmaxes(DeviceBenchmark& benchmark, int64_t rows, const char* peer) {
  constexpr int64_t kVocab = 129280;
  const int num_sets = DeviceBenchmark::NumSets(rows * kVocab * 4);
  const auto logits = DeviceArray<float>::Normal(benchmark, num_sets * rows * kVocab, 1.0f);
  const auto tokens = DeviceArray<int32_t>::Zeros(benchmark, rows);
  benchmark.Measure({.op = "Argmax",
                     .shape = Shape(rows, kVocab),
                     .bytes = 4.0 * rows * kVocab,
                     .num_sets = num_sets,
                     .launch =
                         [&](Stream stream, int64_t set) {
                           return Argmax(stream, {.logits = SetOf(logits, set, rows, kVocab),
                                                  .tokens = Vector<int32_t>(tokens.data(), {rows})});
                         },
                     .peer = peer});
}

void Cases(DeviceBenchmark& benchmark) {
  for (const int64_t rows : kTokens) {
    for (const int64_t dim : {512, 1536, 7168}) Norms(benchmark, rows, dim);
    for (const int64_t dim : {1536, 7168, 16384}) Quantisers(benchmark, rows, dim);
    Activation(benchmark, rows, 18432);
    Activation(benchmark, rows * kTopK, 2048);
    Rotations(benchmark, rows);
    Experts(benchmark, rows);
    CacheWrites(benchmark, rows);
    Picking(benchmark, rows);
  }
  Argmaxes(benchmark, 1, "torch.argmax 36.7 us");
  Argmaxes(benchmark, 64, "torch.argmax 38.5 us");
  Argmaxes(benchmark, 256, "torch.argmax 47.8 us");
  constexpr int64_t kOut = 32768, kIn = 512;  // kv_b_proj
  const auto weight = DeviceArray<E4m3>::Normal(benchmark, 3 * kOut * kIn, 64.0f);
  const auto scale = DeviceArray<float>::Uniform(benchmark, kOut / 128 * kIn / 128, 0.005f, 0.015f);
  const auto out = DeviceArray<Bf16>::Zeros(benchmark, 3 * kOut * kIn);
  benchmark.Measure({.op = "DequantizeFp8Weight",
                     .shape = Shape(kOut, kIn),
                     .bytes = 3.0 * kOut * kIn,
                     .num_sets = 3,
                     .launch = [&](Stream stream, int64_t set) {
                       return DequantizeFp8Weight(stream, {.weight = {.weight = SetOf(weight, set, kOut, kIn),
                                                                      .scale = SetOf(scale, 0, kOut / 128, kIn / 128)},
                                                           .out = SetOf(out, set, kOut, kIn)});
                     }});
}

}  // namespace
}  // namespace tandem::kernels::cuda

int main(int argc, char** argv) {
  return tandem::kernels::cuda::DeviceBenchmarkMain(argc, argv, tandem::kernels::cuda::Cases);
}
