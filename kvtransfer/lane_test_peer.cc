// The other process of lane_process_test: a source, or a decode worker's lane, that can be killed, stopped and resumed.
//   lane_test_peer source POOL_BYTES SEED     prints its lane ends, one line each, then serves until it is killed
//   lane_test_peer small_shm SHM_BYTES POOL_BYTES   the same, in a /dev/shm of that size; prints why it cannot start
//   lane_test_peer target END                 fetches from that end for ever
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kvtransfer/lane_rig.h"
#include "kvtransfer/lane_test_end.h"
#include "kvtransfer/tcp_source.h"
#include "kvtransfer/ucx_source.h"

namespace tandem::kvtransfer {
namespace {

int RunSource(uint64_t pool_bytes, uint64_t seed) {
  std::atomic<bool> is_filled = false;
  const auto is_epoch_readable = [&is_filled](const FetchOrigin& origin) {
    return is_filled && IsRigEpochReadable(origin);  // as an engine does: what is not written yet is not readable
  };
  auto source = UcxSource::Start({.pool_bytes = pool_bytes, .is_epoch_readable = is_epoch_readable});
  if (!source.ok()) {
    std::printf("%s\n", source.status().ToString().c_str());
    return 1;
  }
  FillRandom((*source)->pool(), seed);
  is_filled = true;
  auto tcp = TcpSource::Start({.pool = (*source)->pool(), .is_epoch_readable = is_epoch_readable});
  if (!tcp.ok()) {
    std::printf("%s\n", tcp.status().ToString().c_str());
    return 1;
  }
  for (const LaneEnd& end : (*source)->lane_ends()) std::printf("%s\n", PrintLaneEnd(end).c_str());
  std::printf("%s\n", PrintLaneEnd((*tcp)->lane_end()).c_str());
  std::fflush(stdout);
  while (true) pause();
}

int RunInSmallShm(const std::string& shm_bytes, uint64_t pool_bytes) {
  if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      mount("tmpfs", "/dev/shm", "tmpfs", 0, absl::StrCat("size=", shm_bytes).c_str()) != 0) {
    std::printf("not permitted\n");
    return 2;
  }
  return RunSource(pool_bytes, 1);
}

int RunTarget(const LaneEnd& end) {
  std::vector<std::byte> pool(end.pool_bytes);
  const std::unique_ptr<FetchLane> lane = OpenRigLane(end, pool);
  std::printf("open\n");
  std::fflush(stdout);
  while (true) {
    FetchResults results;
    lane->Fetch(1, {{0, 0, end.pool_bytes}}, results.Expect());
    results.Wait();
  }
}

int Main(const std::vector<std::string>& args) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (args.size() == 4 && args[1] == "source") return RunSource(std::stoull(args[2]), std::stoull(args[3]));
  if (args.size() == 4 && args[1] == "small_shm") return RunInSmallShm(args[2], std::stoull(args[3]));
  if (args.size() == 3 && args[1] == "target") return RunTarget(ParseLaneEnd(args[2]));
  std::fprintf(stderr, "usage: see lane_test_peer.cc\n");
  return 64;
}

}  // namespace
}  // namespace tandem::kvtransfer

int main(int argc, char** argv) { return tandem::kvtransfer::Main({argv, argv + argc}); }
