// What each *_level.cc defines, in the namespace of its level: TANDEM_LEVEL comes from the BUILD file with the flags.
// LevelOps says what they do.
#pragma once

#include "kernels/cpu/level_ops.h"

#define TANDEM_DECLARE_LEVEL(level)                                                                \
  namespace level {                                                                                \
  void Linear(const LinearTask& task, int64_t row, int64_t row_end, int64_t out, int64_t out_end); \
  void Dequantize(const uint8_t* codes, const float* scales, int64_t count, uint16_t* target);     \
  void SparseMla(const SparseMlaTask& task);                                                       \
  void MlaAbsorb(const MlaAbsorbTask& task, int64_t column, int64_t column_end);                   \
  void IndexLogits(const IndexLogitsTask& task, int64_t page, int64_t page_end);                   \
  int32_t TopK(const float* logits, int64_t count, int64_t k, int32_t* positions);                 \
  }

namespace tandem::kernels::cpu {
TANDEM_DECLARE_LEVEL(baseline)
TANDEM_DECLARE_LEVEL(avx2)
TANDEM_DECLARE_LEVEL(avx512)
TANDEM_DECLARE_LEVEL(avx512_bf16)
}  // namespace tandem::kernels::cpu
