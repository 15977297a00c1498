// One worker's connection under a clock and a channel that the test owns.
#include "router/worker_link.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "router/testing/fake_channel.h"

namespace tandem::router {
namespace {

class Listener final : public WorkerLinkListener {
 public:
  absl::Status CheckWorker(const WorkerLink&, const proto::WorkerHello&) override { return verdict; }
  void OnLinkUp(WorkerLink&, const proto::WorkerHello& hello, bool is_back) override {
    events.push_back((is_back ? "back " : "up ") + hello.identity().instance());
  }
  void OnLinkDown(WorkerLink&, bool was_up, const absl::Status& cause) override {
    events.push_back((was_up ? "down " : "failed ") + std::string(cause.message()));
  }
  void OnWorkerLost(WorkerLink&, const absl::Status& cause) override {
    events.push_back("lost " + std::string(cause.message()));
  }
  void OnLinkMessage(WorkerLink&, const proto::WorkerMessage&) override { events.push_back("message"); }
  void OnLinkBulkReply(WorkerLink&, const proto::BulkReply&) override { events.push_back("bulk reply"); }
  std::vector<std::string> events;
  absl::Status verdict;
};

constexpr LinkTimes kTimes = {.heartbeat_interval = absl::Milliseconds(250), .silence_max = absl::Milliseconds(750)};

class WorkerLinkTest : public testing::Test {
 protected:
  explicit WorkerLinkTest(WorkerRole role = WorkerRole::kDecode)
      : link_("d:1", role, 0, Router(), kTimes, channels_.Factory(), &listener_) {}
  static proto::Identity Router() {
    proto::Identity identity;
    identity.set_instance("r");
    identity.set_incarnation(77);
    return identity;
  }
  // In ticks of the usual length.
  void Advance(absl::Duration by) {
    for (const absl::Duration end = now_ + by; now_ < end;) link_.Tick(now_ += WorkerLink::kTickInterval);
  }
  void Connect() {
    link_.Tick(now_);
    channels_.last().Greet("d", 5);
  }
  std::string LastEvent() const { return listener_.events.empty() ? "" : listener_.events.back(); }

