// SparseMla for few rows: a cluster of eight blocks for 16 or 32 heads of a row, so that a decode of one sequence uses
// the device and not two of its multiprocessors. The bits are those of sparse_mla.cu.
//
// Nothing of the sum is split; what is spread is what no sum runs over:
//   scores    the list's blocks of 64 entries go round the cluster (block b to rank b % 8): S = Q K^T, and the largest
//             score of each block and head;
//   weights   once the maxima of all blocks are known (through the cluster's shared memory), each block's place in the
//             online softmax is, too: P = 2^(S - maximum up to this block), and its sum;
//   values    rank r has the output's columns 64r .. 64r + 63 for all blocks in the list's order, with the weights of
//             all ranks: O = O * c + P V, the entries' 64 columns read again (from L2).
// Two warpgroups load, a third computes. A warpgroup's product has 64 rows, of which 16 or 32 are heads.
//
// Cost of a block with 2048 entries: reads 4 x 64 whole records and 64 columns of all, 300 KB in FP8, mostly from L2,
// and 64 KB of weights from other blocks (16 heads). Shared memory: 225,000 bytes. Tested by sparse_mla_device_test.cc
// (rows alone against batches); measured in docs/kernels/sparse_mla.md.
#include <cuda_runtime.h>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/ptx_attention.cuh"
#include "kernels/cuda/sparse_mla.cuh"
#include "kernels/cuda/sparse_mla_loader.cuh"
#include "kvcache/kv_layout.h"

namespace tandem::kernels::cuda {
namespace {

constexpr int kThreads = 3 * 128;
constexpr int kRanks = 8;  // blocks of a cluster; each has as many columns of the output as a tile
constexpr int kMaxBlocks = 32;
constexpr int kMaxOwnBlocks = kMaxBlocks / kRanks;
constexpr int kMaxHeads = 32;   // of a cluster
constexpr int kValueGroup = 4;  // blocks whose values are handed over at once
static_assert(kRanks * 64 == kvcache::kLatentDim);

struct FewRowsShared {
  union {
    struct {
      uint8_t q[kSubtiles * kTileBytes];
      uint8_t entries[2][kSubtiles * kTileBytes];
    } score;
    struct {
      // Block b's weights, heads x 128 bytes each. A product reads 64 rows, some of them of other blocks and of
      // `values`: rows of its result that nobody looks at.
      uint8_t weights[kMaxBlocks * kMaxHeads * 128];
      uint8_t values[2][kValueGroup][kTileBytes];
    } attend;
  };
  uint32_t maxima[kMaxBlocks * kMaxHeads];  // bits of floats, [block][head of the cluster]
  uint32_t sums[kMaxBlocks * kMaxHeads];
  int warp_counts[kThreads / 32];
};
static_assert(sizeof(FewRowsShared) <= 232448);

// Named barriers; + 1 for the second tile or group.
enum : int { kFull = 1, kEmpty = 3, kValuesFull = 5, kValuesEmpty = 7, kComputeMeet = 9 };

// Fetches what other blocks have at the same place: items of parts of part_items each, part b from rank b % kRanks.
template <typename Item>
__device__ __forceinline__ void Fetch(Item* items, int num_parts, int part_items, int rank, int thread) {
  constexpr int kAtOnce = 8;
  const int end = num_parts * part_items;
  for (int begin = thread; begin < end; begin += 128 * kAtOnce) {
    Item fetched[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int i = begin + u * 128;
      if (i < end) fetched[u] = ptx::LoadRemoteAsIs(items + i, i / part_items % kRanks);
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int i = begin + u * 128;
      if (i < end && i / part_items % kRanks != rank) items[i] = fetched[u];
    }
  }
}

// The columns of one rank: groups of kValueGroup blocks; of each group this warpgroup (loader 0 or 1) brings two.
template <bool kIsBf16>
class ValueLoader {
 public:
  __device__ ValueLoader(const SparseMlaParams& p, const int32_t* table, const int32_t* list, int count,
                         int column_tile, int loader, int thread)
      : p_(p),
        table_(table),
        list_(list),
        count_(count),
        column_tile_(column_tile),
        loader_(loader),
        lane_(thread % 32),
        warp_(thread / 32) {}

