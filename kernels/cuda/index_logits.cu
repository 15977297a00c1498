// IndexLogits: the lightning indexer's scores over the paged index keys, on FP8 tensor cores.
//
// A block of three warpgroups takes kRowTile consecutive rows and, in turns with the other blocks of the same rows, the
// pages of their sequences; each warpgroup has a page for itself: its 64 keys are the 64 rows of a warpgroup product
// D[key, head] = K[64 x 128] Q[heads x 128]^T, held in registers and loaded from memory straight into them, two pages
// ahead. The queries stand in shared memory. Rows that follow each other in one sequence (a prefill) share the page's
// registers, two rows to a product of 128 columns; rows of different sequences (a decode) each have their own pages.
// Which it is the kernel sees in `sequence`; a row's bits do not depend on it: a product's element sums its 128 terms
// in the tensor core's order, heads are summed by four threads (heads 8j + 2c and 8j + 2c + 1 for thread c, two chains,
// j ascending), ((c0 + c1) + (c2 + c3)), then times the key's scale.
//
// The 128 bytes of a key and of a query are permuted alike (4 x 4 words transposed within each half), so that a
// thread's fragment is two 16-byte loads a key; a dot product does not mind.
//
// Cost of a (row, key) pair with 64 heads: 16,384 FLOP of FP8, 64 max and 64 fma; 2 cycles of a multiprocessor's tensor
// cores. Bytes: 132 a key (once per tile of rows) and 4 out. A prefill is bound by the tensor cores, a decode by
// memory: 64 rows x 65,536 keys read 554 MB, 120 us at 4.6 TB/s. Shared memory: kRowTile * (128 + 5) bytes a head.
// Registers: 64 accumulators, 48 of keys; 168 allowed. Tested by index_logits_device_test.cc; measured in
// docs/kernels/index_logits.md.
#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/ptx_attention.cuh"
#include "kernels/cuda/wgmma.cuh"
#include "kernels/op_border.h"
#include "kvcache/kv_layout.h"