  FakeChannels channels_;
  Listener listener_;
  WorkerLink link_;
  absl::Duration now_ = absl::Seconds(100);
};

TEST_F(WorkerLinkTest, GreetsFirstAndIsUpWithTheWorkersHello) {
  link_.Tick(now_);
  ASSERT_EQ(channels_.num_opened(), 1);
  ASSERT_EQ(channels_.last().sent.size(), 1u);
  EXPECT_EQ(channels_.last().sent[0].hello().incarnation(), 77u);
  EXPECT_FALSE(link_.is_up());
  channels_.last().Greet("d", 5);
  EXPECT_TRUE(link_.is_up());
  EXPECT_EQ(listener_.events, std::vector<std::string>{"up d"});
}

TEST_F(WorkerLinkTest, SendsHeartbeatsWhileUp) {
  Connect();
  const size_t num_before = channels_.last().sent.size();
  for (int i = 0; i < 20; ++i) {  // one second, the worker alive
    Advance(WorkerLink::kTickInterval);
    channels_.last().Heartbeat();
  }
  int num_heartbeats = 0;
  for (size_t i = num_before; i < channels_.last().sent.size(); ++i) {
    num_heartbeats += channels_.last().sent[i].has_heartbeat() ? 1 : 0;
  }
  EXPECT_EQ(num_heartbeats, 4);
}

TEST_F(WorkerLinkTest, SilenceBeyondTheBoundIsDown) {
  Connect();
  Advance(kTimes.silence_max);
  EXPECT_TRUE(link_.is_up()) << "the bound itself is not beyond it";
  Advance(absl::Milliseconds(100));
  EXPECT_FALSE(link_.is_up());
  EXPECT_EQ(LastEvent(), "down silent for 800ms");
}

TEST_F(WorkerLinkTest, AnyMessageIsASignOfLife) {
  Connect();
  for (int i = 0; i < 100; ++i) {
    Advance(absl::Milliseconds(500));
    proto::WorkerMessage message;
    message.mutable_load();
    channels_.last().Receive(message);
    ASSERT_TRUE(link_.is_up());
  }
}

TEST_F(WorkerLinkTest, OwnStallIsNotTheWorkersSilence) {
  Connect();
  link_.Tick(now_ += absl::Seconds(10));  // this process did not run
  EXPECT_TRUE(link_.is_up());
  Advance(kTimes.silence_max + absl::Milliseconds(100));
  EXPECT_FALSE(link_.is_up()) << "and the worker still has to speak";
}

TEST_F(WorkerLinkTest, ClosedChannelIsDownAtOnceAndOpenedAgain) {
  Connect();
  channels_.last().Break(absl::UnavailableError("reset"));
  EXPECT_EQ(LastEvent(), "down reset");
  Advance(kBackoffMin + WorkerLink::kTickInterval);
  EXPECT_EQ(channels_.num_opened(), 2);
  EXPECT_FALSE(channels_.opened(0).is_open);
  channels_.last().Greet("d", 6);
  EXPECT_TRUE(link_.is_up());
}

TEST_F(WorkerLinkTest, ALostStreamIsOpenedAtOnceAndTheSameWorkerIsBack) {
  Connect();
  channels_.last().Break(absl::UnavailableError("reset"));
  EXPECT_TRUE(link_.is_awaited());
  link_.Tick(now_ += WorkerLink::kTickInterval);
  ASSERT_EQ(channels_.num_opened(), 2);
  channels_.last().Greet("d", 5);
  EXPECT_FALSE(link_.is_awaited());
  Advance(kTimes.silence_max);
  EXPECT_EQ(listener_.events, (std::vector<std::string>{"up d", "down reset", "back d"}));
}

TEST_F(WorkerLinkTest, AnotherIncarnationMeansThatTheOldOneIsLost) {
  Connect();
  channels_.last().Break(absl::UnavailableError("reset"));
  link_.Tick(now_ += WorkerLink::kTickInterval);
  channels_.last().Greet("d", 6);
  EXPECT_EQ(listener_.events, (std::vector<std::string>{"up d", "down reset", "lost worker was restarted", "up d"}));
}

TEST_F(WorkerLinkTest, AWorkerThatIsNotBackInTimeIsLostOnceAndNewWhenItReturns) {
  Connect();
  channels_.last().Break(absl::UnavailableError("reset"));
  for (const absl::Duration end = now_ + kReattachWaitMax; now_ < end;) {
    EXPECT_TRUE(link_.is_awaited());
    const int before = channels_.num_opened();
    link_.Tick(now_ += WorkerLink::kTickInterval);
    if (channels_.num_opened() > before) channels_.last().Break(absl::UnavailableError("refused"));
  }
  EXPECT_FALSE(link_.is_awaited());
  EXPECT_EQ(std::count(listener_.events.begin(), listener_.events.end(), "lost reset"), 1);
  Advance(kBackoffMax + WorkerLink::kTickInterval);
  channels_.last().Greet("d", 5);
  EXPECT_EQ(LastEvent(), "up d") << "what ran there was given up: it is as good as new";
  EXPECT_EQ(std::count(listener_.events.begin(), listener_.events.end(), "lost reset"), 1);
}

TEST_F(WorkerLinkTest, AHelloThatHangsDoesNotProlongTheWait) {
  Connect();
  channels_.last().Break(absl::UnavailableError("reset"));
  Advance(kReattachWaitMax);  // connected again, and no word
  EXPECT_EQ(LastEvent(), "lost reset");
}

TEST_F(WorkerLinkTest, AWorkerThatOnlyGreetsIsLostAllTheSame) {
  Connect();
  for (const absl::Duration end = now_ + absl::Seconds(4); now_ < end;) {
    link_.Tick(now_ += WorkerLink::kTickInterval);
    FakeChannelState& channel = channels_.last();
    if (!channel.is_greeted) channel.Greet("d", 5);
  }
  EXPECT_EQ(std::count(listener_.events.begin(), listener_.events.end(), "lost silent for 800ms"), 1);
}

TEST_F(WorkerLinkTest, EachLossOfAWorkerThatIsHeardInBetweenStartsAWaitOfItsOwn) {
  Connect();
  for (int i = 0; i < 10; ++i) {
    channels_.last().Break(absl::UnavailableError("reset"));
    Advance(absl::Milliseconds(600));
    channels_.last().Greet("d", 5);
    channels_.last().Heartbeat();
    ASSERT_EQ(LastEvent(), "back d");
  }
}

TEST_F(WorkerLinkTest, OwnStallDoesNotShortenTheWait) {
  Connect();
  channels_.last().Break(absl::UnavailableError("reset"));
  link_.Tick(now_ += absl::Seconds(10));
  EXPECT_TRUE(link_.is_awaited());
  channels_.last().Greet("d", 5);
  EXPECT_EQ(LastEvent(), "back d");
}

TEST_F(WorkerLinkTest, BacksOffUpToTheBound) {
  std::vector<absl::Duration> opened_at;
  for (int i = 0; i < 400; ++i) {
    const int before = channels_.num_opened();
    link_.Tick(now_ += WorkerLink::kTickInterval);
    if (channels_.num_opened() == before) continue;
    opened_at.push_back(now_);
    channels_.last().Break(absl::UnavailableError("refused"));
  }
  ASSERT_GT(opened_at.size(), 8u);
  EXPECT_LE(opened_at[1] - opened_at[0], kBackoffMin + WorkerLink::kTickInterval);
  for (size_t i = 2; i < opened_at.size(); ++i) {
    EXPECT_GE(opened_at[i] - opened_at[i - 1], opened_at[i - 1] - opened_at[i - 2]);
    EXPECT_LE(opened_at[i] - opened_at[i - 1], kBackoffMax + WorkerLink::kTickInterval);
  }
}

TEST_F(WorkerLinkTest, WorkerThatNeverGreetsIsGivenUp) {
  link_.Tick(now_);
  Advance(kHelloWaitMax + absl::Milliseconds(100));
  EXPECT_EQ(LastEvent(), "failed no hello within 2s");
}

TEST_F(WorkerLinkTest, WrongWorkersAreRefusedWithTheReason) {
  const auto refused = [this](const std::function<void(proto::WorkerMessage&)>& spoil) {
    Advance(kBackoffMax + WorkerLink::kTickInterval);
    proto::WorkerMessage message;
    proto::Identity* identity = message.mutable_hello()->mutable_identity();
    identity->set_role("decode");
    identity->set_incarnation(5);
    identity->set_protocol_version(1);
    spoil(message);
    channels_.last().Receive(message);
    EXPECT_FALSE(link_.is_up());
    return LastEvent();
  };
  EXPECT_EQ(refused([](proto::WorkerMessage& m) { m.mutable_hello()->mutable_identity()->set_role("prefill"); }),
            "failed d:1 is a prefill worker, not a decode worker");
  EXPECT_EQ(refused([](proto::WorkerMessage& m) { m.mutable_hello()->mutable_identity()->set_incarnation(0); }),
            "failed incarnation is 0");
  EXPECT_EQ(refused([](proto::WorkerMessage& m) { m.mutable_hello()->mutable_identity()->set_protocol_version(9); }),
            "failed protocol version is 9, this router speaks 1");
  EXPECT_EQ(refused([](proto::WorkerMessage& m) { m.mutable_heartbeat(); }), "failed first message is not a hello");
}

TEST_F(WorkerLinkTest, NothingIsSentOrHeardWhileDown) {
  Connect();
  FakeChannelState& old = channels_.last();
  old.Break(absl::UnavailableError("reset"));
  const size_t num_sent = old.sent.size();
  link_.Send(proto::RouterMessage());
  link_.SendPart(proto::GeneratePart());
  EXPECT_EQ(old.sent.size(), num_sent);
  EXPECT_TRUE(old.parts.empty());
  proto::WorkerMessage late;
  late.mutable_load();
  old.Receive(late);
  EXPECT_EQ(LastEvent(), "down reset");
}

TEST_F(WorkerLinkTest, SecondHelloOnOneStreamIsABreach) {
  Connect();
  channels_.last().Greet("d", 5);
  EXPECT_EQ(LastEvent(), "down second hello on one stream");
}

class PrefillLinkTest : public WorkerLinkTest {
 protected:
  PrefillLinkTest() : WorkerLinkTest(WorkerRole::kPrefill) {}
};

TEST_F(PrefillLinkTest, MustNameItsBootstrapAddress) {
  link_.Tick(now_);
  channels_.last().Greet("p", 5, "");
  EXPECT_EQ(LastEvent(), "failed prefill worker names no bootstrap address");
  Advance(kBackoffMin + WorkerLink::kTickInterval);
  channels_.last().Greet("p", 5, "10.0.0.1:8998");
  EXPECT_TRUE(link_.is_up());
}

TEST_F(WorkerLinkTest, AWorkerThatTheListenerRefusesIsAskedAgainButNotWhileTheLinkIsHeld) {
  listener_.verdict = absl::AlreadyExistsError("known");
  Advance(WorkerLink::kTickInterval);
  channels_.last().Greet("d", 5);
  EXPECT_EQ(listener_.events, std::vector<std::string>{"failed known"});
  EXPECT_FALSE(link_.is_up());
  EXPECT_EQ(link_.incarnation(), 0u);
  link_.Hold(true);
  Advance(10 * kBackoffMax);
  EXPECT_EQ(channels_.num_opened(), 1);
  listener_.verdict = absl::OkStatus();
  link_.Hold(false);
  Advance(WorkerLink::kTickInterval);
  ASSERT_EQ(channels_.num_opened(), 2);
  channels_.last().Greet("d", 5);
  EXPECT_TRUE(link_.is_up());
  EXPECT_EQ(link_.incarnation(), 5u);
}

}  // namespace
}  // namespace tandem::router
