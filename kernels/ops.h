// Every op of the model's forward pass: one function each, views in, views out. The single border between the model
// and a backend; the maths is docs/kernels/ops.md, the order of every sum docs/kernels/numerics.md.
//
// Rules that hold for all ops:
// - The caller gives outputs, workspace and threads; an op allocates nothing, keeps nothing and starts no thread. Where
//   args have `threads` they share the work; null: the calling thread does all. No bit depends on it.
// - Shapes, strides and ids are checked before the first write. INVALID_ARGUMENT names op, argument, value and limit;
//   after an error outputs are untouched. Values are not checked: NaN travels to the outputs of its own row.
// - Row i of an output depends on row i of the inputs (and on the weights and cached bytes that it names) alone: the
//   number of rows, their order and the pages' ids change no bit. Deterministic: yes, for every op, on every CPU.
// - Zero rows are legal and do nothing. Inputs and outputs may not overlap unless the op says so.
// - The last dimension is contiguous; the others may have any stride.
// Implemented by kernels/cpu where time goes, else by kernels/reference, which also has the plain definition of what
// kernels/cpu does fast. Tested by kernels/reference/*_test.cc and kernels/cpu/*_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/dtypes.h"
#include "kernels/tensor_view.h"
#include "kernels/thread_pool.h"
#include "kvcache/kv_layout.h"

