// GatherRows: copies rows. Bytes: each row once in, once out. 16 bytes a thread and step where the rows' starts and the
// length allow it, else two. Tested by rows_device_test.cc.
#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/row_math.cuh"
#include "kernels/op_border.h"

namespace tandem::kernels::cuda {
namespace {

constexpr int kThreads = 256;

// Unit: what one access moves. Strides and width count units; one block per row and kThreads units of its width.
template <typename Unit>
__global__ void GatherRowsKernel(const Unit* table, int64_t table_stride, const int32_t* rows, Unit* out,
                                 int64_t out_stride, int64_t width) {
  const int64_t i = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (i < width) out[blockIdx.x * out_stride + i] = table[rows[blockIdx.x] * table_stride + i];
}

template <typename Unit>
void LaunchGather(Stream stream, const GatherRowsArgs& args) {
  constexpr int64_t kValues = sizeof(Unit) / sizeof(Bf16);
  const int64_t width = args.table.shape[1] / kValues;
  const dim3 grid(static_cast<unsigned>(args.rows.shape[0]), static_cast<unsigned>((width + kThreads - 1) / kThreads));
  GatherRowsKernel<<<grid, kThreads, 0, stream>>>(
      reinterpret_cast<const Unit*>(args.table.data), args.table.strides[0] / kValues, args.rows.data,
      reinterpret_cast<Unit*>(args.out.data), args.out.strides[0] / kValues, width);
}

}  // namespace

absl::Status GatherRows(Stream stream, const GatherRowsArgs& args) {
  const int64_t num_rows = args.rows.shape[0], dim = args.table.shape[1];
  OpBorder border("GatherRows");
  border.Shape("table", args.table, {args.table.shape[0], dim})
      .Shape("rows", args.rows, {num_rows})
      .Shape("out", args.out, {num_rows, dim});
  if (!border.ok()) return border.status();
  if (num_rows == 0 || dim == 0) return absl::OkStatus();
  // The table has one row at least; with one alone its stride is never used.
  if (dim % kVector == 0 && RowsAreAligned(args.table, 16) && RowsAreAligned(args.out, 16)) {
    LaunchGather<uint4>(stream, args);
  } else {
    LaunchGather<Bf16>(stream, args);
  }
  return LaunchStatus("GatherRows");
}

}  // namespace tandem::kernels::cuda
