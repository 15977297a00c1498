// TopK: a radix select over the order-preserving keys of a row's logits, one cluster of blocks a row.
//
// Each block of the cluster owns a contiguous slice of the row's positions and keeps its keys in shared memory, so the
// logits are read from memory once. Three passes over the slice (digits of 11, 11 and 10 bits, the highest first) count
// how many keys with the prefix found so far have each digit; the blocks add their counts through the cluster's shared
// memory, 64 coarse bins first and then the 32 fine ones of the coarse bin in question, and each comes to the same
// prefix. A last pass ranks what is above and at the threshold by position (ballots, then sums over warps and blocks
// in order), so positions come out ascending and ties go to the lower one without a race. Comparisons and counts only:
// the answer does not depend on the number of blocks, and equals the CPU's bit for bit.
//
// Cost of a row of n logits: 4 n bytes read, 4 k written: 64 x 131,072 are 34 MB, 7.6 us at 4.5 TB/s; the four further
// passes run at shared memory's speed. Shared memory: 16.6 KB and 4 n / cluster size (keys beyond 48K a block are read
// again from global memory in each pass). Tested by topk_device_test.cc; measured in docs/kernels/topk.md.
#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/ptx_attention.cuh"
#include "kernels/op_border.h"

namespace tandem::kernels::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;
constexpr int kBins = 2048;
constexpr int kCoarseBins = 64;  // of 32 bins each
constexpr int kPasses = 3;
constexpr int kMaxBlocksOfRow = 8;
constexpr int kMaxResidentKeys = 48 * 1024;  // of a block
constexpr int kVectorsInFlight = 4;          // 16-byte loads of a thread

struct TopKParams {
  const float* logits;
  int64_t logits_stride;
  const int32_t* context_length;
  int32_t* indices;
  int64_t indices_stride;
  int32_t* nan_count;
  int k;
  int width;              // of indices: contexts up to it are taken whole
  int resident_keys;      // that a block has shared memory for
  bool rows_are_vectors;  // 16-byte loads are aligned
};

struct TopKShared {
  uint32_t bins[2][kBins];  // of odd and even passes: one is read by the cluster while the other is counted
  uint32_t coarse[2][kCoarseBins];
  uint32_t above, at, nans;  // of this block's slice, for the cluster
  uint32_t warp_above[kWarps], warp_at[kWarps], warp_nans[kWarps];
  uint32_t prefix, needed, found;  // of the pass
};

