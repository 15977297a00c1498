#include "tools/bench/ops/cases.h"

#include <cmath>
#include <cstring>
#include <numeric>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "kernels/ops.h"
#include "kvcache/kv_layout.h"
#include "tools/bench/ops/stopwatch.h"

namespace tandem::bench {
namespace {

using kernels::Bf16;
using kernels::Cube;
using kernels::E4m3;
using kernels::Matrix;
using kernels::Vector;

constexpr int64_t kLatentPageBytes = kvcache::LatentPageBytes(kvcache::KvCacheDtype::kFp8E4m3);
constexpr int64_t kLatentRecordBytes = kvcache::LatentRecordBytes(kvcache::KvCacheDtype::kFp8E4m3);
// Weights in rotation take at least this much, several times a last-level cache.
constexpr int64_t kRotatedBytes = int64_t{256} << 20;

// Memory with finite, varied content, aligned to pages. Deterministic, so that runs compare.
template <typename T>
class Buffer {
 public:
  explicit Buffer(int64_t count) : bytes_(static_cast<size_t>(count) * sizeof(T) + kAlignment) {
    void* start = bytes_.data();
    size_t space = bytes_.size();
    data_ = static_cast<T*>(std::align(kAlignment, 1, start, space));
    uint32_t state = 1;
    for (int64_t i = 0; i < count; ++i) {
      state = state * 1664525u + 1013904223u;
      const float x = static_cast<float>(state >> 8) * 0x1p-23f - 1.0f;
      if constexpr (std::is_same_v<T, Bf16>) data_[i] = kernels::ToBf16(x);
      if constexpr (std::is_same_v<T, float>) data_[i] = x;
      if constexpr (sizeof(T) == 1) data_[i] = std::bit_cast<T>(static_cast<uint8_t>((state >> 24) % 0x7f));
    }
  }
  T* data() const { return data_; }

 private:
  static constexpr size_t kAlignment = 4096;
  std::vector<std::byte> bytes_;
  T* data_;
};

// Scales as checkpoints have them: powers of two, a few of them.
Buffer<float> Scales(int64_t count) {
  Buffer<float> scales(count);
  for (int64_t i = 0; i < count; ++i) scales.data()[i] = std::ldexp(1.0f, static_cast<int>(-8 - i * 7 % 4));
  return scales;
}

void CheckOk(const absl::Status& status) { TANDEM_CHECK(status.ok(), "the benchmark's operands are legal"); }

class Cases {
 public:
  explicit Cases(const CaseOptions& options) : options_(options) {}

  void Fp8Linear(int64_t out_dim, int64_t in_dim, kernels::ScaleFormat format) {
    const char* name = format == kernels::ScaleFormat::kUe8m0 ? "Fp8Linear" : "Fp8Linear, FP32 scales";
    if (!Wanted(name)) return;
    constexpr int64_t kRowsMax = 512;
    const int64_t copies = kRotatedBytes / (out_dim * in_dim) + 1;
    const Buffer<E4m3> weight(copies * out_dim * in_dim), x(kRowsMax * in_dim);
    const Buffer<float> w_scale = Scales((out_dim + 127) / 128 * in_dim / 128),
                        x_scale = Scales(kRowsMax * in_dim / 128);
    const Buffer<Bf16> y(kRowsMax * out_dim);
    const Buffer<std::byte> workspace(kernels::Fp8LinearWorkspaceBytes(kRowsMax, in_dim));
    int64_t copy = 0;
    for (int64_t rows : {1, 2, 4, 8, 16, 32, 64, 512}) {
      if (format == kernels::ScaleFormat::kFloat32 && rows > 64) continue;
      Add(name, absl::StrCat(out_dim, "x", in_dim, ", ", rows, " rows"), 2.0 * rows * out_dim * in_dim,
          out_dim * in_dim, [&](int) {
            copy = (copy + 1) % copies;
            CheckOk(kernels::Fp8Linear(
                {.x = {x.data(), {rows, in_dim}},
                 .x_scale = {x_scale.data(), {rows, in_dim / 128}},
                 .weight = {{weight.data() + copy * out_dim * in_dim, {out_dim, in_dim}},
                            {w_scale.data(), {(out_dim + 127) / 128, in_dim / 128}}},
                 .y = {y.data(), {rows, out_dim}},
                 .scale_format = format,
                 .workspace = {workspace.data(), static_cast<size_t>(kernels::Fp8LinearWorkspaceBytes(rows, in_dim))},
                 .threads = options_.threads}));
          });
    }
  }

