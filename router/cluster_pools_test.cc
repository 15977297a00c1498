// Pools that change while requests run: who is greeted, who is used, who may finish, whose place is free again.
#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "router/cluster.h"
#include "router/testing/fake_channel.h"

namespace tandem::router {
namespace {

class NoListener final : public RequestListener {
 public:
  void OnTokens(GeneratedTokens tokens) override { num_tokens += static_cast<int>(tokens.tokens.size()); }
  void OnEnded(const absl::Status&, bool) override { ++num_ended; }
  void OnWorkerLost(const absl::Status&) override { ++num_lost; }
  int num_tokens = 0;
  int num_ended = 0;
  int num_lost = 0;
};

class ClusterPoolsTest : public testing::Test {
 protected:
  ClusterPoolsTest() : cluster_(Options(), channels_.Factory()) {}
  static Cluster::Options Options() {
    Cluster::Options options;
    options.identity.set_instance("r");
    options.identity.set_incarnation(77);
    return options;
  }
  void Tick() { cluster_.Tick(now_ += WorkerLink::kTickInterval); }
  // Greets every open stream that has not been yet; decode workers call every pair usable.
  void GreetAll() {
    Tick();
    for (int i = 0; i < channels_.num_opened(); ++i) {
      FakeChannelState& channel = channels_.opened(i);
      if (!channel.is_open || channel.is_greeted) continue;
      const std::string bootstrap = channel.role == WorkerRole::kPrefill ? BootstrapOf(channel.address) : "";
      channel.Greet(channel.address, ++last_incarnation_, bootstrap);
    }
    for (int i = 0; i < channels_.num_opened(); ++i) {
      FakeChannelState& channel = channels_.opened(i);
      if (!channel.is_open || channel.role != WorkerRole::kDecode) continue;
      for (const PrefillView& prefill : cluster_.view().prefills) {
        proto::WorkerMessage message;
        message.mutable_peer_status()->set_bootstrap_address(prefill.bootstrap_address);
        message.mutable_peer_status()->set_is_usable(true);
        if (!prefill.address.empty()) channel.Receive(message);
      }
    }
  }
  static std::string BootstrapOf(const std::string& address) { return absl::StrCat("boot-", address); }
  PairChoice Pick(uint64_t turn = 0) {
    const absl::StatusOr<PairChoice> pair = PickPair(cluster_.view(), 10, turn);
    EXPECT_TRUE(pair.ok()) << pair.status();
    return pair.ok() ? *pair : PairChoice();
  }
  uint64_t Generate(const PairChoice& pair, RequestListener* listener) {
    GenerateOrder order;
    order.prompt = {1, 2, 3};
    order.max_new_tokens = 9;
    return cluster_.Generate(pair, order, listener);
  }
  PairChoice PairOf(const std::string& prefill, const std::string& decode) {
    PairChoice pair;
    for (size_t p = 0; p < cluster_.view().prefills.size(); ++p) {
      if (cluster_.view().prefills[p].address == prefill) pair.prefill = static_cast<int>(p);
    }
    for (size_t d = 0; d < cluster_.view().decodes.size(); ++d) {
      if (cluster_.view().decodes[d].address == decode) pair.decode = static_cast<int>(d);
    }
    return pair;
  }
  void SendToken(const std::string& decode, uint64_t request_id, uint32_t position) {
    proto::WorkerMessage message;
    proto::SequenceTokens* sequence = message.mutable_tokens()->add_sequences();
    sequence->mutable_key()->set_router_incarnation(77);
    sequence->mutable_key()->set_request_id(request_id);
    sequence->mutable_key()->set_attempt(1);
    sequence->set_first_position(position);
    sequence->add_tokens(5);
    channels_.to(decode).Receive(message);
  }
  bool HasOpenChannel(const std::string& address) {
    for (int i = 0; i < channels_.num_opened(); ++i) {
      if (channels_.opened(i).address == address && channels_.opened(i).is_open) return true;
    }
    return false;
  }
  std::set<std::string> PrefillSetOf(const std::string& decode) {
    std::set<std::string> last;
    for (const proto::RouterMessage& message : channels_.to(decode).sent) {
      if (!message.has_prefill_set()) continue;
      const auto& addresses = message.prefill_set().bootstrap_addresses();
      last = {addresses.begin(), addresses.end()};
    }
    return last;
  }

