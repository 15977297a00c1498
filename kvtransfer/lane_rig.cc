#include "kvtransfer/lane_rig.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/check.h"
#include "base/clock.h"
#include "gtest/gtest.h"
#include "kvtransfer/fault_lane.h"
#include "kvtransfer/lane_end.h"
#include "kvtransfer/loopback_lane.h"
#include "kvtransfer/tcp_lane.h"
#include "kvtransfer/tcp_source.h"
#include "kvtransfer/ucx_am_lane.h"
#include "kvtransfer/ucx_shm_lane.h"
#include "kvtransfer/ucx_source.h"

namespace tandem::kvtransfer {
namespace {

class LoopbackRig final : public LaneRig {
 public:
  explicit LoopbackRig(size_t pool_bytes) : pool_(pool_bytes) {}
  std::span<std::byte> source() override { return pool_; }
  std::unique_ptr<FetchLane> Open(std::span<std::byte> target) override {
    return OpenLoopbackLane(pool_, target, kRigIncarnation, IsRigEpochReadable);
  }
  void StopSource() override {}
  bool HasAnsweringSource() const override { return true; }

 private:
  std::vector<std::byte> pool_;
};

class FaultRig final : public LaneRig {
 public:
  explicit FaultRig(size_t pool_bytes) : inner_(pool_bytes) {}
  std::span<std::byte> source() override { return inner_.source(); }
  std::unique_ptr<FetchLane> Open(std::span<std::byte> target) override {
    const auto spec = ParseFaultSpec("seed=3,delay=0.2,reorder=0.3,duplicate=0.4,stall=0.05,delay_time=1ms");
    TANDEM_CHECK(spec.ok(), spec.status().ToString());
    return std::make_unique<FaultLane>(inner_.Open(target), target, *spec, base::RealClock());
  }
  void StopSource() override {}
  bool HasAnsweringSource() const override { return true; }

 private:
  LoopbackRig inner_;
};

class UcxRig final : public LaneRig {
 public:
  UcxRig(std::string_view kind, size_t pool_bytes) : kind_(kind) {
    auto started = UcxSource::Start({.pool_bytes = pool_bytes,
                                     .offers_shm = kind == kUcxShmKind,
                                     .offers_am = kind == kUcxAmKind,
                                     .am_listen_host = "127.0.0.1",
                                     .is_epoch_readable = IsRigEpochReadable});
    TANDEM_CHECK(started.ok(), started.status().ToString());
    source_ = *std::move(started);
  }
  std::span<std::byte> source() override { return source_->pool(); }
  std::unique_ptr<FetchLane> Open(std::span<std::byte> target) override {
    return OpenRigLane(source_->lane_ends().at(0), target);
  }
  void StopSource() override { source_->Stop(); }
  bool HasAnsweringSource() const override { return kind_ == kUcxAmKind; }

 private:
  const std::string kind_;
  std::unique_ptr<UcxSource> source_;
};

class TcpRig final : public LaneRig {
 public:
  explicit TcpRig(size_t pool_bytes) : pool_(pool_bytes) {
    auto started =
        TcpSource::Start({.pool = pool_, .listen_host = "127.0.0.1", .is_epoch_readable = IsRigEpochReadable});
    TANDEM_CHECK(started.ok(), started.status().ToString());
    source_ = *std::move(started);
  }
  std::span<std::byte> source() override { return pool_; }
  std::unique_ptr<FetchLane> Open(std::span<std::byte> target) override {
    return OpenRigLane(source_->lane_end(), target);
  }
  void StopSource() override { source_->Stop(); }
  bool HasAnsweringSource() const override { return true; }

 private:
  std::vector<std::byte> pool_;
  std::unique_ptr<TcpSource> source_;
};

}  // namespace

bool IsRigEpochReadable(const FetchOrigin& origin) {
  return origin.target_incarnation == kRigIncarnation && origin.epoch >= 1 && origin.epoch <= 100;
}

std::unique_ptr<LaneRig> MakeLaneRig(std::string_view kind, size_t pool_bytes) {
  if (kind == "loopback") return std::make_unique<LoopbackRig>(pool_bytes);
  if (kind == "fault") return std::make_unique<FaultRig>(pool_bytes);
  if (kind == kTcpKind) return std::make_unique<TcpRig>(pool_bytes);
  if (kind == kUcxShmKind || kind == kUcxAmKind) return std::make_unique<UcxRig>(kind, pool_bytes);
  TANDEM_CHECK(false, absl::StrCat("no rig for lanes of kind ", std::string(kind)));
}

std::unique_ptr<FetchLane> OpenRigLane(const LaneEnd& end, std::span<std::byte> target) {
  absl::StatusOr<std::unique_ptr<FetchLane>> lane =
      absl::InvalidArgumentError(absl::StrCat("no lane of kind ", end.kind));
  if (end.kind == kUcxShmKind) lane = OpenUcxShmLane(end, target);
  if (end.kind == kUcxAmKind) lane = OpenUcxAmLane(end, target, kRigIncarnation);
  if (end.kind == kTcpKind) lane = OpenTcpLane(end, target, kRigIncarnation);
  TANDEM_CHECK(lane.ok(), lane.status().ToString());
  return *std::move(lane);
}

std::function<void(absl::Status)> FetchResults::Expect() {
  absl::MutexLock lock(&mutex_);
  const size_t index = results_.size();
  results_.emplace_back();
  return [this, index](absl::Status status) {
    absl::MutexLock lock(&mutex_);
    ++results_[index].num_calls;
    results_[index].status = std::move(status);
  };
}

std::vector<absl::Status> FetchResults::Wait() {
  absl::MutexLock lock(&mutex_);
  EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(this, &FetchResults::AreAllDone), absl::Minutes(2)));
  std::vector<absl::Status> statuses;
  for (const Result& result : results_) {
    EXPECT_EQ(result.num_calls, 1);
    statuses.push_back(result.num_calls == 0 ? absl::UnknownError("never done") : result.status);
  }
  return statuses;
}

bool FetchResults::AreAllDone() const {
  return std::all_of(results_.begin(), results_.end(), [](const Result& result) { return result.num_calls > 0; });
}

void FillRandom(std::span<std::byte> bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    const uint64_t word = random();
    std::memcpy(bytes.data() + i, &word, sizeof(word));
  }
  for (; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(random());
}

}  // namespace tandem::kvtransfer
