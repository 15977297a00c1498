// SparseMla: attention of a row's heads over the listed cached records, in latent space, on BF16 tensor cores.
//
// A block has 64 heads of one row and walks the row's list in blocks of 64 entries. Three warpgroups:
//   loader    gathers the records two quarters of a block ahead into registers, turns FP8 ones into BF16 and writes
//             them to one of two tiles of shared memory [64 entries x 576];
//   left      scores S = Q K^T (64 x 64 x 576), the online softmax, P to shared memory, and the output's columns
//             0..255: O = O * c + P V (64 x 64 x 256);
//   right     the columns 256..511 with the same P.
// The tile is K-major for S and, read the other way round, the V of the second product: it is written once.
// A power-of-two scale goes into the conversion exactly: the bits of e4m3 are placed in a BF16 and multiplied by
// scale * 2^120. Other scales, and NaN codes, take the plain way: bf16(float(e4m3) * scale), the same value.
//
// A row's bits depend on its list, its queries and the listed bytes alone: entries in blocks of 64 from the list's
// first, one online softmax in that order, K and V sums in the tensor core's order, no split. P is rounded to BF16 for
// the second product (its sum is not), which is within tolerance of FP32 but not of the CPU's bits.
//
// Cost of a row with h heads and n entries: h * n * 1088 * 2 FLOP; bytes n * 656 + h * 2176. 256 rows x 128 heads x
// 2048: 146 GFLOP, 148 us at 989 TFLOPS; 417 MB, 91 us. A block of entries costs a multiprocessor 2176 cycles of tensor
// core and about 2350 of shared memory. Shared memory: 230,000 bytes: one block a multiprocessor. Registers: 128
// accumulators and 32 scores of 200; loader 104. Tested by sparse_mla_device_test.cc; measured in
// docs/kernels/sparse_mla.md.
#include <cuda_runtime.h>

#include <cmath>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/ptx_attention.cuh"
#include "kernels/cuda/sparse_mla_loader.cuh"
#include "kernels/cuda/wgmma.cuh"
#include "kernels/op_border.h"
#include "kvcache/kv_layout.h"

