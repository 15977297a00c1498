// One warp a record, 16 bytes a lane and step: 41 pieces of a 656-byte record, 72 of 1,152. Bound: the host link, about
// 55 GB/s by PCIe 5.0 x16, of which one request has 83 KB in flight at 1.5 us; a lane loads three pieces before it
// stores the first, so that 64 warps a multiprocessor keep enough under way. What lies on the host is loaded past every
// cache (it changes between launches) and the lists too, one 4-byte load a warp and list. No shared memory.
#include <cuda_runtime.h>

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/device_records.h"
#include "kernels/cuda/launch.h"

namespace tandem::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;
constexpr int kPieces = 3;  // of a lane under way

__global__ void __launch_bounds__(kThreads)
    CopyRecordsKernel(uint4* to, const uint4* from, const int32_t* to_records, const int32_t* from_records,
                      int64_t num_records, int num_pieces) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t record = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kWarp;
  if (record >= num_records) return;
  uint4* target = to + int64_t{__ldcv(to_records + record)} * num_pieces;
  const uint4* source = from + int64_t{__ldcv(from_records + record)} * num_pieces;
  for (int begin = lane; begin < num_pieces; begin += kWarp * kPieces) {
    uint4 pieces[kPieces];
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      if (begin + i * kWarp < num_pieces) pieces[i] = __ldcv(source + begin + i * kWarp);
    }
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      if (begin + i * kWarp < num_pieces) target[begin + i * kWarp] = pieces[i];
    }
  }
}

// Where the device finds pinned host memory, or its own.
const void* OnDevice(const void* bytes) {
  cudaPointerAttributes attributes{};
  if (cudaPointerGetAttributes(&attributes, bytes) != cudaSuccess) {
    cudaGetLastError();  // told here, not by the next launch
    return nullptr;
  }
  return attributes.type == cudaMemoryTypeUnregistered ? nullptr : attributes.devicePointer;
}

}  // namespace

bool IsPinned(const void* host) { return OnDevice(host) != nullptr; }

absl::Status CopyRecords(Stream stream, const RecordCopies& copies) {
  const auto num_records = static_cast<int64_t>(copies.to_records.size());
  if (copies.from_records.size() != copies.to_records.size() || copies.record_bytes % sizeof(uint4) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("CopyRecords: ", copies.from_records.size(), " sources, ",
                                                   num_records, " targets, records of ", copies.record_bytes,
                                                   " bytes, must be as many and a multiple of 16"));
  }
  if (num_records == 0) return absl::OkStatus();
  const void* const pointers[] = {OnDevice(copies.to), OnDevice(copies.from), OnDevice(copies.to_records.data()),
                                  OnDevice(copies.from_records.data())};
  for (const void* pointer : pointers) {
    if (pointer == nullptr) return absl::FailedPreconditionError("CopyRecords: host memory that is not pinned");
  }
  const int64_t num_blocks = (num_records * kWarp + kThreads - 1) / kThreads;
  CopyRecordsKernel<<<static_cast<unsigned>(num_blocks), kThreads, 0, stream>>>(
      static_cast<uint4*>(const_cast<void*>(pointers[0])), static_cast<const uint4*>(pointers[1]),
      static_cast<const int32_t*>(pointers[2]), static_cast<const int32_t*>(pointers[3]), num_records,
      static_cast<int>(copies.record_bytes / sizeof(uint4)));
  return LaunchStatus("CopyRecords");
}

}  // namespace tandem::kernels::cuda
