// Proves attention against a double softmax over the cached bytes and against its stated order bit for bit, that dense
// is the full list bit for bit, and that pages, batch and list padding change nothing.
#include <cmath>
#include <limits>

#include "kernels/op_testing.h"
#include "kernels/portable_math.h"

namespace tandem::kernels {
namespace {

constexpr int64_t kHeads = 5;
constexpr int64_t kPages = 24;
constexpr float kScale = 0.1352337789f;

class SparseMlaTest : public testing::TestWithParam<kvcache::KvCacheDtype> {
 protected:
  static constexpr int32_t kLengths[] = {400, 150};

  SparseMlaTest() {
    std::vector<int32_t> order(kPages);
    std::iota(order.begin(), order.end(), 0);
    WriteCache(order);
  }

  // Lays the same records out over the pool in another order.
  void WriteCache(const std::vector<int32_t>& order) {
    PagedFixture fixture({kLengths[0], kLengths[1]}, {0, 1}, order);
    tables_ = fixture.page_tables;
    for (int32_t s = 0; s < 2; ++s) {
      Tensor<int32_t, 1> sequence({kLengths[s]}), context({kLengths[s]});
      std::fill(sequence.values().begin(), sequence.values().end(), s);
      std::iota(context.values().begin(), context.values().end(), 1);
      ASSERT_TRUE(WriteLatent({.latent = latents_[s],
                               .rope_key = ropes_[s],
                               .rows = {.page_tables = tables_, .sequence = sequence, .context_length = context},
                               .kv_cache_dtype = GetParam(),
                               .latent_pages = pages_})
                      .ok());
    }
  }

  struct Batch {
    Batch(Source& source, const std::vector<int32_t>& sequences, const std::vector<int32_t>& contexts, int64_t k,
          float deviation = 0.3f)
        : q_latent(source.NormalBf16<3>({static_cast<int64_t>(contexts.size()), kHeads, 512}, deviation)),
          q_rope(source.NormalBf16<3>({static_cast<int64_t>(contexts.size()), kHeads, 64}, deviation)),
          indices({static_cast<int64_t>(contexts.size()), k}),
          sequence({static_cast<int64_t>(contexts.size())}),
          context({static_cast<int64_t>(contexts.size())}) {
      sequence.values() = sequences;
      context.values() = contexts;
      std::fill(indices.values().begin(), indices.values().end(), -1);
    }
    // A random ascending subset of the row's context.
    void Choose(Source& source, int64_t row, int count) {
      std::vector<int32_t> chosen = source.Permutation(context[row]);
      chosen.resize(std::min<size_t>(chosen.size(), static_cast<size_t>(count)));
      std::sort(chosen.begin(), chosen.end());
      std::copy(chosen.begin(), chosen.end(), &indices.at(row, 0));
    }
    Tensor<Bf16, 3> q_latent, q_rope;
    Tensor<int32_t, 2> indices;
    Tensor<int32_t, 1> sequence, context;
  };

  absl::Status Run(Batch& batch, int64_t begin, int64_t count, Cube<Bf16> out) {
    return SparseMla({.q_latent = batch.q_latent.view().Slice(begin, count),
                      .q_rope = batch.q_rope.view().Slice(begin, count),
                      .softmax_scale = kScale,
                      .indices = batch.indices.view().Slice(begin, count),
                      .rows = {.page_tables = tables_,
                               .sequence = batch.sequence.view().Slice(begin, count),
                               .context_length = batch.context.view().Slice(begin, count)},
                      .kv_cache_dtype = GetParam(),
                      .latent_pages = pages_,
                      .out = out});
  }
  Tensor<Bf16, 3> Run(Batch& batch) {
    Tensor<Bf16, 3> out({batch.q_latent.dim(0), kHeads, 512});
    EXPECT_TRUE(Run(batch, 0, out.dim(0), out).ok());
    return out;
  }

