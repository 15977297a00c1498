// Proves that every instruction set level of this machine gives the bits of kernels/reference, for shapes that meet
// every tile and its rest, with and without threads; and that a level can be forced by name.
#include "kernels/cpu/levels.h"

#include <cmath>
#include <limits>

#include "kernels/op_testing.h"
#include "kernels/reference/ops.h"

namespace tandem::kernels {
namespace {

using cpu::Level;

class LevelsTest : public testing::TestWithParam<Level> {
 protected:
  void SetUp() override {
    if (cpu::LevelOpsAt(GetParam()) == nullptr) GTEST_SKIP() << "this machine lacks the instruction set level";
    ASSERT_TRUE(cpu::UseLevel(GetParam()).ok());
    ASSERT_EQ(cpu::ActiveLevel(), GetParam());
  }
  void TearDown() override { ASSERT_TRUE(cpu::UseLevel("auto").ok()); }

  ThreadPool threads_{3};
};

struct LinearShape {
  int64_t rows, out_dim, in_dim;
  int k_segments;
};
// Rows: each count of the few-rows path, register tiles with rests, and more than one tile. Outputs: whole panels,
// rests, more than one block of scales. The axis: below, at and above a piece, not a multiple of 32.
constexpr LinearShape kFp8Shapes[] = {{1, 40, 256, 1},  {2, 19, 128, 1},   {3, 8, 1024, 8},  {4, 33, 1152, 1},
                                      {5, 16, 384, 1},  {6, 9, 256, 2},    {7, 24, 128, 1},  {8, 130, 1280, 1},
                                      {9, 17, 1024, 4}, {70, 12, 2176, 1}, {67, 136, 256, 2}};
constexpr LinearShape kBf16Shapes[] = {{1, 40, 64, 1},   {2, 19, 176, 1}, {3, 8, 1024, 8},
                                       {4, 33, 1040, 1}, {7, 9, 16, 1},   {8, 11, 192, 1},
                                       {13, 21, 336, 1}, {66, 5, 256, 2}, {131, 9, 48, 1}};

// Values over the whole range, and those where narrow arithmetic goes wrong: subnormals and products that vanish or
// cancel. Overflow and NaN have tests of their own.
Bf16 AnyBf16(Source& source) {
  switch (source.Below(8)) {
    case 0:
      return Bf16{static_cast<uint16_t>(source.Below(0x100) | (source.Below(2) << 15))};  // zero, subnormal, tiny
    case 1:
      return ToBf16(std::ldexp(source.Normal(), -64));
    case 2:
      return ToBf16(0);
    default:
      return ToBf16(source.Normal());
  }
}

TEST_P(LevelsTest, Fp8LinearIsTheReference) {
  Source source(1);
  for (const auto& [rows, out_dim, in_dim, k_segments] : kFp8Shapes) {
    for (ScaleFormat format : {ScaleFormat::kUe8m0, ScaleFormat::kFloat32}) {
      Tensor<E4m3, 2> x = source.NormalE4m3<2>({rows, in_dim}), weight = source.NormalE4m3<2>({out_dim, in_dim}, 3);
      for (int64_t i = 0; i < 127; ++i) weight[i] = E4m3{static_cast<uint8_t>(i)};
      Tensor<float, 2> x_scale = source.PowersOfTwo<2>({rows, in_dim / 128}, -8, -4);
      Tensor<float, 2> w_scale = source.PowersOfTwo<2>({(out_dim + 127) / 128, in_dim / 128}, -14, -10);
      x_scale[0] = 0x1p-120f;
      if (format == ScaleFormat::kFloat32) {
        for (float& scale : w_scale.values()) scale = source.Uniform(0.001f, 0.1f);
      }
      OpWorkspace workspace(Fp8LinearWorkspaceBytes(rows, in_dim));
      for (ThreadPool* threads : {static_cast<ThreadPool*>(nullptr), &threads_}) {
        Tensor<Bf16, 2> y({rows, out_dim}), expected({rows, out_dim});
        const Fp8LinearArgs args{.x = x,
                                 .x_scale = x_scale,
                                 .weight = {weight, w_scale},
                                 .k_segments = k_segments,
                                 .y = y,
                                 .scale_format = format,
                                 .workspace = workspace.span(),
                                 .threads = threads};
        ASSERT_TRUE(Fp8Linear(args).ok());
        Fp8LinearArgs plain = args;
        plain.y = expected;
        reference::Fp8Linear(plain);
        ASSERT_TRUE(y == expected) << rows << " x " << out_dim << " x " << in_dim << ", segments " << k_segments;
      }
    }
  }
}

TEST_P(LevelsTest, Bf16LinearIsTheReferenceAtAnyValue) {
  Source source(2);
  for (const auto& [rows, out_dim, in_dim, k_segments] : kBf16Shapes) {
    Tensor<Bf16, 2> x({rows, in_dim}), weight({out_dim, in_dim});
    for (Bf16& value : x.values()) value = AnyBf16(source);
    for (Bf16& value : weight.values()) value = AnyBf16(source);
    for (ThreadPool* threads : {static_cast<ThreadPool*>(nullptr), &threads_}) {
      Tensor<Bf16, 2> y({rows, out_dim}), expected({rows, out_dim});
      Tensor<float, 2> wide({rows, out_dim}), wide_expected({rows, out_dim});
      ASSERT_TRUE(Bf16Linear({.x = x, .weight = weight, .k_segments = k_segments, .y = y, .threads = threads}).ok());
      reference::Bf16Linear({.x = x, .weight = weight, .k_segments = k_segments, .y = expected});
      ASSERT_TRUE(Bf16LinearF32({.x = x, .weight = weight, .y = wide, .threads = threads}).ok());
      reference::Bf16LinearF32({.x = x, .weight = weight, .y = wide_expected});
      ASSERT_TRUE(y == expected) << rows << " x " << out_dim << " x " << in_dim << ", segments " << k_segments;
      ASSERT_TRUE(wide == wide_expected) << rows << " x " << out_dim << " x " << in_dim;
    }
  }
}

TEST_P(LevelsTest, ViewsWithGapsAndListedRowsAreRead) {
  Source source(3);
  Tensor<Bf16, 2> wide_x = source.NormalBf16<2>({5, 200}), wide_weight = source.NormalBf16<2>({20, 160});
  const Matrix<const Bf16> x = wide_x.view().Columns(24, 128), weight = wide_weight.view().Columns(32, 128);
  Tensor<Bf16, 2> wide_y({5, 40}), wide_expected({5, 40});
  ASSERT_TRUE(Bf16Linear({.x = x, .weight = weight, .y = wide_y.view().Columns(3, 20)}).ok());
  reference::Bf16Linear({.x = x, .weight = weight, .y = wide_expected.view().Columns(3, 20)});
  EXPECT_TRUE(wide_y == wide_expected);

  Tensor<E4m3, 2> q = source.NormalE4m3<2>({4, 256}), expert = source.NormalE4m3<2>({24, 256});
  Tensor<float, 2> q_scale = source.PowersOfTwo<2>({4, 2}, -8, -4),
                   expert_scale = source.PowersOfTwo<2>({1, 2}, -9, -5);
  std::vector<Fp8Weight> weights(3, Fp8Weight{expert, expert_scale});
  std::vector<int32_t> offsets = {0, 2, 2, 30}, rows;
  for (int pair = 0; pair < 30; ++pair) rows.push_back(static_cast<int32_t>(source.Below(4)));
  OpWorkspace workspace(Fp8LinearWorkspaceBytes(4, 256));
  Tensor<Bf16, 2> y({30, 24}), expected({30, 24});
  Fp8GroupedLinearArgs args{.x = q,
                            .x_scale = q_scale,
                            .x_rows = Vector<const int32_t>(rows.data(), {30}),
                            .group_offsets = Vector<const int32_t>(offsets.data(), {4}),
                            .weights = weights,
                            .k_segments = 2,
                            .y = y,
                            .workspace = workspace.span(),
                            .threads = &threads_};
  ASSERT_TRUE(Fp8GroupedLinear(args).ok());
  args.y = expected;
  reference::Fp8GroupedLinear(args);
  EXPECT_TRUE(y == expected);
}

constexpr int64_t kLatentPageBytes = kvcache::LatentPageBytes(kvcache::KvCacheDtype::kFp8E4m3);
constexpr int64_t kLatentRecordBytes = kvcache::LatentRecordBytes(kvcache::KvCacheDtype::kFp8E4m3);

// Two sequences with records in the cache; every page in another place than its number.
struct Cache {
  explicit Cache(Source& source)
      : fixture({300, 130}, {0, 1}, source.Permutation(16)),
        latent_pages({16, kLatentPageBytes}),
        index_pages({16, kvcache::kIndexPageBytes}) {
    for (uint8_t& byte : latent_pages.values()) byte = static_cast<uint8_t>(source.Below(0x7f));
    for (uint8_t& byte : index_pages.values()) byte = static_cast<uint8_t>(source.Below(0x7f) | source.Below(2) << 7);
    for (int64_t page = 0; page < 16; ++page) {
      for (int64_t slot = 0; slot < kvcache::kPageTokens; ++slot) {
        const auto scale = [&] { return source.Below(9) == 0 ? source.Uniform(0, 0.01f) : std::ldexp(1.0f, -8); };
        for (int tile = 0; tile < 4; ++tile) {
          Put(latent_pages, page, slot * kLatentRecordBytes + kvcache::kLatentScaleOffset + tile * 4, scale());
        }
        Put(index_pages, page, kvcache::kIndexScaleOffset + slot * 4, scale());
      }
    }
  }
  static void Put(Tensor<uint8_t, 2>& pages, int64_t page, int64_t offset, float value) {
    std::memcpy(&pages.at(page, offset), &value, sizeof(value));
  }
  // Rows of the two sequences with these contexts.
  PagedRows Rows(Tensor<int32_t, 1>& sequence, Tensor<int32_t, 1>& context) {
    return {.page_tables = fixture.page_tables, .sequence = sequence, .context_length = context};
  }
  PagedFixture fixture;
  Tensor<uint8_t, 2> latent_pages, index_pages;
};

TEST_P(LevelsTest, SparseMlaIsTheReference) {
  Source source(4);
  Cache cache(source);
  for (int64_t num_heads : {1, 5, 16, 67}) {
    const int64_t num_rows = num_heads > 16 ? 1 : 3;
    Tensor<int32_t, 1> sequence({num_rows}), context({num_rows});
    Tensor<int32_t, 2> indices({num_rows, 140});
    for (int64_t row = 0; row < num_rows; ++row) {
      sequence[row] = static_cast<int32_t>(row % 2);
      context[row] = sequence[row] == 0 ? 300 : 130;
      std::vector<int32_t> chosen = source.Permutation(context[row]);
      chosen.resize(row == 0 ? 140 : row == 1 ? 65 : 3);
      std::sort(chosen.begin(), chosen.end());
      chosen.resize(140, -1);
      std::copy(chosen.begin(), chosen.end(), &indices.at(row, 0));
    }
    Tensor<Bf16, 3> q_latent = source.NormalBf16<3>({num_rows, num_heads, 512}, 0.1f);
    Tensor<Bf16, 3> q_rope = source.NormalBf16<3>({num_rows, num_heads, 64}, 0.1f);
    Tensor<uint8_t, 2> bf16_pages({16, kvcache::LatentPageBytes(kvcache::KvCacheDtype::kBfloat16)});
    for (int64_t i = 0; i < bf16_pages.size(); i += 2) {
      const Bf16 value = ToBf16(source.Normal(0.5f));
      std::memcpy(&bf16_pages[i], &value, sizeof(value));
    }
    for (auto dtype : {kvcache::KvCacheDtype::kFp8E4m3, kvcache::KvCacheDtype::kBfloat16}) {
      ThreadPool* threads = dtype == kvcache::KvCacheDtype::kFp8E4m3 ? nullptr : &threads_;
      Tensor<Bf16, 3> out({num_rows, num_heads, 512}), expected({num_rows, num_heads, 512});
      SparseMlaArgs args{
          .q_latent = q_latent,
          .q_rope = q_rope,
          .softmax_scale = 0.13f,
          .indices = indices,
          .rows = cache.Rows(sequence, context),
          .kv_cache_dtype = dtype,
          .latent_pages = dtype == kvcache::KvCacheDtype::kFp8E4m3 ? cache.latent_pages.view() : bf16_pages.view(),
          .out = out,
          .threads = threads};
      ASSERT_TRUE(SparseMla(args).ok());
      args.out = expected;
      reference::SparseMla(args);
      ASSERT_TRUE(out == expected) << num_heads;
    }
  }
}

TEST_P(LevelsTest, MlaProjectionsAreTheReference) {
  Source source(5);
  for (auto [num_rows, num_heads, nope, v] : {std::array<int64_t, 4>{1, 3, 128, 40}, {5, 2, 48, 9}, {67, 1, 144, 16}}) {
    Tensor<Bf16, 3> q = source.NormalBf16<3>({num_rows, num_heads, nope + 64});
    Tensor<Bf16, 3> w_uk = source.NormalBf16<3>({num_heads, nope, 512}),
                    w_uv = source.NormalBf16<3>({num_heads, v, 512});
    Tensor<Bf16, 3> latent({num_rows, num_heads, 512}), expected_latent({num_rows, num_heads, 512});
    Tensor<Bf16, 3> out({num_rows, num_heads, v}), expected_out({num_rows, num_heads, v});
    const Cube<const Bf16> q_nope = q.view().Columns(0, nope);
    ASSERT_TRUE(MlaAbsorbQuery({.q_nope = q_nope, .w_uk = w_uk, .q_latent = latent, .threads = &threads_}).ok());
    reference::MlaAbsorbQuery({.q_nope = q_nope, .w_uk = w_uk, .q_latent = expected_latent});
    ASSERT_TRUE(latent == expected_latent) << num_rows;
    ASSERT_TRUE(MlaUnabsorbOutput({.latent_out = latent, .w_uv = w_uv, .out = out, .threads = &threads_}).ok());
    reference::MlaUnabsorbOutput({.latent_out = latent, .w_uv = w_uv, .out = expected_out});
    ASSERT_TRUE(out == expected_out) << num_rows;
  }
}

TEST_P(LevelsTest, IndexLogitsAreTheReference) {
  Source source(6);
  Cache cache(source);
  for (int64_t num_heads : {1, 4, 7, 64}) {
    Tensor<int32_t, 1> sequence({4}), context({4});
    sequence.values() = {0, 0, 1, 0};
    context.values() = {300, 17, 130, 257};
    Tensor<E4m3, 3> q = source.NormalE4m3<3>({4, num_heads, 128});
    Tensor<float, 2> weights = source.NormalF32<2>({4, num_heads}), logits({4, 300}), expected({4, 300});
    IndexLogitsArgs args{.q = q,
                         .weights = weights,
                         .rows = cache.Rows(sequence, context),
                         .index_pages = cache.index_pages,
                         .index_topk = 20,
                         .logits = logits,
                         .threads = &threads_};
    ASSERT_TRUE(IndexLogits(args).ok());
    args.logits = expected;
    reference::IndexLogits(args);
    ASSERT_TRUE(logits == expected) << num_heads;
  }
}

TEST_P(LevelsTest, TopKEqualsASortOfLongRows) {
  Source source(7);
  for (int kind = 0; kind < 5; ++kind) {
    const int64_t count = 20000 + source.Below(40), k = 2048;
    Tensor<float, 2> logits({1, count});
    for (float& logit : logits.values()) {
      logit = source.Normal();
      if (kind == 1 && source.Below(40) != 0) logit = source.Below(2) == 0 ? 0.0f : -0.0f;
      if (kind == 2) logit = static_cast<float>(source.Below(3));
      if (kind == 3 && source.Below(15) != 0) logit = -std::numeric_limits<float>::infinity();
      if (kind >= 3 && source.Below(10) == 0) logit = std::numeric_limits<float>::quiet_NaN();
      if (kind == 4) logit *= std::ldexp(1.0f, static_cast<int>(source.Below(200) - 120));
    }
    Tensor<int32_t, 1> context({1}), nan_count({1});
    context[0] = static_cast<int32_t>(count);
    Tensor<int32_t, 2> indices({1, k});
    ASSERT_TRUE(TopK({.logits = logits, .context_length = context, .indices = indices, .nan_count = nan_count}).ok());
    std::vector<int32_t> order(static_cast<size_t>(count));
    std::iota(order.begin(), order.end(), 0);
    const auto value = [&](int32_t i) {
      return std::isnan(logits[i]) ? -std::numeric_limits<float>::infinity() : logits[i];
    };
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return value(a) > value(b); });
    order.resize(k);
    std::sort(order.begin(), order.end());
    ASSERT_EQ(indices.values(), order) << kind;
    ASSERT_EQ(nan_count[0], std::count_if(logits.values().begin(), logits.values().end(),
                                          [](float logit) { return std::isnan(logit); }));
  }
}