  // One layer's experts of one projection; every row goes to 8 of 64, as on one rank of four.
  void Fp8GroupedLinear(int64_t out_dim, int64_t in_dim) {
    if (!Wanted("Fp8GroupedLinear")) return;
    constexpr int64_t kExperts = 64, kTopK = 8, kRowsMax = 512;
    const Buffer<E4m3> weight(kExperts * out_dim * in_dim), x(kRowsMax * in_dim);
    const Buffer<float> w_scale = Scales(out_dim / 128 * in_dim / 128), x_scale = Scales(kRowsMax * in_dim / 128);
    const Buffer<Bf16> y(kRowsMax * kTopK * out_dim);
    const Buffer<std::byte> workspace(kernels::Fp8LinearWorkspaceBytes(kRowsMax, in_dim));
    std::vector<kernels::Fp8Weight> weights;
    for (int64_t e = 0; e < kExperts; ++e) {
      weights.push_back(
          {{weight.data() + e * out_dim * in_dim, {out_dim, in_dim}}, {w_scale.data(), {out_dim / 128, in_dim / 128}}});
    }
    for (int64_t rows : {1, 8, 64, 512}) {
      // Expert (row * 8 + j) * 11 mod 64, in order of experts.
      std::vector<int32_t> pair_rows, offsets = {0};
      for (int64_t e = 0; e < kExperts; ++e) {
        for (int64_t pair = 0; pair < rows * kTopK; ++pair) {
          if (pair * 11 % kExperts == e) pair_rows.push_back(static_cast<int32_t>(pair / kTopK));
        }
        offsets.push_back(static_cast<int32_t>(pair_rows.size()));
      }
      const int64_t used = std::min(kExperts, rows * kTopK), pairs = rows * kTopK;
      Add("Fp8GroupedLinear", absl::StrCat(out_dim, "x", in_dim, ", 8 of 64 experts, ", rows, " rows"),
          2.0 * pairs * out_dim * in_dim, used * out_dim * in_dim, [&](int) {
            CheckOk(kernels::Fp8GroupedLinear(
                {.x = {x.data(), {rows, in_dim}},
                 .x_scale = {x_scale.data(), {rows, in_dim / 128}},
                 .x_rows = {pair_rows.data(), {pairs}},
                 .group_offsets = {offsets.data(), {kExperts + 1}},
                 .weights = weights,
                 .y = {y.data(), {pairs, out_dim}},
                 .workspace = {workspace.data(), static_cast<size_t>(kernels::Fp8LinearWorkspaceBytes(rows, in_dim))},
                 .threads = options_.threads}));
          });
    }
  }

  void Bf16Linear(int64_t out_dim, int64_t in_dim) {
    if (!Wanted("Bf16LinearF32")) return;
    constexpr int64_t kRowsMax = 64;
    const int64_t copies = kRotatedBytes / (out_dim * in_dim * 2) + 1;
    const Buffer<Bf16> weight(copies * out_dim * in_dim), x(kRowsMax * in_dim);
    const Buffer<float> y(kRowsMax * out_dim);
    int64_t copy = 0;
    for (int64_t rows : {1, 8, 64}) {
      Add("Bf16LinearF32", absl::StrCat(out_dim, "x", in_dim, ", ", rows, " rows"), 2.0 * rows * out_dim * in_dim,
          2.0 * out_dim * in_dim, [&](int) {
            copy = (copy + 1) % copies;
            CheckOk(kernels::Bf16LinearF32({.x = {x.data(), {rows, in_dim}},
                                            .weight = {weight.data() + copy * out_dim * in_dim, {out_dim, in_dim}},
                                            .y = {y.data(), {rows, out_dim}},
                                            .threads = options_.threads}));
          });
    }
  }

  void Mla(int64_t heads, int64_t rows) {
    constexpr int64_t kDim = 128;
    const Buffer<Bf16> q(rows * heads * kDim), w(heads * kDim * 512), latent(rows * heads * 512);
    const std::string shape = absl::StrCat(heads, " heads, ", rows, " rows");
    const double flop = 2.0 * rows * heads * kDim * 512, bytes = 2.0 * heads * kDim * 512;
    if (Wanted("MlaAbsorbQuery")) {
      Add("MlaAbsorbQuery", shape, flop, bytes, [&](int) {
        CheckOk(kernels::MlaAbsorbQuery({.q_nope = {q.data(), {rows, heads, kDim}},
                                         .w_uk = {w.data(), {heads, kDim, 512}},
                                         .q_latent = {latent.data(), {rows, heads, 512}},
                                         .threads = options_.threads}));
      });
    }
    if (Wanted("MlaUnabsorbOutput")) {
      Add("MlaUnabsorbOutput", shape, flop, bytes, [&](int) {
        CheckOk(kernels::MlaUnabsorbOutput({.latent_out = {latent.data(), {rows, heads, 512}},
                                            .w_uv = {w.data(), {heads, kDim, 512}},
                                            .out = {q.data(), {rows, heads, kDim}},
                                            .threads = options_.threads}));
      });
    }
  }

