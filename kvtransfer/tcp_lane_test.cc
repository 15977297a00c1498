// Proves: a tcp lane stores into its target nothing but the bytes that it asked for, whatever its source says, late,
// twice, or in another order; a source that lies or falls silent costs the lane and nothing else, in bounded time.
#include "kvtransfer/tcp_lane.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/host_port.h"
#include "gtest/gtest.h"
#include "kvtransfer/lane_rig.h"
#include "kvtransfer/tcp_test_socket.h"
#include "kvtransfer/tcp_wire.h"

namespace tandem::kvtransfer {
namespace {

constexpr uint64_t kPoolBytes = 1 << 20;
constexpr std::byte kUntouched{0xee};

// A source by hand: one connection of one lane.
class TcpLaneTest : public testing::Test {
 protected:
  TcpLaneTest() : target_(kPoolBytes, kUntouched), listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const SocketAddress any = *Resolve({"127.0.0.1", 0});
    EXPECT_EQ(bind(listener_, any.get(), any.num_bytes), 0);
    EXPECT_EQ(listen(listener_, 8), 0);
    sockaddr_storage bound = {};
    socklen_t num_bytes = sizeof(bound);
    EXPECT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&bound), &num_bytes), 0);
    end_ = {.kind = "tcp",
            .worker_address = base::HostPort{"127.0.0.1", PortOf(bound)}.ToString(),
            .pool_bytes = kPoolBytes,
            .remote_key = "0123456789abcdef"};
  }
  ~TcpLaneTest() override {
    lane_.reset();
    close(listener_);
  }

  TestSocket OpenLane() {
    auto lane = OpenTcpLane(end_, target_, kRigIncarnation);
    EXPECT_TRUE(lane.ok()) << lane.status();
    lane_ = *std::move(lane);
    TestSocket source(accept(listener_, nullptr, nullptr));
    const TcpGreeting greeting = source.ReadStruct<TcpGreeting>();
    EXPECT_EQ(greeting.magic, kTcpMagic);
    EXPECT_EQ(std::memcmp(greeting.key, "0123456789abcdef", 16), 0);
    EXPECT_EQ(greeting.target_incarnation, kRigIncarnation);
    return source;
  }
  TestSocket OpenWelcomed() {
    TestSocket source = OpenLane();
    source.Write(BytesOf(TcpWelcome{.target_incarnation = kRigIncarnation, .pool_bytes = kPoolBytes}));
    return source;
  }
  // The next request's header; its one run is read away.
  static TcpRequest TakeRequest(TestSocket& source) {
    const TcpRequest request = source.ReadStruct<TcpRequest>();
    EXPECT_EQ(request.num_runs, 1u);
    source.ReadStruct<TcpRun>();
    return request;
  }
  static std::string ReplyTo(const TcpRequest& request, const std::string& payload, uint32_t code = 0) {
    return BytesOf(TcpReply{
               .code = code, .request = request.request, .epoch = request.epoch, .num_bytes = payload.size()}) +
           payload;
  }
  bool IsUntouched() const {
    return std::all_of(target_.begin(), target_.end(), [](std::byte b) { return b == kUntouched; });
  }
  // A fetch of 100 bytes whose source answers with what `answer` makes of the request: how the fetch ends.
  template <typename Answer>
  absl::Status FetchAnsweredBy(Answer answer) {
    TestSocket source = OpenWelcomed();
    FetchResults results;
    lane_->Fetch(1, {{0, 0, 100}}, results.Expect());
    source.Write(answer(TakeRequest(source)));
    return results.Wait()[0];
  }

  std::vector<std::byte> target_;
  const int listener_;
  LaneEnd end_;
  std::unique_ptr<FetchLane> lane_;
};