// A larger key is a larger logit; -0 is +0, NaN is -inf.
__device__ __forceinline__ uint32_t KeyOf(float logit, uint32_t& nans) {
  if (isnan(logit)) {
    ++nans;
    return 0x007fffffu;  // -inf's
  }
  const uint32_t bits = __float_as_uint(logit + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

__device__ __forceinline__ uint32_t InclusiveSum(uint32_t value, int lane) {
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const uint32_t below = __shfl_up_sync(0xffffffffu, value, distance);
    if (lane >= distance) value += below;
  }
  return value;
}

// The sum of a word over the cluster's blocks, all of them asked at once.
__device__ __forceinline__ uint32_t SumOverBlocks(const uint32_t* word, uint32_t blocks) {
  uint32_t of_block[kMaxBlocksOfRow];
#pragma unroll
  for (uint32_t rank = 0; rank < kMaxBlocksOfRow; ++rank) {
    of_block[rank] = rank < blocks ? ptx::LoadRemoteAsIs(word, rank) : 0;
  }
  uint32_t sum = 0;
#pragma unroll
  for (uint32_t rank = 0; rank < kMaxBlocksOfRow; ++rank) sum += of_block[rank];
  return sum;
}

// One warp finds the digit of the needed-th largest key from the counts of all blocks.
__device__ __forceinline__ void FindDigit(TopKShared& shared, int parity, uint32_t blocks, uint32_t needed, int lane,
                                          uint32_t& digit, uint32_t& needed_of_digit, uint32_t& found) {
  // Lane l has the coarse bins 63 - 2l and 62 - 2l: descending digits along the lanes.
  const uint32_t higher = SumOverBlocks(&shared.coarse[parity][kCoarseBins - 1 - 2 * lane], blocks);
  const uint32_t lower = SumOverBlocks(&shared.coarse[parity][kCoarseBins - 2 - 2 * lane], blocks);
  const uint32_t coarse_sum = InclusiveSum(higher + lower, lane);
  const int coarse_lane = __ffs(__ballot_sync(0xffffffffu, coarse_sum >= needed)) - 1;
  const uint32_t before = __shfl_sync(0xffffffffu, coarse_sum - higher - lower, coarse_lane);
  const uint32_t of_higher = __shfl_sync(0xffffffffu, higher, coarse_lane);
  const bool in_higher = needed <= before + of_higher;
  const int coarse = kCoarseBins - (in_higher ? 1 : 2) - 2 * coarse_lane;
  needed -= in_higher ? before : before + of_higher;

  const int bin = coarse * 32 + 31 - lane;
  const uint32_t count = SumOverBlocks(&shared.bins[parity][bin], blocks);
  const uint32_t sum = InclusiveSum(count, lane);
  const int found_lane = __ffs(__ballot_sync(0xffffffffu, sum >= needed)) - 1;
  digit = static_cast<uint32_t>(coarse * 32 + 31 - found_lane);
  needed_of_digit = needed - __shfl_sync(0xffffffffu, sum - count, found_lane);
  found = __shfl_sync(0xffffffffu, count, found_lane);
}

__global__ void __launch_bounds__(kThreads) TopKKernel(const TopKParams p) {
  TopKShared& shared = *reinterpret_cast<TopKShared*>(ptx::DynamicSharedMemory());
  uint32_t* keys = reinterpret_cast<uint32_t*>(ptx::DynamicSharedMemory() + (sizeof(TopKShared) + 15) / 16 * 16);
  const uint32_t blocks = ptx::ClusterSize(), rank = ptx::ClusterRank();
  const int64_t row = blockIdx.x / blocks;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int context = p.context_length[row];
  int32_t* indices = p.indices + row * p.indices_stride;
  const int first_place = static_cast<int>(rank) * kThreads + thread, places = kThreads * static_cast<int>(blocks);
  if (context <= p.width) {  // the same for the whole cluster
    for (int j = first_place; j < p.width; j += places) indices[j] = j < context ? j : -1;
    if (rank == 0 && thread == 0) p.nan_count[row] = 0;
    return;
  }
  for (int j = p.k + first_place; j < p.width; j += places) indices[j] = -1;

  // Slices of whole 128-byte lines, so that 16-byte loads stay aligned.
  const int slice = ((context + static_cast<int>(blocks) - 1) / static_cast<int>(blocks) + 31) / 32 * 32;
  const int begin = min(context, static_cast<int>(rank) * slice);
  const int count = min(context - begin, slice);
  const float* logits = p.logits + row * p.logits_stride + begin;
  const int num_resident = min(count, p.resident_keys);

  for (int i = thread; i < 2 * kBins; i += kThreads) shared.bins[0][i] = 0;  // both
  __syncthreads();

  // The first pass counts while it loads.
  uint32_t nans = 0;
  int counted = 0;
  if (p.rows_are_vectors) {
    const int num_vectors = count / 4;
    for (int first = thread; first < num_vectors; first += kThreads * kVectorsInFlight) {
      uint4 loaded[kVectorsInFlight];
#pragma unroll
      for (int u = 0; u < kVectorsInFlight; ++u) {
        const int v = first + u * kThreads;
        if (v < num_vectors) loaded[u] = ptx::LoadStream(logits + v * 4);
      }
#pragma unroll
      for (int u = 0; u < kVectorsInFlight; ++u) {
        const int v = first + u * kThreads;
        if (v >= num_vectors) break;
        const uint4 vector_keys = {KeyOf(__uint_as_float(loaded[u].x), nans), KeyOf(__uint_as_float(loaded[u].y), nans),
                                   KeyOf(__uint_as_float(loaded[u].z), nans),
                                   KeyOf(__uint_as_float(loaded[u].w), nans)};
        atomicAdd(&shared.bins[0][vector_keys.x >> 21], 1u);
        atomicAdd(&shared.bins[0][vector_keys.y >> 21], 1u);
        atomicAdd(&shared.bins[0][vector_keys.z >> 21], 1u);
        atomicAdd(&shared.bins[0][vector_keys.w >> 21], 1u);
        if (v * 4 < num_resident) *reinterpret_cast<uint4*>(keys + v * 4) = vector_keys;
      }
    }
    counted = num_vectors * 4;
  }
  for (int i = counted + thread; i < count; i += kThreads) {
    const uint32_t key = KeyOf(logits[i], nans);
    atomicAdd(&shared.bins[0][key >> 21], 1u);
    if (i < num_resident) keys[i] = key;
  }
  nans = __reduce_add_sync(0xffffffffu, nans);
  if (lane == 0) shared.warp_nans[warp] = nans;

  uint32_t ignored = 0;
  const auto key_at = [&](int i) { return i < num_resident ? keys[i] : KeyOf(logits[i], ignored); };

  // shift: of the digits known so far; the first `needed` keys at the threshold are taken.
  int shift = 21;
  uint32_t prefix = 0, needed = static_cast<uint32_t>(p.k);
  for (int pass = 0; pass < kPasses; ++pass) {
    const int parity = pass % 2;
    if (pass > 0) {
      const int next_shift = pass == 1 ? 10 : 0;
      const uint32_t mask = pass == 1 ? 0x7ffu : 0x3ffu;
#pragma unroll 4
      for (int i = thread; i < count; i += kThreads) {
        const uint32_t key = key_at(i);
        if (key >> shift == prefix) atomicAdd(&shared.bins[parity][key >> next_shift & mask], 1u);
      }
      shift = next_shift;
    }
    __syncthreads();
    for (int coarse = warp; coarse < kCoarseBins; coarse += kWarps) {
      const uint32_t sum = __reduce_add_sync(0xffffffffu, shared.bins[parity][coarse * 32 + lane]);
      if (lane == 0) shared.coarse[parity][coarse] = sum;
    }
    ptx::SynchronizeCluster();
    if (pass == 1) {  // nobody reads the first pass's counts any more
      for (int i = thread; i < kBins; i += kThreads) shared.bins[0][i] = 0;
    }
    if (warp == 0) {
      uint32_t digit, needed_of_digit, found;
      FindDigit(shared, parity, blocks, needed, lane, digit, needed_of_digit, found);
      if (lane == 0) {
        shared.prefix = prefix << (pass == 0 ? 0 : pass == 1 ? 11 : 10) | digit;
        shared.needed = needed_of_digit;
        shared.found = found;
      }
    }
    __syncthreads();
    prefix = shared.prefix;
    needed = shared.needed;
    if (shared.found == needed) break;  // all that have this prefix are taken, whatever their other digits
  }

  // Ranks by position: each warp a contiguous part of the slice, in steps of 32.
  const int part = ((count + kWarps - 1) / kWarps + 31) / 32 * 32;
  const int part_begin = min(count, warp * part), part_end = min(count, part_begin + part);
  uint32_t above = 0, at = 0;
  for (int first = part_begin; first < part_end; first += 32) {
    const int i = first + lane;
    const uint32_t top = i < part_end ? key_at(i) >> shift : 0;
    above += __popc(__ballot_sync(0xffffffffu, i < part_end && top > prefix));
    at += __popc(__ballot_sync(0xffffffffu, i < part_end && top == prefix));
  }
  if (lane == 0) {
    shared.warp_above[warp] = above;
    shared.warp_at[warp] = at;
  }
  __syncthreads();
  if (warp == 0) {
    const uint32_t block_above = __reduce_add_sync(0xffffffffu, lane < kWarps ? shared.warp_above[lane] : 0);
    const uint32_t block_at = __reduce_add_sync(0xffffffffu, lane < kWarps ? shared.warp_at[lane] : 0);
    const uint32_t block_nans = __reduce_add_sync(0xffffffffu, lane < kWarps ? shared.warp_nans[lane] : 0);
    if (lane == 0) {
      shared.above = block_above;
      shared.at = block_at;
      shared.nans = block_nans;
    }
  }
  ptx::SynchronizeCluster();
  // What lies before this warp's part: blocks of lower rank, then warps of lower number.
  uint32_t above_before = 0, at_before = 0;
  if (static_cast<uint32_t>(lane) < rank) {
    above_before = ptx::LoadRemote(&shared.above, lane);
    at_before = ptx::LoadRemote(&shared.at, lane);
  }
  if (lane < warp) {
    above_before += shared.warp_above[lane];
    at_before += shared.warp_at[lane];
  }
  above_before = __reduce_add_sync(0xffffffffu, above_before);
  at_before = __reduce_add_sync(0xffffffffu, at_before);
  if (rank == 0 && warp == 0) {
    uint32_t row_nans = static_cast<uint32_t>(lane) < blocks ? ptx::LoadRemote(&shared.nans, lane) : 0;
    row_nans = __reduce_add_sync(0xffffffffu, row_nans);
    if (lane == 0) p.nan_count[row] = static_cast<int32_t>(row_nans);
  }

  const uint32_t lanes_below = (1u << lane) - 1;
  uint32_t out = above_before + min(at_before, needed);
  if (above != 0 || (at != 0 && at_before < needed)) {
    for (int first = part_begin; first < part_end; first += 32) {
      const int i = first + lane;
      const uint32_t top = i < part_end ? key_at(i) >> shift : 0;
      const bool is_at = i < part_end && top == prefix;
      const uint32_t at_lanes = __ballot_sync(0xffffffffu, is_at);
      const bool is_taken =
          (i < part_end && top > prefix) || (is_at && at_before + __popc(at_lanes & lanes_below) < needed);
      const uint32_t taken_lanes = __ballot_sync(0xffffffffu, is_taken);
      if (is_taken) indices[out + __popc(taken_lanes & lanes_below)] = begin + i;
      out += __popc(taken_lanes);
      at_before += __popc(at_lanes);
    }
  }
  ptx::SynchronizeCluster();  // no block ends while another reads its shared memory
}

// A speed choice alone. Slices of at most 16K keys (64 KB) let three blocks share a multiprocessor; few rows are cut
// finer, so that more multiprocessors load.
int BlocksOfRow(int64_t num_rows, int64_t width) {
  int blocks = 1;
  while (blocks < kMaxBlocksOfRow && width > int64_t{16384} * blocks) blocks *= 2;
  while (blocks < kMaxBlocksOfRow && num_rows * blocks < 128 && width > int64_t{4096} * blocks) blocks *= 2;
  return blocks;
}

}  // namespace