namespace tandem::kernels::cuda {
namespace {

constexpr int kGroups = 3;  // warpgroups
constexpr int kThreads = kGroups * 128;
constexpr int kRowTile = 8;
constexpr int kKeyBytes = kvcache::kIndexDim;
constexpr int kPageKeys = kvcache::kPageTokens;

struct IndexLogitsParams {
  const uint8_t* q;
  int64_t q_row_stride, q_head_stride;
  const float* weights;
  int64_t weights_stride;
  const int32_t* page_tables;
  int64_t page_tables_stride;
  const int32_t* sequence;
  const int32_t* context_length;
  const uint8_t* pages;
  int64_t page_stride;
  float* logits;
  int64_t logits_stride;
  int64_t index_topk;
  int num_rows, num_heads;
  bool q_is_aligned;  // to 16 bytes, every head
};

// kHeads: columns of a row in a product, num_heads padded with zeros.
template <int kHeads>
struct IndexLogitsShared {
  // A thread c of four reads its weights as one run; the padding keeps the four runs in different banks.
  static constexpr int kWeightsRun = kHeads / 4 + (kHeads >= 16 ? 4 : 0);
  uint8_t q[kRowTile * kHeads * kKeyBytes];
  float weights[kRowTile][4][kWeightsRun];
  int context[kRowTile];  // 0: the row is skipped
  int sequence[kRowTile];
};

// One page as this thread holds it: of keys g and g + 8 of its warp's 16, the words that it brings to the product.
struct PageKeys {
  uint32_t word[16];  // [step][a register]
  float scale[2];
};

// Walks the (run of rows, page) pairs of a warpgroup: runs of rows of one sequence, each with every units-th page.
struct Walk {
  int run_begin = 0, run_end = 0;
  int page = 0, num_pages = 0;
};

template <int kHeads>
__device__ __forceinline__ bool NextRun(const IndexLogitsShared<kHeads>& shared, int num_tile_rows, Walk& walk) {
  if (walk.run_end >= num_tile_rows) return false;
  walk.run_begin = walk.run_end;
  int longest = 0;
  do {
    longest = max(longest, shared.context[walk.run_end]);
    ++walk.run_end;
  } while (walk.run_end < num_tile_rows && shared.sequence[walk.run_end] == shared.sequence[walk.run_begin]);
  walk.num_pages = (longest + kPageKeys - 1) / kPageKeys;
  return true;
}

// To the first pair at or behind (this run, this page). False where there is none.
template <int kHeads>
__device__ __forceinline__ bool Settle(const IndexLogitsShared<kHeads>& shared, int num_tile_rows, int unit,
                                       Walk& walk) {
  while (walk.page >= walk.num_pages) {
    if (!NextRun(shared, num_tile_rows, walk)) return false;
    walk.page = unit;
  }
  return true;
}

template <int kHeads>
__device__ __forceinline__ int32_t PageId(const IndexLogitsParams& p, const IndexLogitsShared<kHeads>& shared,
                                          const Walk& walk) {
  return p.page_tables[shared.sequence[walk.run_begin] * p.page_tables_stride + walk.page];
}

__device__ __forceinline__ void LoadPage(const IndexLogitsParams& p, int32_t page_id, int warp, int lane,
                                         PageKeys& keys) {
  const uint8_t* bytes = p.pages + page_id * p.page_stride;
  const int key = warp * 16 + lane / 4;
#pragma unroll
  for (int second = 0; second < 2; ++second) {  // key g, key g + 8
    const uint8_t* of_key = bytes + (key + second * 8) * kKeyBytes + lane % 4 * 16;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint4 v = ptx::LoadStream(of_key + half * 64);
      // Word i of the half is step 2 * half + i / 2, register second + 2 * (i % 2).
      keys.word[(2 * half) * 4 + second] = v.x;
      keys.word[(2 * half) * 4 + second + 2] = v.y;
      keys.word[(2 * half + 1) * 4 + second] = v.z;
      keys.word[(2 * half + 1) * 4 + second + 2] = v.w;
    }
    keys.scale[second] = __ldg(reinterpret_cast<const float*>(bytes + kvcache::kIndexScaleOffset) + key + second * 8);
  }
}

__device__ __forceinline__ uint4 LoadChunk(const uint8_t* from, bool is_aligned) {
  if (is_aligned) return __ldg(reinterpret_cast<const uint4*>(from));
  uint32_t words[4];
  for (int i = 0; i < 4; ++i) {
    words[i] = from[4 * i] | uint32_t{from[4 * i + 1]} << 8 | uint32_t{from[4 * i + 2]} << 16 |
               uint32_t{from[4 * i + 3]} << 24;
  }
  return {words[0], words[1], words[2], words[3]};
}

// Queries of the tile's rows, permuted and swizzled; their weights in the order in which threads read them.
template <int kHeads>
__device__ __forceinline__ void LoadQueries(const IndexLogitsParams& p, int first_row, int num_tile_rows,
                                            IndexLogitsShared<kHeads>& shared) {
  constexpr int kChunks = kKeyBytes / 16;
  for (int i = threadIdx.x; i < num_tile_rows * kHeads * kChunks; i += kThreads) {
    const int chunk = i % kChunks, column = i / kChunks;
    const int row = column / kHeads, head = column % kHeads;
    if (shared.context[row] == 0) continue;
    uint4 v = {0, 0, 0, 0};
    if (head < p.num_heads) {
      v = LoadChunk(p.q + (first_row + row) * p.q_row_stride + head * p.q_head_stride + chunk * 16, p.q_is_aligned);
    }
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const uint32_t to = ptx::SwizzledOffset(column, chunk / 4 * 4 + w) + chunk % 4 * 4;
      *reinterpret_cast<uint32_t*>(shared.q + to) = words[w];
    }
  }
  for (int i = threadIdx.x; i < num_tile_rows * kHeads; i += kThreads) {
    const int row = i / kHeads, head = i % kHeads;
    if (shared.context[row] == 0) continue;
    shared.weights[row][head % 8 / 2][head / 8 * 2 + head % 2] =
        head < p.num_heads ? p.weights[(first_row + row) * p.weights_stride + head] : 0.0f;
  }
}

