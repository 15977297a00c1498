// GB/s of every lane, from one latent page to 16 MiB a fetch, beside the same machine's memcpy and a plain TCP socket
// over loopback, in one run: bazel run //kvtransfer:lane_benchmark
//
// The source is another process. Every column moves the same bytes between the same two pools of 256 MiB, so that
// caches help nobody. Lanes have up to 4 MiB outstanding, as the protocol would have; "alone" is one fetch at a time.
// Each cell is GB per second of the clock / GB per second of CPU time of both processes: the second holds on a busy
// machine too. Last comes what the lanes cost while nothing is fetched.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "base/check.h"
#include "base/clock.h"
#include "kvtransfer/lane_rig.h"
#include "kvtransfer/lane_test_end.h"
#include "kvtransfer/loopback_lane.h"
#include "kvtransfer/tcp_source.h"
#include "kvtransfer/ucx_source.h"

namespace tandem::kvtransfer {
namespace {

constexpr uint64_t kPoolBytes = uint64_t{256} << 20;
constexpr uint64_t kOutstandingBytes = uint64_t{4} << 20;
constexpr absl::Duration kCellTime = absl::Milliseconds(400);
constexpr absl::Duration kRestTime = absl::Seconds(2);
constexpr uint64_t kSizes[] = {8448, 41984, 65536, 262144, 1048576, 4194304, 16777216};

bool ReadAll(int fd, void* data, size_t num_bytes) {
  for (char* at = static_cast<char*>(data); num_bytes > 0;) {
    const ssize_t got = read(fd, at, num_bytes);
    if (got <= 0) return false;
    at += got;
    num_bytes -= got;
  }
  return true;
}

bool WriteAll(int fd, const void* data, size_t num_bytes) {
  for (const char* at = static_cast<const char*>(data); num_bytes > 0;) {
    const ssize_t put = write(fd, at, num_bytes);
    if (put <= 0) return false;
    at += put;
    num_bytes -= put;
  }
  return true;
}

// Answers (offset, bytes) with those bytes of the pool: what a lane must at least do, without one.
void ServeSocket(int listener, std::span<const std::byte> pool) {
  const int connection = accept(listener, nullptr, nullptr);
  uint64_t request[2];
  while (ReadAll(connection, request, sizeof(request)) && WriteAll(connection, &pool[request[0]], request[1])) {
  }
  close(connection);
}

int Listen(sockaddr_in& address) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  TANDEM_CHECK(bind(listener, reinterpret_cast<sockaddr*>(&address), length) == 0 && listen(listener, 1) == 0 &&
                   getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) == 0,
               "loopback socket");
  return listener;
}

[[noreturn]] void RunSource(int listener, int out) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  auto source = UcxSource::Start({.pool_bytes = kPoolBytes, .is_epoch_readable = IsRigEpochReadable});
  TANDEM_CHECK(source.ok(), source.status().ToString());
  FillRandom((*source)->pool(), 1);
  auto tcp = TcpSource::Start({.pool = (*source)->pool(), .is_epoch_readable = IsRigEpochReadable});
  TANDEM_CHECK(tcp.ok(), tcp.status().ToString());
  std::string text = PrintLaneEnd((*tcp)->lane_end()) + "\n";
  for (const LaneEnd& end : (*source)->lane_ends()) text += PrintLaneEnd(end) + "\n";
  TANDEM_CHECK(WriteAll(out, text.data(), text.size()), "pipe");
  close(out);
  ServeSocket(listener, (*source)->pool());
  while (true) pause();
}

// Of a process, all its threads; 0: this one.
double CpuSeconds(pid_t process) {
  clockid_t clock = CLOCK_PROCESS_CPUTIME_ID;
  timespec time = {};
  TANDEM_CHECK(clock_getcpuclockid(process, &clock) == 0 && clock_gettime(clock, &time) == 0, "cpu clock");
  return absl::ToDoubleSeconds(absl::DurationFromTimespec(time));
}

struct Cell {
  double per_second = 0;      // GB
  double per_cpu_second = 0;  // GB
};

// Calls move(i), of num_bytes each, for a time.
Cell Measure(pid_t source, uint64_t num_bytes, const std::function<void(uint64_t)>& move,
             const std::function<void()>& finish) {
  const double cpu_begin = CpuSeconds(0) + CpuSeconds(source);
  const absl::Duration begin = base::RealClock().Now();
  uint64_t count = 0;
  do {
    move(count++);
  } while (base::RealClock().Now() - begin < kCellTime);
  finish();
  const double gigabytes = count * num_bytes / 1e9;
  return {gigabytes / absl::ToDoubleSeconds(base::RealClock().Now() - begin),
          gigabytes / (CpuSeconds(0) + CpuSeconds(source) - cpu_begin)};
}