absl::Status TopK(Stream stream, const TopKArgs& args) {
  const int64_t num_rows = args.indices.shape[0], list_width = args.indices.shape[1], width = args.logits.shape[1];
  const int64_t k = args.k == 0 ? list_width : args.k;
  OpBorder border("TopK");
  border.Require(list_width >= 1, "indices' width", list_width, "at least 1")
      .Require(list_width <= INT32_MAX, "indices' width", list_width, "at most 2^31 - 1")
      .Require(k >= 1 && k <= list_width, "k", k, "1 to indices' width")
      .Shape("logits", args.logits, {num_rows, width})
      .Shape("context_length", args.context_length, {num_rows})
      .Shape("indices", args.indices, {num_rows, list_width})
      .Shape("nan_count", args.nan_count, {num_rows});
  if (!border.ok()) return border.status();
  if (num_rows == 0) return absl::OkStatus();

  const int blocks = BlocksOfRow(num_rows, width);
  const int64_t slice = ((width + blocks - 1) / blocks + 31) / 32 * 32;
  const int resident_keys = static_cast<int>(std::min<int64_t>(slice, kMaxResidentKeys));
  const TopKParams params = {
      .logits = args.logits.data,
      .logits_stride = args.logits.strides[0],
      .context_length = args.context_length.data,
      .indices = args.indices.data,
      .indices_stride = args.indices.strides[0],
      .nan_count = args.nan_count.data,
      .k = static_cast<int>(k),
      .width = static_cast<int>(list_width),
      .resident_keys = resident_keys,
      .rows_are_vectors = reinterpret_cast<uintptr_t>(args.logits.data) % 16 == 0 && args.logits.strides[0] % 4 == 0,
  };
  const size_t shared_bytes = (sizeof(TopKShared) + 15) / 16 * 16 + resident_keys * sizeof(uint32_t);
  cudaError_t error =
      cudaFuncSetAttribute(TopKKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
  if (error != cudaSuccess) return CudaStatus(error, "TopK: shared memory");
  cudaLaunchAttribute cluster = {};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = static_cast<unsigned>(blocks);
  cluster.val.clusterDim.y = 1;
  cluster.val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(num_rows * blocks));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &cluster;
  config.numAttrs = 1;
  return CudaStatus(cudaLaunchKernelEx(&config, TopKKernel, params), "TopK");
}

}  // namespace tandem::kernels::cuda
