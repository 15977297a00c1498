// Where a row's cached records lie, as kernels/paged_rows.h says it for the host. Ids are in device memory and not
// checked. Tested by paged_cache_device_test.cc.
#pragma once

#include <cstdint>

#include "kernels/op_border.h"
#include "kernels/ops.h"

namespace tandem::kernels::cuda {

// PagedRows as kernels take it.
struct DevicePagedRows {
  const int32_t* page_tables;
  int64_t page_table_stride;
  const int32_t* sequence;
  const int32_t* context_length;

  __device__ const int32_t* PageTable(int64_t row) const { return page_tables + sequence[row] * page_table_stride; }
};

inline void CheckPagedRowShapes(OpBorder& border, const PagedRows& rows, int64_t num_rows) {
  border.Shape("page_tables", rows.page_tables, rows.page_tables.shape)
      .Shape("sequence", rows.sequence, {num_rows})
      .Shape("context_length", rows.context_length, {num_rows});
}

inline DevicePagedRows ToDevice(const PagedRows& rows) {
  return {.page_tables = rows.page_tables.data,
          .page_table_stride = rows.page_tables.strides[0],
          .sequence = rows.sequence.data,
          .context_length = rows.context_length.data};
}

}  // namespace tandem::kernels::cuda