TEST_P(LevelsTest, InfinityAndNanArriveAsThemselves) {
  Tensor<Bf16, 2> x({1, 64}), weight({3, 64});
  for (Bf16& value : x.values()) value = ToBf16(1);
  for (Bf16& value : weight.values()) value = ToBf16(1);
  weight.at(0, 5) = ToBf16(std::numeric_limits<float>::infinity());
  weight.at(1, 5) = ToBf16(std::numeric_limits<float>::quiet_NaN());
  weight.at(2, 5) = ToBf16(3e38f);
  x.at(0, 5) = ToBf16(2);
  Tensor<float, 2> y({1, 3});
  ASSERT_TRUE(Bf16LinearF32({.x = x, .weight = weight, .y = y}).ok());
  EXPECT_EQ(y[0], std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(y[1]));
  EXPECT_EQ(y[2], std::numeric_limits<float>::infinity());
}

std::string NameOf(const testing::TestParamInfo<Level>& info) { return std::string(cpu::LevelName(info.param)); }
INSTANTIATE_TEST_SUITE_P(Levels, LevelsTest,
                         testing::Values(Level::kBaseline, Level::kAvx2, Level::kAvx512, Level::kAvx512Bf16), NameOf);

TEST(UseLevelTest, KnowsNamesAndRefusesOthers) {
  EXPECT_TRUE(cpu::UseLevel("baseline").ok());
  EXPECT_EQ(cpu::ActiveLevel(), Level::kBaseline);
  EXPECT_TRUE(cpu::UseLevel("auto").ok());
  EXPECT_EQ(cpu::UseLevel("sse9").message(),
            "instruction level sse9, allowed auto, baseline, avx2, avx512, avx512_bf16");
}

}  // namespace
}  // namespace tandem::kernels
