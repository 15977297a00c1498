// Proves, on a device, what backend.h promises: zeroed memory, copies in the order of the calls, downloads beside that
// see what was enqueued before them, ops beside others, pinned memory, refusals with sizes; and anywhere, that a device
// which is not there is refused with the reason.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/time.h"
#include "base/clock.h"
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

TEST_F(CudaBackendDeviceTest, WhatRunsBesideSeesWhatWasBeforeAndIsSeenAfter) {
  constexpr int64_t kCount = 1 << 22;
  BackendMemory memory(*backend_);
  std::vector<int32_t*> at;
  for (int i = 0; i < 5; ++i) at.push_back(memory.Allocate<int32_t>(kCount));
  ASSERT_TRUE(memory.status().ok()) << memory.status();
  const auto copy = [&](int to, int from) { return backend_->Copy({at[to], at[from], kCount * 4}); };
  // 0 to 1 (beside) and 2; then 1 to 3 and 2 to 4; then 0 gets another's values, which none of these may see.
  const auto enqueue = [&]() -> absl::Status {
    for (const absl::Status& status :
         {backend_->BeginBeside(), copy(1, 0), backend_->EndBeside(), copy(2, 0), backend_->JoinBeside(), copy(3, 1),
          copy(4, 2), backend_->BeginBeside(), copy(0, 4), backend_->EndBeside(), backend_->JoinBeside()}) {
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  };
  std::unique_ptr<RecordedOps> recorded;
  for (int round = 0; round < 20; ++round) {
    if (round == 10) {
      auto ops = backend_->Record(enqueue);
      ASSERT_TRUE(ops.ok()) << ops.status();
      recorded = *std::move(ops);
    }
    const std::vector<int32_t> values(kCount, round + 1);
    ASSERT_TRUE(backend_->Upload({at[0], values.data(), kCount * 4}).ok());
    const absl::Status status = recorded != nullptr ? recorded->Replay() : enqueue();
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(Read(at[3], kCount), values) << round;
    EXPECT_EQ(Read(at[4], kCount), values) << round;
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

// Records between a pinned pool and device memory, scattered on both sides, in one launch; and the same where the pool
// is not pinned.
TEST_F(CudaBackendDeviceTest, CopiesScatteredRecordsBothWaysPinnedOrNot) {
  for (const int64_t record_bytes : {int64_t{656}, int64_t{1152}, int64_t{16}}) {
    for (const bool is_pinned : {true, false}) {
      constexpr int kRecords = 3000;
      std::vector<std::byte> pool(kRecords * record_bytes), back(kRecords * record_bytes);
      uint32_t random = 1;
      const auto next = [&random] { return (random = random * 1664525u + 1013904223u) >> 8; };
      for (std::byte& byte : pool) byte = std::byte{static_cast<uint8_t>(next())};
      std::vector<int32_t> host(kRecords), device(kRecords);
      std::iota(host.begin(), host.end(), 0);
      std::iota(device.begin(), device.end(), 0);
      for (int i = kRecords - 1; i > 0; --i) {
        std::swap(host[i], host[next() % (i + 1)]);
        std::swap(device[i], device[next() % (i + 1)]);
      }
      constexpr int kCopied = 1999;
      host.resize(kCopied);
      device.resize(kCopied);
      const auto bytes_of = [](auto& values) {
        return absl::MakeSpan(reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(values[0]));
      };
      if (is_pinned) {
        ASSERT_TRUE(backend_->PinHostMemory(bytes_of(pool)).ok());
        ASSERT_TRUE(backend_->PinHostMemory(bytes_of(back)).ok());
        ASSERT_TRUE(backend_->PinHostMemory(bytes_of(host)).ok());
        ASSERT_TRUE(backend_->PinHostMemory(bytes_of(device)).ok());
      }
      BackendMemory memory(*backend_);
      auto* slots = memory.Allocate<std::byte>(kRecords * record_bytes);
      ASSERT_TRUE(memory.status().ok()) << memory.status();
      ASSERT_TRUE(backend_->UploadRecords({slots, pool.data(), record_bytes, device, host}).ok());
      std::vector<std::byte> on_device(kRecords * record_bytes);
      ASSERT_TRUE(backend_->Download({on_device.data(), slots, kRecords * record_bytes}).ok());
      ASSERT_TRUE(backend_->DownloadRecords({back.data(), slots, record_bytes, host, device}).ok());
      ASSERT_TRUE(backend_->Synchronize().ok());
      std::vector<std::byte> expected(on_device.size()), expected_back(back.size());
      for (int i = 0; i < kCopied; ++i) {
        std::copy_n(&pool[host[i] * record_bytes], record_bytes, &expected[device[i] * record_bytes]);
        std::copy_n(&pool[host[i] * record_bytes], record_bytes, &expected_back[host[i] * record_bytes]);
      }
      const auto first_bad = [](const auto& a, const auto& b) {
        return std::mismatch(a.begin(), a.end(), b.begin()).first - a.begin();
      };
      EXPECT_TRUE(on_device == expected) << record_bytes << ", pinned " << is_pinned << ", first bad byte "
                                         << first_bad(on_device, expected);
      EXPECT_TRUE(back == expected_back) << record_bytes << ", pinned " << is_pinned << ", first bad byte "
                                         << first_bad(back, expected_back);
      // The host changes a record between two launches: the second brings what is there then.
      for (std::byte& byte : pool) byte ^= std::byte{0xFF};
      ASSERT_TRUE(backend_->UploadRecords({slots, pool.data(), record_bytes, device, host}).ok());
      ASSERT_TRUE(backend_->Download({on_device.data(), slots, kRecords * record_bytes}).ok());
      ASSERT_TRUE(backend_->Synchronize().ok());
      for (int i = 0; i < kCopied; ++i) {
        ASSERT_EQ(std::memcmp(&on_device[device[i] * record_bytes], &pool[host[i] * record_bytes], record_bytes), 0)
            << record_bytes << ", pinned " << is_pinned << ", record " << i << " is an old one";
      }
      std::printf("CHECK records of %ld bytes, pinned %d: both ways right\n", static_cast<long>(record_bytes),
                  is_pinned);
      if (is_pinned) {
        backend_->UnpinHostMemory(bytes_of(pool));
        backend_->UnpinHostMemory(bytes_of(back));
        backend_->UnpinHostMemory(bytes_of(host));
        backend_->UnpinHostMemory(bytes_of(device));
      }
    }
  }
}

// Prints how long misses take: DeepSeek-V3.2's records out of a pinned gigabyte, beside one plain copy of as many
// bytes.
TEST_F(CudaBackendDeviceTest, SaysHowLongScatteredRecordsTake) {
  constexpr int64_t kRecordBytes = 656, kHostRecords = (int64_t{1} << 30) / kRecordBytes, kSlots = 1 << 17;
  std::vector<std::byte> pool(kHostRecords * kRecordBytes);
  std::vector<int32_t> host(kSlots), device(kSlots);
  const auto bytes_of = [](auto& values) {
    return absl::MakeSpan(reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(values[0]));
  };
  ASSERT_TRUE(backend_->PinHostMemory(bytes_of(pool)).ok());
  ASSERT_TRUE(backend_->PinHostMemory(bytes_of(host)).ok());
  ASSERT_TRUE(backend_->PinHostMemory(bytes_of(device)).ok());
  uint32_t random = 1;
  for (int64_t i = 0; i < kSlots; ++i) {
    random = random * 1664525u + 1013904223u;
    host[i] = static_cast<int32_t>((uint64_t{random} * kHostRecords) >> 32);
    device[i] = static_cast<int32_t>(i * 48271 % kSlots);
  }
  BackendMemory memory(*backend_);
  auto* slots = memory.Allocate<std::byte>(kSlots * kRecordBytes);
  ASSERT_TRUE(memory.status().ok()) << memory.status();
  const base::Clock& clock = base::RealClock();
  const auto median_us = [&](auto&& enqueue) {
    std::vector<double> times;
    for (int run = 0; run < 25; ++run) {
      const absl::Duration started = clock.Now();
      EXPECT_TRUE(enqueue().ok());
      EXPECT_TRUE(backend_->Synchronize().ok());
      times.push_back(absl::ToDoubleMicroseconds(clock.Now() - started));
    }
    std::nth_element(times.begin(), times.begin() + 12, times.end());
    return times[12];
  };
  for (const size_t count : {2, 41, 410, 2048, 4100, 41000}) {
    const auto to = absl::MakeConstSpan(device).subspan(0, count), from = absl::MakeConstSpan(host).subspan(0, count);
    const double scattered = median_us([&] {
      return backend_->UploadRecords({slots, pool.data(), kRecordBytes, to, from});
    });
    const double back = median_us([&] {
      return backend_->DownloadRecords({pool.data(), slots, kRecordBytes, from, to});
    });
    const auto num_bytes = static_cast<int64_t>(count) * kRecordBytes;
    const double plain = median_us([&] { return backend_->Upload({slots, pool.data(), num_bytes}); });
    std::printf(
        "CHECK %zu records: %.1f us with the wait, %.1f GB/s; back %.1f us; one copy of as many bytes %.1f us\n", count,
        scattered, num_bytes / scattered / 1e3, back, plain);
  }
  backend_->UnpinHostMemory(bytes_of(pool));
  backend_->UnpinHostMemory(bytes_of(host));
  backend_->UnpinHostMemory(bytes_of(device));
}

}  // namespace
}  // namespace tandem::kernels::cuda
