// Proves that every build and every machine gives a usable answer: devices with sensible facts, or the reason why not.
#include "kernels/cuda/device_info.h"

#include "gtest/gtest.h"

namespace tandem::kernels::cuda {
namespace {

TEST(DeviceInfoTest, ListsDevicesOrSaysWhyThereAreNone) {
  const auto devices = ListDevices();
  if (!devices.ok()) {
    const absl::StatusCode code = devices.status().code();
    EXPECT_TRUE(code == absl::StatusCode::kUnimplemented || code == absl::StatusCode::kUnavailable) << devices.status();
    EXPECT_FALSE(devices.status().message().empty());
    GTEST_SKIP() << "no device to look at: " << devices.status();
  }
  for (size_t i = 0; i < devices->size(); ++i) {
    const DeviceInfo& device = (*devices)[i];
    EXPECT_EQ(device.index, static_cast<int>(i));
    EXPECT_FALSE(device.name.empty());
    EXPECT_GE(device.compute_major, 5);
    EXPECT_GT(device.num_multiprocessors, 0);
    EXPECT_GT(device.memory_bytes, int64_t{1} << 30);
    // Code for sm_90a runs on compute capability 9.0 and on nothing else.
    EXPECT_EQ(device.is_supported, device.compute_major == 9 && device.compute_minor == 0);
  }
}

}  // namespace
}  // namespace tandem::kernels::cuda