  __device__ __forceinline__ void Run(FewRowsShared& shared) const {
    const int num_groups = (count_ + kValueGroup * kEntryBlock - 1) / (kValueGroup * kEntryBlock);
    Entries under_way[2];
    Load(RecordFor(PositionFor(0)), under_way[0]);
    Load(RecordFor(PositionFor(1)), under_way[1]);
    uint32_t next_record = RecordFor(PositionFor(2));
    int32_t next_position = PositionFor(3);  // loads that depend on each other are issued a group apart
    for (int first = 0; first < num_groups; first += 2) {
#pragma unroll
      for (int parity = 0; parity < 2; ++parity) {
        const int group = first + parity;
        if (group >= num_groups) break;
        if (group >= 2) ptx::SynchronizeSome(kValuesEmpty + parity, kThreads);
        Store(under_way[parity], shared.attend.values[parity][2 * loader_ + warp_ / 2]);
        Load(next_record, under_way[parity]);
        next_record = RecordFor(next_position);
        next_position = PositionFor(group + 4);
        ptx::ArriveAtSome(kValuesFull + parity, kThreads);
      }
    }
  }

 private:
  static constexpr auto kDtype = kIsBf16 ? kvcache::KvCacheDtype::kBfloat16 : kvcache::KvCacheDtype::kFp8E4m3;
  static constexpr int kRecordBytes = kvcache::LatentRecordBytes(kDtype);
  static constexpr int kChunks = kIsBf16 ? 8 : 4;  // of an entry's 64 columns: 16 bytes each
  static constexpr int kEntriesOfLoad = 32 / kChunks;

  struct Entries {
    uint4 chunk[kChunks];
    float scale[kIsBf16 ? 1 : kChunks];
  };

  // Of the entry that this lane stands for: a warp has 32 of the loader's 128. -1 beyond the list.
  __device__ __forceinline__ int32_t PositionFor(int group) const {
    const int entry = (group * kValueGroup + 2 * loader_) * kEntryBlock + warp_ * 32 + lane_;
    return entry < count_ ? list_[entry] : -1;
  }
  __device__ __forceinline__ uint32_t RecordFor(int32_t position) const {
    return position >= 0 ? RecordOf(table_, position) : kNoRecord;
  }
  __device__ __forceinline__ void Load(uint32_t records, Entries& to) const {
#pragma unroll
    for (int u = 0; u < kChunks; ++u) {
      const uint32_t record = __shfl_sync(0xffffffffu, records, u * kEntriesOfLoad + lane_ / kChunks);
      to.chunk[u] = {0, 0, 0, 0};
      if constexpr (!kIsBf16) to.scale[u] = 1.0f;
      if (record == kNoRecord) continue;
      const uint8_t* from = RecordAt<kRecordBytes>(p_.pages, p_.page_stride, record);
      to.chunk[u] = ptx::LoadStream(from + column_tile_ * (kIsBf16 ? 128 : 64) + lane_ % kChunks * 16);
      if constexpr (!kIsBf16) {
        to.scale[u] = __ldg(reinterpret_cast<const float*>(from + kvcache::kLatentScaleOffset) + column_tile_ / 2);
      }
    }
  }
  __device__ __forceinline__ void Store(const Entries& from, uint8_t* tile) const {
#pragma unroll
    for (int u = 0; u < kChunks; ++u) {
      const int row = warp_ % 2 * 32 + u * kEntriesOfLoad + lane_ / kChunks;
      if constexpr (kIsBf16) {
        *reinterpret_cast<uint4*>(tile + ptx::SwizzledOffset(row, lane_ % 8)) = from.chunk[u];
      } else {
        uint4 chunks[2];
        Dequantize(from.chunk[u], from.scale[u], chunks);
        *reinterpret_cast<uint4*>(tile + ptx::SwizzledOffset(row, lane_ % 4 * 2)) = chunks[0];
        *reinterpret_cast<uint4*>(tile + ptx::SwizzledOffset(row, lane_ % 4 * 2 + 1)) = chunks[1];
      }
    }
  }

