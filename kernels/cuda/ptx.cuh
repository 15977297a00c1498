// Instructions that CUDA C++ has no function for: thin wrappers, one instruction each, named after what they do. The
// words are those of the PTX manual. For .cu files only.
#pragma once

#include <cstdint>

namespace tandem::kernels::cuda::ptx {

// The address that instructions on shared memory take.
__device__ inline uint32_t SharedAddress(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// ---- Asynchronous copies of single threads --------------------------------------------------------------------------

// 16 bytes from global memory, past the first-level cache; zeros where !is_read (`from` must be an address all the
// same).
__device__ inline void CopyAsync16(uint32_t to, const void* from, bool is_read) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(is_read ? 16 : 0) : "memory");
}
__device__ inline void CopyAsync4(uint32_t to, const void* from, bool is_read) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(is_read ? 4 : 0) : "memory");
}
__device__ inline void CommitCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until at most kPending of this thread's groups are on their way.
template <int kPending>
__device__ inline void WaitForCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// ---- Warp-wide matrix instructions ----------------------------------------------------------------------------------

// Four 8 x 8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix l / 8.
__device__ inline void LoadMatrices(uint32_t address, uint32_t (&out)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(address)
               : "memory");
}
__device__ inline void LoadMatricesTransposed(uint32_t address, uint32_t (&out)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(address)
               : "memory");
}
// sums += a b for BF16: [16, 16] x [16, 8].
__device__ inline void MultiplyBf16(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// ---- Barriers in shared memory --------------------------------------------------------------------------------------

__device__ inline void InitBarrier(uint32_t barrier, int num_arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(num_arrivals) : "memory");
}
// After InitBarrier, before other threads and the copy engine use the barriers; a block's barrier belongs between.
__device__ inline void PublishBarriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ inline void Arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Arrives, and lets the phase wait for so many bytes more.
__device__ inline void ArriveExpectingBytes(uint32_t barrier, uint32_t num_bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(num_bytes) : "memory");
}
// Arrives when all copies that this thread has begun with CopyAsync are done.
__device__ inline void ArriveAfterCopies(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
// Until the phase of this parity (0 for the first) has ended.
__device__ inline void WaitForPhase(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// ---- Copies by the copy engine --------------------------------------------------------------------------------------

// A box of a tensor of rank 3, from coordinates (x innermost); arrives at barrier with its bytes. map: CUtensorMap, a
// __grid_constant__ parameter.
__device__ inline void CopyBox(uint32_t to, const void* map, int x, int y, int z, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::
          "r"(to),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier)
      : "memory");
}
// The same into every block of the cluster that `blocks` has a bit for, at the same places.
__device__ inline void CopyBoxToBlocks(uint32_t to, const void* map, int x, int y, int z, uint32_t barrier,
                                       uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
      "[%1, {%2, %3, %4}], [%5], %6;" ::"r"(to),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier), "h"(blocks)
      : "memory");
}
__device__ inline void PrefetchMap(const void* map) { asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory"); }
// What this thread saw written to shared memory by others' loads and stores is there for wgmma and the copy engine.
__device__ inline void FenceAsyncProxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// ---- Clusters -------------------------------------------------------------------------------------------------------

// All threads of all blocks of the cluster; what they wrote before is seen after.
__device__ inline void SynchronizeCluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// The two halves of SynchronizeCluster.
__device__ inline void ArriveAtCluster() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
__device__ inline void WaitForCluster() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
// Of `num_threads` threads, whole warps, of a block; number 0 is __syncthreads.
__device__ inline void SynchronizeSome(int number, int num_threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(num_threads) : "memory");
}
// Is one of them, and does not wait.
__device__ inline void ArriveAtSome(int number, int num_threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(num_threads) : "memory");
}
// At the same place in the shared memory of the cluster's block `rank`. Publishes nothing that this thread wrote: a
// release to the cluster costs a barrier of the whole device's memory.
__device__ inline void ArriveAtBlock(uint32_t barrier, int rank) {
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [remote];\n"
      "}" ::"r"(barrier),
      "r"(rank)
      : "memory");
}
// A float at the same place in the shared memory of the cluster's block `rank`.
__device__ inline float LoadFromBlock(uint32_t address, int rank) {
  uint32_t remote;
  float value;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(remote) : "memory");
  return value;
}

// ---- Grids ----------------------------------------------------------------------------------------------------------

// The next grid of the stream may start, if launched so; it still waits for this one's results where it says so.
__device__ inline void LaunchDependents() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
// Until the grids that this one depends on have ended and their writes are seen.
__device__ inline void WaitForGrids() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// ---- Registers ------------------------------------------------------------------------------------------------------

// Of every thread of the warpgroup; counts are multiples of 8.
template <int kCount>
__device__ inline void RaiseRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
__device__ inline void LowerRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}
// The transpose of an 8 x 8 matrix of 16-bit elements: a lane holds elements 2 (l % 4) and the next of row l / 4.
__device__ inline uint32_t TransposeMatrix(uint32_t row) {
  uint32_t column;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(column) : "r"(row));
  return column;
}

}  // namespace tandem::kernels::cuda::ptx
