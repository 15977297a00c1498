// Proves: a source starts with what it was asked for, refuses in one line what it cannot have, and lanes refuse ends
// that are not theirs. The lanes themselves: lane_conformance_test.cc.
#include "kvtransfer/ucx_source.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <string>

#include "base/host_port.h"
#include "gtest/gtest.h"
#include "kvtransfer/lane_rig.h"
#include "kvtransfer/ucx_am_lane.h"
#include "kvtransfer/ucx_shm_lane.h"

namespace tandem::kvtransfer {
namespace {

constexpr uint64_t kPoolBytes = 1 << 20;

TEST(UcxSourceTest, StartsWithAZeroPoolAndTheLanesAskedFor) {
  for (const bool offers_shm : {false, true}) {
    for (const bool offers_am : {false, true}) {
      const auto source = UcxSource::Start({.pool_bytes = kPoolBytes,
                                            .offers_shm = offers_shm,
                                            .offers_am = offers_am,
                                            .is_epoch_readable = IsRigEpochReadable});
      ASSERT_TRUE(source.ok()) << source.status();
      const std::span<std::byte> pool = (*source)->pool();
      EXPECT_EQ(pool.size(), kPoolBytes);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(pool.data()) % 64, 0u);
      EXPECT_EQ(std::count(pool.begin(), pool.end(), std::byte{0}), static_cast<int64_t>(kPoolBytes));
      std::vector<std::string> kinds;
      for (const LaneEnd& end : (*source)->lane_ends()) kinds.push_back(end.kind);
      std::vector<std::string> expected;
      if (offers_shm) expected.push_back("ucx_shm");
      if (offers_am) expected.push_back("ucx_am");
      EXPECT_EQ(kinds, expected);
      (*source)->Stop();
      (*source)->Stop();
      std::fill(pool.begin(), pool.end(), std::byte{1});  // the pool outlives Stop
    }
  }
}

TEST(UcxSourceTest, RefusesAPoolThatShmCannotHold) {
  struct statvfs room = {};
  ASSERT_EQ(statvfs("/dev/shm", &room), 0);
  const uint64_t too_much = uint64_t{room.f_blocks} * room.f_frsize + 4096;
  const absl::Status status =
      UcxSource::Start({.pool_bytes = too_much, .is_epoch_readable = IsRigEpochReadable}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
}

TEST(UcxSourceTest, RefusesAnAddressThatItCannotListenOn) {
  const absl::Status status = UcxSource::Start({.pool_bytes = kPoolBytes,
                                                .offers_shm = false,
                                                .am_listen_host = "198.51.100.1",
                                                .is_epoch_readable = IsRigEpochReadable})
                                  .status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_NE(status.message().find("198.51.100.1"), std::string::npos);
  EXPECT_FALSE(UcxSource::Start({.pool_bytes = 0, .is_epoch_readable = IsRigEpochReadable}).ok());
}

// A connection to an address that nobody has bound is refused.
bool IsReachedAt(const std::string& host, int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  EXPECT_EQ(inet_pton(AF_INET, host.c_str(), &address.sin_addr), 1) << host;
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  const bool is_connected = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  close(fd);
  return is_connected;
}

// "host" of every socket of this process that listens, by its descriptor.
std::map<int, std::string> ListeningHosts() {
  std::map<int, std::string> hosts;
  for (int fd = 0; fd < 1024; ++fd) {
    int is_listening = 0;
    socklen_t num_bytes = sizeof(is_listening);
    sockaddr_in address = {};
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &is_listening, &num_bytes) != 0 || is_listening == 0) continue;
    num_bytes = sizeof(address);
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &num_bytes) != 0) continue;
    char text[INET_ADDRSTRLEN] = "not IPv4";
    if (address.sin_family == AF_INET) inet_ntop(AF_INET, &address.sin_addr, text, sizeof(text));
    hosts[fd] = text;
  }
  return hosts;
}

TEST(UcxSourceTest, ListensOnTheOneAddressThatItTells) {
  for (const char* net_devices : {"all", "lo"}) {
    const std::map<int, std::string> before = ListeningHosts();  // sources of other tests, which are never closed
    const auto source = UcxSource::Start({.pool_bytes = kPoolBytes,
                                          .offers_shm = false,
                                          .am_listen_host = net_devices == std::string("all") ? "127.0.0.1" : "",
                                          .net_devices = net_devices,
                                          .is_epoch_readable = IsRigEpochReadable});
    ASSERT_TRUE(source.ok()) << source.status();
    const auto told = base::ParseHostPort((*source)->lane_ends()[0].worker_address);
    ASSERT_TRUE(told.ok()) << told.status();
    EXPECT_EQ(told->host, "127.0.0.1");
    EXPECT_TRUE(IsReachedAt("127.0.0.1", told->port));
    // All of 127/8 is this machine: a wildcard would answer here too.
    EXPECT_FALSE(IsReachedAt("127.0.0.2", told->port));
    int num_new = 0;
    for (const auto& [fd, host] : ListeningHosts()) {
      if (before.contains(fd)) continue;
      ++num_new;
      EXPECT_EQ(host, "127.0.0.1");
    }
    EXPECT_GT(num_new, 0);
  }
}