TEST_F(TcpLaneTest, TakesTheReplyThatItAskedForHoweverItIsCut) {
  for (const size_t cut : {1u, 7u, 31u, 32u, 33u, 64u, 131u}) {
    std::fill(target_.begin(), target_.end(), kUntouched);
    TestSocket source = OpenWelcomed();
    FetchResults results;
    lane_->Fetch(1, {{0, 10, 100}}, results.Expect());
    const std::string reply = ReplyTo(TakeRequest(source), std::string(100, 'x'));
    source.Write(reply.substr(0, cut));
    source.Write(reply.substr(cut));
    EXPECT_TRUE(results.Wait()[0].ok());
    EXPECT_EQ(std::count(target_.begin(), target_.end(), std::byte{'x'}), 100);
    EXPECT_EQ(std::count(target_.begin(), target_.end(), kUntouched), static_cast<int64_t>(kPoolBytes) - 100);
    EXPECT_EQ(target_[10], std::byte{'x'});
  }
}

TEST_F(TcpLaneTest, RefusesWhatItNeverAskedFor) {
  const std::string payload(100, 'x');
  const auto expect_refused = [&](absl::Status status) {
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_TRUE(IsUntouched());
    EXPECT_TRUE(absl::IsUnavailable([&] {  // the lane is dead
      FetchResults later;
      lane_->Fetch(1, {{0, 0, 1}}, later.Expect());
      return later.Wait()[0];
    }()));
  };
  expect_refused(FetchAnsweredBy([&](TcpRequest r) { return ReplyTo({.request = r.request, .epoch = 2}, payload); }));
  expect_refused(
      FetchAnsweredBy([&](TcpRequest r) { return ReplyTo({.request = r.request + 1, .epoch = 1}, payload); }));
  expect_refused(FetchAnsweredBy([&](TcpRequest r) { return ReplyTo(r, payload + "y"); }));
  expect_refused(FetchAnsweredBy([&](TcpRequest r) { return ReplyTo(r, ""); }));
  expect_refused(FetchAnsweredBy([&](TcpRequest r) { return ReplyTo(r, std::string(1 << 20, 'e'), 10); }));
  expect_refused(FetchAnsweredBy([&](TcpRequest) { return std::string(500, '\0'); }));
  expect_refused(FetchAnsweredBy(
      [&](TcpRequest) { return std::string("HTTP/1.1 400 Bad Request\r\n\r\n") + std::string(99, ' '); }));
}

TEST_F(TcpLaneTest, RefusesTheSameReplyTwice) {
  TestSocket source = OpenWelcomed();
  FetchResults results;
  lane_->Fetch(1, {{0, 0, 100}}, results.Expect());
  const std::string reply = ReplyTo(TakeRequest(source), std::string(100, 'x'));
  source.Write(reply + ReplyTo({.request = 1, .epoch = 1}, std::string(100, 'y')));
  EXPECT_TRUE(results.Wait()[0].ok());
  EXPECT_TRUE(source.IsClosed());
  EXPECT_EQ(std::count(target_.begin(), target_.end(), std::byte{'y'}), 0);
}

TEST_F(TcpLaneTest, PassesOnTheSourcesErrorAndLives) {
  TestSocket source = OpenWelcomed();
  for (const std::string text : {"epoch 1 is not readable at the source", ""}) {
    FetchResults results;
    lane_->Fetch(1, {{0, 0, 100}}, results.Expect());
    source.Write(ReplyTo(TakeRequest(source), text, static_cast<uint32_t>(absl::StatusCode::kAborted)));
    EXPECT_EQ(results.Wait()[0], absl::AbortedError(text));
  }
  EXPECT_TRUE(IsUntouched());
}

