// wgmma: a warpgroup's product of two tiles in shared memory, running on its own until it is waited for.
//
// Tiles are rows of 128 bytes with the 128-byte swizzle: 16-byte chunk c of row r stands at chunk c ^ (r % 8); they
// begin at multiples of 1024 bytes. a: 64 rows, b: kColumns rows, both along the summed axis; an instruction takes 32
// bytes of each (of a transposed, 16 rows of 128 bytes): 32 values in E4M3, 16 in BF16. Sums: d[4 j + c] of lane l of
// warp w is row 16 w + l / 4 + 8 (c / 2) and column 8 j + 2 (l % 4) + c % 2.
//
// In E4M3 the sums that pass between instructions keep fewer bits than FP32 has (about 14), so they are added up in
// registers after every 128 values; docs/kernels/linear.md has what was measured.
#pragma once

#include <cstdint>

namespace tandem::kernels::cuda::wgmma {

enum class Format {
  kE4m3,
  kBf16,
  kBf16Transposed,  // a lies along its 64 rows: [summed axis, 64]
};

// Of a tile at a shared address, and of the 32 bytes of its rows from `part` * 32 on.
__device__ inline uint64_t TileDescriptor(uint32_t address, int part) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62, kEightRows = uint64_t{1024 >> 4} << 32, kUnused = 1 << 16;
  return kSwizzle128 | kEightRows | kUnused | (((address & 0x3ffff) >> 4) + part * 2);
}
// The same of a tile that lies `bytes` further on.
__device__ inline uint64_t Moved(uint64_t tile, uint32_t bytes) {
  return (tile & 0xffffffff00000000u) | (static_cast<uint32_t>(tile) + (bytes >> 4));
}
// Before the first product and whenever other instructions have written sums.
__device__ inline void Fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void Commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Until at most kPending committed groups are running.
template <int kPending>
__device__ inline void Wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// Keeps the compiler from moving what makes or reads these sums across this line.
template <int kCount>
__device__ inline void Touch(float (&sums)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}

// The same of a tile's registers.
template <int kCount>
__device__ inline void Touch(uint32_t (&tile)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(tile[i])::"memory");
}

// d = a b, or d += a b where keep is not 0.
template <Format kFormat, int kColumns>
__device__ void Multiply(float (&d)[kColumns / 2], uint64_t a, uint64_t b, int keep);

#define TANDEM_SUMS_4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define TANDEM_SUMS_8(d, i) TANDEM_SUMS_4(d, i), TANDEM_SUMS_4(d, i + 4)
#define TANDEM_SUMS_16(d, i) TANDEM_SUMS_8(d, i), TANDEM_SUMS_8(d, i + 8)