  const SparseMlaParams& p_;
  const int32_t* table_;
  const int32_t* list_;
  int count_, column_tile_, loader_, lane_, warp_;
};

// head_rows: heads of a cluster, 16 or 32; num_heads of them exist.
__device__ __forceinline__ void Compute(const SparseMlaParams& p, int64_t row, int first_head, int num_heads,
                                        int head_rows, int count, int rank, int thread, FewRowsShared& shared) {
  const int lane = thread % 32, g = thread / 32 * 16 + lane / 4, c = lane % 4;
  const bool has_heads = thread / 32 * 16 < head_rows;  // this warp's rows of products are heads
  const int num_blocks = (count + kEntryBlock - 1) / kEntryBlock;
  const int num_own = (num_blocks - rank + kRanks - 1) / kRanks;
  LoadQueries<128>(p, row, first_head, num_heads, thread, shared.score.q);
  ptx::SynchronizeSome(kComputeMeet, 128);

  float s[kMaxOwnBlocks][32];
#pragma unroll
  for (int i = 0; i < kMaxOwnBlocks; ++i) {
    if (i >= num_own) break;
    const int block = rank + i * kRanks;
    ptx::SynchronizeSome(kFull + i % 2, 256);
    ptx::FenceAsyncProxy();
    Score(shared.score.q, shared.score.entries[i % 2], p.scale_log2, count - block * kEntryBlock, lane, s[i]);
    if (i + 2 < num_own) ptx::ArriveAtSome(kEmpty + i % 2, 256);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float largest = LargestScore(s[i], half);
      if (has_heads && c == 0) shared.maxima[block * head_rows + g + 8 * half] = __float_as_uint(largest);
    }
  }
  ptx::SynchronizeCluster();
  Fetch(shared.maxima, num_blocks, head_rows, rank, thread);
  ptx::SynchronizeSome(kComputeMeet, 128);

  if (has_heads) {
    SoftmaxState softmax[2];
    int block = 0;
#pragma unroll
    for (int i = 0; i < kMaxOwnBlocks; ++i) {
      if (i >= num_own) break;
      const int own = rank + i * kRanks;
      for (; block <= own; ++block) {
        softmax[0].Raise(__uint_as_float(shared.maxima[block * head_rows + g]));
        softmax[1].Raise(__uint_as_float(shared.maxima[block * head_rows + g + 8]));
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float sum = Weigh(s[i], half, softmax[half].maximum);
        if (c == 0) shared.sums[own * head_rows + g + 8 * half] = __float_as_uint(sum);
      }
      uint32_t weights[4][4];
      PackWeights(s[i], weights);
      StoreWeights(weights, g, c, shared.attend.weights + own * head_rows * 128);
    }
  }
  ptx::SynchronizeCluster();
  Fetch(shared.sums, num_blocks, head_rows, rank, thread);
  Fetch(reinterpret_cast<uint4*>(shared.attend.weights), num_blocks, head_rows * 8, rank, thread);
  ptx::SynchronizeSome(kComputeMeet, 128);
  ptx::FenceAsyncProxy();