TEST_F(TcpLaneTest, DrainsTheReplyToACancelledFetchFromAnyByteOn) {
  for (const size_t cut : {0u, 16u, 32u, 50u, 131u}) {
    std::fill(target_.begin(), target_.end(), kUntouched);
    TestSocket source = OpenWelcomed();
    FetchResults results;
    lane_->Fetch(1, {{0, 0, 100}}, results.Expect());
    const std::string reply = ReplyTo(TakeRequest(source), std::string(100, 'x'));
    source.Write(reply.substr(0, cut));
    lane_->Cancel(1);
    EXPECT_TRUE(absl::IsCancelled(results.Wait()[0]));
    const std::vector<std::byte> after_done = target_;
    source.Write(reply.substr(cut));
    FetchResults later;
    lane_->Fetch(2, {{0, 500, 10}}, later.Expect());
    source.Write(ReplyTo(TakeRequest(source), std::string(10, 'z')));
    EXPECT_TRUE(later.Wait()[0].ok());
    EXPECT_TRUE(std::equal(after_done.begin(), after_done.begin() + 500, target_.begin())) << cut;
    EXPECT_EQ(std::count(target_.begin(), target_.end(), std::byte{'z'}), 10);
  }
}

TEST_F(TcpLaneTest, ASourceThatIsAnotherOneThanTheHandshakeSaidIsRefused) {
  for (const TcpWelcome& welcome :
       {TcpWelcome{.magic = 1, .target_incarnation = kRigIncarnation, .pool_bytes = kPoolBytes},
        TcpWelcome{.target_incarnation = 1, .pool_bytes = kPoolBytes},
        TcpWelcome{.target_incarnation = kRigIncarnation, .pool_bytes = kPoolBytes - 1}}) {
    TestSocket source = OpenLane();
    FetchResults results;
    lane_->Fetch(1, {{0, 0, 1}}, results.Expect());
    source.Write(BytesOf(welcome));
    EXPECT_TRUE(absl::IsUnavailable(results.Wait()[0]));
  }
}

TEST_F(TcpLaneTest, ASourceThatNeverWelcomesIsGivenUpInSeconds) {
  TestSocket source = OpenLane();
  FetchResults results;
  lane_->Fetch(1, {{0, 0, 1}}, results.Expect());
  const absl::Status status = results.Wait()[0];  // fails the test where it never ends
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_NE(std::string(status.message()).find("no answer from the source in 2s"), std::string::npos) << status;
}

TEST_F(TcpLaneTest, ASourceThatClosesOrResetsInTheMiddleOfAReplyEndsTheLane) {
  for (const bool is_reset : {false, true}) {
    FetchResults results;
    {
      TestSocket source = OpenWelcomed();
      lane_->Fetch(1, {{0, 0, 100}}, results.Expect());
      source.Write(ReplyTo(TakeRequest(source), std::string(100, 'x')).substr(0, 50));
      if (is_reset) source.Reset();
    }
    EXPECT_TRUE(absl::IsUnavailable(results.Wait()[0]));
  }
}

TEST_F(TcpLaneTest, RefusesEndsThatAreNotItsOwn) {
  for (LaneEnd end : {LaneEnd{.kind = "ucx_am", .worker_address = "127.0.0.1:1", .remote_key = end_.remote_key},
                      LaneEnd{.kind = "tcp", .worker_address = "127.0.0.1:1", .remote_key = "short"},
                      LaneEnd{.kind = "tcp", .worker_address = "", .remote_key = end_.remote_key},
                      LaneEnd{.kind = "tcp", .worker_address = "no port", .remote_key = end_.remote_key}}) {
    EXPECT_EQ(OpenTcpLane(end, target_, 1).status().code(), absl::StatusCode::kInvalidArgument) << end.worker_address;
  }
}

TEST_F(TcpLaneTest, ALaneToNowhereDiesInBoundedTime) {
  // TEST-NET-2: packets go nowhere, or are refused at once where there is no route.
  end_.worker_address = "198.51.100.1:9";
  const auto lane = OpenTcpLane(end_, target_, 1);
  if (!lane.ok()) {
    EXPECT_TRUE(absl::IsUnavailable(lane.status())) << lane.status();
    return;
  }
  FetchResults results;
  (*lane)->Fetch(1, {{0, 0, 100}}, results.Expect());
  EXPECT_TRUE(absl::IsUnavailable(results.Wait()[0]));
}

}  // namespace
}  // namespace tandem::kvtransfer
