// Proves that the tighter of machine and control group decides, over files as Linux writes them.
#include "worker_shell/memory_room.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::worker_shell {
namespace {

using ::testing::HasSubstr;

class MemoryRoomTest : public ::testing::Test {
 protected:
  MemoryRoomTest() {
    std::string name = ::testing::TempDir() + "/memory_room_XXXXXX";
    root_ = std::string(mkdtemp(name.data())) + "/";
  }
  ~MemoryRoomTest() override { std::filesystem::remove_all(root_); }
  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  void WriteMeminfo() {
    Write("proc/meminfo",
          "MemTotal:       24000000 kB\nMemFree:         1000000 kB\nMemAvailable:    2000000 kB\nBuffers: 1 kB\n");
  }

  std::string root_;
};

TEST_F(MemoryRoomTest, WithoutAControlGroupTheMachineDecides) {
  WriteMeminfo();
  EXPECT_EQ(AvailableMemoryBytes(root_).value(), int64_t{2000000} * 1024);
  Write("sys/fs/cgroup/memory.max", "max\n");
  Write("sys/fs/cgroup/memory.current", "5000000\n");
  EXPECT_EQ(AvailableMemoryBytes(root_).value(), int64_t{2000000} * 1024);
}

TEST_F(MemoryRoomTest, AControlGroupLeavesItsLimitLessWhatCannotBeDropped) {
  WriteMeminfo();
  Write("sys/fs/cgroup/memory.max", "10000000\n");
  Write("sys/fs/cgroup/memory.current", "7000000\n");
  EXPECT_EQ(AvailableMemoryBytes(root_).value(), 3000000);
  Write("sys/fs/cgroup/memory.stat", "anon 5000000\ninactive_file 1500000\ninactive_file_else 9\n");
  EXPECT_EQ(AvailableMemoryBytes(root_).value(), 4500000);
  Write("sys/fs/cgroup/memory.current", "19000000\n");
  EXPECT_EQ(AvailableMemoryBytes(root_).value(), 0);
}

TEST_F(MemoryRoomTest, TheOlderControlGroupsCountToo) {
  WriteMeminfo();
  Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "8000000\n");
  Write("sys/fs/cgroup/memory/memory.usage_in_bytes", "6000000\n");
  Write("sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 500000\n");
  EXPECT_EQ(AvailableMemoryBytes(root_).value(), 2500000);
}

TEST_F(MemoryRoomTest, AMachineThatTellsNothingIsAnError) {
  EXPECT_EQ(AvailableMemoryBytes(root_).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(MemoryRoomTest, ARefusalNamesTheFieldAndBothSizes) {
  EXPECT_TRUE(CheckRoomForPool(64, 1000, 1000).ok());
  const absl::Status status = CheckRoomForPool(64, 1001, 1000);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(std::string(status.message()), "process.kv_cache_tokens 64 needs 1001 bytes of memory, 1000 are available");
}

TEST_F(MemoryRoomTest, ThisMachineHasSomeAndNotEndless) {
  const auto available = AvailableMemoryBytes();
  ASSERT_TRUE(available.ok()) << available.status();
  EXPECT_GT(*available, 0);
  EXPECT_LT(*available, int64_t{1} << 50);
}

}  // namespace
}  // namespace tandem::worker_shell
