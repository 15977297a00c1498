#include "kernels/flush_subnormals.h"
#include "kernels/reference/dot.h"
#include "kernels/reference/ops.h"
#include "kernels/segments.h"

namespace tandem::kernels::reference {
namespace {

// The sum of one output: each segment's dot product, then the segments' tree.
template <typename X, typename W>
float Sum(int64_t in_dim, int k_segments, const X& x, const W& w) {
  float partials[8] = {};
  const int64_t width = in_dim / k_segments;
  for (int segment = 0; segment < k_segments; ++segment) {
    const int64_t begin = segment * width;
    partials[segment] = DotInLanes(
        width, [&](int64_t k) { return x(begin + k); }, [&](int64_t k) { return w(begin + k); });
  }
  return SumSegments(partials, 1, k_segments);
}

// Args: of Fp8Linear or Fp8GroupedLinear.
template <typename Args>
float Fp8Sum(const Args& args, const Fp8Weight& weight, int64_t row, int64_t out) {
  const E4m3* x = args.x.Row(row);
  const E4m3* w = weight.weight.Row(out);
  const float* x_scale = args.x_scale.Row(row);
  const float* w_scale = weight.scale.Row(out / kQuantGroup);
  if (args.scale_format == ScaleFormat::kUe8m0) {
    const auto dequantized = [](E4m3 code, float scale) { return ToFloat(ToBf16(ToFloat(code) * scale)); };
    return Sum(
        args.x.shape[1], args.k_segments, [&](int64_t k) { return dequantized(x[k], x_scale[k / kQuantGroup]); },
        [&](int64_t k) { return dequantized(w[k], w_scale[k / kQuantGroup]); });
  }
  float partials[8] = {};
  const int64_t num_blocks = args.x.shape[1] / kQuantGroup / args.k_segments;
  for (int segment = 0; segment < args.k_segments; ++segment) {
    float running[16] = {};
    for (int64_t block = segment * num_blocks; block < (segment + 1) * num_blocks; ++block) {
      float lanes[16] = {};
      AddPairs(
          kQuantGroup, [&](int64_t k) { return ToFloat(x[block * kQuantGroup + k]); },
          [&](int64_t k) { return ToFloat(w[block * kQuantGroup + k]); }, lanes);
      const float scale = x_scale[block] * w_scale[block];
      for (int l = 0; l < 16; ++l) running[l] = std::fma(lanes[l], scale, running[l]);
    }
    partials[segment] = SumOfLanes(running);
  }
  return SumSegments(partials, 1, args.k_segments);
}

float Bf16Sum(const Matrix<const Bf16>& x, const Matrix<const Bf16>& weight, int k_segments, int64_t row, int64_t out) {
  return Sum(
      x.shape[1], k_segments, [&](int64_t k) { return ToFloat(x.Row(row)[k]); },
      [&](int64_t k) { return ToFloat(weight.Row(out)[k]); });
}

}  // namespace

void Fp8Linear(const Fp8LinearArgs& args) {
  const FlushSubnormals flush;
  for (int64_t row = 0; row < args.y.shape[0]; ++row) {
    for (int64_t out = 0; out < args.y.shape[1]; ++out) {
      args.y.Row(row)[out] = ToBf16(Fp8Sum(args, args.weight, row, out));
    }
  }
}

void Fp8GroupedLinear(const Fp8GroupedLinearArgs& args) {
  const FlushSubnormals flush;
  for (size_t group = 0; group < args.weights.size(); ++group) {
    for (int64_t pair = args.group_offsets.data[group]; pair < args.group_offsets.data[group + 1]; ++pair) {
      const int64_t row = args.x_rows.is_null() ? pair : args.x_rows.data[pair];
      for (int64_t out = 0; out < args.y.shape[1]; ++out) {
        args.y.Row(pair)[out] = ToBf16(Fp8Sum(args, args.weights[group], row, out));
      }
    }
  }
}

void Bf16Linear(const Bf16LinearArgs& args) {
  const FlushSubnormals flush;
  for (int64_t row = 0; row < args.y.shape[0]; ++row) {
    for (int64_t out = 0; out < args.y.shape[1]; ++out) {
      args.y.Row(row)[out] = ToBf16(Bf16Sum(args.x, args.weight, args.k_segments, row, out));
    }
  }
}

void Bf16LinearF32(const Bf16LinearF32Args& args) {
  const FlushSubnormals flush;
  for (int64_t row = 0; row < args.y.shape[0]; ++row) {
    for (int64_t out = 0; out < args.y.shape[1]; ++out) {
      args.y.Row(row)[out] = Bf16Sum(args.x, args.weight, 1, row, out);
    }
  }
}

}  // namespace tandem::kernels::reference
