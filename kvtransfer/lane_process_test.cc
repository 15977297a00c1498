// Proves, with real processes: every lane between processes carries bytes from one process to another; a source that is
// killed or stopped in the middle costs its fetches and nothing else, in bounded time; nothing is left in /dev/shm; and
// decode workers that die at any moment, while they connect too, do the source no harm.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <random>
#include <set>

#include "base/clock.h"
#include "gtest/gtest.h"
#include "kvtransfer/lane_rig.h"
#include "kvtransfer/lane_test_end.h"
#include "kvtransfer/tcp_source.h"
#include "kvtransfer/ucx_shm_lane.h"
#include "kvtransfer/ucx_source.h"

extern char** environ;

namespace tandem::kvtransfer {
namespace {

constexpr uint64_t kPoolBytes = 8 << 20;
constexpr absl::Duration kBound = absl::Minutes(1);  // generous: the machine may be slow and busy

// A lane_test_peer, killed at the end of its scope.
class Peer final {
 public:
  explicit Peer(std::vector<std::string> args) {
    args.insert(args.begin(), "kvtransfer/lane_test_peer");
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    argv.push_back(nullptr);
    int fds[2];
    EXPECT_EQ(pipe2(fds, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fds[1], STDOUT_FILENO);
    EXPECT_EQ(posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(fds[1]);
    output_ = fdopen(fds[0], "r");
  }
  ~Peer() {
    Kill();
    std::fclose(output_);
  }
  // The next line it prints; empty at its end.
  std::string ReadLine() {
    char line[4096];
    if (std::fgets(line, sizeof(line), output_) == nullptr) return "";
    line[std::strcspn(line, "\n")] = '\0';
    return line;
  }
  void Signal(int signal) { EXPECT_EQ(kill(pid_, signal), 0); }
  void Kill() {
    if (pid_ == 0) return;
    Signal(SIGKILL);
    EXPECT_EQ(waitpid(pid_, nullptr, 0), pid_);
    pid_ = 0;
  }

 private:
  pid_t pid_ = 0;
  FILE* output_ = nullptr;
};

std::set<std::string> SegmentsInShm() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    const std::string name = entry.path().filename();
    if (name.find("ucx") != std::string::npos) names.insert(name);
  }
  return names;
}

class LaneProcessTest : public testing::TestWithParam<std::string> {
 protected:
  LaneProcessTest() : source_({"source", std::to_string(kPoolBytes), "7"}), target_(kPoolBytes), expected_(kPoolBytes) {
    FillRandom(expected_, 7);
    for (std::string line = source_.ReadLine(); !line.empty(); line = source_.ReadLine()) {
      end_ = ParseLaneEnd(line);
      if (end_.kind == GetParam()) break;
    }
    lane_ = OpenRigLane(end_, target_);
  }

  absl::Status FetchNow() {
    FetchResults results;
    lane_->Fetch(1, {{0, 0, kPoolBytes}}, results.Expect());
    return results.Wait()[0];
  }

