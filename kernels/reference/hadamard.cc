// The 128-point Walsh-Hadamard transform as seven butterfly stages: strides 1, 2, 4, ..., 64. Tested by
// hadamard_test.cc.
#include "base/status_macros.h"
#include "kernels/op_border.h"
#include "kernels/ops.h"

namespace tandem::kernels {

absl::Status Hadamard128(const Hadamard128Args& args) {
  constexpr int kPoints = 128;
  constexpr float kNorm = 0x1.6a09e6p-4f;  // 128^-0.5
  const int64_t num_rows = args.x.shape[0];
  const int64_t num_heads = args.x.shape[1];
  OpBorder border("Hadamard128");
  border.Shape("x", args.x, {num_rows, num_heads, kPoints}).Shape("y", args.y, {num_rows, num_heads, kPoints});
  RETURN_IF_ERROR(border.status());
  for (int64_t row = 0; row < num_rows; ++row) {
    for (int64_t head = 0; head < num_heads; ++head) {
      const Bf16* x = args.x.Row(row, head);
      Bf16* y = args.y.Row(row, head);
      float points[kPoints];
      for (int i = 0; i < kPoints; ++i) points[i] = ToFloat(x[i]);
      for (int stride = 1; stride < kPoints; stride *= 2) {
        for (int begin = 0; begin < kPoints; begin += 2 * stride) {
          for (int i = begin; i < begin + stride; ++i) {
            const float a = points[i];
            const float b = points[i + stride];
            points[i] = a + b;
            points[i + stride] = a - b;
          }
        }
      }
      for (int i = 0; i < kPoints; ++i) y[i] = ToBf16(points[i] * kNorm);
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem::kernels