  // The cached record of a position as attention must see it: latent, quantised where the format is FP8, then the
  // rotary key.
  std::vector<double> Record(int32_t s, int64_t position) {
    std::vector<double> record;
    for (int64_t d = 0; d < 512 && GetParam() == kvcache::KvCacheDtype::kBfloat16; ++d) {
      record.push_back(ToFloat(latents_[s].at(position, d)));
    }
    for (int64_t tile = 0; tile < 4 && GetParam() == kvcache::KvCacheDtype::kFp8E4m3; ++tile) {
      Tensor<Bf16, 2> x({1, 128});
      for (int64_t d = 0; d < 128; ++d) x[d] = latents_[s].at(position, tile * 128 + d);
      Tensor<E4m3, 2> q({1, 128});
      Tensor<float, 2> scale({1, 1});
      EXPECT_TRUE(Quant128({.x = x, .q = q, .scale = scale}).ok());
      for (E4m3 code : q.values()) record.push_back(double{ToFloat(code)} * scale[0]);
    }
    for (int64_t d = 0; d < 64; ++d) record.push_back(ToFloat(ropes_[s].at(position, d)));
    return record;
  }

  void ExpectCloseToDouble(Batch& batch, Tensor<Bf16, 3>& out) {
    std::vector<double> exact;
    for (int64_t row = 0; row < out.dim(0); ++row) {
      std::vector<std::vector<double>> records;
      for (int64_t j = 0; j < batch.indices.dim(1) && batch.indices.at(row, j) >= 0; ++j) {
        records.push_back(Record(batch.sequence[row], batch.indices.at(row, j)));
      }
      for (int64_t head = 0; head < kHeads; ++head) {
        std::vector<double> scores;
        for (const auto& record : records) {
          double score = 0;
          for (int64_t d = 0; d < 512; ++d) score += ToFloat(batch.q_latent.at(row, head, d)) * record[d];
          for (int64_t d = 0; d < 64; ++d) score += ToFloat(batch.q_rope.at(row, head, d)) * record[512 + d];
          scores.push_back(score * kScale);
        }
        const double maximum = scores.empty() ? 0 : *std::max_element(scores.begin(), scores.end());
        double sum = 0;
        std::vector<double> o(512);
        for (size_t j = 0; j < scores.size(); ++j) {
          const double p = std::exp(scores[j] - maximum);
          sum += p;
          for (size_t d = 0; d < 512; ++d) o[d] += p * records[j][d];
        }
        for (double value : o) exact.push_back(scores.empty() ? 0 : value / sum);
      }
    }
    const std::vector<double> actual = ToDoubles(out);
    double largest = 0, worst = 0;
    for (size_t i = 0; i < exact.size(); ++i) {
      largest = std::max(largest, std::abs(exact[i]));
      worst = std::max(worst, std::abs(exact[i] - actual[i]));
    }
    EXPECT_LE(worst, 8e-3 * largest);
    EXPECT_LT(Difference(actual, exact), 5e-6);
  }

