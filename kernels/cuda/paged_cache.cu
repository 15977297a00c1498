// WriteLatent and WriteIndexKey: the records of kvcache/kv_layout.h, byte for byte those of the CPU.
//
// WriteLatent: one block per row; the first 64 threads take eight latent dims each, eight more the rotary key. Bytes
// per row: 1,152 in, 656 or 1,152 out. WriteIndexKey: one warp per row; 132 bytes in and out. Tested by
// paged_cache_device_test.cc.
#include <cuda_runtime.h>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/paged_rows.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/quantize.cuh"
#include "kernels/cuda/row_math.cuh"
#include "kernels/op_border.h"
#include "kvcache/kv_layout.h"

namespace tandem::kernels::cuda {
namespace {

using kvcache::KvCacheDtype;

constexpr int kLatentThreads = kvcache::kLatentDim / kVector;  // two full warps: the quantiser exchanges within them
constexpr int kRopeThreads = kvcache::kRopeDim / kVector;
constexpr int kWriteLatentThreads = kLatentThreads + kWarp;
// The layout's functions are the host's: their values travel as constants.
template <KvCacheDtype kDtype>
constexpr int kRecordBytes = kvcache::LatentRecordBytes(kDtype);
template <KvCacheDtype kDtype>
constexpr int kRopeOffset = kvcache::LatentRopeOffset(kDtype);
static_assert(kLatentThreads % kWarp == 0 && kvcache::kLatentTile == kQuantGroup);

template <bool kIsAligned>
__device__ __forceinline__ void Copy16(void* to, const void* from) {
  if constexpr (kIsAligned) {
    *static_cast<uint4*>(to) = *static_cast<const uint4*>(from);
  } else {
#pragma unroll
    for (int i = 0; i < 16; ++i) static_cast<uint8_t*>(to)[i] = static_cast<const uint8_t*>(from)[i];
  }
}

struct Slot {
  int64_t page;
  int slot;
};
__device__ __forceinline__ Slot OwnSlot(const DevicePagedRows& rows, int64_t row) {
  const int32_t position = rows.context_length[row] - 1;
  return {rows.PageTable(row)[position / kvcache::kPageTokens], position % kvcache::kPageTokens};
}

template <bool kIsAligned, KvCacheDtype kDtype>
__global__ void __launch_bounds__(kWriteLatentThreads)
    WriteLatentKernel(const Bf16* latent, int64_t latent_stride, const Bf16* rope_key, int64_t rope_key_stride,
                      ScaleFormat format, DevicePagedRows rows, uint8_t* pages, int64_t page_stride) {
  ptx::LaunchDependents();
  ptx::WaitForGrids();
  const int64_t row = blockIdx.x;
  const int thread = threadIdx.x;
  const auto [page, slot] = OwnSlot(rows, row);
  uint8_t* record = pages + page * page_stride + slot * kRecordBytes<kDtype>;
  if (thread >= kLatentThreads) {
    const int part = thread - kLatentThreads;
    if (part >= kRopeThreads) return;
    Copy16<kIsAligned>(record + kRopeOffset<kDtype> + part * 16, rope_key + row * rope_key_stride + part * kVector);
    return;
  }
  const Bf16* source = latent + row * latent_stride + thread * kVector;
  if constexpr (kDtype == KvCacheDtype::kBfloat16) {
    Copy16<kIsAligned>(record + thread * 16, source);
  } else {
    const QuantizedVector quantized = QuantizeVector(LoadPairs<kIsAligned>(source), format);
    StoreCodes<kIsAligned>(record + thread * kVector, quantized.codes);
    if (thread % kThreadsOfGroup == 0) {
      uint8_t* scale = record + kvcache::kLatentScaleOffset + thread / kThreadsOfGroup * 4;
      if constexpr (kIsAligned) {
        *reinterpret_cast<float*>(scale) = quantized.scale;
      } else {
        const uint32_t bits = __float_as_uint(quantized.scale);
#pragma unroll
        for (int i = 0; i < 4; ++i) scale[i] = static_cast<uint8_t>(bits >> (8 * i));
      }
    }
  }
}

__global__ void __launch_bounds__(kWarp)
    WriteIndexKeyKernel(const uint8_t* key, int64_t key_stride, const float* scale, int64_t scale_stride,
                        DevicePagedRows rows, uint8_t* pages, int64_t page_stride) {
  ptx::LaunchDependents();
  ptx::WaitForGrids();
  const int64_t row = blockIdx.x;
  const int lane = threadIdx.x;
  const auto [page, slot] = OwnSlot(rows, row);
  uint8_t* bytes = pages + page * page_stride;
  const uint8_t* source = key + row * key_stride;
  // Byte by byte, a warp at a time: rows are few bytes, and their starts may be anywhere.
#pragma unroll
  for (int i = 0; i < kvcache::kIndexDim; i += kWarp) {
    bytes[slot * kvcache::kIndexDim + i + lane] = source[i + lane];
  }
  if (lane < 4) {
    const uint32_t bits = __float_as_uint(scale[row * scale_stride]);
    bytes[kvcache::kIndexScaleOffset + slot * 4 + lane] = static_cast<uint8_t>(bits >> (8 * lane));
  }
}

}  // namespace

absl::Status WriteLatent(Stream stream, const WriteLatentArgs& args) {
  const int64_t num_rows = args.latent.shape[0], num_pages = args.latent_pages.shape[0];
  OpBorder border("WriteLatent");
  border.Shape("latent", args.latent, {num_rows, kvcache::kLatentDim})
      .Shape("rope_key", args.rope_key, {num_rows, kvcache::kRopeDim})
      .Shape("latent_pages", args.latent_pages, {num_pages, kvcache::LatentPageBytes(args.kv_cache_dtype)});
  CheckPagedRowShapes(border, args.rows, num_rows);
  if (!border.ok()) return border.status();
  if (num_rows == 0) return absl::OkStatus();
  const bool is_aligned =
      RowsAreAligned(args.latent, 16) && RowsAreAligned(args.rope_key, 16) && RowsAreAligned(args.latent_pages, 16);
  auto* kernel = args.kv_cache_dtype == KvCacheDtype::kFp8E4m3
                     ? (is_aligned ? WriteLatentKernel<true, KvCacheDtype::kFp8E4m3>
                                   : WriteLatentKernel<false, KvCacheDtype::kFp8E4m3>)
                     : (is_aligned ? WriteLatentKernel<true, KvCacheDtype::kBfloat16>
                                   : WriteLatentKernel<false, KvCacheDtype::kBfloat16>);
  return LaunchEarly(stream, "WriteLatent", kernel, num_rows, kWriteLatentThreads, args.latent.data,
                     args.latent.strides[0], args.rope_key.data, args.rope_key.strides[0], args.scale_format,
                     ToDevice(args.rows), args.latent_pages.data, args.latent_pages.strides[0]);
}

absl::Status WriteIndexKey(Stream stream, const WriteIndexKeyArgs& args) {
  const int64_t num_rows = args.key.shape[0], num_pages = args.index_pages.shape[0];
  OpBorder border("WriteIndexKey");
  border.Shape("key", args.key, {num_rows, kvcache::kIndexDim})
      .Shape("scale", args.scale, {num_rows, 1})
      .Shape("index_pages", args.index_pages, {num_pages, kvcache::kIndexPageBytes});
  CheckPagedRowShapes(border, args.rows, num_rows);
  if (!border.ok()) return border.status();
  if (num_rows == 0) return absl::OkStatus();
  return LaunchEarly(stream, "WriteIndexKey", WriteIndexKeyKernel, num_rows, kWarp,
                     reinterpret_cast<const uint8_t*>(args.key.data), args.key.strides[0], args.scale.data,
                     args.scale.strides[0], ToDevice(args.rows), args.index_pages.data, args.index_pages.strides[0]);
}

}  // namespace tandem::kernels::cuda
