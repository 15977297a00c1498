// MlaAbsorbQuery and MlaUnabsorbOutput: kv_b_proj's two halves, one product per head. Here are their borders; the
// arithmetic is in warpgroup_product.cuh. Heads are strided columns of wider rows, read 16 bytes
// at a time.
//
// Cost: 2 * num_rows * num_heads * dim * 512 FLOP each; num_heads * dim * 512 * 2 bytes of weights (16.8 MB for 128
// heads of 128), which bound them below about a hundred rows. Tested by mla_projections_device_test.cc.
#include <cuda_runtime.h>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/product.cuh"
#include "kernels/op_border.h"
#include "kvcache/kv_layout.h"

namespace tandem::kernels::cuda {
namespace {

constexpr int64_t kLatentDim = kvcache::kLatentDim;

void CheckAligned(OpBorder& border, absl::string_view address, absl::string_view stride, const Cube<const Bf16>& cube) {
  const auto misplaced = static_cast<int64_t>(reinterpret_cast<uintptr_t>(cube.data) % 16);
  border.Require(misplaced == 0, address, misplaced, "0");
  for (int i = 0; i < 2; ++i) {
    border.Require(cube.shape[i] <= 1 || cube.strides[i] % 8 == 0, stride, cube.strides[i] * 2, "a multiple of 16");
  }
}

// x: [num_rows, num_heads, in_dim], w: [num_heads, ...], y: [num_rows, num_heads, out_dim].
ProductTask HeadTask(const Cube<const Bf16>& x, const Cube<const Bf16>& w, const Cube<Bf16>& y) {
  return {.x = reinterpret_cast<const uint8_t*>(x.data),
          .x_stride = x.strides[0] * 2,
          .w = reinterpret_cast<const uint8_t*>(w.data),
          .w_stride = w.strides[1] * 2,
          .y = y.data,
          .y_stride = y.strides[0] * 2,
          .num_rows = x.shape[0],
          .out_dim = y.shape[2],
          .in_bytes = x.shape[2] * 2,
          .num_heads = static_cast<int>(x.shape[1]),
          .x_head_stride = x.strides[1] * 2,
          .y_head_stride = y.strides[1] * 2,
          .w_group_stride = w.strides[0] * 2};
}

}  // namespace

absl::Status MlaAbsorbQuery(Stream stream, const MlaAbsorbQueryArgs& args) {
  const int64_t num_rows = args.q_nope.shape[0], num_heads = args.q_nope.shape[1], nope_dim = args.q_nope.shape[2];
  OpBorder border("MlaAbsorbQuery");
  border.Require(nope_dim > 0 && nope_dim % 16 == 0, "nope_dim", nope_dim, "a positive multiple of 16")
      .Shape("q_nope", args.q_nope, {num_rows, num_heads, nope_dim})
      .Shape("w_uk", args.w_uk, {num_heads, nope_dim, kLatentDim})
      .Shape("q_latent", args.q_latent, {num_rows, num_heads, kLatentDim});
  CheckAligned(border, "q_nope address modulo 16", "q_nope stride in bytes", args.q_nope);
  CheckAligned(border, "w_uk address modulo 16", "w_uk stride in bytes", args.w_uk);
  if (!border.ok()) return border.status();
  return LaunchProduct(stream, "MlaAbsorbQuery", ProductKind::kTransposedBf16ToBf16,
                       HeadTask(args.q_nope, args.w_uk, args.q_latent));
}

absl::Status MlaUnabsorbOutput(Stream stream, const MlaUnabsorbOutputArgs& args) {
  const int64_t num_rows = args.latent_out.shape[0], num_heads = args.latent_out.shape[1];
  const int64_t v_dim = args.w_uv.shape[1];
  OpBorder border("MlaUnabsorbOutput");
  border.Shape("latent_out", args.latent_out, {num_rows, num_heads, kLatentDim})
      .Shape("w_uv", args.w_uv, {num_heads, v_dim, kLatentDim})
      .Shape("out", args.out, {num_rows, num_heads, v_dim});
  CheckAligned(border, "latent_out address modulo 16", "latent_out stride in bytes", args.latent_out);
  CheckAligned(border, "w_uv address modulo 16", "w_uv stride in bytes", args.w_uv);
  if (!border.ok()) return border.status();
  return LaunchProduct(stream, "MlaUnabsorbOutput", ProductKind::kBf16ToBf16,
                       HeadTask(args.latent_out, args.w_uv, args.out));
}

}  // namespace tandem::kernels::cuda