namespace tandem::kernels {

// Channels that share one quantisation scale: activations per row, weights per 128 rows as well.
inline constexpr int64_t kQuantGroup = 128;

// ---- Rows -----------------------------------------------------------------------------------------------------------

struct GatherRowsArgs {
  Matrix<const Bf16> table;    // [num_table_rows, dim]
  Vector<const int32_t> rows;  // [num_rows], each in [0, num_table_rows)
  Matrix<Bf16> out;            // [num_rows, dim]
};
// out[i] = table[rows[i]], bit for bit: the embedding, and picking rows of a batch.
absl::Status GatherRows(const GatherRowsArgs& args);

struct ArgmaxArgs {
  Matrix<const float> logits;  // [num_rows, vocab_size]
  Vector<int32_t> tokens;      // [num_rows]
};
// The largest logit's index; the lower one on ties. NaN counts as -inf; a row of nothing else gives 0.
absl::Status Argmax(const ArgmaxArgs& args);

// ---- Norms ----------------------------------------------------------------------------------------------------------

struct RmsNormArgs {
  Matrix<const Bf16> x;       // [num_rows, dim], dim a multiple of 16
  Vector<const Bf16> weight;  // [dim]
  float eps = 1e-6f;
  Matrix<Bf16> y;  // [num_rows, dim]; may be x itself
};
// y = bf16(weight * (x * 1/sqrt(mean(x^2) + eps))), FP32 inside.
absl::Status RmsNorm(const RmsNormArgs& args);

struct AddRmsNormArgs {
  Matrix<const Bf16> x;         // [num_rows, dim], dim a multiple of 16
  Matrix<const Bf16> residual;  // [num_rows, dim]
  Vector<const Bf16> weight;    // [dim]
  float eps = 1e-6f;
  Matrix<Bf16> y;             // [num_rows, dim]; may be x itself
  Matrix<Bf16> residual_out;  // [num_rows, dim]; may be residual itself
};
// z = x + residual in FP32; y = RmsNorm of z before any rounding; residual_out = bf16(z).
absl::Status AddRmsNorm(const AddRmsNormArgs& args);

struct LayerNormArgs {
  Matrix<const Bf16> x;        // [num_rows, dim], dim a multiple of 16
  Vector<const float> weight;  // [dim]
  Vector<const float> bias;    // [dim]
  float eps = 1e-6f;
  Matrix<Bf16> y;  // [num_rows, dim]; may be x itself
};
// y = bf16((x - mean) / sqrt(var + eps) * weight + bias), biased variance, FP32 inside: the index key's norm.
absl::Status LayerNorm(const LayerNormArgs& args);

// ---- Rotary positions -----------------------------------------------------------------------------------------------

// Static YaRN: applied at every position, also of short contexts. factor 1 is plain rope.
struct YarnParams {
  double rope_theta = 10000;
  double factor = 40;
  int64_t original_max_position = 4096;
  double beta_fast = 32;
  double beta_slow = 1;
};

// The frequencies of the 32 pairs of a 64-dim rotary part. out: [32].
absl::Status YarnFrequencies(const YarnParams& params, Vector<float> out);

// The factor m^2 that the softmax scale carries: m = 0.1 * mscale_all_dim * ln(factor) + 1, and 1 where factor <= 1.
double YarnSoftmaxScaleFactor(double factor, double mscale_all_dim);

struct BuildRopeTableArgs {
  YarnParams yarn;
  // [num_positions, 64], at most 2^22 positions: row p holds cos of pair 0..31, then sin of pair 0..31.
  Matrix<float> table;
};
// The angle of (p, i) is the FP32 product p * f_i, its cosine and sine are rounded once from double. Once per process.
absl::Status BuildRopeTable(const BuildRopeTableArgs& args);

enum class RopeLayout {
  kInterleaved,  // pair i = (x[2i], x[2i + 1]): MLA
  kHalfSplit,    // pair i = (x[i], x[i + 32]): the indexer
};
struct RopeArgs {
  RopeLayout layout = RopeLayout::kInterleaved;
  Cube<const Bf16> x;               // [num_rows, num_heads, 64], often a Columns() view of wider heads
  Vector<const int32_t> positions;  // [num_rows], each in [0, num_positions)
  Matrix<const float> table;        // [num_positions, 64], from BuildRopeTable
  Cube<Bf16> y;                     // [num_rows, num_heads, 64]; may be x itself
};
// Rotates the pairs (a, b) of every head of row i: (a c - b s, a s + b c) with the cosines and sines of positions[i];
// FP32 inside, rounded to BF16 once.
absl::Status Rope(const RopeArgs& args);

// ---- FP8 ------------------------------------------------------------------------------------------------------------

enum class ScaleFormat {
  kUe8m0,    // scale = the next power of two of amax / 448: V3.1 and later
  kFloat32,  // scale = amax / 448: V3, R1
};

struct Hadamard128Args {
  Cube<const Bf16> x;  // [num_rows, num_heads, 128]
  Cube<Bf16> y;        // [num_rows, num_heads, 128]; may be x itself
};
// Orthonormal Walsh-Hadamard transform in natural order: y[i] = 128^-0.5 * sum_j (-1)^popcount(i & j) x[j].
absl::Status Hadamard128(const Hadamard128Args& args);

struct Quant128Args {
  Matrix<const Bf16> x;  // [num_rows, dim], dim a multiple of 128
  ScaleFormat scale_format = ScaleFormat::kUe8m0;
  Matrix<E4m3> q;       // [num_rows, dim]
  Matrix<float> scale;  // [num_rows, dim / 128]
};
// Per row and 128 channels: amax = max(max|x|, 1e-4), scale by the format, q = e4m3(x / scale), x ~ q * scale.
absl::Status Quant128(const Quant128Args& args);

// A weight as checkpoints store it: W[n, k] = weight[n, k] * scale[n / 128, k / 128].
struct Fp8Weight {
  Matrix<const E4m3> weight;  // [out_dim, in_dim], in_dim a multiple of 128
  Matrix<const float> scale;  // [ceil(out_dim / 128), in_dim / 128]
};

struct DequantizeFp8WeightArgs {
  Fp8Weight weight;
  Matrix<Bf16> out;  // [out_dim, in_dim]
};
// out = bf16(weight * scale): kv_b_proj for the absorbed form. Its heads are then views:
//   kv_b = out as [heads, nope + v, 512]; W_UK[h] = first nope rows, W_UV[h] = last v rows of head h.
absl::Status DequantizeFp8Weight(const DequantizeFp8WeightArgs& args);

// ---- Linear layers: y = x * W^T -------------------------------------------------------------------------------------

// S of a row-parallel sum (o_proj, down_proj): the largest power of two up to 8 such that in_dim / S is a multiple
// of 128. The order of the sum is then the same on 1 to S ranks.
constexpr int RowParallelSegments(int64_t in_dim) {
  int segments = 1;
  while (segments < 8 && in_dim % (kQuantGroup * segments * 2) == 0) segments *= 2;
  return segments;
}

struct Fp8LinearArgs {
  Matrix<const E4m3> x;         // [num_rows, in_dim], from Quant128
  Matrix<const float> x_scale;  // [num_rows, in_dim / 128]
  Fp8Weight weight;             // [out_dim, in_dim]
  int k_segments = 1;           // 1, or RowParallelSegments(in_dim) for row-parallel layers
  Matrix<Bf16> y;               // [num_rows, out_dim]
  ScaleFormat scale_format = ScaleFormat::kUe8m0;
  absl::Span<std::byte> workspace;  // Fp8LinearWorkspaceBytes(num_rows, in_dim), aligned to 64
  ThreadPool* threads = nullptr;
};
// FP32 sums of (qx * x_scale) * (qw * w_scale), rounded to BF16 once. With kUe8m0 scales are powers of two and go into
// the operands, which stay exact in BF16; with kFloat32 each block of 128 is summed without them and multiplied by
// x_scale * w_scale.
absl::Status Fp8Linear(const Fp8LinearArgs& args);

struct Fp8GroupedLinearArgs {
  Matrix<const E4m3> x;                 // [num_x_rows, in_dim]
  Matrix<const float> x_scale;          // [num_x_rows, in_dim / 128]
  Vector<const int32_t> x_rows;         // [num_pairs]: pair p reads row x_rows[p]; null: pair p reads row p
  Vector<const int32_t> group_offsets;  // [num_groups + 1], ascending from 0 to num_pairs
  absl::Span<const Fp8Weight> weights;  // [num_groups], equal shapes: group g multiplies pairs
                                        // [group_offsets[g], group_offsets[g + 1]); of empty groups it is not read
  int k_segments = 1;                   // as in Fp8Linear
  Matrix<Bf16> y;                       // [num_pairs, out_dim]
  ScaleFormat scale_format = ScaleFormat::kUe8m0;
  absl::Span<std::byte> workspace;  // Fp8LinearWorkspaceBytes(num_x_rows, in_dim), aligned to 64
  ThreadPool* threads = nullptr;
};
// Fp8Linear per expert; the bits of each row are those of Fp8Linear with that expert's weight.
absl::Status Fp8GroupedLinear(const Fp8GroupedLinearArgs& args);

// The rows of x in BF16.
constexpr int64_t Fp8LinearWorkspaceBytes(int64_t num_rows, int64_t in_dim) {
  return num_rows * in_dim * static_cast<int64_t>(sizeof(Bf16));
}

struct Bf16LinearArgs {
  Matrix<const Bf16> x;       // [num_rows, in_dim], in_dim a multiple of 16
  Matrix<const Bf16> weight;  // [out_dim, in_dim]
  int k_segments = 1;         // as in Fp8Linear (in_dim / k_segments must then be a multiple of 128)
  Matrix<Bf16> y;             // [num_rows, out_dim]
  ThreadPool* threads = nullptr;
};
// y = bf16(FP32 sum): eh_proj, and every projection that a checkpoint stores in BF16.
absl::Status Bf16Linear(const Bf16LinearArgs& args);

struct Bf16LinearF32Args {
  Matrix<const Bf16> x;       // [num_rows, in_dim], in_dim a multiple of 16
  Matrix<const Bf16> weight;  // [out_dim, in_dim]
  Matrix<float> y;            // [num_rows, out_dim]
  ThreadPool* threads = nullptr;
};
// y = FP32 sum: lm_head, the router's gate, the indexer's weights_proj.
absl::Status Bf16LinearF32(const Bf16LinearF32Args& args);

// ---- Paged cache ----------------------------------------------------------------------------------------------------

// Where rows stand in their sequences. A row's context is positions 0..context_length - 1, its own (the last) included;
// position s lies in page page_tables[sequence, s / 64], slot s % 64. Page bytes: kvcache/kv_layout.h.
struct PagedRows {
  Matrix<const int32_t> page_tables;     // [num_sequences, num_table_pages]; entries beyond a context are not read
  Vector<const int32_t> sequence;        // [num_rows], each in [0, num_sequences)
  Vector<const int32_t> context_length;  // [num_rows], each in [1, num_table_pages * 64]
};

struct WriteLatentArgs {
  Matrix<const Bf16> latent;    // [num_rows, 512], after kv_a_layernorm
  Matrix<const Bf16> rope_key;  // [num_rows, 64], after rope
  ScaleFormat scale_format = ScaleFormat::kUe8m0;
  PagedRows rows;  // row i is written at position context_length[i] - 1
  kvcache::KvCacheDtype kv_cache_dtype = kvcache::KvCacheDtype::kFp8E4m3;
  Matrix<uint8_t> latent_pages;  // [num_pages, LatentPageBytes(kv_cache_dtype)], one layer
};
// kFp8E4m3: quantises the latent per 128 dims, as Quant128 does, and writes 656-byte records. kBfloat16: copies latent
// and rotary key into 1,152-byte records; scale_format is not used. Rows must name distinct slots.
absl::Status WriteLatent(const WriteLatentArgs& args);

struct WriteIndexKeyArgs {
  Matrix<const E4m3> key;       // [num_rows, 128], from Quant128
  Matrix<const float> scale;    // [num_rows, 1]
  PagedRows rows;               // row i is written at position context_length[i] - 1
  Matrix<uint8_t> index_pages;  // [num_pages, 8448], one layer
};
// Writes a page's keys and scales where page-grouped 132-byte records have them. Rows must name distinct slots.
absl::Status WriteIndexKey(const WriteIndexKeyArgs& args);

// ---- Indexer --------------------------------------------------------------------------------------------------------

struct IndexWeightsArgs {
  Matrix<const float> projected;  // [num_rows, num_heads], weights_proj of the normed input
  Matrix<const float> q_scale;    // [num_rows, num_heads], of the quantised index queries
  int64_t head_dim = 128;
  Matrix<float> weights;  // [num_rows, num_heads]; may be projected itself
};
// weights = (projected * (num_heads^-0.5 * head_dim^-0.5)) * q_scale.
absl::Status IndexWeights(const IndexWeightsArgs& args);

struct IndexLogitsArgs {
  Cube<const E4m3> q;           // [num_rows, num_heads, 128], at most 128 heads
  Matrix<const float> weights;  // [num_rows, num_heads], from IndexWeights
  PagedRows rows;
  Matrix<const uint8_t> index_pages;  // [num_pages, 8448], one layer
  int64_t index_topk = 2048;          // rows whose context is not longer are skipped: TopK does not read theirs,
                                      // where its indices are as wide
  Matrix<float> logits;               // [num_rows, at least the longest context of a row that is not skipped]
  ThreadPool* threads = nullptr;
};
// logits[row, s] = key_scale[s] * sum over heads of relu(q . key[s]) * weight, for s in the row's context; the rest of
// the row is untouched.
absl::Status IndexLogits(const IndexLogitsArgs& args);

struct TopKArgs {
  Matrix<const float> logits;            // [num_rows, at least the longest context of a row longer than width]
  Vector<const int32_t> context_length;  // [num_rows], each at least 1
  Matrix<int32_t> indices;               // [num_rows, width]
  Vector<int32_t> nan_count;             // [num_rows]: NaN logits met; not zero means a fault upstream
  int64_t k = 0;                         // at most width; 0: width
  ThreadPool* threads = nullptr;
};
// A context of at most `width`: every position, without reading logits. A longer one: the positions of the k largest
// logits[row, 0..context). Ascending, then -1. Exact: +0.0 is added before
// comparing (so -0 equals 0), NaN counts as -inf, equal logits go to the lower position.
absl::Status TopK(const TopKArgs& args);

// ---- Attention ------------------------------------------------------------------------------------------------------

struct MlaAbsorbQueryArgs {
  Cube<const Bf16> q_nope;  // [num_rows, num_heads, nope_dim], nope_dim a multiple of 16
  Cube<const Bf16> w_uk;    // [num_heads, nope_dim, 512]
  Cube<Bf16> q_latent;      // [num_rows, num_heads, 512]
  ThreadPool* threads = nullptr;
};
// q_latent = bf16(W_UK^T q_nope) per head.
absl::Status MlaAbsorbQuery(const MlaAbsorbQueryArgs& args);

struct SparseMlaArgs {
  Cube<const Bf16> q_latent;      // [num_rows, num_heads, 512]
  Cube<const Bf16> q_rope;        // [num_rows, num_heads, 64]
  float softmax_scale = 0;        // qk_head_dim^-0.5 * m^2
  Matrix<const int32_t> indices;  // [num_rows, k] ascending positions below the row's context, -1 only at the tail
  PagedRows rows;
  kvcache::KvCacheDtype kv_cache_dtype = kvcache::KvCacheDtype::kFp8E4m3;
  Matrix<const uint8_t> latent_pages;  // [num_pages, LatentPageBytes(kv_cache_dtype)], one layer
  Cube<Bf16> out;                      // [num_rows, num_heads, 512]; a row with an empty list gives zeros
  ThreadPool* threads = nullptr;
};
// Softmax attention over the listed positions in latent space, on the cached records (FP8 ones dequantised to BF16), in
// blocks of 64 list entries with an online softmax; needs half a megabyte of stack. Dense attention is the list
// 0..context - 1: the same bits.
absl::Status SparseMla(const SparseMlaArgs& args);

struct MlaUnabsorbOutputArgs {
  Cube<const Bf16> latent_out;  // [num_rows, num_heads, 512], from SparseMla
  Cube<const Bf16> w_uv;        // [num_heads, v_dim, 512]
  Cube<Bf16> out;               // [num_rows, num_heads, v_dim]
  ThreadPool* threads = nullptr;
};
// out = bf16(W_UV latent_out) per head.
absl::Status MlaUnabsorbOutput(const MlaUnabsorbOutputArgs& args);

// ---- MLP and experts ------------------------------------------------------------------------------------------------

struct SwiGluArgs {
  Matrix<const Bf16> gate;  // [num_rows, dim], dim a multiple of 16
  Matrix<const Bf16> up;    // [num_rows, dim]
  Matrix<Bf16> y;           // [num_rows, dim]; may be gate or up itself
};
// y = bf16(gate / (1 + exp(-gate)) * up), FP32 inside.
absl::Status SwiGlu(const SwiGluArgs& args);

struct MoeRouterArgs {
  Matrix<const float> logits;  // [num_rows, num_experts]: FP32 gate, at most 1024 experts
  Vector<const float> bias;    // [num_experts] e_score_correction_bias; null where the checkpoint has none
  int n_group = 1;             // divides num_experts
  int topk_group = 1;          // in [1, n_group]
  bool norm_topk_prob = true;
  float routed_scaling_factor = 1.0f;
  Matrix<int32_t> expert_ids;  // [num_rows, top_k] ascending; top_k at most topk_group * num_experts / n_group
  Matrix<float> weights;       // [num_rows, top_k], of expert_ids
};
// noaux_tc: selection by sigmoid(logit) + bias within the topk_group best groups (a group counts its two best experts,
// without bias its best one), weights by sigmoid(logit) alone, divided by their sum (in id order) where norm_topk_prob,
// times routed_scaling_factor. Ties go to the lower id; a NaN score counts as -inf.
absl::Status MoeRouter(const MoeRouterArgs& args);

struct MoeGroupRowsArgs {
  Matrix<const int32_t> expert_ids;  // [num_rows, top_k], each in [0, num_experts)
  Vector<int32_t> group_offsets;     // [num_experts + 1]: pairs of expert e are [offsets[e], offsets[e + 1])
  Vector<int32_t> pair_rows;         // [num_rows * top_k]: the row of pair p, ascending within an expert
  Matrix<int32_t> row_pairs;         // [num_rows, top_k]: the pair of (row, j)
};
// Sorts the (row, expert) pairs by expert: the group_offsets and x_rows of Fp8GroupedLinear, and the way back.
absl::Status MoeGroupRows(const MoeGroupRowsArgs& args);

struct MoeCombineArgs {
  Matrix<const Bf16> expert_out;    // [num_pairs, dim], dim a multiple of 16
  Matrix<const int32_t> row_pairs;  // [num_rows, top_k], in ascending expert id
  Matrix<const float> weights;      // [num_rows, top_k]
  Matrix<const Bf16> shared_out;    // [num_rows, dim]; null where there is no shared expert
  Matrix<Bf16> y;                   // [num_rows, dim]; may be shared_out itself
};
// y = bf16(sum over j ascending of weights[j] * expert_out[row_pairs[j]], then + shared_out), FP32 sums, one rounding.
absl::Status MoeCombine(const MoeCombineArgs& args);

}  // namespace tandem::kernels
