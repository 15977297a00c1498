// Static YaRN frequencies, the cosine and sine table, and the rotation in both element orders. Tested by rope_test.cc.
#include <algorithm>
#include <cmath>

#include "base/status_macros.h"
#include "kernels/op_border.h"
#include "kernels/ops.h"
#include "kernels/portable_math.h"
#include "kvcache/kv_layout.h"

namespace tandem::kernels {
namespace {

constexpr int kRopeDim = kvcache::kRopeDim;
constexpr int kPairs = kRopeDim / 2;
static_assert(kPairs == 32, "InverseFrequencyRatio takes five square roots");

// theta^(-1/32): five square roots, each exact to the last bit by IEEE.
double InverseFrequencyRatio(double theta) {
  double root = theta;
  for (int i = 0; i < 5; ++i) root = std::sqrt(root);
  return 1.0 / root;
}

// The (real-valued) pair that turns `rotations` times over the original context.
double CorrectionDim(const YarnParams& params, double rotations) {
  constexpr double kTwoPi = 6.283185307179586;
  const double wavelengths = static_cast<double>(params.original_max_position) / (rotations * kTwoPi);
  return kRopeDim * Log(wavelengths) / (2.0 * Log(params.rope_theta));
}

absl::Status CheckParams(const YarnParams& params, absl::string_view op) {
  OpBorder border(op);
  border.Require(params.rope_theta > 1, "rope_theta", static_cast<int64_t>(params.rope_theta), "above 1")
      .Require(params.factor >= 1, "factor", static_cast<int64_t>(params.factor), "at least 1")
      .Require(params.original_max_position >= 1, "original_max_position", params.original_max_position, "at least 1")
      .Require(params.beta_slow > 0, "beta_slow", static_cast<int64_t>(params.beta_slow), "positive")
      .Require(params.beta_fast >= params.beta_slow, "beta_fast", static_cast<int64_t>(params.beta_fast),
               "at least beta_slow");
  return border.status();
}

}  // namespace

absl::Status YarnFrequencies(const YarnParams& params, Vector<float> out) {
  RETURN_IF_ERROR(CheckParams(params, "YarnFrequencies"));
  OpBorder border("YarnFrequencies");
  border.Shape("out", out, {kPairs});
  RETURN_IF_ERROR(border.status());
  const double low = std::max(std::floor(CorrectionDim(params, params.beta_fast)), 0.0);
  double high = std::min(std::ceil(CorrectionDim(params, params.beta_slow)), static_cast<double>(kRopeDim - 1));
  if (low == high) high += 0.001;
  const double ratio = InverseFrequencyRatio(params.rope_theta);
  double frequency = 1.0;
  for (int i = 0; i < kPairs; ++i) {
    const double ramp = std::clamp((i - low) / (high - low), 0.0, 1.0);
    out.data[i] = static_cast<float>(frequency * (1.0 - ramp) + frequency / params.factor * ramp);
    frequency *= ratio;
  }
  return absl::OkStatus();
}

double YarnSoftmaxScaleFactor(double factor, double mscale_all_dim) {
  if (factor <= 1) return 1.0;
  const double m = 0.1 * mscale_all_dim * Log(factor) + 1.0;
  return m * m;
}

absl::Status BuildRopeTable(const BuildRopeTableArgs& args) {
  const int64_t num_positions = args.table.shape[0];
  OpBorder border("BuildRopeTable");
  border.Shape("table", args.table, {num_positions, kRopeDim})
      .Require(num_positions <= (int64_t{1} << 22), "num_positions", num_positions, "at most 2^22");
  RETURN_IF_ERROR(border.status());
  float frequencies[kPairs];
  RETURN_IF_ERROR(YarnFrequencies(args.yarn, Vector<float>(frequencies, {kPairs})));
  for (int64_t position = 0; position < num_positions; ++position) {
    float* row = args.table.Row(position);
    for (int i = 0; i < kPairs; ++i) {
      const float angle = static_cast<float>(position) * frequencies[i];
      const SineCosine turn = SinCos(angle);
      row[i] = static_cast<float>(turn.cosine);
      row[kPairs + i] = static_cast<float>(turn.sine);
    }
  }
  return absl::OkStatus();
}

absl::Status Rope(const RopeArgs& args) {
  const int64_t num_rows = args.x.shape[0];
  const int64_t num_heads = args.x.shape[1];
  OpBorder border("Rope");
  border.Shape("x", args.x, {num_rows, num_heads, kRopeDim})
      .Shape("positions", args.positions, {num_rows})
      .Shape("table", args.table, {args.table.shape[0], kRopeDim})
      .Shape("y", args.y, {num_rows, num_heads, kRopeDim})
      .Ids("positions", args.positions, 0, args.table.shape[0]);
  RETURN_IF_ERROR(border.status());
  const bool interleaved = args.layout == RopeLayout::kInterleaved;
  for (int64_t row = 0; row < num_rows; ++row) {
    const float* cosine = args.table.Row(args.positions.data[row]);
    const float* sine = cosine + kPairs;
    for (int64_t head = 0; head < num_heads; ++head) {
      const Bf16* x = args.x.Row(row, head);
      Bf16* y = args.y.Row(row, head);
      for (int i = 0; i < kPairs; ++i) {
        const int first = interleaved ? 2 * i : i;
        const int second = interleaved ? 2 * i + 1 : i + kPairs;
        const float a = ToFloat(x[first]);
        const float b = ToFloat(x[second]);
        y[first] = ToBf16(a * cosine[i] - b * sine[i]);
        y[second] = ToBf16(a * sine[i] + b * cosine[i]);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem::kernels