// D = keys of the page times kColumns queries at `tile`.
template <int kColumns>
__device__ __forceinline__ void Multiply(const PageKeys& keys, uint64_t tile, float (&d)[kColumns / 2]) {
  wgmma::Touch(d);
  wgmma::Fence();
#pragma unroll
  for (int step = 0; step < kKeyBytes / 32; ++step) {
    const uint32_t a[4] = {keys.word[4 * step], keys.word[4 * step + 1], keys.word[4 * step + 2],
                           keys.word[4 * step + 3]};
    if constexpr (kColumns == 8) wgmma::MultiplyFromRegisters<wgmma::Format::kE4m3, 8>(d, a, tile + 2 * step, step > 0);
    if constexpr (kColumns == 64)
      wgmma::MultiplyFromRegisters<wgmma::Format::kE4m3, 64>(d, a, tile + 2 * step, step > 0);
    if constexpr (kColumns == 128)
      wgmma::MultiplyFromRegisters<wgmma::Format::kE4m3, 128>(d, a, tile + 2 * step, step > 0);
  }
  wgmma::Commit();
  wgmma::Wait<0>();
  wgmma::Touch(d);
}

// This thread's part of the two keys' sums over the heads of one row: of[0] for key g, of[1] for key g + 8.
template <int kHeads, int kColumns>
__device__ __forceinline__ void SumHeads(const float (&d)[kColumns / 2], int first_column, const float* weights,
                                         float (&of)[2]) {
  float even[2] = {0, 0}, odd[2] = {0, 0};
#pragma unroll
  for (int j = 0; j < kHeads / 8; j += 2) {
    float w[4];
    if constexpr (kHeads >= 16) {
      const float4 v = *reinterpret_cast<const float4*>(weights + 2 * j);
      w[0] = v.x, w[1] = v.y, w[2] = v.z, w[3] = v.w;
    } else {
      w[0] = weights[0], w[1] = weights[1];
    }
#pragma unroll
    for (int u = 0; u < 2 && j + u < kHeads / 8; ++u) {
#pragma unroll
      for (int second = 0; second < 2; ++second) {
        const int at = (first_column / 8 + j + u) * 4 + 2 * second;
        even[second] = fmaf(ptx::ReluKeepingNan(d[at]), w[2 * u], even[second]);
        odd[second] = fmaf(ptx::ReluKeepingNan(d[at + 1]), w[2 * u + 1], odd[second]);
      }
    }
  }
  of[0] = even[0] + odd[0];
  of[1] = even[1] + odd[1];
}

// Adds a value of lanes c and c ^ kDistance: the lanes with that bit of c clear get the sum of `clear`, others of
// `set`.
template <int kDistance>
__device__ __forceinline__ float AddAcross(float clear, float set, int lane) {
  const bool is_set = (lane & kDistance) != 0;
  const float other = __shfl_xor_sync(0xffffffffu, is_set ? clear : set, kDistance);
  return (is_set ? set : clear) + other;
}

