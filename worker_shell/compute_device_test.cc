// Proves that names of devices are told apart without looking at one, and that a device which is not there, on machines
// and in builds with and without CUDA, is refused in a line that names it.
#include "worker_shell/compute_device.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "worker_shell/device_name.h"

namespace tandem::worker_shell {
namespace {

TEST(ComputeDeviceTest, KnowsTheNamesOfDevices) {
  EXPECT_FALSE(ParseDeviceName("cpu")->cuda_index.has_value());
  EXPECT_EQ(ParseDeviceName("cuda:7")->cuda_index, 7);
  for (const char* device : {"cpu", "cuda:0", "cuda:7", "cuda:63"}) EXPECT_TRUE(ParseDeviceName(device).ok()) << device;
  for (const char* device : {"", "CPU", "gpu", "cuda", "cuda:", "cuda:x", "cuda:-1", "cuda:+1", "cuda: 1", "cuda:1 ",
                             "cuda:64", "cuda:1.0", "cpu:0"}) {
    const absl::Status status = ParseDeviceName(device).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << device;
    EXPECT_TRUE(absl::StrContains(status.message(), absl::StrCat("process.device is \"", device, "\""))) << status;
  }
}

TEST(ComputeDeviceTest, OpensTheHost) {
  const auto backend = OpenComputeDevice({.device = "cpu", .num_threads = 2});
  ASSERT_TRUE(backend.ok()) << backend.status();
  EXPECT_TRUE((*backend)->is_host());
  EXPECT_EQ((*backend)->name(), "cpu");
  EXPECT_EQ((*backend)->numerics_id(), "cpu-lanes16/2");
}

TEST(ComputeDeviceTest, GivesEachRankADeviceAndAPartOfTheThreads) {
  for (const int num_ranks : {1, 2, 3, 8}) {
    const auto devices = OpenRankDevices({.device = "cpu", .num_threads = 4}, num_ranks);
    ASSERT_TRUE(devices.ok()) << devices.status();
    EXPECT_EQ(static_cast<int>(devices->size()), num_ranks);
    int num_threads = 0;
    for (int rank = 0; rank < num_ranks; ++rank) num_threads += ThreadsOfRank(4, rank, num_ranks);
    EXPECT_EQ(num_threads, std::max(4, num_ranks));
  }
  const auto devices = OpenRankDevices({.device = "cuda:62"}, 2);  // of 64 devices, no machine has as many
  EXPECT_TRUE(absl::StartsWith(devices.status().message(), "process.device cuda:62: ")) << devices.status();
}

TEST(ComputeDeviceTest, RefusesADeviceThatIsNotThere) {
  const auto backend = OpenComputeDevice({.device = "cuda:63"});  // of 64 devices, no machine has as many
  EXPECT_EQ(backend.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StartsWith(backend.status().message(), "process.device cuda:63: ")) << backend.status();
}

}  // namespace
}  // namespace tandem::worker_shell
