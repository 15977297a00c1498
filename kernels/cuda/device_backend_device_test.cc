// Proves, on a device, what backend.h promises: zeroed memory, copies in the order of the calls, downloads beside that
// see what was enqueued before them, pinned memory, refusals with sizes; and anywhere, that a device which is not there
// is refused with the reason.
#include <algorithm>
#include <cstdio>
#include <numeric>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "kernels/backend_memory.h"
#include "kernels/cuda/device_backend.h"

namespace tandem::kernels::cuda {
namespace {

TEST(CudaBackendTest, RefusesADeviceThatIsNotThere) {
  const auto backend = OpenCudaBackend(1000);
  ASSERT_FALSE(backend.ok());
  EXPECT_FALSE(backend.status().message().empty());
  std::printf("CHECK device 1000: %s\n", backend.status().ToString().c_str());
}

class CudaBackendDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto backend = OpenCudaBackend(0);
    if (!backend.ok()) GTEST_SKIP() << "no device: " << backend.status();
    backend_ = *std::move(backend);
  }

  std::vector<int32_t> Read(const int32_t* from, int64_t count) {
    std::vector<int32_t> values(count, -1);
    EXPECT_TRUE(backend_->Download({values.data(), from, count * 4}).ok());
    EXPECT_TRUE(backend_->Synchronize().ok());
    return values;
  }

  std::unique_ptr<Backend> backend_;
};

TEST_F(CudaBackendDeviceTest, GivesZeroedMemoryAndCopiesInOrder) {
  constexpr int64_t kCount = 1 << 20;
  BackendMemory memory(*backend_);
  int32_t* a = memory.Allocate<int32_t>(kCount);
  int32_t* b = memory.Allocate<int32_t>(kCount);
  ASSERT_TRUE(memory.status().ok()) << memory.status();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % 256, 0u);
  EXPECT_EQ(Read(a, kCount), std::vector<int32_t>(kCount, 0));
  std::vector<int32_t> values(kCount);
  std::iota(values.begin(), values.end(), 1);
  ASSERT_TRUE(backend_->Upload({a, values.data(), kCount * 4}).ok());
  ASSERT_TRUE(backend_->Copy({b, a, kCount * 4}).ok());
  EXPECT_EQ(Read(b, kCount), values);
}

TEST_F(CudaBackendDeviceTest, DownloadsBesideSeeWhatWasEnqueuedBeforeThem) {
  constexpr int64_t kCount = 1 << 20;
  BackendMemory memory(*backend_);
  int32_t* a = memory.Allocate<int32_t>(kCount);
  std::vector<std::vector<int32_t>> sources, results(40, std::vector<int32_t>(kCount, -1));
  for (auto& result : results) {
    ASSERT_TRUE(backend_->PinHostMemory({reinterpret_cast<std::byte*>(result.data()), kCount * 4}).ok());
  }
  std::vector<int64_t> tickets;
  for (size_t i = 0; i < results.size(); ++i) {
    sources.push_back(std::vector<int32_t>(kCount, static_cast<int32_t>(i)));
    ASSERT_TRUE(backend_->Upload({a, sources.back().data(), kCount * 4}).ok());
    const MemoryCopy halves[] = {{results[i].data(), a, kCount * 2},
                                 {results[i].data() + kCount / 2, a + kCount / 2, kCount * 2}};
    const auto ticket = backend_->DownloadBeside(halves);
    ASSERT_TRUE(ticket.ok()) << ticket.status();
    tickets.push_back(*ticket);
    if (i < 20) continue;  // more under way than can be told apart
    ASSERT_TRUE(backend_->AwaitDownloads(tickets[i - 15]).ok());
    EXPECT_EQ(results[i - 15], sources[i - 15]) << i;
  }
  ASSERT_TRUE(backend_->Synchronize().ok());
  for (size_t i = 0; i < results.size(); ++i) {
    EXPECT_EQ(results[i], sources[i]) << i;
    backend_->UnpinHostMemory({reinterpret_cast<std::byte*>(results[i].data()), kCount * 4});
  }
}

TEST_F(CudaBackendDeviceTest, RefusesMoreMemoryThanThereIsWithBothSizes) {
  const auto bytes = backend_->Allocate(int64_t{1} << 50);
  EXPECT_EQ(bytes.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(absl::StrContains(bytes.status().message(), "1125899906842624 bytes of device memory are needed"))
      << bytes.status();
  std::printf("CHECK too much: %s\n", bytes.status().ToString().c_str());
  BackendMemory memory(*backend_);
  EXPECT_NE(memory.Allocate<int32_t>(100), nullptr) << "the refusal leaves no error behind";
  EXPECT_TRUE(backend_->Synchronize().ok());
}

}  // namespace
}  // namespace tandem::kernels::cuda