template <int kHeads>
__global__ void __launch_bounds__(kThreads, 1) IndexLogitsKernel(const IndexLogitsParams p) {
  auto& shared = *reinterpret_cast<IndexLogitsShared<kHeads>*>(ptx::DynamicSharedMemory());
  constexpr bool kPairs = kHeads == 64;  // two rows to a product
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32 % 4;
  const int first_row = static_cast<int>(blockIdx.y) * kRowTile;
  const int num_tile_rows = min(kRowTile, p.num_rows - first_row);
  if (thread < num_tile_rows) {
    const int context = p.context_length[first_row + thread];
    shared.context[thread] = context > p.index_topk ? context : 0;
    shared.sequence[thread] = p.sequence[first_row + thread];
  }
  __syncthreads();

  const int unit = static_cast<int>(blockIdx.x) * kGroups + thread / 128;
  const int units = static_cast<int>(gridDim.x) * kGroups;
  // The page in work, the two that are on their way, and the one after them, whose place is being looked up.
  Walk walk, next_walk;
  bool has = Settle(shared, num_tile_rows, unit, walk);
  PageKeys keys, next_keys, last_keys;
  if (has) LoadPage(p, PageId(p, shared, walk), warp, lane, keys);
  next_walk = walk;
  next_walk.page += units;
  bool has_next = has && Settle(shared, num_tile_rows, unit, next_walk);
  if (has_next) LoadPage(p, PageId(p, shared, next_walk), warp, lane, next_keys);
  Walk last_walk = next_walk;
  last_walk.page += units;
  bool has_last = has_next && Settle(shared, num_tile_rows, unit, last_walk);
  int32_t last_id = has_last ? PageId(p, shared, last_walk) : 0;

  LoadQueries(p, first_row, num_tile_rows, shared);
  ptx::FenceAsyncProxy();
  __syncthreads();

  const uint64_t q_tile = ptx::TileDescriptor(shared.q, 16, 1024);
  constexpr uint32_t kRowStep = kHeads * kKeyBytes / 16;  // of a descriptor
  while (has) {
    if (has_last) LoadPage(p, last_id, warp, lane, last_keys);
    Walk far_walk = last_walk;
    far_walk.page += units;
    const bool has_far = has_last && Settle(shared, num_tile_rows, unit, far_walk);
    if (has_far) last_id = PageId(p, shared, far_walk);

    const int first_position = walk.page * kPageKeys;
    for (int row = walk.run_begin; row < walk.run_end;) {
      const bool is_pair = kPairs && row + 1 < walk.run_end;
      const int context = shared.context[row], second_context = is_pair ? shared.context[row + 1] : 0;
      if (first_position >= max(context, second_context)) {
        row += is_pair ? 2 : 1;
        continue;
      }
      const int key = warp * 16 + lane / 4 + lane % 2 * 8;  // whose sum this lane ends with
      const int position = first_position + key;
      const float scale = lane % 2 == 0 ? keys.scale[0] : keys.scale[1];
      if (is_pair) {
        float d[64], first[2], second[2];
        Multiply<128>(keys, q_tile + row * kRowStep, d);
        SumHeads<64, 128>(d, 0, shared.weights[row][lane % 4], first);
        SumHeads<64, 128>(d, 64, shared.weights[row + 1][lane % 4], second);
        const float first_half = AddAcross<1>(first[0], first[1], lane);
        const float second_half = AddAcross<1>(second[0], second[1], lane);
        const float sum = AddAcross<2>(first_half, second_half, lane);
        const bool is_second = (lane & 2) != 0;
        if (position < (is_second ? second_context : context)) {
          p.logits[(first_row + row + is_second) * p.logits_stride + position] = sum * scale;
        }
        row += 2;
      } else {
        float d[kHeads / 2], of[2];
        Multiply<kHeads>(keys, q_tile + row * kRowStep, d);
        SumHeads<kHeads, kHeads>(d, 0, shared.weights[row][lane % 4], of);
        const float half = AddAcross<1>(of[0], of[1], lane);
        const float sum = AddAcross<2>(half, half, lane);
        if ((lane & 2) == 0 && position < context) {
          p.logits[(first_row + row) * p.logits_stride + position] = sum * scale;
        }
        row += 1;
      }
    }
    keys = next_keys;
    walk = next_walk;
    has = has_next;
    next_keys = last_keys;
    next_walk = last_walk;
    has_next = has_last;
    last_walk = far_walk;
    has_last = has_far;
  }
}

// Blocks that share a tile's pages: as few as fill the multiprocessors well.
int BlocksOfTile(int64_t num_tiles, int64_t max_pages, int num_multiprocessors) {
  const int64_t most = std::max<int64_t>(1, (max_pages + kGroups - 1) / kGroups);
  if (num_tiles <= num_multiprocessors) {
    return static_cast<int>(std::clamp<int64_t>(num_multiprocessors / num_tiles, 1, most));
  }
  int best = 1;
  double best_share = 0;
  for (int blocks = 1; blocks <= 4; ++blocks) {
    const int64_t waves = (num_tiles * blocks + num_multiprocessors - 1) / num_multiprocessors;
    const double share = static_cast<double>(num_tiles * blocks) / static_cast<double>(waves * num_multiprocessors);
    if (share > best_share + 0.02) {
      best = blocks;
      best_share = share;
    }
  }
  return static_cast<int>(std::min<int64_t>(best, most));
}