TEST(UcxSourceTest, AdvertisesAnAddressOfTheDevicesItMayUse) {
  const auto end_of = [](std::string host, std::string net_devices) {
    const auto source = UcxSource::Start({.pool_bytes = kPoolBytes,
                                          .offers_shm = false,
                                          .am_advertised_host = std::move(host),
                                          .net_devices = std::move(net_devices),
                                          .is_epoch_readable = IsRigEpochReadable});
    return source.ok() ? (*source)->lane_ends()[0].worker_address : source.status().ToString();
  };
  EXPECT_EQ(end_of("", "lo").rfind("127.0.0.1:", 0), 0u) << end_of("", "lo");
  EXPECT_EQ(end_of("prefill-0.example", "all").rfind("prefill-0.example:", 0), 0u);
  EXPECT_NE(end_of("", "no_such_device").find("UNAVAILABLE"), std::string::npos);
}

TEST(UcxSourceTest, IsReachedAtTheAddressItChose) {
  const auto source =
      UcxSource::Start({.pool_bytes = kPoolBytes, .offers_shm = false, .is_epoch_readable = IsRigEpochReadable});
  ASSERT_TRUE(source.ok()) << source.status();
  FillRandom((*source)->pool(), 1);
  std::vector<std::byte> target(kPoolBytes);
  const auto lane = OpenUcxAmLane((*source)->lane_ends()[0], target, kRigIncarnation);
  ASSERT_TRUE(lane.ok()) << lane.status();
  FetchResults results;
  (*lane)->Fetch(1, {{0, 0, kPoolBytes}}, results.Expect());
  const absl::Status status = results.Wait()[0];
  ASSERT_TRUE(status.ok()) << (*source)->lane_ends()[0].worker_address << " " << status;
  EXPECT_TRUE(std::equal(target.begin(), target.end(), (*source)->pool().begin()));
}

TEST(UcxSourceTest, LanesRefuseEndsThatAreNotTheirs) {
  std::vector<std::byte> target(1);
  EXPECT_EQ(OpenUcxShmLane({.kind = "ucx_am", .worker_address = "x", .remote_key = "y"}, target).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(OpenUcxShmLane({.kind = "ucx_shm", .worker_address = "x"}, target).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(OpenUcxAmLane({.kind = "ucx_shm", .worker_address = "x"}, target, 1).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(OpenUcxAmLane({.kind = "ucx_am", .worker_address = "no port"}, target, 1).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(UcxSourceTest, AnEndOfAnotherUcxIsRefusedWithBothVersions) {
  const auto source = UcxSource::Start({.pool_bytes = kPoolBytes, .offers_am = false});
  ASSERT_TRUE(source.ok()) << source.status();
  LaneEnd end = (*source)->lane_ends()[0];
  std::vector<std::byte> target(kPoolBytes);
  const std::string ours = end.worker_address.substr(0, end.worker_address.find(';'));
  EXPECT_TRUE(OpenUcxShmLane(end, target).ok());
  for (const std::string other : {"ucx 9.99.0", "ucx", "no address of UCX at all"}) {
    LaneEnd stranger = end;
    stranger.worker_address = other + end.worker_address.substr(ours.size());
    EXPECT_EQ(OpenUcxShmLane(stranger, target).status(),
              absl::UnavailableError("the source's UCX is \"" + other + "\", ours is \"" + ours + "\""));
  }
}

TEST(UcxSourceTest, LanesToNowhereDieInBoundedTime) {
  // TEST-NET-2: packets go nowhere, or are refused at once where there is no route.
  std::vector<std::byte> target(100);
  const LaneEnd nowhere = {
      .kind = "ucx_am", .worker_address = "198.51.100.1:9", .pool_address = 0, .pool_bytes = 100, .remote_key = ""};
  {
    const auto lane = OpenUcxAmLane(nowhere, target, 1);
    if (lane.ok()) (*lane)->Close();  // while it connects
  }
  const auto lane = OpenUcxAmLane(nowhere, target, 1);
  if (!lane.ok()) {
    EXPECT_TRUE(absl::IsUnavailable(lane.status())) << lane.status();
    return;
  }
  FetchResults results;
  (*lane)->Fetch(1, {{0, 0, 100}}, results.Expect());
  EXPECT_TRUE(absl::IsUnavailable(results.Wait()[0]));
  EXPECT_TRUE(absl::IsUnavailable([&] {
    FetchResults later;
    (*lane)->Fetch(1, {{0, 0, 100}}, later.Expect());
    return later.Wait()[0];
  }()));
}

}  // namespace
}  // namespace tandem::kvtransfer
