// Proves: lanes are ordered by what they are measured to give, and by this side's order where that does not decide; one
// that fails or is far too slow is refused with the reason in words, and the others are used; faults are put around
// lanes after they were measured. Not proved here: the lanes' own bytes (//kvtransfer:lane_conformance_test).
#include "decode_worker/lane_wiring.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvtransfer/lane_end.h"
#include "kvtransfer/tcp_source.h"

namespace tandem::decode {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr uint64_t kPoolBytes = 4 << 20;
constexpr uint64_t kDecode = 3;

// Every look at it costs this much: what is measured by it took so long.
class SlowClock final : public base::Clock {
 public:
  explicit SlowClock(absl::Duration step) : step_(step) {}
  absl::Duration Now() const override { return now_ += step_; }
  absl::Time WallTime() const override { return absl::UnixEpoch() + now_; }

 private:
  const absl::Duration step_;
  mutable absl::Duration now_;
};

class LaneWiringTest : public ::testing::Test {
 protected:
  LaneWiringTest() : pool_(kPoolBytes, std::byte{7}), target_(kPoolBytes + kvtransfer::kWarmUpBytesMax) {
    auto source = kvtransfer::TcpSource::Start(
        {.pool = pool_, .listen_host = "127.0.0.1", .is_epoch_readable = [](const auto& origin) {
           return origin.target_incarnation == kDecode;
         }});
    EXPECT_TRUE(source.ok()) << source.status();
    source_ = *std::move(source);
    reply_.mutable_identity()->set_incarnation(9);
    reply_.set_num_pages(4);
    reply_.add_ranks();
    Offer("tcp", source_->lane_end().worker_address, source_->lane_end().remote_key);
    options_ = {.kinds = {"ucx_shm", "tcp", "ucx_am"},
                .target_incarnation = kDecode,
                .target = target_,
                .warm_up_offset = kPoolBytes,
                .warm_up_bytes = kvtransfer::kWarmUpBytesMax};
  }

  void Offer(const std::string& kind, const std::string& address, const std::string& key) {
    proto::LaneEnd& end = *reply_.mutable_ranks(0)->add_lanes();
    end.set_kind(kind);
    end.set_worker_address(address);
    end.set_pool_bytes(kPoolBytes);
    end.set_remote_key(key);
  }
  // How a fetch of the first 4 KiB over the best lane ends.
  static absl::Status FetchOver(const WiredPeer& wired) {
    absl::Notification is_done;
    absl::Status status;
    wired.lanes[0][0]->Fetch(1, {{.source_offset = 0, .target_offset = 0, .num_bytes = 4096}}, [&](absl::Status ended) {
      status = std::move(ended);
      is_done.Notify();
    });
    is_done.WaitForNotification();
    return status;
  }

  const SlowClock quick_{absl::Milliseconds(1)};
  const SlowClock slow_{absl::Seconds(1)};
  std::vector<std::byte> pool_;
  std::vector<std::byte> target_;
  std::unique_ptr<kvtransfer::TcpSource> source_;
  proto::HelloReply reply_;
  LaneWiringOptions options_;
};

TEST_F(LaneWiringTest, UsesWhatIsOfferedAndSaysItsRate) {
  const WiredPeer wired = WirePeer(reply_, 5, options_, quick_);
  EXPECT_EQ(wired.source.incarnation, 9u);
  EXPECT_EQ(wired.source.session, 5u);
  ASSERT_EQ(wired.source.lanes.size(), 1u);
  EXPECT_EQ(wired.source.lanes[0].kind, "tcp");
  EXPECT_NEAR(wired.source.lanes[0].bytes_per_second, kvtransfer::kWarmUpBytesMax * 1e3, 1);
  EXPECT_EQ(wired.source.detail, "tcp 1049 MB/s");
  EXPECT_THAT(wired.refusals, IsEmpty());  // what the peer does not offer is not refused
  EXPECT_TRUE(FetchOver(wired).ok());
  EXPECT_EQ(target_[4095], std::byte{7});
  EXPECT_EQ(target_[4096], std::byte{0});
}

TEST_F(LaneWiringTest, ALaneFarBelowItsKindsRateIsRefusedWithBothRates) {
  const WiredPeer wired = WirePeer(reply_, 5, options_, slow_);
  EXPECT_THAT(wired.source.lanes, IsEmpty());
  EXPECT_EQ(wired.source.detail, "no lane works; refused: tcp: tcp lane gives 1 MB/s, at least 20 MB/s are expected");
}

TEST_F(LaneWiringTest, ALaneThatCannotBeOpenedIsRefusedWithItsReasonAndTheOthersAreUsed) {
  Offer("ucx_am", "127.0.0.1:1", "");  // nobody listens there
  Offer("ucx_shm", "no address of UCX", "no key");
  const WiredPeer wired = WirePeer(reply_, 5, options_, quick_);
  ASSERT_EQ(wired.source.lanes.size(), 1u);
  EXPECT_THAT(wired.refusals, ElementsAre(StartsWith("ucx_shm: "), StartsWith("ucx_am: ")));
  EXPECT_THAT(wired.source.detail, StartsWith("tcp 1049 MB/s; refused: ucx_shm: "));
  EXPECT_TRUE(FetchOver(wired).ok());
}

TEST_F(LaneWiringTest, AnEarlierProcessesEndAtThisAddressIsRefused) {
  reply_.mutable_ranks(0)->mutable_lanes(0)->set_remote_key("another process.");
  const WiredPeer wired = WirePeer(reply_, 5, options_, quick_);
  EXPECT_THAT(wired.source.lanes, IsEmpty());
  EXPECT_THAT(wired.source.detail, HasSubstr("refused: tcp: "));
}

TEST_F(LaneWiringTest, AKindCountsOnlyWhereEveryRankHasIt) {
  reply_.add_ranks()->set_rank(1);
  const WiredPeer wired = WirePeer(reply_, 5, options_, quick_);
  EXPECT_EQ(wired.source.num_source_ranks, 2);
  EXPECT_THAT(wired.source.lanes, IsEmpty());
  EXPECT_EQ(wired.source.detail, "no lane works");
}

TEST_F(LaneWiringTest, FaultsStrikeFetchesButNotTheMeasurement) {
  options_.faults = *kvtransfer::ParseFaultSpec("at=0:fail");
  const WiredPeer wired = WirePeer(reply_, 5, options_, quick_);
  ASSERT_EQ(wired.source.lanes.size(), 1u);
  EXPECT_EQ(wired.source.lanes[0].kind, "tcp");
  EXPECT_EQ(FetchOver(wired).code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(FetchOver(wired).ok());
}

}  // namespace
}  // namespace tandem::decode
