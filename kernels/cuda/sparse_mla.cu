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

#include "kernels/cuda/launch.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/ptx_attention.cuh"
#include "kernels/cuda/sparse_mla.cuh"
#include "kernels/cuda/sparse_mla_loader.cuh"
#include "kernels/op_border.h"
#include "kvcache/kv_layout.h"

namespace tandem::kernels::cuda {
namespace {

constexpr int kThreads = 3 * 128;
constexpr int kConsumers = 2 * 128;

struct SparseMlaShared {
  uint8_t q[kSubtiles * kTileBytes];
  uint8_t entries[2][kSubtiles * kTileBytes];
  uint8_t p[kTileBytes];
  float correction[kHeadTile];  // of the output so far, by this block's maximum
  float sum[kHeadTile];         // at the end
  int warp_counts[kThreads / 32];
};
static_assert(sizeof(SparseMlaShared) <= 232448);

// Named barriers; + 1 for the second tile.
enum : int { kFull = 1, kEmpty = 3, kPReady = 5, kPFree = 6, kConsumersMeet = 7 };

// o += weights * values of the tile, 256 columns from `values`.
template <typename Multiply>
__device__ __forceinline__ void AddValues(const uint8_t* values, float (&o)[128], const Multiply& multiply) {
  const uint64_t tile = ptx::TileDescriptor(values, kTileBytes, 1024);
  wgmma::Touch(o);
  wgmma::Fence();
#pragma unroll
  for (int step = 0; step < 4; ++step) multiply(step, tile + step * 128);
  wgmma::Commit();
  wgmma::Wait<0>();
  wgmma::Touch(o);
}

// Of tiles that were written by ordinary stores, before products read them. Measured: FP8 records are faster with the
// fence at the writers, BF16 records with it at the readers (docs/kernels/sparse_mla.md).
template <bool kIsBf16>
__device__ __forceinline__ void FenceOfWriter() {
  if constexpr (!kIsBf16) ptx::FenceAsyncProxy();
}
template <bool kIsBf16>
__device__ __forceinline__ void FenceOfReader() {
  if constexpr (kIsBf16) ptx::FenceAsyncProxy();
}

template <bool kIsBf16>
__device__ __forceinline__ void ScoreAndAttendLeft(const SparseMlaParams& p, int64_t row, int first_head, int count,
                                                   int thread, SparseMlaShared& shared) {
  const int lane = thread % 32, g = thread / 32 * 16 + lane / 4, c = lane % 4;
  const int num_blocks = (count + kEntryBlock - 1) / kEntryBlock;
  float o[128], s[32];
#pragma unroll
  for (int i = 0; i < 128; ++i) o[i] = 0;
  SoftmaxState softmax[2];
  for (int block = 0; block < num_blocks; ++block) {
    const int tile = block % 2;
    ptx::SynchronizeSome(kFull + tile, kThreads);
    FenceOfReader<kIsBf16>();
    Score(shared.q, shared.entries[tile], p.scale_log2, count - block * kEntryBlock, lane, s);
    float correction[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      correction[half] = softmax[half].Raise(LargestScore(s, half));
      softmax[half].Add(correction[half], Weigh(s, half, softmax[half].maximum));
    }
    uint32_t weights[4][4];
    PackWeights(s, weights);

    if (block > 0) ptx::SynchronizeSome(kPFree, kConsumers);
    StoreWeights(weights, g, c, shared.p);
    if (c == 0) {
      shared.correction[g] = correction[0];
      shared.correction[g + 8] = correction[1];
    }
    FenceOfWriter<kIsBf16>();
    ptx::ArriveAtSome(kPReady, kConsumers);

    Rescale(o, correction[0], correction[1]);
    AddValues(shared.entries[tile], o, [&](int step, uint64_t values) {
      wgmma::MultiplyAcrossFromRegisters256(o, weights[step], values, true);
    });
    if (block + 2 < num_blocks) ptx::ArriveAtSome(kEmpty + tile, kThreads);
  }
  if (c == 0) {
    shared.sum[g] = softmax[0].sum;
    shared.sum[g + 8] = softmax[1].sum;
  }
  ptx::ArriveAtSome(kConsumersMeet, kConsumers);
  StoreOutput(p, row, first_head, p.num_heads, 0, g, c, o, softmax[0].sum, softmax[1].sum);
}

template <bool kIsBf16>
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
    FenceOfReader<kIsBf16>();
    Rescale(o, shared.correction[g], shared.correction[g + 8]);
    AddValues(shared.entries[tile] + 4 * kTileBytes, o,
              [&](int step, uint64_t values) { wgmma::MultiplyAcross256(o, weights + step * 2, values, true); });
    if (block + 1 < num_blocks) ptx::ArriveAtSome(kPFree, kConsumers);
    if (block + 2 < num_blocks) ptx::ArriveAtSome(kEmpty + tile, kThreads);
  }
  ptx::SynchronizeSome(kConsumersMeet, kConsumers);
  StoreOutput(p, row, first_head, p.num_heads, 256, g, thread % 4, o, shared.sum[g], shared.sum[g + 8]);
}

template <bool kIsBf16>
__global__ void __launch_bounds__(kThreads, 1) SparseMlaKernel(const SparseMlaParams p) {
  SparseMlaShared& shared = *reinterpret_cast<SparseMlaShared*>(ptx::DynamicSharedMemory());
  const int64_t row = blockIdx.x / p.head_tiles;
  const int first_head = static_cast<int>(blockIdx.x) % p.head_tiles * kHeadTile;
  const int32_t* list = p.indices + row * p.indices_stride;
  const int thread = static_cast<int>(threadIdx.x);

  ptx::LaunchDependents();
  const int count = CountEntries<kThreads>(list, p.k, thread, shared.warp_counts);
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
                                       list, count, 0, 1, thread);
    loader.Run(
        [&](int block) {
          if (block >= 2) ptx::SynchronizeSome(kEmpty + block % 2, kThreads);
        },
        [&](int block) { return shared.entries[block % 2]; },
        [&](int block) {
          FenceOfWriter<kIsBf16>();
          ptx::ArriveAtSome(kFull + block % 2, kThreads);
        });
  } else {
    ptx::RaiseRegisters<200>();
    LoadQueries<kConsumers>(p, row, first_head, min(kHeadTile, p.num_heads - first_head), thread - 128, shared.q);
    ptx::FenceAsyncProxy();
    ptx::SynchronizeSome(kConsumersMeet, kConsumers);
    if (group == 1) {
      ScoreAndAttendLeft<kIsBf16>(p, row, first_head, count, thread - 128, shared);
    } else {
      AttendRight<kIsBf16>(p, row, first_head, count, thread - 256, shared);
    }
  }
  __syncthreads();  // who arrives at a barrier without waiting stays until it is passed, as synccheck wants it
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
      .head_rows = kHeadTile,
      .q_is_aligned = IsAligned(args.q_latent) && IsAligned(args.q_rope),
      .out_is_aligned = reinterpret_cast<uintptr_t>(args.out.data) % 4 == 0 && args.out.strides[0] % 2 == 0 &&
                        args.out.strides[1] % 2 == 0,
  };
  const bool is_bf16 = args.kv_cache_dtype == kvcache::KvCacheDtype::kBfloat16;
  if (IsForFewRows(params, num_rows)) return SparseMlaOfFewRows(stream, params, is_bf16, num_rows);
  return is_bf16 ? Launch<true>(stream, params, num_rows) : Launch<false>(stream, params, num_rows);
}

}  // namespace tandem::kernels::cuda
