#include <cuda_runtime.h>

#include "kernels/cuda/device_limits.h"
#include "kernels/cuda/device_random.cuh"
#include "kernels/cuda/launch.h"

namespace tandem::kernels::cuda {
namespace {

constexpr int kTileBytes = 128;  // of a row: 64 BF16 or 128 FP8 values
constexpr int kRowsOfA = 64;     // of each warpgroup
constexpr int kRowsOfB = 256;
constexpr int kWarpgroups = 2;
constexpr int kSharedBytes = (kWarpgroups * kRowsOfA + kRowsOfB) * kTileBytes;
constexpr int kStepsOfTile = kTileBytes / 32;  // one wgmma takes 32 bytes of each row
constexpr int kTilesOfRound = 2;
constexpr int kRounds = 256;

__global__ void __launch_bounds__(1024) ReadKernel(const uint4* data, int64_t count, uint32_t* never) {
  uint32_t bits = 0;
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += 4 * stride) {
    uint4 values[4];
#pragma unroll
    for (int u = 0; u < 4; ++u) values[u] = i + u * stride < count ? __ldcs(data + i + u * stride) : uint4{};
#pragma unroll
    for (int u = 0; u < 4; ++u) bits ^= values[u].x ^ values[u].y ^ values[u].z ^ values[u].w;
  }
  // The data are random: no thread's bits are all ones but by chance, and then the write does no harm.
  if (bits == 0xffffffffu) *never = bits;
}

__global__ void CopyKernel(const uint4* from, uint4* to) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  __stcs(to + i, __ldcs(from + i));
}

__global__ void EmptyKernel() {}

// Rows of 128 bytes in the layout with 128-byte swizzle: groups of eight rows are 1 KB apart.
__device__ uint64_t Descriptor(const void* tile) {
  const uint64_t address = static_cast<uint64_t>(__cvta_generic_to_shared(tile));
  return ((address & 0x3ffffu) >> 4) | (uint64_t{1} << 16) | (uint64_t{64} << 32) | (uint64_t{1} << 62);
}

#define TANDEM_WGMMA_REGISTERS                                                                   \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                       \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "             \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "             \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "             \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "             \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "             \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define TANDEM_WGMMA_OPERANDS                                                                                         \
  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),         \
      "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),          \
      "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),         \
      "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]),         \
      "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]),         \
      "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]),         \
      "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]),         \
      "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]), "+f"(d[64]),         \
      "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]), "+f"(d[72]),         \
      "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79]), "+f"(d[80]),         \
      "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]), "+f"(d[88]),         \
      "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95]), "+f"(d[96]),         \
      "+f"(d[97]), "+f"(d[98]), "+f"(d[99]), "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103]), "+f"(d[104]),    \
      "+f"(d[105]), "+f"(d[106]), "+f"(d[107]), "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111]), "+f"(d[112]), \
      "+f"(d[113]), "+f"(d[114]), "+f"(d[115]), "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119]), "+f"(d[120]), \
      "+f"(d[121]), "+f"(d[122]), "+f"(d[123]), "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])

template <bool kIsFp8>
__device__ __forceinline__ void Wgmma(float (&d)[128], uint64_t a, uint64_t b) {
  if constexpr (kIsFp8) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3 {" TANDEM_WGMMA_REGISTERS
                 "}, %128, %129, 1, 1, 1;"
                 : TANDEM_WGMMA_OPERANDS
                 : "l"(a), "l"(b));
  } else {
    asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" TANDEM_WGMMA_REGISTERS
                 "}, %128, %129, 1, 1, 1, 0, 0;"
                 : TANDEM_WGMMA_OPERANDS
                 : "l"(a), "l"(b));
  }
}

// 128 accumulators a thread of 64 x 256 floats, in registers.
template <bool kIsFp8>
__global__ void __launch_bounds__(kWarpgroups * 128, 1) TensorKernel(float* never) {
  extern __shared__ __align__(1024) uint8_t tiles[];
  for (int i = threadIdx.x; i < kSharedBytes; i += blockDim.x) {
    // Exponents near one, random signs and mantissas. BF16: its high byte is every second one.
    const auto bits = static_cast<uint8_t>(RandomBits(blockIdx.x, i) >> 56);
    tiles[i] = kIsFp8 ? (bits & 0x9fu) | 0x20u : i % 2 == 0 ? bits : (bits & 0x80u) | 0x3fu;
  }
  __syncthreads();
  asm volatile("fence.proxy.async;" ::: "memory");
  const uint64_t a = Descriptor(tiles + threadIdx.x / 128 * kRowsOfA * kTileBytes);
  const uint64_t b = Descriptor(tiles + kWarpgroups * kRowsOfA * kTileBytes);
  float d[128];
#pragma unroll
  for (int i = 0; i < 128; ++i) d[i] = 0;
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  for (int round = 0; round < kRounds; ++round) {
#pragma unroll
    for (int step = 0; step < kTilesOfRound * kStepsOfTile; ++step) {
      const uint64_t begin = step % kStepsOfTile * 2;  // in units of 16 bytes
      Wgmma<kIsFp8>(d, a + begin, b + begin);
    }
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  }
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 128; ++i) sum += d[i];
  if (sum == 0x1p100f) *never = sum;
}

int NumMultiprocessors() {
  int device = 0, count = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  return count;
}

}  // namespace

absl::Status LimitRead(Stream stream, const void* data, int64_t num_bytes) {
  ReadKernel<<<2 * NumMultiprocessors(), 1024, 0, stream>>>(static_cast<const uint4*>(data), num_bytes / 16,
                                                            static_cast<uint32_t*>(const_cast<void*>(data)));
  return LaunchStatus("LimitRead");
}

absl::Status LimitCopy(Stream stream, const void* from, void* to, int64_t num_bytes) {
  CopyKernel<<<num_bytes / 16 / 128, 128, 0, stream>>>(static_cast<const uint4*>(from), static_cast<uint4*>(to));
  return LaunchStatus("LimitCopy");
}

absl::Status LimitEmpty(Stream stream) {
  EmptyKernel<<<1, 32, 0, stream>>>();
  return LaunchStatus("LimitEmpty");
}

absl::Status LimitTensor(Stream stream, bool is_fp8) {
  if (is_fp8) {
    TensorKernel<true><<<NumMultiprocessors(), kWarpgroups * 128, kSharedBytes, stream>>>(nullptr);
  } else {
    TensorKernel<false><<<NumMultiprocessors(), kWarpgroups * 128, kSharedBytes, stream>>>(nullptr);
  }
  return LaunchStatus("LimitTensor");
}

double LimitTensorFlops(bool is_fp8) {
  const double flops_of_wgmma = 2.0 * kRowsOfA * kRowsOfB * (is_fp8 ? 32 : 16);
  return flops_of_wgmma * kStepsOfTile * kTilesOfRound * kRounds * kWarpgroups * NumMultiprocessors();
}

}  // namespace tandem::kernels::cuda
