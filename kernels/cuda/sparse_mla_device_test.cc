// Proves SparseMla of a device: close to a float64 softmax over the cached bytes and to the host's, for both formats of
// records and of scales, every number of heads and length of list beside a boundary, flat and peaked rows; a row's bits
// are its own, whatever the batch, its order, the pages' places and the list's padding; NaN stays in the rows that read
// it.
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/device_testing.h"
#include "kernels/cuda/ops.h"
#include "kernels/op_testing.h"
#include "kernels/ops.h"
#include "kernels/thread_pool.h"

namespace tandem::kernels::cuda {
namespace {

using kvcache::KvCacheDtype;

constexpr float kScale = 0.1352337789f;  // DeepSeek-V3.2's

ThreadPool& HostThreads() {
  static ThreadPool* const threads = new ThreadPool(NumUsableProcessors());
  return *threads;
}

struct Cache {
  // lengths: of the sequences.
  Cache(Source& source, KvCacheDtype format, const std::vector<int32_t>& lengths,
        ScaleFormat scales = ScaleFormat::kUe8m0)
      : dtype(format),
        num_pages(static_cast<int64_t>(lengths.size()) *
                      kvcache::PagesForTokens(*std::max_element(lengths.begin(), lengths.end())) +
                  3),
        tables({0, 0}),
        pages({num_pages, kvcache::LatentPageBytes(format)}) {
    std::vector<int32_t> sequence_of(lengths.size());
    std::iota(sequence_of.begin(), sequence_of.end(), 0);
    PagedFixture fixture(lengths, sequence_of, source.Permutation(static_cast<int>(num_pages)));
    tables = fixture.page_tables;
    for (size_t s = 0; s < lengths.size(); ++s) {
      Tensor<Bf16, 2> latent = source.NormalBf16<2>({lengths[s], 512});
      Tensor<Bf16, 2> rope = source.NormalBf16<2>({lengths[s], 64});
      Tensor<int32_t, 1> sequence({lengths[s]}), context({lengths[s]});
      std::fill(sequence.values().begin(), sequence.values().end(), static_cast<int32_t>(s));
      std::iota(context.values().begin(), context.values().end(), 1);
      EXPECT_TRUE(
          kernels::WriteLatent({.latent = latent,
                                .rope_key = rope,
                                .scale_format = scales,
                                .rows = {.page_tables = tables, .sequence = sequence, .context_length = context},
                                .kv_cache_dtype = dtype,
                                .latent_pages = pages})
              .ok());
    }
  }

  uint8_t* RecordAt(int32_t sequence, int32_t position) {
    return &pages.at(tables.at(sequence, position / kvcache::kPageTokens),
                     position % kvcache::kPageTokens * kvcache::LatentRecordBytes(dtype));
  }
  // As attention must see it: latent, then the rotary key.
  std::vector<double> Record(int32_t sequence, int32_t position) {
    const uint8_t* record = RecordAt(sequence, position);
    const auto bf16_at = [&](int64_t offset) {
      Bf16 value;
      std::memcpy(&value, record + offset, sizeof(value));
      return double{ToFloat(value)};
    };
    std::vector<double> values;
    for (int64_t d = 0; d < kvcache::kLatentDim; ++d) {
      if (dtype == KvCacheDtype::kBfloat16) {
        values.push_back(bf16_at(d * 2));
        continue;
      }
      float scale;
      std::memcpy(&scale, record + kvcache::kLatentScaleOffset + d / kvcache::kLatentTile * 4, sizeof(scale));
      values.push_back(RoundToBf16(ToFloat(E4m3{record[d]}) * scale));
    }
    for (int64_t d = 0; d < kvcache::kRopeDim; ++d) values.push_back(bf16_at(kvcache::LatentRopeOffset(dtype) + d * 2));
    return values;
  }

