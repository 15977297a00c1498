// Proves the index logits against double on the cached bytes and against their stated order bit for bit, and that
// batch, page order and neighbours change no bit.
#include <cmath>

#include "kernels/op_testing.h"

namespace tandem::kernels {
namespace {

constexpr int64_t kPages = 32;
constexpr float kUntouched = 12345.0f;

// Keys of two sequences in the cache: sequence s's position p has key row p of keys[s].
struct Cache {
  Cache(Source& source, const std::vector<int32_t>& lengths, const std::vector<int32_t>& pool_order)
      : pages({kPages, kvcache::kIndexPageBytes}) {
    std::vector<int32_t> contexts, sequences;
    for (size_t s = 0; s < lengths.size(); ++s) {
      keys.push_back(source.NormalE4m3<2>({lengths[s], 128}));
      scales.push_back(source.PowersOfTwo<2>({lengths[s], 1}, -10, -6));
      contexts.push_back(lengths[s]);
      sequences.push_back(static_cast<int32_t>(s));
    }
    Write(PagedFixture(contexts, sequences, pool_order));
  }
  // Lays the same keys out by another page table.
  void Write(PagedFixture fixture) {
    tables = fixture.page_tables;
    for (size_t s = 0; s < keys.size(); ++s) {
      const int64_t length = keys[s].dim(0);
      Tensor<int32_t, 1> sequence({length}), context({length});
      std::fill(sequence.values().begin(), sequence.values().end(), static_cast<int32_t>(s));
      std::iota(context.values().begin(), context.values().end(), 1);
      const PagedRows rows{.page_tables = tables, .sequence = sequence, .context_length = context};
      EXPECT_TRUE(WriteIndexKey({.key = keys[s], .scale = scales[s], .rows = rows, .index_pages = pages}).ok());
    }
  }
  std::vector<Tensor<E4m3, 2>> keys;
  std::vector<Tensor<float, 2>> scales;
  Tensor<int32_t, 2> tables{{0, 0}};
  Tensor<uint8_t, 2> pages;
};

struct Queries {
  Queries(Source& source, int64_t heads, const std::vector<int32_t>& sequences, const std::vector<int32_t>& contexts)
      : q(source.NormalE4m3<3>({static_cast<int64_t>(contexts.size()), heads, 128})),
        weights(source.NormalF32<2>({static_cast<int64_t>(contexts.size()), heads}, 1e-3f)),
        sequence({static_cast<int64_t>(contexts.size())}),
        context({static_cast<int64_t>(contexts.size())}) {
    sequence.values() = sequences;
    context.values() = contexts;
  }
  Tensor<float, 2> Logits(Cache& cache, int64_t index_topk = 0) {
    Tensor<float, 2> logits({q.dim(0), 320});
    std::fill(logits.values().begin(), logits.values().end(), kUntouched);
    EXPECT_TRUE(IndexLogits({.q = q,
                             .weights = weights,
                             .rows = {.page_tables = cache.tables, .sequence = sequence, .context_length = context},
                             .index_pages = cache.pages,
                             .index_topk = index_topk,
                             .logits = logits})
                    .ok());
    return logits;
  }
  Tensor<E4m3, 3> q;
  Tensor<float, 2> weights;
  Tensor<int32_t, 1> sequence;
  Tensor<int32_t, 1> context;
};

std::vector<int32_t> Ascending() {
  std::vector<int32_t> order(kPages);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

TEST(IndexLogitsTest, AreCloseToDoubleAndStopAtTheContext) {
  for (int64_t heads : {1, 4, 64, 128}) {
    Source source(1);
    Cache cache(source, {300, 130}, Ascending());
    Queries queries(source, heads, {0, 0, 1, 1, 0}, {300, 64, 130, 65, 1});
    Tensor<float, 2> logits = queries.Logits(cache);
    std::vector<double> actual, exact;
    for (int64_t row = 0; row < 5; ++row) {
      const size_t sequence = static_cast<size_t>(queries.sequence[row]);
      for (int64_t s = 0; s < 320; ++s) {
        if (s >= queries.context[row]) {
          ASSERT_EQ(logits.at(row, s), kUntouched);
          continue;
        }
        double sum = 0;
        for (int64_t h = 0; h < heads; ++h) {
          double dot = 0;
          for (int64_t d = 0; d < 128; ++d) {
            dot += double{ToFloat(queries.q.at(row, h, d))} * ToFloat(cache.keys[sequence].at(s, d));
          }
          sum += std::max(dot, 0.0) * queries.weights.at(row, h);
        }
        exact.push_back(sum * cache.scales[sequence][s]);
        actual.push_back(logits.at(row, s));
      }
    }
    EXPECT_LT(Difference(actual, exact), 1e-10) << heads;
    EXPECT_LT(*std::min_element(exact.begin(), exact.end()), 0);  // weights may be negative, so logits are too
  }
}

TEST(IndexLogitsTest, SumInTheDocumentedOrder) {
  Source source(6);
  Cache cache(source, {100}, Ascending());
  Queries queries(source, 7, {0, 0}, {100, 90});
  Tensor<float, 2> logits = queries.Logits(cache);
  for (int64_t row = 0; row < 2; ++row) {
    for (int64_t s = 0; s < queries.context[row]; ++s) {
      float sum = 0;
      for (int64_t h = 0; h < 7; ++h) {
        float score = 0;
        for (int64_t d = 0; d < 128; d += 2) {
          score += ToFloat(queries.q.at(row, h, d + 1)) * ToFloat(cache.keys[0].at(s, d + 1));
          score += ToFloat(queries.q.at(row, h, d)) * ToFloat(cache.keys[0].at(s, d));
        }
        sum = std::fma(score < 0 ? 0 : score, queries.weights.at(row, h), sum);
      }
      ASSERT_EQ(logits.at(row, s), sum * cache.scales[0][s]);
    }
  }
}

TEST(IndexLogitsTest, ARowsBitsDoNotDependOnBatchOrPages) {
  Source source(2);
  Cache cache(source, {300, 130}, Ascending());
  std::vector<int32_t> sequences, contexts;
  for (int i = 0; i < 40; ++i) {  // runs of one sequence and switches between them
    sequences.push_back(i % 7 < 4 ? 0 : 1);
    contexts.push_back(static_cast<int32_t>(1 + source.Below(sequences.back() == 0 ? 300 : 130)));
  }
  Queries queries(source, 6, sequences, contexts);
  Tensor<float, 2> together = queries.Logits(cache);

  const std::vector<int32_t> shuffled = source.Permutation(kPages);
  cache.Write(PagedFixture({300, 130}, {0, 1}, shuffled));
  EXPECT_TRUE(queries.Logits(cache) == together);

  Tensor<float, 2> alone({40, 320});
  std::fill(alone.values().begin(), alone.values().end(), kUntouched);
  for (int64_t row = 39; row >= 0; --row) {
    ASSERT_TRUE(IndexLogits({.q = queries.q.view().Slice(row, 1),
                             .weights = queries.weights.view().Slice(row, 1),
                             .rows = {.page_tables = cache.tables,
                                      .sequence = queries.sequence.view().Slice(row, 1),
                                      .context_length = queries.context.view().Slice(row, 1)},
                             .index_pages = cache.pages,
                             .index_topk = 0,
                             .logits = alone.view().Slice(row, 1)})
                    .ok());
  }
  EXPECT_TRUE(alone == together);
}

TEST(IndexLogitsTest, SkipsRowsWhoseContextFitsTopK) {
  Source source(3);
  Cache cache(source, {200}, Ascending());
  Queries queries(source, 4, {0, 0, 0}, {64, 65, 63});
  Tensor<float, 2> logits = queries.Logits(cache, 64);
  for (int64_t s = 0; s < 320; ++s) {
    EXPECT_EQ(logits.at(0, s), kUntouched);
    EXPECT_EQ(logits.at(2, s), kUntouched);
    EXPECT_EQ(logits.at(1, s) == kUntouched, s >= 65);
  }
}

TEST(IndexLogitsTest, NanReachesTheLogit) {
  Source source(4);
  Cache cache(source, {70}, Ascending());
  cache.keys[0].at(66, 3) = E4m3{0x7f};
  cache.Write(PagedFixture({70}, {0}, Ascending()));
  Queries queries(source, 4, {0}, {70});
  Tensor<float, 2> logits = queries.Logits(cache);
  for (int64_t s = 0; s < 70; ++s) EXPECT_EQ(std::isnan(logits.at(0, s)), s == 66);
}

TEST(IndexLogitsTest, RefusesLogitsNarrowerThanAScoredContext) {
  Source source(5);
  Cache cache(source, {70}, Ascending());
  Queries queries(source, 2, {0}, {70});
  Tensor<float, 2> logits({1, 69});
  EXPECT_EQ(IndexLogits(
                {.q = queries.q,
                 .weights = queries.weights,
                 .rows = {.page_tables = cache.tables, .sequence = queries.sequence, .context_length = queries.context},
                 .index_pages = cache.pages,
                 .index_topk = 64,
                 .logits = logits})
                .message(),
            "IndexLogits: logits' width is 69, must be at least the longest context");
}

TEST(IndexWeightsTest, CarryTheModelsConstant) {
  Tensor<float, 2> projected({1, 64}), q_scale({1, 64}), weights({1, 64});
  for (int64_t h = 0; h < 64; ++h) {
    projected[h] = static_cast<float>(h - 30);
    q_scale[h] = std::ldexp(1.0f, static_cast<int>(h % 5) - 6);
  }
  ASSERT_TRUE(IndexWeights({.projected = projected, .q_scale = q_scale, .weights = weights}).ok());
  for (int64_t h = 0; h < 64; ++h) {
    const double exact = (h - 30) * 0.0110485435 * q_scale[h];
    EXPECT_NEAR(weights[h], exact, std::abs(exact) * 1e-7);
  }
}

}  // namespace
}  // namespace tandem::kernels
