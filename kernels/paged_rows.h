// Where a row's cached records lie. Tested by paged_cache_test.cc.
#pragma once

#include <cstdint>

#include "kernels/op_border.h"
#include "kernels/ops.h"
#include "kvcache/kv_layout.h"

namespace tandem::kernels {

// Shapes, sequence ids, context lengths, and every page id that a row's context reaches.
inline void CheckPagedRows(OpBorder& border, const PagedRows& rows, int64_t num_rows, int64_t num_pages) {
  const auto [num_sequences, num_table_pages] = rows.page_tables.shape;
  border.Shape("page_tables", rows.page_tables, {num_sequences, num_table_pages})
      .Shape("sequence", rows.sequence, {num_rows})
      .Shape("context_length", rows.context_length, {num_rows})
      .Ids("sequence", rows.sequence, 0, num_sequences)
      .Ids("context_length", rows.context_length, 1, num_table_pages * kvcache::kPageTokens + 1);
  if (!border.ok()) return;
  for (int64_t row = 0; row < num_rows; ++row) {
    const Vector<const int32_t> table = rows.page_tables.At(rows.sequence.data[row]);
    const int pages = kvcache::PagesForTokens(rows.context_length.data[row]);
    border.Ids("page_tables", table.Slice(0, pages), 0, num_pages);
  }
}

struct PageSlot {
  int64_t page;
  int slot;
};
inline PageSlot SlotOf(const PagedRows& rows, int64_t row, int64_t position) {
  const int32_t* table = rows.page_tables.Row(rows.sequence.data[row]);
  return {table[position / kvcache::kPageTokens], static_cast<int>(position % kvcache::kPageTokens)};
}

}  // namespace tandem::kernels