template <>
__device__ inline void Multiply<Format::kE4m3, 8>(float (&d)[4], uint64_t a, uint64_t b, int keep) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %6, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {"
      "%0, %1, %2, %3}, "
      "%4, %5, p, 1, 1;\n}"
      : TANDEM_SUMS_4(d, 0)
      : "l"(a), "l"(b), "r"(keep)
      : "memory");
}
template <>
__device__ inline void Multiply<Format::kE4m3, 16>(float (&d)[8], uint64_t a, uint64_t b, int keep) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %10, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n16k32.f32.e4m3.e4m3 {"
      "%0, %1, %2, %3, %4, %5, %6, %7}, "
      "%8, %9, p, 1, 1;\n}"
      : TANDEM_SUMS_8(d, 0)
      : "l"(a), "l"(b), "r"(keep)
      : "memory");
}
template <>
__device__ inline void Multiply<Format::kE4m3, 32>(float (&d)[16], uint64_t a, uint64_t b, int keep) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %18, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k32.f32.e4m3.e4m3 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
      "%16, %17, p, 1, 1;\n}"
      : TANDEM_SUMS_16(d, 0)
      : "l"(a), "l"(b), "r"(keep)
      : "memory");
}
template <>
__device__ inline void Multiply<Format::kE4m3, 64>(float (&d)[32], uint64_t a, uint64_t b, int keep) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, p, 1, 1;\n}"
      : TANDEM_SUMS_16(d, 0), TANDEM_SUMS_16(d, 16)
      : "l"(a), "l"(b), "r"(keep)
      : "memory");
}
template <>
__device__ inline void Multiply<Format::kE4m3, 128>(float (&d)[64], uint64_t a, uint64_t b, int keep) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, p, 1, 1;\n}"
      : TANDEM_SUMS_16(d, 0), TANDEM_SUMS_16(d, 16), TANDEM_SUMS_16(d, 32), TANDEM_SUMS_16(d, 48)
      : "l"(a), "l"(b), "r"(keep)
      : "memory");
}
template <>
__device__ inline void Multiply<Format::kBf16, 8>(float (&d)[4], uint64_t a, uint64_t b, int keep) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %6, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3}, "
      "%4, %5, p, 1, 1, 0, 0;\n}"
      : TANDEM_SUMS_4(d, 0)
      : "l"(a), "l"(b), "r"(keep)
      : "memory");
}
template <>
__device__ inline void Multiply<Format::kBf16, 16>(float (&d)[8], uint64_t a, uint64_t b, int keep) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %10, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7}, "
      "%8, %9, p, 1, 1, 0, 0;\n}"
      : TANDEM_SUMS_8(d, 0)
      : "l"(a), "l"(b), "r"(keep)
      : "memory");
}
template <>
__device__ inline void Multiply<Format::kBf16, 32>(float (&d)[16], uint64_t a, uint64_t b, int keep) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %18, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
      "%16, %17, p, 1, 1, 0, 0;\n}"
      : TANDEM_SUMS_16(d, 0)
      : "l"(a), "l"(b), "r"(keep)
      : "memory");
}
template <>
__device__ inline void Multiply<Format::kBf16, 64>(float (&d)[32], uint64_t a, uint64_t b, int keep) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, p, 1, 1, 0, 0;\n}"
      : TANDEM_SUMS_16(d, 0), TANDEM_SUMS_16(d, 16)
      : "l"(a), "l"(b), "r"(keep)
      : "memory");
}
template <>
__device__ inline void Multiply<Format::kBf16, 128>(float (&d)[64], uint64_t a, uint64_t b, int keep) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, p, 1, 1, 0, 0;\n}"
      : TANDEM_SUMS_16(d, 0), TANDEM_SUMS_16(d, 16), TANDEM_SUMS_16(d, 32), TANDEM_SUMS_16(d, 48)
      : "l"(a), "l"(b), "r"(keep)
      : "memory");
}
template <>
__device__ inline void Multiply<Format::kBf16Transposed, 8>(float (&d)[4], uint64_t a, uint64_t b, int keep) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %6, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3}, "
      "%4, %5, p, 1, 1, 1, 0;\n}"
      : TANDEM_SUMS_4(d, 0)
      : "l"(a), "l"(b), "r"(keep)
      : "memory");
}
template <>
__device__ inline void Multiply<Format::kBf16Transposed, 16>(float (&d)[8], uint64_t a, uint64_t b, int keep) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %10, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7}, "
      "%8, %9, p, 1, 1, 1, 0;\n}"
      : TANDEM_SUMS_8(d, 0)
      : "l"(a), "l"(b), "r"(keep)
      : "memory");
}
template <>
__device__ inline void Multiply<Format::kBf16Transposed, 32>(float (&d)[16], uint64_t a, uint64_t b, int keep) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %18, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
      "%16, %17, p, 1, 1, 1, 0;\n}"
      : TANDEM_SUMS_16(d, 0)
      : "l"(a), "l"(b), "r"(keep)
      : "memory");
}
template <>
__device__ inline void Multiply<Format::kBf16Transposed, 64>(float (&d)[32], uint64_t a, uint64_t b, int keep) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, p, 1, 1, 1, 0;\n}"
      : TANDEM_SUMS_16(d, 0), TANDEM_SUMS_16(d, 16)
      : "l"(a), "l"(b), "r"(keep)
      : "memory");
}
template <>
__device__ inline void Multiply<Format::kBf16Transposed, 128>(float (&d)[64], uint64_t a, uint64_t b, int keep) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, p, 1, 1, 1, 0;\n}"
      : TANDEM_SUMS_16(d, 0), TANDEM_SUMS_16(d, 16), TANDEM_SUMS_16(d, 32), TANDEM_SUMS_16(d, 48)
      : "l"(a), "l"(b), "r"(keep)
      : "memory");
}

