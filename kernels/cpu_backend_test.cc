// Proves that the host is a backend like any other: memory is zeroed and aligned, copies are what they say, ops are the
// free ones on threads of the backend's own, and blocks go back together.
#include "kernels/cpu_backend.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backend_memory.h"
#include "kernels/dtypes.h"

namespace tandem::kernels {
namespace {

TEST(CpuBackendTest, GivesZeroedAlignedMemory) {
  CpuBackend backend(1);
  for (const int64_t num_bytes : {0, 1, 255, 256, 100'000}) {
    const auto bytes = backend.Allocate(num_bytes);
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(*bytes) % 256, 0u) << num_bytes;
    const auto* first = static_cast<const uint8_t*>(*bytes);
    EXPECT_TRUE(std::all_of(first, first + num_bytes, [](uint8_t byte) { return byte == 0; })) << num_bytes;
    backend.Free(*bytes);
  }
}

TEST(CpuBackendTest, CopiesBytes) {
  CpuBackend backend(1);
  std::vector<int32_t> from(1000), to(1000, -1);
  std::iota(from.begin(), from.end(), 7);
  ASSERT_TRUE(backend.Upload({to.data(), from.data(), 400}).ok());
  ASSERT_TRUE(backend.Copy({to.data() + 100, from.data() + 100, 400}).ok());
  ASSERT_TRUE(backend.Download({to.data() + 200, from.data() + 200, 400}).ok());
  const MemoryCopy copies[] = {{to.data() + 300, from.data() + 300, 400}, {to.data() + 400, from.data() + 400, 0}};
  const auto ticket = backend.DownloadBeside(copies);
  ASSERT_TRUE(ticket.ok());
  ASSERT_TRUE(backend.AwaitDownloads(*ticket).ok());
  EXPECT_TRUE(std::equal(from.begin(), from.begin() + 400, to.begin()));
  EXPECT_EQ(to[400], -1);
}

TEST(CpuBackendTest, GivesTheSameBitsAsTheOpsOnAnyNumberOfThreads) {
  const int64_t rows = 5, in_dim = 128, out_dim = 300;
  std::vector<Bf16> x(rows * in_dim), weight(out_dim * in_dim);
  for (size_t i = 0; i < x.size(); ++i) x[i] = ToBf16(static_cast<float>(i % 31) - 15.0f);
  for (size_t i = 0; i < weight.size(); ++i) weight[i] = ToBf16(static_cast<float>(i % 17) * 0.37f - 3.0f);
  std::vector<float> expected(rows * out_dim);
  const Bf16LinearF32Args args{.x = {x.data(), {rows, in_dim}}, .weight = {weight.data(), {out_dim, in_dim}}};
  Bf16LinearF32Args plain = args;
  plain.y = {expected.data(), {rows, out_dim}};
  ASSERT_TRUE(Bf16LinearF32(plain).ok());
  for (const int num_threads : {1, 3}) {
    CpuBackend backend(num_threads);
    std::vector<float> y(rows * out_dim);
    Bf16LinearF32Args on_backend = args;
    on_backend.y = {y.data(), {rows, out_dim}};
    ASSERT_TRUE(backend.Bf16LinearF32(on_backend).ok());
    EXPECT_EQ(y, expected) << num_threads;
  }
}

TEST(BackendMemoryTest, KeepsTheFirstErrorAndGivesNothingAfterIt) {
  CpuBackend backend(1);
  BackendMemory memory(backend);
  EXPECT_NE(memory.Allocate<float>(10), nullptr);
  EXPECT_TRUE(memory.status().ok());
  EXPECT_EQ(memory.Allocate<uint8_t>(std::numeric_limits<int64_t>::max() / 2), nullptr);
  EXPECT_EQ(memory.status().code(), absl::StatusCode::kResourceExhausted) << memory.status();
  EXPECT_EQ(memory.Allocate<float>(10), nullptr);
  EXPECT_EQ(memory.num_blocks(), 1);
  EXPECT_EQ(memory.num_bytes(), 40);
}

}  // namespace
}  // namespace tandem::kernels