namespace tandem::kernels::cuda {
namespace {

constexpr int kHeadTile = 64;
constexpr int kThreads = 3 * 128;
constexpr int kConsumers = 2 * 128;
constexpr int kTileBytes = kEntryBlock * 128;  // 64 rows of 64 BF16 values

struct SparseMlaShared {
  uint8_t q[kSubtiles * kTileBytes];
  uint8_t entries[2][kSubtiles * kTileBytes];
  uint8_t p[kTileBytes];
  float correction[kHeadTile];   // of the output so far, by this block's maximum
  float inverse_sum[kHeadTile];  // at the end
  int warp_counts[kThreads / 32];
};
static_assert(sizeof(SparseMlaShared) <= 232448);

// Named barriers; + 1 for the second tile.
enum : int { kFull = 1, kEmpty = 3, kPReady = 5, kPFree = 6, kConsumersMeet = 7 };

struct SparseMlaParams {
  const uint16_t* q_latent;
  int64_t q_latent_row_stride, q_latent_head_stride;
  const uint16_t* q_rope;
  int64_t q_rope_row_stride, q_rope_head_stride;
  float scale_log2;  // softmax_scale * log2(e)
  const int32_t* indices;
  int64_t indices_stride;
  int k;
  const int32_t* page_tables;
  int64_t page_tables_stride;
  const int32_t* sequence;
  const uint8_t* pages;
  int64_t page_stride;
  uint16_t* out;
  int64_t out_row_stride, out_head_stride;
  int num_heads, head_tiles;
  bool q_is_aligned, out_is_aligned;  // to 16 bytes and to 4
};

__device__ __forceinline__ uint4 LoadQueryChunk(const uint16_t* from, bool is_aligned) {
  if (is_aligned) return __ldg(reinterpret_cast<const uint4*>(from));
  uint32_t words[4];
  for (int i = 0; i < 4; ++i) words[i] = from[2 * i] | uint32_t{from[2 * i + 1]} << 16;
  return {words[0], words[1], words[2], words[3]};
}

// By the consumers. Heads beyond the last are zeros.
__device__ __forceinline__ void LoadQueries(const SparseMlaParams& p, int64_t row, int first_head, int thread,
                                            SparseMlaShared& shared) {
  for (int i = thread; i < kSubtiles * kHeadTile * 8; i += kConsumers) {
    const int chunk = i % 8, subtile = i / 8 % kSubtiles, head = i / 8 / kSubtiles;
    uint4 v = {0, 0, 0, 0};
    if (first_head + head < p.num_heads) {
      const uint16_t* from =
          subtile < kSubtiles - 1
              ? p.q_latent + row * p.q_latent_row_stride + (first_head + head) * p.q_latent_head_stride + subtile * 64
              : p.q_rope + row * p.q_rope_row_stride + (first_head + head) * p.q_rope_head_stride;
      v = LoadQueryChunk(from + chunk * 8, p.q_is_aligned);
    }
    *reinterpret_cast<uint4*>(shared.q + subtile * kTileBytes + ptx::SwizzledOffset(head, chunk)) = v;
  }
  ptx::FenceAsyncProxy();
  ptx::SynchronizeSome(kConsumersMeet, kConsumers);
}

__device__ __forceinline__ float MaxOfFour(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ __forceinline__ float SumOfFour(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// o[4j], o[4j + 1] of the first row and o[4j + 2], o[4j + 3] of the second. A factor of 1 changes nothing.
__device__ __forceinline__ void Rescale(float (&o)[128], float first, float second) {
  if (__all_sync(0xffffffffu, first == 1.0f && second == 1.0f)) return;
#pragma unroll
  for (int j = 0; j < 32; ++j) {
    o[4 * j] *= first;
    o[4 * j + 1] *= first;
    o[4 * j + 2] *= second;
    o[4 * j + 3] *= second;
  }
}

__device__ __forceinline__ void StorePair(uint16_t* to, uint32_t pair, bool is_aligned) {
  if (is_aligned) {
    *reinterpret_cast<uint32_t*>(to) = pair;
  } else {
    to[0] = static_cast<uint16_t>(pair);
    to[1] = static_cast<uint16_t>(pair >> 16);
  }
}

// Columns [first_column, first_column + 256) of this thread's two heads.
__device__ __forceinline__ void StoreOutput(const SparseMlaParams& p, int64_t row, int first_head, int first_column,
                                            int thread, const float (&o)[128], float first, float second) {
  const int lane = thread % 32, head = first_head + thread / 32 * 16 + lane / 4;
  uint16_t* to = p.out + row * p.out_row_stride + head * p.out_head_stride + first_column + lane % 4 * 2;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (head + half * 8 >= p.num_heads) break;
    uint16_t* of_head = to + half * 8 * p.out_head_stride;
    const float inverse = half == 0 ? first : second;
#pragma unroll
    for (int j = 0; j < 32; ++j) {
      StorePair(of_head + 8 * j, ptx::PackBf16(o[4 * j + 2 * half] * inverse, o[4 * j + 2 * half + 1] * inverse),
                p.out_is_aligned);
    }
  }
}

__device__ __forceinline__ void ScoreAndAttendLeft(const SparseMlaParams& p, int64_t row, int first_head, int count,
                                                   int thread, SparseMlaShared& shared) {
  const int lane = thread % 32, g = thread / 32 * 16 + lane / 4, c = lane % 4;
  const int num_blocks = (count + kEntryBlock - 1) / kEntryBlock;
  const uint64_t q_tile = ptx::TileDescriptor(shared.q, 16, 1024);
  float o[128], s[32];
#pragma unroll
  for (int i = 0; i < 128; ++i) o[i] = 0;
  float maximum[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0, 0};
  for (int block = 0; block < num_blocks; ++block) {
    const int tile = block % 2;
    ptx::SynchronizeSome(kFull + tile, kThreads);
    const uint64_t keys = ptx::TileDescriptor(shared.entries[tile], 16, 1024);
    wgmma::Touch(s);
    wgmma::Fence();
#pragma unroll
    for (int step = 0; step < kSubtiles * 4; ++step) {
      const uint64_t to = step / 4 * (kTileBytes / 16) + step % 4 * 2;
      wgmma::Multiply<wgmma::Format::kBf16, 64>(s, q_tile + to, keys + to, step > 0);
    }
    wgmma::Commit();
    wgmma::Wait<0>();
    wgmma::Touch(s);

    const int left = count - block * kEntryBlock;  // entries of this block, if fewer than 64
    if (left < kEntryBlock) {
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        if (i / 4 * 8 + c * 2 + i % 2 >= left) s[i] = -INFINITY;
      }
    }
    float correction[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float largest = maximum[half];
#pragma unroll
      for (int i = 2 * half; i < 32; i += 4) {
        s[i] *= p.scale_log2;
        s[i + 1] *= p.scale_log2;
        largest = fmaxf(largest, fmaxf(s[i], s[i + 1]));
      }
      largest = MaxOfFour(largest);
      correction[half] = ptx::Exp2(maximum[half] - largest);
      maximum[half] = largest;
      float even = 0, odd = 0;
#pragma unroll
      for (int i = 2 * half; i < 32; i += 4) {
        s[i] = ptx::Exp2(s[i] - largest);
        s[i + 1] = ptx::Exp2(s[i + 1] - largest);
        even += s[i];
        odd += s[i + 1];
      }
      sum[half] = sum[half] * correction[half] + (even + odd);
    }
    uint32_t weights[4][4];  // as operand A of the second product, [step][register]
#pragma unroll
    for (int i = 0; i < 16; ++i) weights[i / 4][i % 4] = ptx::PackBf16(s[2 * i], s[2 * i + 1]);

    if (block > 0) ptx::SynchronizeSome(kPFree, kConsumers);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      *reinterpret_cast<uint32_t*>(shared.p + ptx::SwizzledOffset(g, j) + c * 4) = weights[j / 2][j % 2 * 2];
      *reinterpret_cast<uint32_t*>(shared.p + ptx::SwizzledOffset(g + 8, j) + c * 4) = weights[j / 2][j % 2 * 2 + 1];
    }
    if (c == 0) {
      shared.correction[g] = correction[0];
      shared.correction[g + 8] = correction[1];
    }
    ptx::FenceAsyncProxy();
    ptx::ArriveAtSome(kPReady, kConsumers);

    Rescale(o, correction[0], correction[1]);
    const uint64_t values = ptx::TileDescriptor(shared.entries[tile], kTileBytes, 1024);
    wgmma::Touch(o);
    wgmma::Fence();
#pragma unroll
    for (int step = 0; step < 4; ++step)
      wgmma::MultiplyAcrossFromRegisters256(o, weights[step], values + step * 128, true);
    wgmma::Commit();
    wgmma::Wait<0>();
    wgmma::Touch(o);
    if (block + 2 < num_blocks) ptx::ArriveAtSome(kEmpty + tile, kThreads);
  }
  const float inverse[2] = {1.0f / SumOfFour(sum[0]), 1.0f / SumOfFour(sum[1])};
  if (c == 0) {
    shared.inverse_sum[g] = inverse[0];
    shared.inverse_sum[g + 8] = inverse[1];
  }
  ptx::ArriveAtSome(kConsumersMeet, kConsumers);
  StoreOutput(p, row, first_head, 0, thread, o, inverse[0], inverse[1]);
}

__device__ __forceinline__ void AttendRight(const SparseMlaParams& p, int64_t row, int first_head, int count,
                                            int thread, SparseMlaShared& shared) {
  const int g = thread / 32 * 16 + thread % 32 / 4;
  const int num_blocks = (count + kEntryBlock - 1) / kEntryBlock;
  const uint64_t weights = ptx::TileDescriptor(shared.p, 16, 1024);
  float o[128];
#pragma unroll
  for (int i = 0; i < 128; ++i) o[i] = 0;
  for (int block = 0; block < num_blocks; ++block) {
    const int tile = block % 2;
    ptx::SynchronizeSome(kFull + tile, kThreads);
    ptx::SynchronizeSome(kPReady, kConsumers);
    Rescale(o, shared.correction[g], shared.correction[g + 8]);
    const uint64_t values = ptx::TileDescriptor(shared.entries[tile] + 4 * kTileBytes, kTileBytes, 1024);
    wgmma::Touch(o);
    wgmma::Fence();
#pragma unroll
    for (int step = 0; step < 4; ++step) wgmma::MultiplyAcross256(o, weights + step * 2, values + step * 128, true);
    wgmma::Commit();
    wgmma::Wait<0>();
    wgmma::Touch(o);
    if (block + 1 < num_blocks) ptx::ArriveAtSome(kPFree, kConsumers);
    if (block + 2 < num_blocks) ptx::ArriveAtSome(kEmpty + tile, kThreads);
  }
  ptx::SynchronizeSome(kConsumersMeet, kConsumers);
  StoreOutput(p, row, first_head, 256, thread, o, shared.inverse_sum[g], shared.inverse_sum[g + 8]);
}

template <bool kIsBf16>
__global__ void __launch_bounds__(kThreads, 1) SparseMlaKernel(const SparseMlaParams p) {
  SparseMlaShared& shared = *reinterpret_cast<SparseMlaShared*>(ptx::DynamicSharedMemory());
  const int64_t row = blockIdx.x / p.head_tiles;
  const int first_head = static_cast<int>(blockIdx.x) % p.head_tiles * kHeadTile;
  const int32_t* list = p.indices + row * p.indices_stride;
  const int thread = static_cast<int>(threadIdx.x);

  // -1 stands only behind the list.
  int count = 0;
  for (int i = thread; i < p.k; i += kThreads) count += list[i] >= 0;
  count = __reduce_add_sync(0xffffffffu, count);
  if (thread % 32 == 0) shared.warp_counts[thread / 32] = count;
  __syncthreads();
  count = 0;
#pragma unroll
  for (int w = 0; w < kThreads / 32; ++w) count += shared.warp_counts[w];

  if (count == 0) {
    for (int i = thread; i < kHeadTile * kvcache::kLatentDim; i += kThreads) {
      const int head = first_head + i / kvcache::kLatentDim;
      if (head < p.num_heads) p.out[row * p.out_row_stride + head * p.out_head_stride + i % kvcache::kLatentDim] = 0;
    }
    return;
  }
  const int group = thread / 128;
  if (group == 0) {
    ptx::LowerRegisters<104>();
    const RecordLoader<kIsBf16> loader(p.pages, p.page_stride, p.page_tables + p.sequence[row] * p.page_tables_stride,
                                       list, count, thread);
    loader.Run([&](int tile) { ptx::SynchronizeSome(kEmpty + tile, kThreads); },
               [&](int tile) { return shared.entries[tile]; },
               [&](int tile) { ptx::ArriveAtSome(kFull + tile, kThreads); });
  } else {
    ptx::RaiseRegisters<200>();
    LoadQueries(p, row, first_head, thread - 128, shared);
    if (group == 1) {
      ScoreAndAttendLeft(p, row, first_head, count, thread - 128, shared);
    } else {
      AttendRight(p, row, first_head, count, thread - 256, shared);
    }
  }
}

template <bool kIsBf16>
absl::Status Launch(Stream stream, const SparseMlaParams& params, int64_t num_rows) {
  constexpr int kSharedBytes = sizeof(SparseMlaShared);
  const cudaError_t error =
      cudaFuncSetAttribute(SparseMlaKernel<kIsBf16>, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (error != cudaSuccess) return CudaStatus(error, "SparseMla: shared memory");
  SparseMlaKernel<kIsBf16>
      <<<static_cast<unsigned>(num_rows * params.head_tiles), kThreads, kSharedBytes, stream>>>(params);
  return LaunchStatus("SparseMla");
}

bool IsAligned(const Cube<const Bf16>& x) {
  return reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && x.strides[0] % 8 == 0 && x.strides[1] % 8 == 0;
}

}  // namespace

absl::Status SparseMla(Stream stream, const SparseMlaArgs& args) {
  const int64_t num_rows = args.q_latent.shape[0], num_heads = args.q_latent.shape[1], k = args.indices.shape[1];
  const int64_t num_pages = args.latent_pages.shape[0];
  OpBorder border("SparseMla");
  border.Shape("q_latent", args.q_latent, {num_rows, num_heads, kvcache::kLatentDim})
      .Shape("q_rope", args.q_rope, {num_rows, num_heads, kvcache::kRopeDim})
      .Shape("indices", args.indices, {num_rows, k})
      .Shape("page_tables", args.rows.page_tables, args.rows.page_tables.shape)
      .Shape("sequence", args.rows.sequence, {num_rows})
      .Shape("context_length", args.rows.context_length, {num_rows})
      .Shape("latent_pages", args.latent_pages, {num_pages, kvcache::LatentPageBytes(args.kv_cache_dtype)})
      .Require(reinterpret_cast<uintptr_t>(args.latent_pages.data) % 16 == 0, "address of latent_pages modulo 16",
               static_cast<int64_t>(reinterpret_cast<uintptr_t>(args.latent_pages.data) % 16), "0")
      .Require(args.latent_pages.strides[0] % 16 == 0, "stride of latent_pages", args.latent_pages.strides[0],
               "a multiple of 16")
      .Require(num_pages <= (int64_t{1} << 25), "pages", num_pages, "at most 2^25")
      .Shape("out", args.out, {num_rows, num_heads, kvcache::kLatentDim});
  if (!border.ok()) return border.status();
  if (num_rows == 0 || num_heads == 0) return absl::OkStatus();
  const SparseMlaParams params = {
      .q_latent = reinterpret_cast<const uint16_t*>(args.q_latent.data),
      .q_latent_row_stride = args.q_latent.strides[0],
      .q_latent_head_stride = args.q_latent.strides[1],
      .q_rope = reinterpret_cast<const uint16_t*>(args.q_rope.data),
      .q_rope_row_stride = args.q_rope.strides[0],
      .q_rope_head_stride = args.q_rope.strides[1],
      .scale_log2 = args.softmax_scale * 1.44269504088896341f,
      .indices = args.indices.data,
      .indices_stride = args.indices.strides[0],
      .k = static_cast<int>(k),
      .page_tables = args.rows.page_tables.data,
      .page_tables_stride = args.rows.page_tables.strides[0],
      .sequence = args.rows.sequence.data,
      .pages = args.latent_pages.data,
      .page_stride = args.latent_pages.strides[0],
      .out = reinterpret_cast<uint16_t*>(args.out.data),
      .out_row_stride = args.out.strides[0],
      .out_head_stride = args.out.strides[1],
      .num_heads = static_cast<int>(num_heads),
      .head_tiles = static_cast<int>((num_heads + kHeadTile - 1) / kHeadTile),
      .q_is_aligned = IsAligned(args.q_latent) && IsAligned(args.q_rope),
      .out_is_aligned = reinterpret_cast<uintptr_t>(args.out.data) % 4 == 0 && args.out.strides[0] % 2 == 0 &&
                        args.out.strides[1] % 2 == 0,
  };
  return args.kv_cache_dtype == kvcache::KvCacheDtype::kBfloat16 ? Launch<true>(stream, params, num_rows)
                                                                 : Launch<false>(stream, params, num_rows);
}

}  // namespace tandem::kernels::cuda
