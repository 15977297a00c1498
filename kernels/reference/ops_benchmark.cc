// Times the reference ops at the shapes of the tiny checkpoint: a decode step (1 row), a small batch and a prefill
// chunk.
//
//   bazel run //kernels/reference:ops_benchmark
//
// Linear layers report GMAC/s of one core; the others time per call.
#include <cstddef>
#include <cstring>
#include <numeric>
#include <vector>

#include "benchmark/benchmark.h"
#include "kernels/ops.h"
#include "kvcache/kv_layout.h"

namespace tandem::kernels {
namespace {

constexpr int64_t kHidden = 384, kHeads = 8, kIndexHeads = 4, kExperts = 16, kTopExperts = 4;

// Storage with some finite, varied content. Deterministic, so that runs compare.
template <typename T, size_t kRank>
struct Filled {
  explicit Filled(const std::array<int64_t, kRank>& shape)
      : values(static_cast<size_t>(TensorView<T, kRank>(nullptr, shape).num_elements())), view(values.data(), shape) {
    uint32_t state = 1;
    for (T& value : values) {
      state = state * 1664525u + 1013904223u;
      const float x = static_cast<float>(state >> 8) * 0x1p-23f - 1.0f;
      if constexpr (std::is_same_v<T, Bf16>) {
        value = ToBf16(x);
      } else if constexpr (std::is_same_v<T, E4m3>) {
        value = ToE4m3(x * 100);
      } else if constexpr (std::is_same_v<T, float>) {
        value = x;
      }
    }
  }
  std::vector<T> values;
  TensorView<T, kRank> view;
};

void Check(benchmark::State& state, const absl::Status& status) {
  if (!status.ok()) state.SkipWithError(std::string(status.message()).c_str());
}

void ReportMacs(benchmark::State& state, int64_t macs) {
  state.counters["GMAC/s"] =
      benchmark::Counter(static_cast<double>(macs) * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

void BM_Fp8Linear(benchmark::State& state) {
  const int64_t rows = state.range(0), out_dim = state.range(1), in_dim = state.range(2);
  Filled<E4m3, 2> x({rows, in_dim}), weight({out_dim, in_dim});
  Filled<float, 2> x_scale({rows, in_dim / 128}), w_scale({(out_dim + 127) / 128, in_dim / 128});
  Filled<Bf16, 2> y({rows, out_dim});
  for (auto _ : state) {
    Check(state, Fp8Linear({.x = x.view, .x_scale = x_scale.view, .weight = {weight.view, w_scale.view}, .y = y.view}));
  }
  ReportMacs(state, rows * out_dim * in_dim);
}
BENCHMARK(BM_Fp8Linear)->ArgNames({"rows", "out", "in"})->ArgsProduct({{1, 8, 512}, {1536}, {256}});
BENCHMARK(BM_Fp8Linear)->ArgNames({"rows", "out", "in"})->ArgsProduct({{1, 8, 512}, {384}, {1024}});
BENCHMARK(BM_Fp8Linear)->ArgNames({"rows", "out", "in"})->ArgsProduct({{1, 512}, {7168}, {2048}});

void BM_LmHead(benchmark::State& state) {
  const int64_t rows = state.range(0), vocab_size = 4096;
  Filled<Bf16, 2> x({rows, kHidden}), weight({vocab_size, kHidden});
  Filled<float, 2> y({rows, vocab_size});
  for (auto _ : state) Check(state, Bf16LinearF32({.x = x.view, .weight = weight.view, .y = y.view}));
  ReportMacs(state, rows * vocab_size * kHidden);
}
BENCHMARK(BM_LmHead)->ArgName("rows")->Arg(1)->Arg(8)->Arg(64);

// One MoE layer's expert matrices of one kind: each row goes to 4 of 16 experts.
void BM_Fp8GroupedLinear(benchmark::State& state) {
  const int64_t rows = state.range(0), pairs = rows * kTopExperts, out_dim = 128;
  Filled<E4m3, 2> x({rows, kHidden}), weight({kExperts * out_dim, kHidden});
  Filled<float, 2> x_scale({rows, kHidden / 128}), w_scale({kExperts, kHidden / 128});
  Filled<Bf16, 2> y({pairs, out_dim});
  std::vector<int32_t> offsets(kExperts + 1), pair_rows(static_cast<size_t>(pairs));
  std::vector<Fp8Weight> weights;
  for (int64_t e = 0; e < kExperts; ++e) {
    weights.push_back({weight.view.Slice(e * out_dim, out_dim), w_scale.view.Slice(e, 1)});
    offsets[static_cast<size_t>(e) + 1] = static_cast<int32_t>(pairs * (e + 1) / kExperts);
  }
  for (size_t p = 0; p < pair_rows.size(); ++p) pair_rows[p] = static_cast<int32_t>(p % static_cast<size_t>(rows));
  for (auto _ : state) {
    Check(state, Fp8GroupedLinear({.x = x.view,
                                   .x_scale = x_scale.view,
                                   .x_rows = Vector<const int32_t>(pair_rows.data(), {pairs}),
                                   .group_offsets = Vector<const int32_t>(offsets.data(), {kExperts + 1}),
                                   .weights = weights,
                                   .y = y.view}));
  }
  ReportMacs(state, pairs * out_dim * kHidden);
}
BENCHMARK(BM_Fp8GroupedLinear)->ArgName("rows")->Arg(1)->Arg(8)->Arg(512);

void BM_MlaAbsorbQuery(benchmark::State& state) {
  const int64_t rows = state.range(0);
  Filled<Bf16, 3> q({rows, kHeads, 192}), w_uk({kHeads, 128, 512}), q_latent({rows, kHeads, 512});
  for (auto _ : state) {
    Check(state, MlaAbsorbQuery({.q_nope = q.view.Columns(0, 128), .w_uk = w_uk.view, .q_latent = q_latent.view}));
  }
  ReportMacs(state, rows * kHeads * 128 * 512);
}
BENCHMARK(BM_MlaAbsorbQuery)->ArgName("rows")->Arg(1)->Arg(8)->Arg(512);

// One sequence whose last `rows` positions are the batch.
struct Sequence {
  Sequence(int64_t rows, int64_t context)
      : pages(kvcache::PagesForTokens(context)),
        table(static_cast<size_t>(pages)),
        sequence(static_cast<size_t>(rows)),
        lengths(static_cast<size_t>(rows)) {
    std::iota(table.begin(), table.end(), 0);
    std::iota(lengths.begin(), lengths.end(), static_cast<int32_t>(context - rows + 1));
  }
  PagedRows rows() const {
    const auto count = static_cast<int64_t>(lengths.size());
    return {.page_tables = Matrix<const int32_t>(table.data(), {1, pages}),
            .sequence = Vector<const int32_t>(sequence.data(), {count}),
            .context_length = Vector<const int32_t>(lengths.data(), {count})};
  }
  int64_t pages;
  std::vector<int32_t> table, sequence, lengths;
};

void BM_IndexLogits(benchmark::State& state) {
  const int64_t rows = state.range(0), context = state.range(1);
  const Sequence sequence(rows, context);
  Filled<E4m3, 3> q({rows, kIndexHeads, 128});
  Filled<float, 2> weights({rows, kIndexHeads}), logits({rows, context});
  Filled<E4m3, 2> page_bytes({sequence.pages, kvcache::kIndexPageBytes});
  const Matrix<const uint8_t> pages(reinterpret_cast<const uint8_t*>(page_bytes.values.data()), page_bytes.view.shape);
  for (auto _ : state) {
    Check(state, IndexLogits({.q = q.view,
                              .weights = weights.view,
                              .rows = sequence.rows(),
                              .index_pages = pages,
                              .index_topk = 64,
                              .logits = logits.view}));
  }
}
BENCHMARK(BM_IndexLogits)->ArgNames({"rows", "context"})->Args({1, 1000})->Args({1, 8000})->Args({512, 1000});

void BM_TopK(benchmark::State& state) {
  const int64_t context = state.range(0), k = state.range(1);
  Filled<float, 2> logits({1, context});
  std::vector<int32_t> indices(static_cast<size_t>(k));
  int32_t length = static_cast<int32_t>(context), nan_count = 0;
  for (auto _ : state) {
    Check(state, TopK({.logits = logits.view,
                       .context_length = Vector<const int32_t>(&length, {1}),
                       .indices = Matrix<int32_t>(indices.data(), {1, k}),
                       .nan_count = Vector<int32_t>(&nan_count, {1})}));
  }
}
BENCHMARK(BM_TopK)->ArgNames({"context", "k"})->Args({1000, 64})->Args({131072, 2048});

void BM_SparseMla(benchmark::State& state) {
  const int64_t rows = state.range(0), k = state.range(1), context = 1000;
  const Sequence sequence(rows, context);
  Filled<Bf16, 3> q_latent({rows, kHeads, 512}), q_rope({rows, kHeads, 64}), out({rows, kHeads, 512});
  std::vector<uint8_t> page_bytes(
      static_cast<size_t>(sequence.pages * kvcache::LatentPageBytes(kvcache::KvCacheDtype::kFp8E4m3)), 0x38);
  for (size_t record = 0; record < page_bytes.size();
       record += kvcache::LatentRecordBytes(kvcache::KvCacheDtype::kFp8E4m3)) {
    const float scales[4] = {0.5f, 0.25f, 1.0f, 0.5f};
    std::memcpy(page_bytes.data() + record + kvcache::kLatentScaleOffset, scales, sizeof(scales));
  }
  std::vector<int32_t> indices;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t j = 0; j < k; ++j) indices.push_back(static_cast<int32_t>(j * (context - rows) / k));
  }
  std::vector<float> workspace(static_cast<size_t>(SparseMlaWorkspaceBytes(kHeads)) / sizeof(float) + 16);
  void* start = workspace.data();
  size_t space = workspace.size() * sizeof(float);
  std::align(64, 1, start, space);
  for (auto _ : state) {
    Check(
        state,
        SparseMla({.q_latent = q_latent.view,
                   .q_rope = q_rope.view,
                   .softmax_scale = 0.135f,
                   .indices = Matrix<const int32_t>(indices.data(), {rows, k}),
                   .rows = sequence.rows(),
                   .latent_pages = Matrix<const uint8_t>(
                       page_bytes.data(), {sequence.pages, kvcache::LatentPageBytes(kvcache::KvCacheDtype::kFp8E4m3)}),
                   .out = out.view,
                   .workspace = absl::MakeSpan(static_cast<std::byte*>(start), space)}));
  }
  ReportMacs(state, rows * kHeads * k * (576 + 512));
}
BENCHMARK(BM_SparseMla)->ArgNames({"rows", "k"})->Args({1, 64})->Args({1, 128})->Args({512, 64});

void BM_RmsNorm(benchmark::State& state) {
  const int64_t rows = state.range(0);
  Filled<Bf16, 2> x({rows, kHidden}), y({rows, kHidden});
  Filled<Bf16, 1> weight({kHidden});
  for (auto _ : state) Check(state, RmsNorm({.x = x.view, .weight = weight.view, .y = y.view}));
}
BENCHMARK(BM_RmsNorm)->ArgName("rows")->Arg(1)->Arg(512);

void BM_Quant128(benchmark::State& state) {
  const int64_t rows = state.range(0);
  Filled<Bf16, 2> x({rows, kHidden});
  Filled<E4m3, 2> q({rows, kHidden});
  Filled<float, 2> scale({rows, kHidden / 128});
  for (auto _ : state) Check(state, Quant128({.x = x.view, .q = q.view, .scale = scale.view}));
}
BENCHMARK(BM_Quant128)->ArgName("rows")->Arg(1)->Arg(512);

void BM_Rope(benchmark::State& state) {
  const int64_t rows = state.range(0);
  Filled<Bf16, 3> x({rows, kHeads, 64});
  Filled<float, 2> table({1000, 64});
  std::vector<int32_t> positions(static_cast<size_t>(rows), 7);
  for (auto _ : state) {
    Check(state, Rope({.layout = RopeLayout::kInterleaved,
                       .x = x.view,
                       .positions = Vector<const int32_t>(positions.data(), {rows}),
                       .table = table.view,
                       .y = x.view}));
  }
}
BENCHMARK(BM_Rope)->ArgName("rows")->Arg(1)->Arg(512);

void BM_SwiGlu(benchmark::State& state) {
  const int64_t rows = state.range(0);
  Filled<Bf16, 2> gate({rows, 1024}), up({rows, 1024}), y({rows, 1024});
  for (auto _ : state) Check(state, SwiGlu({.gate = gate.view, .up = up.view, .y = y.view}));
}
BENCHMARK(BM_SwiGlu)->ArgName("rows")->Arg(1)->Arg(512);

}  // namespace
}  // namespace tandem::kernels

BENCHMARK_MAIN();