  FakeChannels channels_;
  Cluster cluster_;
  absl::Duration now_ = absl::Seconds(100);
  uint64_t last_incarnation_ = 0;
};

TEST_F(ClusterPoolsTest, WorkersThatComeAreGreetedAndUsed) {
  EXPECT_FALSE(CheckReady(cluster_.view()).ok());
  cluster_.SetWorkers({"p0:1"}, {"d0:1"});
  GreetAll();
  EXPECT_TRUE(CheckReady(cluster_.view()).ok());
  cluster_.SetWorkers({"p0:1", "p1:1"}, {"d0:1", "d1:1"});
  GreetAll();
  EXPECT_EQ(CountUsablePairs(cluster_.view()), 4);
  EXPECT_EQ(channels_.num_opened(), 4) << "those that stayed were not greeted again";
  EXPECT_EQ(PrefillSetOf("d0:1"), (std::set<std::string>{"boot-p0:1", "boot-p1:1"}));
}

TEST_F(ClusterPoolsTest, ADecodeWorkerThatIsRemovedFinishesAndThenItsPlaceIsFree) {
  cluster_.SetWorkers({"p0:1"}, {"d0:1", "d1:1"});
  GreetAll();
  NoListener listener;
  const uint64_t id = Generate(PairOf("p0:1", "d0:1"), &listener);
  cluster_.SetWorkers({"p0:1"}, {"d1:1"});
  for (uint64_t turn = 0; turn < 5; ++turn) {
    EXPECT_EQ(cluster_.view().decodes[Pick(turn).decode].address, "d1:1");
  }
  Tick();
  SendToken("d0:1", id, 0);
  Tick();
  SendToken("d0:1", id, 1);
  EXPECT_EQ(listener.num_tokens, 2) << "what runs there goes on";
  proto::WorkerMessage ended;
  ended.mutable_ended()->mutable_key()->set_router_incarnation(77);
  ended.mutable_ended()->mutable_key()->set_request_id(id);
  ended.mutable_ended()->mutable_key()->set_attempt(1);
  ended.mutable_ended()->set_number(1);
  channels_.to("d0:1").Receive(ended);
  EXPECT_EQ(listener.num_ended, 1);
  cluster_.Forget(id);
  Tick();
  ASSERT_TRUE(channels_.to("d0:1").sent.back().has_ended_received()) << "or the worker would keep the end";
  Tick();
  EXPECT_FALSE(HasOpenChannel("d0:1"));
  EXPECT_EQ(PairOf("p0:1", "d0:1").decode, -1) << "its place is empty";

  cluster_.SetWorkers({"p0:1"}, {"d1:1", "d2:1"});
  GreetAll();
  EXPECT_EQ(cluster_.view().decodes.size(), 2u) << "the free place is taken again";
  EXPECT_EQ(CountUsablePairs(cluster_.view()), 2);
}

TEST_F(ClusterPoolsTest, APrefillWorkerThatIsRemovedStaysWithDecodeUntilItsLastRequestEnds) {
  cluster_.SetWorkers({"p0:1", "p1:1"}, {"d0:1"});
  GreetAll();
  NoListener listener;
  const uint64_t id = Generate(PairOf("p0:1", "d0:1"), &listener);
  cluster_.SetWorkers({"p1:1"}, {"d0:1"});
  SendToken("d0:1", id, 0);  // were the sequence retracted now, it would be prefilled on p0 once more
  Tick();
  EXPECT_EQ(PrefillSetOf("d0:1"), (std::set<std::string>{"boot-p0:1", "boot-p1:1"}));
  EXPECT_EQ(cluster_.view().prefills[Pick().prefill].address, "p1:1");
  cluster_.Forget(id);
  Tick();
  EXPECT_EQ(PrefillSetOf("d0:1"), (std::set<std::string>{"boot-p1:1"}));
  EXPECT_FALSE(HasOpenChannel("p0:1"));
}

TEST_F(ClusterPoolsTest, AWorkerThatIsListedAgainBeforeItHasLeftGoesOnAsIfNothingHadBeen) {
  cluster_.SetWorkers({"p0:1"}, {"d0:1"});
  GreetAll();
  NoListener listener;
  const uint64_t id = Generate(Pick(), &listener);
  cluster_.SetWorkers({}, {});
  Tick();
  const absl::Status ready = CheckReady(cluster_.view());
  EXPECT_NE(ready.message().find("decode d0:1 is no longer listed"), absl::string_view::npos) << ready;
  cluster_.SetWorkers({"p0:1"}, {"d0:1"});
  EXPECT_TRUE(CheckReady(cluster_.view()).ok());
  EXPECT_EQ(channels_.num_opened(), 2);
  cluster_.Forget(id);
}

TEST_F(ClusterPoolsTest, AnAddressMayChangeItsRole) {
  cluster_.SetWorkers({"a:1"}, {"b:1"});
  GreetAll();
  cluster_.SetWorkers({"b:1"}, {"a:1"});
  Tick();
  GreetAll();
  EXPECT_EQ(CountUsablePairs(cluster_.view()), 1);
  EXPECT_EQ(cluster_.view().prefills[Pick().prefill].address, "b:1");
}

TEST_F(ClusterPoolsTest, ARemovedWorkerThatDiesLosesItsRequestsAndLeaves) {
  cluster_.SetWorkers({"p0:1"}, {"d0:1", "d1:1"});
  GreetAll();
  NoListener listener;
  const uint64_t id = Generate(PairOf("p0:1", "d0:1"), &listener);
  channels_.to("d0:1").Heartbeat();
  cluster_.SetWorkers({"p0:1"}, {"d1:1"});
  channels_.to("d0:1").Break(absl::UnavailableError("gone"));
  for (const absl::Duration end = now_ + 2 * kReattachWaitMax; now_ < end;) Tick();
  EXPECT_EQ(listener.num_lost, 1);
  cluster_.Forget(id);
  Tick();
  EXPECT_FALSE(HasOpenChannel("d0:1"));
}

// As a worker does, a second stream of the same router ends the first.
TEST_F(ClusterPoolsTest, AProcessThatIsListedTwiceIsUsedOnceAndNotGreetedInTurn) {
  cluster_.SetWorkers({"p0:1"}, {"d0:1", "d0-alias:1"});
  Tick();
  channels_.to("p0:1").Greet("p0", 1, "boot0");
  channels_.to("d0:1").Greet("d0", 3);
  testing::internal::CaptureStderr();
  channels_.to("d0-alias:1").Greet("d0", 3);
  channels_.to("d0:1").Break(absl::AbortedError("replaced by a newer stream"));
  Tick();
  channels_.to("d0:1").Greet("d0", 3);
  EXPECT_FALSE(HasOpenChannel("d0-alias:1"));
  for (int i = 0; i < 200; ++i) {
    channels_.to("p0:1").Heartbeat();
    channels_.to("d0:1").Heartbeat();
    Tick();
  }
  EXPECT_EQ(channels_.num_opened(), 4) << "p0, d0, its alias, d0 again";
  const std::string log = testing::internal::GetCapturedStderr();
  const std::string words = "d0-alias:1 is the process that is used as d0:1 already";
  EXPECT_NE(log.find(words), std::string::npos) << log;
  EXPECT_EQ(log.find(words), log.rfind(words)) << "told once: " << log;

  cluster_.SetWorkers({"p0:1"}, {"d0-alias:1"});
  Tick();
  Tick();
  EXPECT_FALSE(HasOpenChannel("d0:1"));
  channels_.to("d0-alias:1").Greet("d0", 3);
  EXPECT_TRUE(cluster_.view().decodes[PairOf("p0:1", "d0-alias:1").decode].is_up);
}

TEST_F(ClusterPoolsTest, ALinkHeldForATwinConnectsWhenTheTwinIsLost) {
  cluster_.SetWorkers({}, {"d0:1", "d1:1"});
  Tick();
  channels_.to("d0:1").Greet("d0", 3);
  channels_.to("d0:1").Heartbeat();
  channels_.to("d1:1").Greet("d0", 3);
  channels_.to("d0:1").Break(absl::UnavailableError("gone"));
  Tick();
  EXPECT_FALSE(HasOpenChannel("d1:1")) << "d0 may be back in time";
  for (const absl::Duration end = now_ + kReattachWaitMax + kBackoffMax; now_ < end && !HasOpenChannel("d1:1");) Tick();
  ASSERT_TRUE(HasOpenChannel("d1:1"));
  channels_.to("d1:1").Greet("d1", 4);
  EXPECT_TRUE(cluster_.view().decodes[1].is_up);
}

TEST_F(ClusterPoolsTest, TwoWorkersWithOneNameAreToldOfAndBothUsed) {
  cluster_.SetWorkers({"p0:1", "p1:1"}, {"d0:1"});
  Tick();
  testing::internal::CaptureStderr();
  channels_.to("p0:1").Greet("p", 1, "boot0");
  channels_.to("p1:1").Greet("p", 2, "boot1");
  channels_.to("d0:1").Greet("p", 3);
  const std::string log = testing::internal::GetCapturedStderr();
  const std::string words = "two workers have one instance name";
  EXPECT_NE(log.find(words), std::string::npos) << log;
  EXPECT_EQ(log.find(words), log.rfind(words)) << "told once, and not across roles: " << log;
  EXPECT_NE(log.find("inst=p address=p1:1 other_address=p0:1"), std::string::npos) << log;
  EXPECT_TRUE(cluster_.view().prefills[0].is_up && cluster_.view().prefills[1].is_up);
}

// Whatever order lists, requests and deaths come in: no request goes to a worker that is not listed, every count
// returns to zero, and places do not pile up.
TEST_F(ClusterPoolsTest, RandomListsAndRequestsKeepTheBooks) {
  std::mt19937 random(7);
  const auto draw = [&](int bound) { return static_cast<int>(random() % static_cast<unsigned>(bound)); };
  NoListener listener;
  std::vector<uint64_t> running;
  std::set<std::string> prefills, decodes;
  for (int step = 0; step < 3000; ++step) {
    switch (draw(4)) {
      case 0: {
        prefills.clear();
        decodes.clear();
        for (int i = 0; i < 4; ++i) {
          if (draw(2) == 0) prefills.insert(absl::StrCat("p", i, ":1"));
          if (draw(2) == 0) decodes.insert(absl::StrCat("d", i, ":1"));
        }
        cluster_.SetWorkers({prefills.begin(), prefills.end()}, {decodes.begin(), decodes.end()});
        break;
      }
      case 1: {
        const absl::StatusOr<PairChoice> pair = PickPair(cluster_.view(), 10, static_cast<uint64_t>(step));
        if (!pair.ok()) break;
        EXPECT_TRUE(prefills.contains(cluster_.view().prefills[pair->prefill].address));
        EXPECT_TRUE(decodes.contains(cluster_.view().decodes[pair->decode].address));
        running.push_back(Generate(*pair, &listener));
        break;
      }
      case 2:
        if (running.empty()) break;
        std::swap(running[draw(static_cast<int>(running.size()))], running.back());
        cluster_.Forget(running.back());
        running.pop_back();
        break;
      default:
        if (channels_.num_opened() > 0 && draw(8) == 0) {
          channels_.opened(draw(channels_.num_opened())).Break(absl::UnavailableError("gone"));
        }
        GreetAll();
    }
  }
  for (const uint64_t id : running) cluster_.Forget(id);
  cluster_.SetWorkers({}, {});
  Tick();
  for (int i = 0; i < channels_.num_opened(); ++i) EXPECT_FALSE(channels_.opened(i).is_open);
  EXPECT_EQ(cluster_.num_requests(), 0u);
  EXPECT_LE(cluster_.view().prefills.size(), 4u);
  EXPECT_LE(cluster_.view().decodes.size(), 4u);
  for (const PrefillView& prefill : cluster_.view().prefills) EXPECT_EQ(prefill.requests_in_flight, 0);
  for (const DecodeView& decode : cluster_.view().decodes) EXPECT_EQ(decode.requests_in_flight, 0);
}

}  // namespace
}  // namespace tandem::router