  const std::set<std::string> segments_before_ = SegmentsInShm();  // of other processes, those of the dead, too
  Peer source_;
  LaneEnd end_;
  std::vector<std::byte> target_;
  std::vector<std::byte> expected_;
  std::unique_ptr<FetchLane> lane_;
};

TEST_P(LaneProcessTest, CarriesAPoolFromOneProcessToAnother) {
  ASSERT_TRUE(FetchNow().ok());
  EXPECT_EQ(target_, expected_);
}

TEST_P(LaneProcessTest, OutlivesASourceThatIsKilledInTheMiddle) {
  ASSERT_TRUE(FetchNow().ok());
  FetchResults results;
  for (int i = 0; i < 100; ++i) lane_->Fetch(1, {{0, 0, kPoolBytes}}, results.Expect());
  source_.Kill();
  const absl::Duration killed = base::RealClock().Now();
  for (const absl::Status& status : results.Wait()) {
    EXPECT_TRUE(status.ok() || absl::IsUnavailable(status)) << status;
  }
  // Over shared memory the mapping stays and every fetch still ends well; over TCP the lane is dead.
  EXPECT_EQ(FetchNow().code(), GetParam() == kUcxShmKind ? absl::StatusCode::kOk : absl::StatusCode::kUnavailable);
  EXPECT_EQ(target_, expected_);
  lane_->Close();
  EXPECT_LT(base::RealClock().Now() - killed, kBound);
}

TEST_P(LaneProcessTest, LeavesNothingInShmAfterAKill) {
  ASSERT_TRUE(FetchNow().ok());
  source_.Kill();
  lane_.reset();
  // Other processes have segments there for an instant: only what is new and stays is a leftover.
  std::set<std::string> left = SegmentsInShm();
  std::erase_if(left, [this](const std::string& name) { return segments_before_.contains(name); });
  const absl::Duration deadline = base::RealClock().Now() + kBound;
  while (!left.empty() && base::RealClock().Now() < deadline) {
    const std::set<std::string> now = SegmentsInShm();
    std::erase_if(left, [&](const std::string& name) { return !now.contains(name); });
  }
  EXPECT_TRUE(left.empty()) << *left.begin();
}

TEST_P(LaneProcessTest, CancelsAndClosesWhileItsSourceIsStopped) {
  ASSERT_TRUE(FetchNow().ok());
  source_.Signal(SIGSTOP);
  const absl::Duration stopped = base::RealClock().Now();
  FetchResults results;
  for (int i = 0; i < 20; ++i) lane_->Fetch(1 + i % 2, {{0, 0, kPoolBytes}}, results.Expect());
  lane_->Cancel(1);
  lane_->Close();
  for (const absl::Status& status : results.Wait()) {
    if (GetParam() == kUcxAmKind) {
      EXPECT_TRUE(absl::IsCancelled(status)) << status;
    } else {  // by itself, or with what was on its way
      EXPECT_TRUE(status.ok() || absl::IsCancelled(status)) << status;
    }
  }
  EXPECT_LT(base::RealClock().Now() - stopped, kBound);
}

TEST_P(LaneProcessTest, GoesOnWhenItsSourceIsResumed) {
  ASSERT_TRUE(FetchNow().ok());
  source_.Signal(SIGSTOP);
  FetchResults results;
  for (int i = 0; i < 5; ++i) lane_->Fetch(1, {{0, 0, kPoolBytes}}, results.Expect());
  source_.Signal(SIGCONT);
  for (const absl::Status& status : results.Wait()) EXPECT_TRUE(status.ok()) << status;
}

TEST_P(LaneProcessTest, RefusesAnEndWhoseProcessIsGone) {
  source_.Kill();
  std::vector<std::byte> other(kPoolBytes);
  const absl::Duration start = base::RealClock().Now();
  if (GetParam() == kUcxShmKind) {
    const absl::Status status = OpenUcxShmLane(end_, other).status();
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  } else {
    const std::unique_ptr<FetchLane> lane = OpenRigLane(end_, other);
    FetchResults results;
    lane->Fetch(1, {{0, 0, 1}}, results.Expect());
    EXPECT_TRUE(absl::IsUnavailable(results.Wait()[0]));
  }
  EXPECT_LT(base::RealClock().Now() - start, kBound);
}

INSTANTIATE_TEST_SUITE_P(AllKinds, LaneProcessTest, testing::Values(kUcxShmKind, kTcpKind, kUcxAmKind),
                         [](const auto& info) { return info.param; });

void SurviveTargetsThatDieAtAnyMoment(const LaneEnd& end) {
  std::vector<std::byte> target(kPoolBytes);
  const std::unique_ptr<FetchLane> lane = OpenRigLane(end, target);
  std::mt19937_64 random(1);
  for (int i = 0; i < 20; ++i) {
    Peer peer({"target", PrintLaneEnd(end)});
    ASSERT_EQ(peer.ReadLine(), "open");
    // How far the other comes before it dies is measured in this lane's own fetches: some 0 to 10 ms.
    for (uint64_t n = random() % 10; n > 0; --n) {
      FetchResults results;
      lane->Fetch(1, {{0, 0, kPoolBytes / 8}}, results.Expect());
      ASSERT_TRUE(results.Wait()[0].ok());
    }
    peer.Kill();
  }
  FetchResults results;
  lane->Fetch(1, {{0, 0, kPoolBytes}}, results.Expect());
  EXPECT_TRUE(results.Wait()[0].ok());
}

// UCX 1.13.1 aborts a source whose peer dies while it connects by worker address: this is why ucx_am has a listener.
TEST(SourceProcessTest, OfUcxSurvivesTargetsThatDieAtAnyMoment) {
  auto source =
      UcxSource::Start({.pool_bytes = kPoolBytes, .offers_shm = false, .is_epoch_readable = IsRigEpochReadable});
  ASSERT_TRUE(source.ok()) << source.status();
  SurviveTargetsThatDieAtAnyMoment((*source)->lane_ends()[0]);
}

TEST(SourceProcessTest, OfTcpSurvivesTargetsThatDieAtAnyMoment) {
  const std::vector<std::byte> pool(kPoolBytes);
  auto source = TcpSource::Start({.pool = pool, .is_epoch_readable = IsRigEpochReadable});
  ASSERT_TRUE(source.ok()) << source.status();
  SurviveTargetsThatDieAtAnyMoment((*source)->lane_end());
}

TEST(SourceProcessTest, SaysInOneLineThatShmIsTooSmall) {
  Peer peer({"small_shm", "4m", std::to_string(kPoolBytes)});
  const std::string line = peer.ReadLine();
  if (line == "not permitted") GTEST_SKIP() << "mounting a small /dev/shm needs CAP_SYS_ADMIN";
  EXPECT_EQ(line,
            "RESOURCE_EXHAUSTED: kv pool of 8388608 bytes does not fit in /dev/shm: 4194304 bytes are free; enlarge it "
            "or turn ucx_shm off");
  EXPECT_EQ(peer.ReadLine(), "");
}

}  // namespace
}  // namespace tandem::kvtransfer
