// Proves: each fault does what fault_spec.h says, at the fetch where it is asked for, on a clock that the test owns;
// and no fault breaks a lane's promises.
#include "kvtransfer/fault_lane.h"

#include <bit>
#include <cstring>

#include "gtest/gtest.h"
#include "kvtransfer/lane_rig.h"

namespace tandem::kvtransfer {
namespace {

constexpr size_t kPoolBytes = 4096;

// An inner lane that writes down what it is asked and completes it at once.
class RecordingLane final : public FetchLane {
 public:
  explicit RecordingLane(std::span<std::byte> target) : target_(target) {}
  std::string_view kind() const override { return "recording"; }
  void Fetch(uint64_t epoch, std::vector<ByteRun> runs, std::function<void(absl::Status)> done) override {
    {
      absl::MutexLock lock(&mutex_);
      epochs_.push_back(epoch);
    }
    for (const ByteRun& run : runs) std::memset(target_.data() + run.target_offset, 0, run.num_bytes);
    done(absl::OkStatus());
  }
  void Cancel(uint64_t) override {}
  void Close() override {}
  // Waits until `count` fetches have come and returns their epochs in order.
  std::vector<uint64_t> WaitForEpochs(size_t count) {
    absl::MutexLock lock(&mutex_);
    const auto has_count = [this, count] { return epochs_.size() >= count; };
    EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&has_count), absl::Minutes(2)));
    return epochs_;
  }
  size_t num_fetches() const {
    absl::MutexLock lock(&mutex_);
    return epochs_.size();
  }

 private:
  const std::span<std::byte> target_;
  mutable absl::Mutex mutex_;
  std::vector<uint64_t> epochs_;
};

class FaultLaneTest : public testing::Test {
 protected:
  void Open(std::string_view spec) {
    auto inner = std::make_unique<RecordingLane>(target_);
    inner_ = inner.get();
    const auto parsed = ParseFaultSpec(spec);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    lane_ = std::make_unique<FaultLane>(std::move(inner), target_, *parsed, clock_);
  }
  void Fetch(uint64_t epoch) { lane_->Fetch(epoch, {{0, 0, kPoolBytes}}, results_.Expect()); }
  int NumBitsSet() const {
    int count = 0;
    for (const std::byte b : target_) count += std::popcount(static_cast<unsigned>(b));
    return count;
  }

  base::FakeClock clock_;
  std::vector<std::byte> target_ = std::vector<std::byte>(kPoolBytes, std::byte{0xff});
  FetchResults results_;
  std::unique_ptr<FaultLane> lane_;
  RecordingLane* inner_ = nullptr;
};

TEST_F(FaultLaneTest, ChangesNothingWithoutFaults) {
  Open("");
  for (int i = 1; i <= 3; ++i) Fetch(i);
  for (const absl::Status& status : results_.Wait()) EXPECT_TRUE(status.ok());
  EXPECT_EQ(inner_->WaitForEpochs(3), (std::vector<uint64_t>{1, 2, 3}));
}

TEST_F(FaultLaneTest, DropsUntilCancelled) {
  Open("at=0:drop,at=1:drop");
  Fetch(1);
  Fetch(2);
  Fetch(3);
  EXPECT_EQ(inner_->WaitForEpochs(1), (std::vector<uint64_t>{3}));
  clock_.Advance(absl::Hours(1));
  lane_->Cancel(1);
  lane_->Close();  // ends the other
  const std::vector<absl::Status> statuses = results_.Wait();
  EXPECT_TRUE(absl::IsCancelled(statuses[0]));
  EXPECT_TRUE(absl::IsCancelled(statuses[1]));
  EXPECT_TRUE(statuses[2].ok());
  EXPECT_EQ(inner_->num_fetches(), 1u);
  EXPECT_EQ(lane_->counts().at(Fault::kDrop), 2u);
}