  void SparseMla(int64_t heads, int64_t rows, int64_t k) {
    if (!Wanted("SparseMla")) return;
    constexpr int64_t kContext = 65536;
    const Sequence sequence(rows, kContext);
    const Buffer<uint8_t> pages(sequence.pages * kLatentPageBytes);
    for (int64_t record = 0; record < kContext; ++record) {
      const float scales[4] = {0x1p-7f, 0x1p-8f, 0x1p-8f, 0x1p-7f};
      std::memcpy(pages.data() + record * kLatentRecordBytes + kvcache::kLatentScaleOffset, scales, 16);
    }
    const Buffer<Bf16> q_latent(rows * heads * 512), q_rope(rows * heads * 64), out(rows * heads * 512);
    std::vector<int32_t> indices;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t j = 0; j < k; ++j) indices.push_back(static_cast<int32_t>(j * (kContext - rows) / k + row % 7));
    }
    Add("SparseMla", absl::StrCat(heads, " heads, ", k, " of ", kContext, " positions, ", rows, " rows"),
        2.0 * rows * heads * k * (576 + 512), rows * k * kLatentRecordBytes, [&](int) {
          CheckOk(kernels::SparseMla({.q_latent = {q_latent.data(), {rows, heads, 512}},
                                      .q_rope = {q_rope.data(), {rows, heads, 64}},
                                      .softmax_scale = 0.01f,
                                      .indices = {indices.data(), {rows, k}},
                                      .rows = sequence.rows(),
                                      .latent_pages = {pages.data(), {sequence.pages, kLatentPageBytes}},
                                      .out = {out.data(), {rows, heads, 512}},
                                      .threads = options_.threads}));
        });
  }

  void IndexLogits(int64_t heads, int64_t rows, int64_t context) {
    if (!Wanted("IndexLogits")) return;
    const Sequence sequence(rows, context);
    const Buffer<uint8_t> pages(sequence.pages * kvcache::kIndexPageBytes);
    const Buffer<E4m3> q(rows * heads * 128);
    const Buffer<float> weights(rows * heads), logits(rows * context);
    Add("IndexLogits", absl::StrCat(heads, " heads, context ", context, ", ", rows, " rows"),
        2.0 * rows * heads * context * 128, context * kvcache::kIndexRecordBytes, [&](int) {
          CheckOk(kernels::IndexLogits({.q = {q.data(), {rows, heads, 128}},
                                        .weights = {weights.data(), {rows, heads}},
                                        .rows = sequence.rows(),
                                        .index_pages = {pages.data(), {sequence.pages, kvcache::kIndexPageBytes}},
                                        .index_topk = 64,
                                        .logits = {logits.data(), {rows, context}},
                                        .threads = options_.threads}));
        });
  }

  void TopK(int64_t context, int64_t k) {
    if (!Wanted("TopK")) return;
    const Buffer<float> logits(context);
    std::vector<int32_t> indices(static_cast<size_t>(k));
    int32_t length = static_cast<int32_t>(context), nan_count = 0;
    Add("TopK", absl::StrCat(k, " of ", context), 0, context * 4.0, [&](int) {
      CheckOk(kernels::TopK({.logits = {logits.data(), {1, context}},
                             .context_length = {&length, {1}},
                             .indices = {indices.data(), {1, k}},
                             .nan_count = {&nan_count, {1}}}));
    });
  }

  std::vector<Measurement> results;

 private:
  // One sequence whose last `rows` positions are the batch.
  struct Sequence {
    Sequence(int64_t num_rows, int64_t context)
        : pages(kvcache::PagesForTokens(context)),
          table(static_cast<size_t>(pages)),
          sequence(static_cast<size_t>(num_rows)),
          lengths(static_cast<size_t>(num_rows)) {
      std::iota(table.begin(), table.end(), 0);
      std::iota(lengths.begin(), lengths.end(), static_cast<int32_t>(context - num_rows + 1));
    }
    kernels::PagedRows rows() const {
      const auto count = static_cast<int64_t>(lengths.size());
      return {.page_tables = {table.data(), {1, pages}},
              .sequence = {sequence.data(), {count}},
              .context_length = {lengths.data(), {count}}};
    }
    int64_t pages;
    std::vector<int32_t> table, sequence, lengths;
  };

  bool Wanted(absl::string_view op) const { return absl::StrContains(op, options_.only); }

  template <typename Work>
  void Add(absl::string_view op, const std::string& shape, double flop, double bytes, const Work& work) {
    work(0);  // pages are touched, threads are awake
    results.push_back(
        {std::string(op), shape, BestOf(options_.runs, options_.threads->num_threads(), work), flop, bytes});
  }

  const CaseOptions options_;
};

}  // namespace

std::vector<Measurement> RunCases(const CaseOptions& options) {
  Cases cases(options);
  cases.Fp8Linear(4096, 7168, kernels::ScaleFormat::kUe8m0);
  cases.Fp8Linear(7168, 2048, kernels::ScaleFormat::kUe8m0);
  cases.Fp8Linear(4096, 7168, kernels::ScaleFormat::kFloat32);
  cases.Fp8GroupedLinear(2048, 7168);
  cases.Bf16Linear(16160, 7168);
  for (int64_t rows : {1, 64}) cases.Mla(128, rows);
  for (int64_t rows : {1, 16}) cases.SparseMla(128, rows, 2048);
  for (int64_t rows : {1, 32}) cases.IndexLogits(64, rows, 65536);
  cases.TopK(131072, 2048);
  return std::move(cases.results);
}

}  // namespace tandem::bench
