// Proves formats, norms, rope, quantiser, linears and experts against the float64 reference, in its tolerances.
#include <cmath>

#include "kernels/reference/golden.h"

namespace tandem::kernels {
namespace {

ScaleFormat FormatOf(const GoldenOp& golden, const std::string& c) {
  return golden.Text(c, "scale_format") == "ue8m0" ? ScaleFormat::kUe8m0 : ScaleFormat::kFloat32;
}

TEST(GoldenTest, E4m3AndBf16Conversions) {
  GoldenOp golden("e4m3");
  Tensor<E4m3, 1> codes = golden.Input<E4m3, 1>("all", "codes");
  Tensor<float, 1> values = golden.Input<float, 1>("all", "values");
  for (int64_t i = 0; i < codes.size(); ++i) {
    if (std::isnan(values[i])) {
      EXPECT_TRUE(std::isnan(ToFloat(codes[i])));
    } else {
      EXPECT_EQ(ToFloat(codes[i]), values[i]) << i;
    }
  }
  Tensor<float, 1> x = golden.Input<float, 1>("round", "x");
  Tensor<E4m3, 1> rounded({x.size()});
  Tensor<Bf16, 1> bf16({x.size()});
  for (int64_t i = 0; i < x.size(); ++i) {
    rounded[i] = ToE4m3(x[i]);
    bf16[i] = ToBf16(x[i]);
  }
  golden.Expect("round", "codes", rounded);
  golden.Expect("round", "bf16", bf16);
}

TEST(GoldenTest, RmsNorm) {
  GoldenOp golden("rmsnorm");
  for (const std::string& c : golden.cases()) {
    Tensor<Bf16, 2> x = golden.Input<Bf16, 2>(c, "x");
    Tensor<Bf16, 1> weight = golden.Input<Bf16, 1>(c, "w");
    ASSERT_TRUE(RmsNorm({.x = x, .weight = weight, .y = x}).ok());
    golden.Expect(c, "y", x);
  }
}

TEST(GoldenTest, AddRmsNorm) {
  GoldenOp golden("add_rmsnorm");
  for (const std::string& c : golden.cases()) {
    Tensor<Bf16, 2> x = golden.Input<Bf16, 2>(c, "x");
    Tensor<Bf16, 2> residual = golden.Input<Bf16, 2>(c, "residual");
    Tensor<Bf16, 1> weight = golden.Input<Bf16, 1>(c, "w");
    ASSERT_TRUE(AddRmsNorm({.x = x, .residual = residual, .weight = weight, .y = x, .residual_out = residual}).ok());
    golden.Expect(c, "y", x);
    golden.Expect(c, "new_residual", residual);
  }
}

TEST(GoldenTest, LayerNorm) {
  GoldenOp golden("layernorm");
  for (const std::string& c : golden.cases()) {
    Tensor<Bf16, 2> x = golden.Input<Bf16, 2>(c, "x");
    Tensor<float, 1> weight = golden.Input<float, 1>(c, "w"), bias = golden.Input<float, 1>(c, "b");
    ASSERT_TRUE(LayerNorm({.x = x, .weight = weight, .bias = bias, .y = x}).ok());
    golden.Expect(c, "y", x);
  }
}

TEST(GoldenTest, RopeTable) {
  GoldenOp golden("rope_table");
  for (const std::string& c : golden.cases()) {
    const YarnParams yarn = {
        .rope_theta = golden.Number(c, "theta"),
        .factor = golden.Number(c, "factor"),
        .original_max_position = static_cast<int64_t>(golden.Number(c, "original_max_position_embeddings"))};
    Tensor<float, 1> frequencies({32}), softmax_scale({1});
    ASSERT_TRUE(YarnFrequencies(yarn, frequencies).ok());
    golden.Expect(c, "inv_freq", frequencies);
    softmax_scale[0] = static_cast<float>(std::pow(192, -0.5) * YarnSoftmaxScaleFactor(yarn.factor, 1.0));
    golden.Expect(c, "softmax_scale", softmax_scale);

    Tensor<int32_t, 1> positions = golden.Input<int32_t, 1>(c, "positions");
    Tensor<float, 2> table({1 + *std::max_element(positions.values().begin(), positions.values().end()), 64});
    ASSERT_TRUE(BuildRopeTable({.yarn = yarn, .table = table}).ok());
    Tensor<float, 2> cosine({positions.size(), 32}), sine({positions.size(), 32});
    for (int64_t p = 0; p < positions.size(); ++p) {
      for (int64_t i = 0; i < 32; ++i) {
        cosine.at(p, i) = table.at(positions[p], i);
        sine.at(p, i) = table.at(positions[p], 32 + i);
      }
    }
    golden.Expect(c, "cos", cosine);
    golden.Expect(c, "sin", sine);
  }
}

TEST(GoldenTest, Rope) {
  GoldenOp golden("rope");
  Tensor<float, 2> table({4097, 64});
  ASSERT_TRUE(BuildRopeTable({.yarn = {}, .table = table}).ok());
  for (const std::string& c : golden.cases()) {
    Tensor<Bf16, 3> x = golden.Input<Bf16, 3>(c, "x");
    Tensor<int32_t, 1> positions = golden.Input<int32_t, 1>(c, "positions");
    const RopeLayout layout = c == "interleaved" ? RopeLayout::kInterleaved : RopeLayout::kHalfSplit;
    ASSERT_TRUE(Rope({.layout = layout, .x = x, .positions = positions, .table = table, .y = x}).ok());
    golden.Expect(c, "y", x);
  }
}

TEST(GoldenTest, Hadamard) {
  GoldenOp golden("hadamard");
  for (const std::string& c : golden.cases()) {
    Tensor<Bf16, 2> x = golden.Input<Bf16, 2>(c, "x");
    const Cube<Bf16> heads = x.view().SplitLast(128);
    ASSERT_TRUE(Hadamard128({.x = heads, .y = heads}).ok());
    golden.Expect(c, "y", x);
  }
}

TEST(GoldenTest, Quant128) {
  GoldenOp golden("quant128");
  for (const std::string& c : golden.cases()) {
    Tensor<Bf16, 2> x = golden.Input<Bf16, 2>(c, "x");
    Tensor<E4m3, 2> q({x.dim(0), x.dim(1)});
    Tensor<float, 2> scale({x.dim(0), x.dim(1) / 128});
    ASSERT_TRUE(Quant128({.x = x, .scale_format = FormatOf(golden, c), .q = q, .scale = scale}).ok());
    golden.Expect(c, "q", q);
    golden.Expect(c, "scale", scale);
  }
}

TEST(GoldenTest, Fp8LinearOfAQuantisedInput) {
  GoldenOp golden("fp8_linear");
  for (const std::string& c : golden.cases()) {
    Tensor<Bf16, 2> x = golden.Input<Bf16, 2>(c, "x");
    Tensor<E4m3, 2> weight = golden.Input<E4m3, 2>(c, "w");
    Tensor<float, 2> w_scale = golden.Input<float, 2>(c, "w_scale");
    Tensor<E4m3, 2> q({x.dim(0), x.dim(1)});
    Tensor<float, 2> scale({x.dim(0), x.dim(1) / 128});
    Tensor<Bf16, 2> y({x.dim(0), weight.dim(0)});
    ASSERT_TRUE(Quant128({.x = x, .scale_format = FormatOf(golden, c), .q = q, .scale = scale}).ok());
    OpWorkspace workspace(Fp8LinearWorkspaceBytes(x.dim(0), x.dim(1)));
    for (int segments = 1; segments <= RowParallelSegments(x.dim(1)); segments *= 2) {
      ASSERT_TRUE(Fp8Linear({.x = q,
                             .x_scale = scale,
                             .weight = {weight, w_scale},
                             .k_segments = segments,
                             .y = y,
                             .scale_format = FormatOf(golden, c),
                             .workspace = workspace.span()})
                      .ok());
      golden.Expect(c, "y", y);
    }
  }
}

TEST(GoldenTest, Bf16Linear) {
  GoldenOp golden("bf16_linear");
  for (const std::string& c : golden.cases()) {
    Tensor<Bf16, 2> x = golden.Input<Bf16, 2>(c, "x"), weight = golden.Input<Bf16, 2>(c, "w");
    Tensor<Bf16, 2> y({x.dim(0), weight.dim(0)});
    Tensor<float, 2> y_f32({x.dim(0), weight.dim(0)});
    ASSERT_TRUE(Bf16Linear({.x = x, .weight = weight, .y = y}).ok());
    ASSERT_TRUE(Bf16LinearF32({.x = x, .weight = weight, .y = y_f32}).ok());
    golden.Expect(c, "y", y);
    golden.Expect(c, "y_f32", y_f32);
  }
}

TEST(GoldenTest, SwiGlu) {
  GoldenOp golden("swiglu");
  for (const std::string& c : golden.cases()) {
    Tensor<Bf16, 2> gate = golden.Input<Bf16, 2>(c, "gate"), up = golden.Input<Bf16, 2>(c, "up");
    ASSERT_TRUE(SwiGlu({.gate = gate, .up = up, .y = up}).ok());
    golden.Expect(c, "y", up);
  }
}

TEST(GoldenTest, MoeRouter) {
  GoldenOp golden("moe_router");
  constexpr float kMarginMin = 1e-5f;  // below it FP32 may choose otherwise; exact ties must agree all the same
  for (const std::string& c : golden.cases()) {
    Tensor<Bf16, 2> x = golden.Input<Bf16, 2>(c, "x"), gate = golden.Input<Bf16, 2>(c, "gate");
    Tensor<float, 2> logits({x.dim(0), gate.dim(0)});
    ASSERT_TRUE(Bf16LinearF32({.x = x, .weight = gate, .y = logits}).ok());
    golden.Expect(c, "logits", logits);

    Tensor<float, 2> stored_logits = golden.Input<float, 2>(c, "logits");
    Tensor<float, 1> bias = golden.Has(c, "bias") ? golden.Input<float, 1>(c, "bias") : Tensor<float, 1>({1});
    Tensor<int32_t, 2> expected_ids = golden.Input<int32_t, 2>(c, "ids");
    Tensor<float, 2> expected_weights = golden.Input<float, 2>(c, "weights");
    Tensor<float, 1> margin = golden.Input<float, 1>(c, "margin");
    Tensor<int32_t, 2> ids({x.dim(0), expected_ids.dim(1)});
    Tensor<float, 2> weights({x.dim(0), expected_ids.dim(1)});
    ASSERT_TRUE(MoeRouter({.logits = stored_logits,
                           .bias = golden.Has(c, "bias") ? Vector<const float>(bias) : Vector<const float>(),
                           .n_group = static_cast<int>(golden.Number(c, "n_group")),
                           .topk_group = static_cast<int>(golden.Number(c, "topk_group")),
                           .norm_topk_prob = golden.Number(c, "norm_topk_prob") != 0,
                           .routed_scaling_factor = static_cast<float>(golden.Number(c, "routed_scaling_factor")),
                           .expert_ids = ids,
                           .weights = weights})
                    .ok());
    int compared = 0;
    for (int64_t row = 0; row < x.dim(0); ++row) {
      if (margin[row] < kMarginMin && !(c == "ties" && margin[row] == 0)) continue;
      ++compared;
      for (int64_t j = 0; j < ids.dim(1); ++j) {
        EXPECT_EQ(ids.at(row, j), expected_ids.at(row, j)) << c << " row " << row;
        EXPECT_NEAR(weights.at(row, j), expected_weights.at(row, j), 1e-5 * expected_weights.at(row, j));
      }
    }
    EXPECT_GE(compared, 8) << c;
  }
}

TEST(GoldenTest, MoeCombine) {
  GoldenOp golden("moe_combine");
  for (const std::string& c : golden.cases()) {
    Tensor<Bf16, 3> expert_out = golden.Input<Bf16, 3>(c, "expert_out");
    Tensor<float, 2> weights = golden.Input<float, 2>(c, "weights");
    Tensor<Bf16, 2> shared = golden.Input<Bf16, 2>(c, "shared");
    Tensor<int32_t, 2> row_pairs({weights.dim(0), weights.dim(1)});
    std::iota(row_pairs.values().begin(), row_pairs.values().end(), 0);
    const Matrix<const Bf16> pairs(&expert_out[0], {weights.size(), shared.dim(1)});
    ASSERT_TRUE(
        MoeCombine({.expert_out = pairs, .row_pairs = row_pairs, .weights = weights, .shared_out = shared, .y = shared})
            .ok());
    golden.Expect(c, "y", shared);
  }
}

}  // namespace
}  // namespace tandem::kernels