// The same with a from registers: a[0] and a[2] of lane l of warp w hold row 16 w + l / 4, a[1] and a[3] the eighth
// after it; 4 bytes each, from byte 4 (l % 4) of the 32 (a[0], a[1]) and from 16 + 4 (l % 4) (a[2], a[3]).
template <Format kFormat, int kColumns>
__device__ void MultiplyFromRegisters(float (&d)[kColumns / 2], const uint32_t (&a)[4], uint64_t b, int keep);

template <>
__device__ inline void MultiplyFromRegisters<Format::kE4m3, 8>(float (&d)[4], const uint32_t (&a)[4], uint64_t b,
                                                               int keep) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %9, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {"
      "%0, %1, %2, %3"
      "}, {%4, %5, %6, %7}, %8, p, 1, 1;\n}\n"
      : TANDEM_SUMS_4(d, 0)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep));
}

template <>
__device__ inline void MultiplyFromRegisters<Format::kE4m3, 64>(float (&d)[32], const uint32_t (&a)[4], uint64_t b,
                                                                int keep) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
      "}, {%32, %33, %34, %35}, %36, p, 1, 1;\n}\n"
      : TANDEM_SUMS_16(d, 0), TANDEM_SUMS_16(d, 16)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep));
}

template <>
__device__ inline void MultiplyFromRegisters<Format::kE4m3, 128>(float (&d)[64], const uint32_t (&a)[4], uint64_t b,
                                                                 int keep) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
      "}, {%64, %65, %66, %67}, %68, p, 1, 1;\n}\n"
      : TANDEM_SUMS_16(d, 0), TANDEM_SUMS_16(d, 16), TANDEM_SUMS_16(d, 32), TANDEM_SUMS_16(d, 48)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep));
}

// BF16, b along the other axis (its 256 columns are contiguous), a from registers.
__device__ inline void MultiplyAcrossFromRegisters256(float (&d)[128], const uint32_t (&a)[4], uint64_t b, int keep) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %133, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
      "}, {%128, %129, %130, %131}, %132, p, 1, 1, 1;\n}\n"
      : TANDEM_SUMS_16(d, 0), TANDEM_SUMS_16(d, 16), TANDEM_SUMS_16(d, 32), TANDEM_SUMS_16(d, 48),
        TANDEM_SUMS_16(d, 64), TANDEM_SUMS_16(d, 80), TANDEM_SUMS_16(d, 96), TANDEM_SUMS_16(d, 112)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep));
}

// The same with a in shared memory.
__device__ inline void MultiplyAcross256(float (&d)[128], uint64_t a, uint64_t b, int keep) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
      "}, %128, %129, p, 1, 1, 0, 1;\n}\n"
      : TANDEM_SUMS_16(d, 0), TANDEM_SUMS_16(d, 16), TANDEM_SUMS_16(d, 32), TANDEM_SUMS_16(d, 48),
        TANDEM_SUMS_16(d, 64), TANDEM_SUMS_16(d, 80), TANDEM_SUMS_16(d, 96), TANDEM_SUMS_16(d, 112)
      : "l"(a), "l"(b), "r"(keep));
}

// Its 64 columns.
__device__ inline void MultiplyAcross64(float (&d)[32], uint64_t a, uint64_t b, int keep) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
      "}, %32, %33, p, 1, 1, 0, 1;\n}\n"
      : TANDEM_SUMS_16(d, 0), TANDEM_SUMS_16(d, 16)
      : "l"(a), "l"(b), "r"(keep));
}

#undef TANDEM_SUMS_4
#undef TANDEM_SUMS_8
#undef TANDEM_SUMS_16

}  // namespace tandem::kernels::cuda::wgmma
