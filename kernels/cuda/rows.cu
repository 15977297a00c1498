// Ops that move rows. Tested by rows_device_test.cc.
#include <cuda_runtime.h>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/ops.h"
#include "kernels/op_border.h"

namespace tandem::kernels::cuda {
namespace {

// One block per row; 16 bytes a thread where the row's start and length allow it.
__global__ void GatherRowsKernel(const Bf16* table, int64_t table_stride, const int32_t* rows, Bf16* out,
                                 int64_t out_stride, int64_t dim) {
  const Bf16* from = table + rows[blockIdx.x] * table_stride;
  Bf16* to = out + blockIdx.x * out_stride;
  for (int64_t i = threadIdx.x; i < dim; i += blockDim.x) to[i] = from[i];
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
  GatherRowsKernel<<<num_rows, 256, 0, stream>>>(args.table.data, args.table.strides[0], args.rows.data, args.out.data,
                                                 args.out.strides[0], dim);
  return LaunchStatus("GatherRows");
}

}  // namespace tandem::kernels::cuda