template <int kHeads>
absl::Status Launch(Stream stream, const IndexLogitsParams& params, int64_t max_pages) {
  int device = 0, num_multiprocessors = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&num_multiprocessors, cudaDevAttrMultiProcessorCount, device);
  }
  constexpr int kSharedBytes = sizeof(IndexLogitsShared<kHeads>);
  if (error == cudaSuccess) {
    error = cudaFuncSetAttribute(IndexLogitsKernel<kHeads>, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  }
  if (error != cudaSuccess) return CudaStatus(error, "IndexLogits");
  const int num_tiles = (params.num_rows + kRowTile - 1) / kRowTile;
  const dim3 grid(static_cast<unsigned>(BlocksOfTile(num_tiles, max_pages, num_multiprocessors)),
                  static_cast<unsigned>(num_tiles));
  IndexLogitsKernel<kHeads><<<grid, kThreads, kSharedBytes, stream>>>(params);
  return LaunchStatus("IndexLogits");
}

}  // namespace

absl::Status IndexLogits(Stream stream, const IndexLogitsArgs& args) {
  const int64_t num_rows = args.q.shape[0], num_heads = args.q.shape[1], num_pages = args.index_pages.shape[0];
  OpBorder border("IndexLogits");
  border.Require(num_heads >= 1 && num_heads <= 128, "num_heads", num_heads, "in [1, 128]")
      .Require(num_rows <= int64_t{65535} * kRowTile, "num_rows", num_rows, "at most 524280")
      .Shape("q", args.q, {num_rows, num_heads, kvcache::kIndexDim})
      .Shape("weights", args.weights, {num_rows, num_heads})
      .Shape("page_tables", args.rows.page_tables, args.rows.page_tables.shape)
      .Shape("sequence", args.rows.sequence, {num_rows})
      .Shape("context_length", args.rows.context_length, {num_rows})
      .Shape("index_pages", args.index_pages, {num_pages, kvcache::kIndexPageBytes})
      .Require(reinterpret_cast<uintptr_t>(args.index_pages.data) % 16 == 0, "address of index_pages modulo 16",
               static_cast<int64_t>(reinterpret_cast<uintptr_t>(args.index_pages.data) % 16), "0")
      .Require(args.index_pages.strides[0] % 16 == 0, "stride of index_pages", args.index_pages.strides[0],
               "a multiple of 16")
      .Shape("logits", args.logits, {num_rows, args.logits.shape[1]});
  if (!border.ok()) return border.status();
  if (num_rows == 0) return absl::OkStatus();
  const IndexLogitsParams params = {
      .q = reinterpret_cast<const uint8_t*>(args.q.data),
      .q_row_stride = args.q.strides[0],
      .q_head_stride = args.q.strides[1],
      .weights = args.weights.data,
      .weights_stride = args.weights.strides[0],
      .page_tables = args.rows.page_tables.data,
      .page_tables_stride = args.rows.page_tables.strides[0],
      .sequence = args.rows.sequence.data,
      .context_length = args.rows.context_length.data,
      .pages = args.index_pages.data,
      .page_stride = args.index_pages.strides[0],
      .logits = args.logits.data,
      .logits_stride = args.logits.strides[0],
      .index_topk = args.index_topk,
      .num_rows = static_cast<int>(num_rows),
      .num_heads = static_cast<int>(num_heads),
      .q_is_aligned = reinterpret_cast<uintptr_t>(args.q.data) % 16 == 0 && args.q.strides[0] % 16 == 0 &&
                      args.q.strides[1] % 16 == 0,
  };
  const int64_t max_pages = std::min<int64_t>(args.rows.page_tables.shape[1], (args.logits.shape[1] + 63) / 64);
  if (num_heads <= 8) return Launch<8>(stream, params, max_pages);
  if (num_heads <= 64) return Launch<64>(stream, params, max_pages);
  return Launch<128>(stream, params, max_pages);
}

}  // namespace tandem::kernels::cuda