uint64_t OffsetOf(uint64_t i, uint64_t num_bytes) { return i * num_bytes % (kPoolBytes - num_bytes) / 64 * 64; }

Cell MeasureLaneAt(pid_t source, FetchLane& lane, uint64_t num_bytes, int depth) {
  absl::Mutex mutex;
  int num_outstanding = 0;
  const auto has_room = [&] { return num_outstanding < depth; };
  const auto is_idle = [&] { return num_outstanding == 0; };
  const auto done = [&](absl::Status status) {
    TANDEM_CHECK(status.ok(), status.ToString());
    absl::MutexLock lock(&mutex);
    --num_outstanding;
  };
  const auto move = [&](uint64_t i) {
    {
      absl::MutexLock lock(&mutex);
      mutex.Await(absl::Condition(&has_room));
      ++num_outstanding;
    }
    const uint64_t offset = OffsetOf(i, num_bytes);
    lane.Fetch(1, {{offset, offset, num_bytes}}, done);
  };
  return Measure(source, num_bytes, move, [&] {
    absl::MutexLock lock(&mutex);
    mutex.Await(absl::Condition(&is_idle));
  });
}

Cell MeasureSocket(pid_t source, int connection, std::span<std::byte> target, uint64_t num_bytes) {
  const uint64_t depth = std::clamp<uint64_t>(kOutstandingBytes / num_bytes, 1, 64);
  uint64_t num_read = 0;
  uint64_t num_asked = 0;
  const auto take = [&] {
    TANDEM_CHECK(ReadAll(connection, &target[OffsetOf(num_read++, num_bytes)], num_bytes), "socket");
  };
  const auto move = [&](uint64_t i) {
    const uint64_t request[2] = {OffsetOf(i, num_bytes), num_bytes};
    TANDEM_CHECK(WriteAll(connection, request, sizeof(request)), "socket");
    if (++num_asked - num_read >= depth) take();
  };
  return Measure(source, num_bytes, move, [&] {
    while (num_read < num_asked) take();
  });
}

void Print(const Cell& cell) {
  std::printf(" %6.2f/%5.2f", cell.per_second, cell.per_cpu_second);
  std::fflush(stdout);
}

int Main() {
  sockaddr_in address;
  const int listener = Listen(address);
  int fds[2];
  TANDEM_CHECK(pipe(fds) == 0, "pipe");
  const pid_t child = fork();
  if (child == 0) RunSource(listener, fds[1]);
  close(fds[1]);

  std::vector<std::byte> target(kPoolBytes);
  std::vector<std::byte> local(kPoolBytes);
  FillRandom(local, 2);
  std::vector<std::unique_ptr<FetchLane>> lanes;
  lanes.push_back(OpenLoopbackLane(local, target, kRigIncarnation, IsRigEpochReadable));
  FILE* const in = fdopen(fds[0], "r");
  for (char line[4096]; std::fgets(line, sizeof(line), in) != nullptr;) {
    line[std::strcspn(line, "\n")] = '\0';
    lanes.push_back(OpenRigLane(ParseLaneEnd(line), target));
  }
  const int connection = socket(AF_INET, SOCK_STREAM, 0);
  const int on = 1;
  setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  TANDEM_CHECK(connect(connection, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0, "connect");

  std::printf("%10s %12s %12s", "bytes", "memcpy", "socket");
  for (const auto& lane : lanes) std::printf(" %12s %12s", std::string(lane->kind()).c_str(), "alone");
  std::printf("\n");
  for (const uint64_t num_bytes : kSizes) {
    std::printf("%10lu", num_bytes);
    Print(Measure(
        child, num_bytes,
        [&](uint64_t i) {
          const uint64_t offset = OffsetOf(i, num_bytes);
          std::memcpy(&target[offset], &local[offset], num_bytes);
        },
        [] {}));
    Print(MeasureSocket(child, connection, target, num_bytes));
    for (const auto& lane : lanes) {
      const int depth = static_cast<int>(std::clamp<uint64_t>(kOutstandingBytes / num_bytes, 2, 64));
      Print(MeasureLaneAt(child, *lane, num_bytes, depth));
      Print(MeasureLaneAt(child, *lane, num_bytes, 1));
    }
    std::printf("\n");
  }
  const double before = CpuSeconds(0) + CpuSeconds(child);
  std::this_thread::sleep_for(std::chrono::nanoseconds(absl::ToInt64Nanoseconds(kRestTime)));
  const double at_rest = (CpuSeconds(0) + CpuSeconds(child) - before) / absl::ToDoubleSeconds(kRestTime);
  std::printf("CPU of both processes at rest: %.4f %% of one core\n", at_rest * 100);
  close(connection);
  kill(child, SIGTERM);
  waitpid(child, nullptr, 0);
  return 0;
}

}  // namespace
}  // namespace tandem::kvtransfer

int main() { return tandem::kvtransfer::Main(); }
