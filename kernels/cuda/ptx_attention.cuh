// What the indexer, top-k and attention need of PTX beyond ptx.cuh and wgmma.cuh: the layout of tiles, words of a
// cluster's other blocks, arithmetic. One instruction a function. For .cu files only.
#pragma once

#include <cstdint>

#include "kernels/cuda/ptx.cuh"

namespace tandem::kernels::cuda::ptx {

// ---- Shared memory --------------------------------------------------------------------------------------------------

__device__ __forceinline__ uint8_t* DynamicSharedMemory() {
  extern __shared__ __align__(1024) uint8_t shared_memory[];
  return shared_memory;
}

// Tiles for products have rows of 128 bytes in groups of 8 rows, each group aligned to 1024; the 16-byte chunks
// of row r are permuted by r % 8 (the "128-byte swizzle").
__device__ __forceinline__ uint32_t SwizzledOffset(uint32_t row, uint32_t chunk) {
  return row * 128 + ((chunk ^ (row & 7)) << 4);
}

// The descriptor of such a tile. Where the product's K axis runs along rows: stride_bytes from 8 rows to the next 8
// (leading_bytes is not looked at). Where the other axis does (64 elements of 2 bytes a row): stride_bytes from 8 K to
// the next 8, leading_bytes from 64 columns to the next 64. A tile further on is the descriptor plus bytes / 16.
__device__ __forceinline__ uint64_t TileDescriptor(const void* tile, uint32_t leading_bytes, uint32_t stride_bytes) {
  return static_cast<uint64_t>((SharedAddress(tile) & 0x3ffff) >> 4) | static_cast<uint64_t>(leading_bytes >> 4) << 16 |
         static_cast<uint64_t>(stride_bytes >> 4) << 32 | uint64_t{1} << 62;
}

// ---- Clusters -------------------------------------------------------------------------------------------------------

__device__ __forceinline__ uint32_t ClusterRank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;\n" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ uint32_t ClusterSize() {
  uint32_t size;
  asm volatile("mov.u32 %0, %%cluster_nctarank;\n" : "=r"(size));
  return size;
}
// The word that stands at this place of block `rank`'s shared memory.
__device__ __forceinline__ uint32_t LoadRemote(const uint32_t* word, uint32_t rank) {
  uint32_t value;
  asm volatile(
      "{\n.reg .b32 address;\nmapa.shared::cluster.u32 address, %1, %2;\nld.shared::cluster.u32 %0, [address];\n}\n"
      : "=r"(value)
      : "r"(SharedAddress(word)), "r"(rank)
      : "memory");
  return value;
}
// The same, but several may be under way: what they read must have been there since the cluster's last barrier.
__device__ __forceinline__ uint32_t LoadRemoteAsIs(const uint32_t* word, uint32_t rank) {
  uint32_t value;
  asm volatile(
      "{\n.reg .b32 address;\nmapa.shared::cluster.u32 address, %1, %2;\nld.shared::cluster.u32 %0, [address];\n}\n"
      : "=r"(value)
      : "r"(SharedAddress(word)), "r"(rank));
  return value;
}
__device__ __forceinline__ uint4 LoadRemoteAsIs(const uint4* chunk, uint32_t rank) {
  uint4 v;
  asm volatile(
      "{\n.reg .b32 address;\nmapa.shared::cluster.u32 address, %4, %5;\n"
      "ld.shared::cluster.v4.u32 {%0, %1, %2, %3}, [address];\n}\n"
      : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
      : "r"(SharedAddress(chunk)), "r"(rank));
  return v;
}

// ---- Arithmetic -----------------------------------------------------------------------------------------------------

// max(x, 0), NaN where x is NaN.
__device__ __forceinline__ float ReluKeepingNan(float x) {
  float y;
  asm("max.NaN.f32 %0, %1, 0f00000000;\n" : "=f"(y) : "f"(x));
  return y;
}
// 2^x; subnormal results are zero.
__device__ __forceinline__ float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}
// Two BF16 values, nearest even; low in the lower half.
__device__ __forceinline__ uint32_t PackBf16(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;\n" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}
__device__ __forceinline__ uint32_t MultiplyBf16x2(uint32_t a, uint32_t b) {
  uint32_t product;
  asm("mul.rn.bf16x2 %0, %1, %2;\n" : "=r"(product) : "r"(a), "r"(b));
  return product;
}
__device__ __forceinline__ uint32_t BytePermute(uint32_t a, uint32_t b, uint32_t selector) {
  return __byte_perm(a, b, selector);
}

// ---- Loads ----------------------------------------------------------------------------------------------------------

// 16 bytes that are read once and never written by this kernel.
__device__ __forceinline__ uint4 LoadStream(const void* pointer) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(pointer));
  return v;
}

}  // namespace tandem::kernels::cuda::ptx