TEST_F(FaultLaneTest, FailsAFetchThatMoved) {
  Open("at=0:fail");
  Fetch(1);
  EXPECT_TRUE(absl::IsUnavailable(results_.Wait()[0]));
  EXPECT_EQ(NumBitsSet(), 0);
}

TEST_F(FaultLaneTest, DelaysByTheClock) {
  Open("at=0:delay,delay_time=5s");
  Fetch(1);
  Fetch(2);
  EXPECT_EQ(inner_->WaitForEpochs(1), (std::vector<uint64_t>{2}));
  clock_.Advance(absl::Seconds(5));
  EXPECT_EQ(inner_->WaitForEpochs(2), (std::vector<uint64_t>{2, 1}));
  for (const absl::Status& status : results_.Wait()) EXPECT_TRUE(status.ok());
}

TEST_F(FaultLaneTest, CancelsWhatItDelays) {
  Open("at=0:delay,delay_time=1h");
  Fetch(1);
  lane_->Cancel(1);
  EXPECT_TRUE(absl::IsCancelled(results_.Wait()[0]));
  EXPECT_EQ(inner_->num_fetches(), 0u);
}

TEST_F(FaultLaneTest, NeverStartsWhatWasCancelled) {
  Open("delay=0.5,drop=0.5,delay_time=1h,at=1:none");
  for (int round = 0; round < 200; ++round) {
    Fetch(1);
    lane_->Cancel(1);
    Fetch(2);
    lane_->Cancel(2);
  }
  const std::vector<absl::Status> statuses = results_.Wait();
  for (size_t i = 0; i < statuses.size(); ++i) EXPECT_EQ(absl::IsCancelled(statuses[i]), i != 1) << i;
  EXPECT_EQ(inner_->WaitForEpochs(1), (std::vector<uint64_t>{2}));
}

TEST_F(FaultLaneTest, ReordersWithTheNextFetch) {
  Open("at=0:reorder,delay_time=1h");
  Fetch(1);
  Fetch(2);
  EXPECT_EQ(inner_->WaitForEpochs(2), (std::vector<uint64_t>{2, 1}));
  Open("at=0:reorder,delay_time=3s");  // alone, it goes after the delay
  Fetch(3);
  clock_.Advance(absl::Seconds(3));
  EXPECT_EQ(inner_->WaitForEpochs(1), (std::vector<uint64_t>{3}));
}

TEST_F(FaultLaneTest, DuplicatesButEndsOnce) {
  Open("at=0:duplicate");
  Fetch(1);
  EXPECT_TRUE(results_.Wait()[0].ok());  // Wait demands exactly one call
  EXPECT_EQ(inner_->WaitForEpochs(2), (std::vector<uint64_t>{1, 1}));
}

TEST_F(FaultLaneTest, CorruptsOneBit) {
  Open("at=0:corrupt");
  Fetch(1);
  EXPECT_TRUE(results_.Wait()[0].ok());
  EXPECT_EQ(NumBitsSet(), 1);
}

TEST_F(FaultLaneTest, StallsAndResumesInOrder) {
  Open("at=1:stall,delay_time=2s");
  for (int i = 1; i <= 4; ++i) Fetch(i);
  EXPECT_EQ(inner_->num_fetches(), 1u);
  lane_->Cancel(3);  // is possible in spite of the stall
  clock_.Advance(absl::Seconds(2));
  EXPECT_EQ(inner_->WaitForEpochs(3), (std::vector<uint64_t>{1, 2, 4}));
  EXPECT_TRUE(absl::IsCancelled(results_.Wait()[2]));
}

TEST_F(FaultLaneTest, CloseEndsWhatIsHeldBack) {
  Open("drop=0.3,delay=0.3,reorder=0.2,stall=0.2,delay_time=1h");
  for (int i = 0; i < 100; ++i) Fetch(i);
  lane_->Close();
  for (const absl::Status& status : results_.Wait()) EXPECT_TRUE(status.ok() || absl::IsCancelled(status));
}

}  // namespace
}  // namespace tandem::kvtransfer
