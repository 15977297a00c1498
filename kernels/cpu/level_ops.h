// The loops that take nearly all time, compiled once per instruction set level (the *_level.cc files) and called
// through a table. A level changes speed, never a bit: docs/kernels/numerics.md gives the order of every sum.
//
// Plain pointers and sizes only: the files behind this header are compiled for newer processors, so they include
// nothing whose inline functions the linker might keep for all. Callers have checked shapes and flush subnormals.
// Tested by levels_test.cc against kernels/reference.
#pragma once

#include <cstdint>

namespace tandem::kernels::cpu {

// y = x W^T over BF16 rows, or with W in E4M3 and block scales: taken as bf16(w * scale), or, with x_scale, as they are
// and each block of 128 multiplied by x_scale * w_scale.
struct LinearTask {
  const uint16_t* x = nullptr;  // BF16
  int64_t x_stride = 0;
  const int32_t* x_rows = nullptr;  // row i of the product reads x row x_rows[i]; null: row i
  int64_t in_dim = 0;               // a multiple of 16; with E4M3 weights of 128
  int k_segments = 1;
  const uint16_t* w_bf16 = nullptr;  // either this or the next
  const uint8_t* w_e4m3 = nullptr;
  int64_t w_stride = 0;
  const float* w_scale = nullptr;  // [ceil(out / 128), in_dim / 128]
  int64_t w_scale_stride = 0;
  const float* x_scale = nullptr;  // [x rows, in_dim / 128], or null
  int64_t x_scale_stride = 0;
  uint16_t* y_bf16 = nullptr;  // either this or the next
  float* y_f32 = nullptr;
  int64_t y_stride = 0;
};

// Attention of one row for some heads: docs/kernels/numerics.md, Attention.
struct SparseMlaTask {
  const uint16_t* q_latent = nullptr;  // [num_heads, 512] BF16, heads q_latent_stride apart
  int64_t q_latent_stride = 0;
  const uint16_t* q_rope = nullptr;  // [num_heads, 64]
  int64_t q_rope_stride = 0;
  int num_heads = 0;  // at most kSparseMlaHeadsMax
  float softmax_scale = 0;
  const int32_t* positions = nullptr;  // [num_positions] ascending
  int64_t num_positions = 0;
  const int32_t* page_table = nullptr;
  const uint8_t* latent_pages = nullptr;
  int64_t page_stride = 0;
  bool is_bf16 = false;  // the records' latent; otherwise E4M3 with four scales
  int record_bytes = 0;
  int rope_offset = 0;      // of the rotary key within a record
  uint16_t* out = nullptr;  // [num_heads, 512]
  int64_t out_stride = 0;
};
inline constexpr int kSparseMlaHeadsMax = 64;

// y = q W of one head: [num_rows, nope_dim] by [nope_dim, 512], for the columns [column, column_end), multiples of 64.
struct MlaAbsorbTask {
  const uint16_t* q = nullptr;
  int64_t q_stride = 0;
  int64_t num_rows = 0;
  const uint16_t* w = nullptr;
  int64_t w_stride = 0;
  int64_t nope_dim = 0;  // a multiple of 16
  uint16_t* y = nullptr;
  int64_t y_stride = 0;
};

// Index logits of some rows of one sequence.
struct IndexLogitsTask {
  const uint8_t* q = nullptr;  // [num_rows, num_heads, 128] E4M3
  int64_t q_row_stride = 0;
  int64_t q_head_stride = 0;
  const float* weights = nullptr;  // [num_rows, num_heads]
  int64_t weights_stride = 0;
  int64_t num_rows = 0;
  int num_heads = 0;
  const int32_t* contexts = nullptr;  // [num_rows]
  const int32_t* page_table = nullptr;
  const uint8_t* index_pages = nullptr;
  int64_t page_stride = 0;
  float* logits = nullptr;  // [num_rows, context]
  int64_t logits_stride = 0;
};

struct LevelOps {
  // Rows [row, row_end) by outputs [out, out_end).
  void (*linear)(const LinearTask& task, int64_t row, int64_t row_end, int64_t out, int64_t out_end);
  // target = bf16(codes * scale), one scale for each 128 of count; null scales: 1.
  void (*dequantize)(const uint8_t* codes, const float* scales, int64_t count, uint16_t* target);
  void (*sparse_mla)(const SparseMlaTask& task);
  void (*mla_absorb)(const MlaAbsorbTask& task, int64_t column, int64_t column_end);
  // The pages [page, page_end) of the sequence; positions at or beyond a row's context are left untouched.
  void (*index_logits)(const IndexLogitsTask& task, int64_t page, int64_t page_end);
  // Ascending positions of the k largest of count logits, 1 <= k < count; returns how many are NaN.
  int32_t (*top_k)(const float* logits, int64_t count, int64_t k, int32_t* positions);
};

}  // namespace tandem::kernels::cpu