  KvCacheDtype dtype;
  int64_t num_pages;
  Tensor<int32_t, 2> tables;
  Tensor<uint8_t, 2> pages;
};

struct Batch {
  // list_lengths[i] random positions below contexts[i] of sequences[i]; lists have k places.
  Batch(Source& source, int64_t heads, int64_t k, const std::vector<int32_t>& sequences,
        const std::vector<int32_t>& contexts, const std::vector<int32_t>& list_lengths, float deviation = 0.3f)
      : q_latent(source.NormalBf16<3>({static_cast<int64_t>(sequences.size()), heads, 512}, deviation)),
        q_rope(source.NormalBf16<3>({static_cast<int64_t>(sequences.size()), heads, 64}, deviation)),
        indices({static_cast<int64_t>(sequences.size()), k}),
        sequence({static_cast<int64_t>(sequences.size())}),
        context({static_cast<int64_t>(sequences.size())}) {
    sequence.values() = sequences;
    context.values() = contexts;
    std::fill(indices.values().begin(), indices.values().end(), -1);
    for (size_t row = 0; row < sequences.size(); ++row) {
      std::vector<int32_t> chosen = source.Permutation(contexts[row]);
      chosen.resize(static_cast<size_t>(list_lengths[row]));
      std::sort(chosen.begin(), chosen.end());
      std::copy(chosen.begin(), chosen.end(), indices.values().begin() + static_cast<int64_t>(row) * k);
    }
  }
  int64_t num_rows() { return q_latent.dim(0); }
  int64_t num_heads() { return q_latent.dim(1); }
  Batch Pick(const std::vector<int32_t>& order) const {
    Batch copy = *this, picked = *this;
    picked.q_latent = PickRows(copy.q_latent, order);
    picked.q_rope = PickRows(copy.q_rope, order);
    picked.indices = PickRows(copy.indices, order);
    picked.sequence = PickRows(copy.sequence, order);
    picked.context = PickRows(copy.context, order);
    return picked;
  }
  Tensor<Bf16, 3> q_latent, q_rope;
  Tensor<int32_t, 2> indices;
  Tensor<int32_t, 1> sequence, context;
};

class SparseMlaDeviceTest : public DeviceTest {
 protected:
  Tensor<Bf16, 3> OnDevice(Batch batch, Cache& cache, const Placement& placement = {}) {
    const DeviceTensor<Bf16, 3> q_latent = Upload(batch.q_latent, placement);
    const DeviceTensor<Bf16, 3> q_rope = Upload(batch.q_rope, placement);
    const DeviceTensor<int32_t, 2> indices = Upload(batch.indices, {.row_gap = 1});
    const DeviceTensor<int32_t, 2> tables = Upload(cache.tables, {.row_gap = 3});
    const DeviceTensor<int32_t, 1> sequence = Upload(batch.sequence);
    const DeviceTensor<int32_t, 1> context = Upload(batch.context);
    const DeviceTensor<uint8_t, 2> pages = Upload(cache.pages);
    DeviceTensor<Bf16, 3> out = Output<Bf16, 3>({batch.num_rows(), batch.num_heads(), 512}, placement);
    RunOp(SparseMla(stream(), {.q_latent = q_latent,
                               .q_rope = q_rope,
                               .softmax_scale = kScale,
                               .indices = indices,
                               .rows = {.page_tables = tables, .sequence = sequence, .context_length = context},
                               .kv_cache_dtype = cache.dtype,
                               .latent_pages = pages,
                               .out = out}));
    return out.Download();
  }
  Tensor<Bf16, 3> OnHost(Batch& batch, Cache& cache) {
    Tensor<Bf16, 3> out({batch.num_rows(), batch.num_heads(), 512});
    const absl::Status status = kernels::SparseMla(
        {.q_latent = batch.q_latent,
         .q_rope = batch.q_rope,
         .softmax_scale = kScale,
         .indices = batch.indices,
         .rows = {.page_tables = cache.tables, .sequence = batch.sequence, .context_length = batch.context},
         .kv_cache_dtype = cache.dtype,
         .latent_pages = cache.pages,
         .out = out,
         .threads = &HostThreads()});
    EXPECT_TRUE(status.ok()) << status;
    return out;
  }
  std::vector<double> Exact(Batch& batch, Cache& cache) {
    std::vector<double> exact(static_cast<size_t>(batch.num_rows() * batch.num_heads() * 512));
    for (int64_t row = 0; row < batch.num_rows(); ++row) {
      std::vector<std::vector<double>> records;
      for (int64_t j = 0; j < batch.indices.dim(1) && batch.indices.at(row, j) >= 0; ++j) {
        records.push_back(cache.Record(batch.sequence[row], batch.indices.at(row, j)));
      }
      if (records.empty()) continue;
      HostThreads().Run(batch.num_heads(), [&](int64_t head) {
        std::vector<double> scores;
        for (const std::vector<double>& record : records) {
          double score = 0;
          for (int64_t d = 0; d < 512; ++d) score += ToFloat(batch.q_latent.at(row, head, d)) * record[d];
          for (int64_t d = 0; d < 64; ++d) score += ToFloat(batch.q_rope.at(row, head, d)) * record[512 + d];
          scores.push_back(score * kScale);
        }
        const double maximum = *std::max_element(scores.begin(), scores.end());
        double sum = 0;
        double* out = exact.data() + (row * batch.num_heads() + head) * 512;
        for (size_t j = 0; j < scores.size(); ++j) {
          const double p = std::exp(scores[j] - maximum);
          sum += p;
          for (size_t d = 0; d < 512; ++d) out[d] += p * records[j][d];
        }
        for (size_t d = 0; d < 512; ++d) out[d] /= sum;
      });
    }
    return exact;
  }
  // The specification's bounds: 8e-3 of the largest output, d <= 5e-6.
  void ExpectRight(absl::string_view what, Batch& batch, Cache& cache, Tensor<Bf16, 3> out) {
    const std::vector<double> exact = Exact(batch, cache), actual = ToDoubles(out);
    double largest = 0;
    for (const double value : exact) largest = std::max(largest, std::abs(value));
    const double difference = Difference(actual, exact);
    Tensor<Bf16, 3> rounded({batch.num_rows(), batch.num_heads(), 512});
    for (size_t i = 0; i < exact.size(); ++i) rounded.values()[i] = ToBf16(static_cast<float>(exact[i]));
    ExpectClose(absl::StrCat(what, " against float64, d ", difference, ", largest ", largest, ","), out, rounded,
                {.abs = 8e-3 * largest});
    EXPECT_LT(difference, 5e-6) << what;
    Tensor<Bf16, 3> host = OnHost(batch, cache);
    ExpectClose(absl::StrCat(what, " against the host,"), out, host, {.abs = 8e-3 * largest});
  }