  float o[32];
#pragma unroll
  for (int i = 0; i < 32; ++i) o[i] = 0;
  SoftmaxState softmax[2];
  const int num_groups = (num_blocks + kValueGroup - 1) / kValueGroup;
  for (int block = 0; block < num_blocks; ++block) {
    const int group = block / kValueGroup, of_group = block % kValueGroup;
    if (of_group == 0) {
      ptx::SynchronizeSome(kValuesFull + group % 2, kThreads);
      ptx::FenceAsyncProxy();
    }
    if (has_heads) {
      float correction[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        correction[half] = softmax[half].Raise(__uint_as_float(shared.maxima[block * head_rows + g + 8 * half]));
        softmax[half].Add(correction[half], __uint_as_float(shared.sums[block * head_rows + g + 8 * half]));
      }
      Rescale(o, correction[0], correction[1]);
    }
    const uint64_t weights = ptx::TileDescriptor(shared.attend.weights + block * head_rows * 128, 16, 1024);
    const uint64_t values = ptx::TileDescriptor(shared.attend.values[group % 2][of_group], kTileBytes, 1024);
    wgmma::Touch(o);
    wgmma::Fence();
#pragma unroll
    for (int step = 0; step < 4; ++step) wgmma::MultiplyAcross64(o, weights + step * 2, values + step * 128, true);
    wgmma::Commit();
    wgmma::Wait<0>();
    wgmma::Touch(o);
    if (of_group == kValueGroup - 1 && group + 2 < num_groups) {
      ptx::ArriveAtSome(kValuesEmpty + group % 2, kThreads);
    }
  }
  if (has_heads) {
    StoreOutput(p, row, first_head, first_head + num_heads, rank * 64, g, c, o, softmax[0].sum, softmax[1].sum);
  }
  ptx::SynchronizeCluster();  // no block ends while another reads its shared memory
}

template <bool kIsBf16>
__device__ __forceinline__ void Load(const SparseMlaParams& p, int64_t row, const int32_t* list, int count, int rank,
                                     int loader, int thread, FewRowsShared& shared) {
  const int32_t* table = p.page_tables + p.sequence[row] * p.page_tables_stride;
  const RecordLoader<kIsBf16> records(p.pages, p.page_stride, table, list, count, rank + loader * kRanks, 2 * kRanks,
                                      thread);
  records.Run(
      [&](int i) {
        if (i >= 1) ptx::SynchronizeSome(kEmpty + loader, 256);
      },
      [&](int) { return shared.score.entries[loader]; }, [&](int) { ptx::ArriveAtSome(kFull + loader, 256); });
  ptx::SynchronizeCluster();  // all scores are done: the tiles may be written over
  ptx::ArriveAtCluster();     // that the weights are done: not ours to wait for
  const ValueLoader<kIsBf16> values(p, table, list, count, rank, loader, thread);
  values.Run(shared);
  ptx::WaitForCluster();
  ptx::SynchronizeCluster();
}

template <bool kIsBf16>
__global__ void __launch_bounds__(kThreads, 1) FewRowsKernel(const SparseMlaParams p) {
  FewRowsShared& shared = *reinterpret_cast<FewRowsShared*>(ptx::DynamicSharedMemory());
  const int rank = static_cast<int>(ptx::ClusterRank());
  const int cluster = static_cast<int>(blockIdx.x) / kRanks;
  const int64_t row = cluster / p.head_tiles;
  const int first_head = cluster % p.head_tiles * p.head_rows;
  const int num_heads = min(p.head_rows, p.num_heads - first_head);
  const int32_t* list = p.indices + row * p.indices_stride;
  const int thread = static_cast<int>(threadIdx.x);
  ptx::LaunchDependents();
  const int count = CountEntries<kThreads>(list, p.k, thread, shared.warp_counts);
  if (count == 0) {
    for (int i = thread; i < num_heads * 64; i += kThreads) {
      p.out[row * p.out_row_stride + (first_head + i / 64) * p.out_head_stride + rank * 64 + i % 64] = 0;
    }
    return;
  }
  if (thread < 256) {
    ptx::LowerRegisters<120>();
    Load<kIsBf16>(p, row, list, count, rank, thread / 128, thread % 128, shared);
  } else {
    ptx::RaiseRegisters<240>();
    Compute(p, row, first_head, num_heads, p.head_rows, count, rank, thread % 128, shared);
  }
}

// A speed choice alone.
int HeadRows(int64_t num_rows, int num_heads) { return num_rows * ((num_heads + 15) / 16) <= 16 ? 16 : 32; }

}  // namespace

bool IsForFewRows(const SparseMlaParams& params, int64_t num_rows) {
  return params.k <= kMaxBlocks * kEntryBlock && num_rows * ((params.num_heads + 31) / 32) <= 32;
}

absl::Status SparseMlaOfFewRows(Stream stream, const SparseMlaParams& params, bool is_bf16, int64_t num_rows) {
  SparseMlaParams p = params;
  p.head_rows = HeadRows(num_rows, p.num_heads);
  p.head_tiles = (p.num_heads + p.head_rows - 1) / p.head_rows;
  const auto kernel = is_bf16 ? FewRowsKernel<true> : FewRowsKernel<false>;
  constexpr int kSharedBytes = sizeof(FewRowsShared);
  const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (error != cudaSuccess) return CudaStatus(error, "SparseMla: shared memory");
  cudaLaunchAttribute cluster = {};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = kRanks;
  cluster.val.clusterDim.y = 1;
  cluster.val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(num_rows * p.head_tiles * kRanks));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = kSharedBytes;
  config.stream = stream;
  config.attrs = &cluster;
  config.numAttrs = 1;
  return CudaStatus(cudaLaunchKernelEx(&config, kernel, p), "SparseMla");
}

}  // namespace tandem::kernels::cuda