  Source source_{1};
  Tensor<Bf16, 2> latents_[2] = {source_.NormalBf16<2>({kLengths[0], 512}), source_.NormalBf16<2>({kLengths[1], 512})};
  Tensor<Bf16, 2> ropes_[2] = {source_.NormalBf16<2>({kLengths[0], 64}), source_.NormalBf16<2>({kLengths[1], 64})};
  Tensor<int32_t, 2> tables_{{0, 0}};
  Tensor<uint8_t, 2> pages_{{kPages, kvcache::LatentPageBytes(GetParam())}};
};

TEST_P(SparseMlaTest, IsCloseToADoubleSoftmaxOverTheList) {
  Batch batch(source_, {0, 1, 0, 1, 0}, {400, 150, 1, 70, 399}, 192);
  for (auto [row, count] : {std::pair{0, 192}, {1, 64}, {2, 1}, {3, 65}, {4, 130}}) batch.Choose(source_, row, count);
  Tensor<Bf16, 3> out = Run(batch);
  ExpectCloseToDouble(batch, out);
}

TEST_P(SparseMlaTest, SumsInTheDocumentedOrder) {
  Batch batch(source_, {0, 1}, {400, 150}, 150);
  batch.Choose(source_, 0, 150);  // two full blocks of 64 and one of 22
  batch.Choose(source_, 1, 64);
  Tensor<Bf16, 3> out = Run(batch);
  for (int64_t row = 0; row < 2; ++row) {
    std::vector<std::vector<double>> records;
    for (int64_t j = 0; j < 150 && batch.indices.at(row, j) >= 0; ++j) {
      records.push_back(Record(batch.sequence[row], batch.indices.at(row, j)));
    }
    for (int64_t head = 0; head < kHeads; ++head) {
      const auto query = [&](int64_t d) {
        return ToFloat(d < 512 ? batch.q_latent.at(row, head, d) : batch.q_rope.at(row, head, d - 512));
      };
      float maximum = -std::numeric_limits<float>::infinity();
      float sum = 0;
      std::vector<float> accumulators(512);
      for (size_t begin = 0; begin < records.size(); begin += 64) {
        const size_t count = std::min<size_t>(64, records.size() - begin);
        std::vector<float> scores;
        float new_maximum = maximum;
        for (size_t j = 0; j < count; ++j) {
          const auto key = [&](int64_t d) { return static_cast<float>(records[begin + j][static_cast<size_t>(d)]); };
          scores.push_back(DotSum(576, query, key) * kScale);
          new_maximum = std::max(new_maximum, scores.back());
        }
        for (float& score : scores) score = Exp(score - new_maximum);
        const float correction = Exp(maximum - new_maximum);
        sum = sum * correction + LaneSum(static_cast<int64_t>(count), [&](int64_t j) { return scores[j]; });
        for (size_t d = 0; d < 512; ++d) {
          accumulators[d] *= correction;
          for (size_t j = 0; j < count; ++j) {
            accumulators[d] = std::fma(scores[j], static_cast<float>(records[begin + j][d]), accumulators[d]);
          }
        }
        maximum = new_maximum;
      }
      for (int64_t d = 0; d < 512; ++d) {
        ASSERT_EQ(out.at(row, head, d), ToBf16(accumulators[static_cast<size_t>(d)] / sum)) << row << " " << head;
      }
    }
  }
}

TEST_P(SparseMlaTest, SurvivesScoresThatRiseFromBlockToBlock) {
  Batch batch(source_, {0, 0}, {400, 400}, 400, 6.0f);  // scores of some hundreds: exp underflows for most entries
  batch.Choose(source_, 0, 400);
  batch.Choose(source_, 1, 300);
  Tensor<Bf16, 3> out = Run(batch);
  ExpectCloseToDouble(batch, out);
}

TEST_P(SparseMlaTest, DenseIsTheListOfAllPositionsBitForBit) {
  // TopK over scores, told to take everything there is, against TopK that never looks at scores.
  const int64_t k = 150;
  Batch dense(source_, {1, 1}, {150, 97}, k);
  Tensor<int32_t, 1> nan_count({2});
  ASSERT_TRUE(TopK({.logits = Matrix<const float>(nullptr, {2, 0}),
                    .context_length = dense.context,
                    .indices = dense.indices,
                    .nan_count = nan_count})
                  .ok());
  Batch listed = dense;
  std::fill(listed.indices.values().begin(), listed.indices.values().end(), -1);
  listed.Choose(source_, 0, 150);
  listed.Choose(source_, 1, 97);
  EXPECT_TRUE(Run(dense) == Run(listed));
  ExpectCloseToDouble(dense, *std::make_unique<Tensor<Bf16, 3>>(Run(dense)));
}

TEST_P(SparseMlaTest, ARowsBitsDoNotDependOnBatchPagesOrPadding) {
  Batch batch(source_, {0, 1, 0, 1}, {400, 150, 90, 128}, 130);
  for (auto [row, count] : {std::pair{0, 130}, {1, 64}, {2, 90}, {3, 3}}) batch.Choose(source_, row, count);
  Tensor<Bf16, 3> together = Run(batch);

  Tensor<Bf16, 3> alone({4, kHeads, 512});
  for (int64_t row = 3; row >= 0; --row) ASSERT_TRUE(Run(batch, row, 1, alone.view().Slice(row, 1)).ok());
  EXPECT_TRUE(alone == together);

  WriteCache(source_.Permutation(kPages));
  EXPECT_TRUE(Run(batch) == together);

  Batch padded(source_, {0, 1, 0, 1}, {400, 150, 90, 128}, 257);
  padded.q_latent = batch.q_latent;
  padded.q_rope = batch.q_rope;
  for (int64_t row = 0; row < 4; ++row) {
    std::copy(&batch.indices.at(row, 0), &batch.indices.at(row, 0) + 130, &padded.indices.at(row, 0));
  }
  EXPECT_TRUE(Run(padded) == together);
}

// As with a device buffer: the chosen records lie in slots in any order, the list names the slots, and only their order
// in the list counts.
TEST_P(SparseMlaTest, RecordsMayLieInAnySlotsAsLongAsTheListKeepsTheirOrder) {
  Batch batch(source_, {0}, {400}, 130);
  batch.Choose(source_, 0, 130);
  Tensor<Bf16, 3> expected = Run(batch);
  Tensor<uint8_t, 2> buffer({3, kvcache::LatentPageBytes(GetParam())});
  const int64_t bytes = kvcache::LatentRecordBytes(GetParam());
  for (int repeat = 0; repeat < 5; ++repeat) {
    const std::vector<int32_t> slots = source_.Permutation(3 * kvcache::kPageTokens);
    Tensor<int32_t, 2> table({1, 3});
    table.values() = source_.Permutation(3);
    Batch in_slots = batch;
    in_slots.context.values() = {3 * kvcache::kPageTokens};
    for (int64_t j = 0; j < 130; ++j) {
      const int32_t position = batch.indices.at(0, j), slot = slots[j];
      in_slots.indices.at(0, j) = slot;
      std::copy_n(&pages_.at(tables_.at(0, position / 64), position % 64 * bytes), bytes,
                  &buffer.at(table.at(0, slot / 64), slot % 64 * bytes));
    }
    Tensor<Bf16, 3> out({1, kHeads, 512});
    ASSERT_TRUE(
        SparseMla({.q_latent = in_slots.q_latent,
                   .q_rope = in_slots.q_rope,
                   .softmax_scale = kScale,
                   .indices = in_slots.indices,
                   .rows = {.page_tables = table, .sequence = in_slots.sequence, .context_length = in_slots.context},
                   .kv_cache_dtype = GetParam(),
                   .latent_pages = buffer,
                   .out = out})
            .ok());
    EXPECT_TRUE(out == expected);
  }
}

TEST_P(SparseMlaTest, AnEmptyListGivesZeros) {
  Batch batch(source_, {0, 0}, {10, 10}, 8);
  batch.Choose(source_, 1, 8);
  Tensor<Bf16, 3> out = Run(batch);
  for (int64_t i = 0; i < kHeads * 512; ++i) EXPECT_EQ(out[i].bits, 0);
  ExpectCloseToDouble(batch, out);
}

TEST_P(SparseMlaTest, RefusesListsThatBreakTheirPromise) {
  Tensor<Bf16, 3> out({1, kHeads, 512});
  const auto message = [&](std::vector<int32_t> list) {
    Batch batch(source_, {1}, {9}, 4);
    batch.indices.values() = list;
    return std::string(Run(batch, 0, 1, out).message());
  };
  EXPECT_EQ(message({0, 3, 8, -1}), "");
  EXPECT_EQ(message({0, 3, 9, -1}), "SparseMla: position in indices is 9, must be within the row's context");
  EXPECT_EQ(message({3, -2, -1, -1}), "SparseMla: position in indices is -2, must be within the row's context");
  EXPECT_EQ(message({0, -1, 2, -1}), "SparseMla: position in indices behind -1 is 2, must be -1");
}

INSTANTIATE_TEST_SUITE_P(Formats, SparseMlaTest,
                         testing::Values(kvcache::KvCacheDtype::kFp8E4m3, kvcache::KvCacheDtype::kBfloat16),
                         [](const auto& info) { return std::string(kvcache::KvCacheDtypeName(info.param)); });

}  // namespace
}  // namespace tandem::kernels