  Source source_{1};
};

TEST_F(SparseMlaDeviceTest, EveryListBesideABoundary) {
  const std::vector<int32_t> lengths = {0, 1, 2, 16, 63, 64, 65, 127, 128, 129, 192, 193, 255, 500};
  for (const KvCacheDtype dtype : {KvCacheDtype::kFp8E4m3, KvCacheDtype::kBfloat16}) {
    Cache cache(source_, dtype, {700, 500});
    std::vector<int32_t> sequences, contexts;
    for (size_t i = 0; i < lengths.size(); ++i) {
      sequences.push_back(static_cast<int32_t>(i % 2));
      contexts.push_back(std::max<int32_t>(1, i % 4 == 1 ? lengths[i] : 500));
    }
    Batch batch(source_, 8, 512, sequences, contexts, lengths);
    ExpectRight(absl::StrCat(KvCacheDtypeName(dtype), " lists"), batch, cache, OnDevice(batch, cache));
  }
}

TEST_F(SparseMlaDeviceTest, EveryNumberOfHeads) {
  for (const KvCacheDtype dtype : {KvCacheDtype::kFp8E4m3, KvCacheDtype::kBfloat16}) {
    Cache cache(source_, dtype, {300, 300});
    for (const int64_t heads : {1, 5, 16, 63, 64, 65, 128, 130}) {
      Batch batch(source_, heads, 150, {0, 1}, {300, 200}, {150, 70});
      ExpectRight(absl::StrCat(KvCacheDtypeName(dtype), " ", heads, " heads"), batch, cache, OnDevice(batch, cache));
    }
    Batch batch(source_, 9, 150, {0, 1}, {300, 200}, {150, 70});
    ExpectRight("rows apart", batch, cache, OnDevice(batch, cache, {.row_gap = 128}));
    ExpectRight("unaligned", batch, cache, OnDevice(batch, cache, {.row_gap = 1, .offset = 3}));
  }
}

TEST_F(SparseMlaDeviceTest, ScalesThatAreNoPowersOfTwo) {
  Cache cache(source_, KvCacheDtype::kFp8E4m3, {300}, ScaleFormat::kFloat32);
  Batch batch(source_, 16, 200, {0, 0}, {300, 250}, {200, 129});
  ExpectRight("FP32 scales", batch, cache, OnDevice(batch, cache));
  for (const float scale : {0x1p-40f, 0x1p7f, 0x1p8f, 0x1p20f}) {  // the short way's bounds
    for (int32_t position = 0; position < 300; position += 2) {
      std::memcpy(cache.RecordAt(0, position) + kvcache::kLatentScaleOffset + 4, &scale, sizeof(scale));
      for (int d = 128; d < 256; ++d) cache.RecordAt(0, position)[d] &= scale > 1 ? 0x87 : 0xff;  // subnormal codes
    }
    for (int64_t i = 0; i < batch.q_latent.size(); ++i) {
      if (i % 512 / 128 == 1) batch.q_latent[i] = ToBf16(0x1p-20f * source_.Normal());
    }
    ExpectRight(absl::StrCat("scale ", scale), batch, cache, OnDevice(batch, cache));
  }
}

TEST_F(SparseMlaDeviceTest, PeakedRows) {
  for (const KvCacheDtype dtype : {KvCacheDtype::kFp8E4m3, KvCacheDtype::kBfloat16}) {
    Cache cache(source_, dtype, {700});
    for (const float deviation : {0.01f, 1.0f, 6.0f}) {  // flat; some entries; scores of some hundreds, one entry
      Batch batch(source_, 24, 700, {0, 0, 0}, {700, 600, 130}, {700, 333, 130}, deviation);
      ExpectRight(absl::StrCat(KvCacheDtypeName(dtype), " queries of ", deviation), batch, cache,
                  OnDevice(batch, cache));
    }
  }
}

TEST_F(SparseMlaDeviceTest, LongListsOfLongContexts) {
  Cache cache(source_, KvCacheDtype::kFp8E4m3, {9000});
  Batch batch(source_, 128, 2048, {0, 0, 0}, {9000, 8999, 2047}, {2048, 2048, 2047});
  ExpectRight("2048 of 9000", batch, cache, OnDevice(batch, cache));
}

TEST_F(SparseMlaDeviceTest, ARowsBitsAreItsOwn) {
  for (const KvCacheDtype dtype : {KvCacheDtype::kFp8E4m3, KvCacheDtype::kBfloat16}) {
    Cache cache(source_, dtype, {400, 300, 200});
    std::vector<int32_t> sequences, contexts, lengths;
    for (int i = 0; i < 300; ++i) {
      sequences.push_back(i % 3);
      contexts.push_back(static_cast<int32_t>(1 + source_.Below(200)));
      lengths.push_back(static_cast<int32_t>(source_.Below(contexts.back() + 1)));
    }
    Batch batch(source_, 16, 200, sequences, contexts, lengths);
    Tensor<Bf16, 3> together = OnDevice(batch, cache);
    const std::vector<int32_t> shuffled = source_.Permutation(300);
    Tensor<Bf16, 3> expected = PickRows(together, shuffled);
    ExpectSameBits("another order", OnDevice(batch.Pick(shuffled), cache), expected);
    for (const int count : {1, 2, 3, 8, 64, 131, 132, 133}) {
      const int first = static_cast<int>(source_.Below(300 - count));
      std::vector<int32_t> some(static_cast<size_t>(count));
      std::iota(some.begin(), some.end(), first);
      Tensor<Bf16, 3> expected_some = PickRows(together, some);
      ExpectSameBits(absl::StrCat(count, " rows alone"), OnDevice(batch.Pick(some), cache), expected_some);
    }
    Batch padded = batch;
    padded.indices = Tensor<int32_t, 2>({300, 333});
    std::fill(padded.indices.values().begin(), padded.indices.values().end(), -1);
    for (int64_t row = 0; row < 300; ++row) {
      std::copy_n(batch.indices.values().begin() + row * 200, 200, padded.indices.values().begin() + row * 333);
    }
    ExpectSameBits("longer padding", OnDevice(padded, cache), together);
    Cache moved = cache;
    const std::vector<int32_t> place = source_.Permutation(static_cast<int>(cache.num_pages));
    for (int64_t page = 0; page < cache.num_pages; ++page) {
      std::copy_n(&cache.pages.at(page, 0), kvcache::LatentPageBytes(dtype), &moved.pages.at(place[page], 0));
    }
    for (int32_t& page : moved.tables.values()) page = place[page];
    ExpectSameBits("other pages", OnDevice(batch, moved), together);
  }
}

// Few rows have a kernel of their own, which spreads a row over a cluster.
TEST_F(SparseMlaDeviceTest, FewRowsHaveTheBitsOfMany) {
  for (const KvCacheDtype dtype : {KvCacheDtype::kFp8E4m3, KvCacheDtype::kBfloat16}) {
    for (const ScaleFormat scales : {ScaleFormat::kUe8m0, ScaleFormat::kFloat32}) {
      Cache cache(source_, dtype, {3000, 2100}, scales);
      const std::vector<int32_t> some_lengths = {2048, 2047, 1985, 1984, 513, 512, 511, 449, 65, 64, 1, 0, 2048, 1000};
      std::vector<int32_t> sequences, contexts, lengths;
      for (int i = 0; i < 42; ++i) {
        sequences.push_back(i % 2);
        contexts.push_back(i % 2 == 0 ? 3000 : 2100);
        lengths.push_back(some_lengths[static_cast<size_t>(i % 14)]);
      }
      for (const float deviation : {0.3f, 4.0f}) {
        Batch batch(source_, 128, 2048, sequences, contexts, lengths, deviation);
        Tensor<Bf16, 3> many = OnDevice(batch, cache);
        for (const int count : {1, 2, 3, 8}) {
          for (int first = 0; first + count <= 14; first += count) {
            std::vector<int32_t> some(static_cast<size_t>(count));
            std::iota(some.begin(), some.end(), first);
            Tensor<Bf16, 3> expected = PickRows(many, some);
            ExpectSameBits(
                absl::StrCat(KvCacheDtypeName(dtype), " queries of ", deviation, ", rows ", first, " + ", count),
                OnDevice(batch.Pick(some), cache), expected);
          }
        }
      }
    }
  }
}

// The heads of a row do not depend on how many there are either.
TEST_F(SparseMlaDeviceTest, AHeadsBitsAreItsOwn) {
  Cache cache(source_, KvCacheDtype::kFp8E4m3, {300});
  Batch batch(source_, 128, 200, {0, 0}, {300, 200}, {200, 100});
  Tensor<Bf16, 3> all = OnDevice(batch, cache);
  Batch some(source_, 16, 200, {0, 0}, {300, 200}, {200, 100});
  some.indices = batch.indices;
  Tensor<Bf16, 3> expected({2, 16, 512});
  for (int64_t row = 0; row < 2; ++row) {
    for (int64_t head = 0; head < 16; ++head) {
      const int64_t from = 7 * head + 3;  // of both tiles of 64
      std::copy_n(&batch.q_latent.at(row, from, 0), 512, &some.q_latent.at(row, head, 0));
      std::copy_n(&batch.q_rope.at(row, from, 0), 64, &some.q_rope.at(row, head, 0));
      std::copy_n(&all.at(row, from, 0), 512, &expected.at(row, head, 0));
    }
  }
  ExpectSameBits("16 of 128 heads", OnDevice(some, cache), expected);
}

TEST_F(SparseMlaDeviceTest, NanStaysInTheRowsThatReadIt) {
  for (const KvCacheDtype dtype : {KvCacheDtype::kFp8E4m3, KvCacheDtype::kBfloat16}) {
    Cache cache(source_, dtype, {300});
    Batch batch(source_, 8, 130, {0, 0, 0}, {300, 300, 300}, {130, 130, 129});
    Tensor<Bf16, 3> clean = OnDevice(batch, cache);
    // Of all that the second row lists, one position that the others do not.
    int32_t position = -1;
    for (int64_t j = 0; j < 130 && position < 0; ++j) {
      const int32_t candidate = batch.indices.at(1, j);
      const auto lists = [&](int64_t row) {
        const int32_t* list = &batch.indices.at(row, 0);
        return std::find(list, list + 130, candidate) != list + 130;
      };
      if (!lists(0) && !lists(2)) position = candidate;
    }
    ASSERT_GE(position, 0);
    Cache bad_cache = cache;
    uint8_t* record = bad_cache.RecordAt(0, position);
    if (dtype == KvCacheDtype::kFp8E4m3) {
      record[200] = 0xff;
    } else {
      std::memset(record + 400, 0xff, 2);
    }
    Batch bad_query = batch;
    bad_query.q_rope.at(1, 3, 5) = Bf16{0x7fc0};
    Tensor<Bf16, 3> of_bad_cache = OnDevice(batch, bad_cache), of_bad_query = OnDevice(bad_query, cache);
    int64_t wrong = 0;
    for (int64_t i = 0; i < clean.size(); ++i) {
      const int64_t row = i / 512 / 8, head = i / 512 % 8;
      const auto right = [&](Tensor<Bf16, 3>& out, bool is_nan) {
        return is_nan ? std::isnan(ToFloat(out[i])) : out[i] == clean[i];
      };
      if (!right(of_bad_cache, row == 1)) ++wrong;
      if (!right(of_bad_query, row == 1 && head == 3)) ++wrong;
    }
    std::printf("CHECK %s NaN: %lld wrong\n", std::string(KvCacheDtypeName(dtype)).c_str(),
                static_cast<long long>(wrong));
    EXPECT_EQ(wrong, 0);
  }
}

TEST_F(SparseMlaDeviceTest, ZeroRowsAndBadShapes) {
  Cache cache(source_, KvCacheDtype::kFp8E4m3, {100});
  Batch batch(source_, 3, 10, {0}, {100}, {10});
  Tensor<Bf16, 3> none({0, 3, 512});
  ExpectSameBits("no rows", OnDevice(batch.Pick({}), cache), none);
  DeviceTensor<Bf16, 3> q_latent = Output<Bf16, 3>({1, 3, 512});
  DeviceTensor<Bf16, 3> q_rope = Output<Bf16, 3>({1, 2, 64});
  const absl::Status status = SparseMla(stream(), {.q_latent = q_latent, .q_rope = q_rope});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
}

}  // namespace
}  // namespace tandem::kernels::cuda
