#include <cstring>

#include "kernels/flush_subnormals.h"
#include "kernels/paged_rows.h"
#include "kernels/reference/dot.h"
#include "kernels/reference/ops.h"
#include "kvcache/kv_layout.h"

namespace tandem::kernels::reference {

void IndexLogits(const IndexLogitsArgs& args) {
  const FlushSubnormals flush;
  for (int64_t row = 0; row < args.q.shape[0]; ++row) {
    const int64_t context = args.rows.context_length.data[row];
    if (context <= args.index_topk) continue;
    for (int64_t position = 0; position < context; ++position) {
      const auto [page, slot] = SlotOf(args.rows, row, position);
      const uint8_t* bytes = args.index_pages.Row(page);
      const uint8_t* key = bytes + slot * kvcache::kIndexDim;
      float key_scale;
      std::memcpy(&key_scale, bytes + kvcache::kIndexScaleOffset + slot * 4, sizeof(key_scale));
      float sum = 0;
      for (int64_t head = 0; head < args.q.shape[1]; ++head) {
        const E4m3* query = args.q.Row(row, head);
        float score = 0;
        for (int64_t pair = 0; pair < kvcache::kIndexDim; pair += 2) {
          for (int64_t d : {pair + 1, pair}) score = std::fma(ToFloat(query[d]), ToFloat(E4m3{key[d]}), score);
        }
        sum = std::fma(score < 0 ? 0.0f : score, args.weights.Row(row)[head], sum);
      }
      args.logits.Row(row)[position] = sum * key_scale;
    }
  }
}

}  // namespace tandem::kernels::reference
