// The shard's knowledge of its workers, over fake channels and time: who hears of whom, who is usable, who is lost, and
// what a worker that is back is told. Its requests are cluster_requests_test.cc's business.
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "router/testing/cluster_fixture.h"

namespace tandem::router {
namespace {

TEST_F(ClusterTest, EveryDecodeWorkerHearsOfEveryPrefillWorker) {
  cluster_.Tick(now_);
  channels_.to("d0:1").Greet("d0", 3);
  ASSERT_TRUE(channels_.to("d0:1").sent.back().has_prefill_set());
  EXPECT_EQ(channels_.to("d0:1").sent.back().prefill_set().bootstrap_addresses_size(), 0);
  channels_.to("p0:1").Greet("p0", 1, "boot0");
  channels_.to("p1:1").Greet("p1", 2, "boot1");
  EXPECT_EQ(channels_.to("d0:1").sent.back().prefill_set().bootstrap_addresses_size(), 2);
  channels_.to("d1:1").Greet("d1", 4);
  EXPECT_EQ(channels_.to("d1:1").sent.back().prefill_set().bootstrap_addresses_size(), 2);
}

TEST_F(ClusterTest, ReadyOnceADecodeWorkerReportsAPairUsable) {
  cluster_.Tick(now_);
  channels_.to("p0:1").Greet("p0", 1, "boot0");
  channels_.to("d0:1").Greet("d0", 3);
  EXPECT_FALSE(CheckReady(cluster_.view()).ok());
  Report("d0:1", "boot0", true);
  EXPECT_TRUE(CheckReady(cluster_.view()).ok());
}

TEST_F(ClusterTest, WorkersCountTheRequestsOnTheirHands) {
  ConnectAll();
  RecordingListener listener;
  const uint64_t id = Generate(&listener, /*decode=*/1, /*prefill=*/1);
  EXPECT_EQ(cluster_.view().decodes[1].requests_in_flight, 1);
  EXPECT_EQ(cluster_.view().prefills[1].requests_in_flight, 1);
  SendTokens("d1:1", KeyOf(id), 0, {1});
  EXPECT_EQ(cluster_.view().prefills[1].requests_in_flight, 0) << "prefill has done its part";
  EXPECT_EQ(cluster_.view().decodes[1].requests_in_flight, 1);
  cluster_.Forget(id);
  cluster_.Forget(id);
  EXPECT_EQ(cluster_.view().decodes[1].requests_in_flight, 0);
}

TEST_F(ClusterTest, LoadReportsSteerTheChoice) {
  ConnectAll();
  proto::WorkerMessage message;
  message.mutable_load()->set_running_sequences(50);
  channels_.to("d0:1").Receive(message);
  for (uint64_t turn = 0; turn < 4; ++turn) EXPECT_EQ(PickPair(cluster_.view(), 1, turn)->decode, 1);
}

// The nearer worker has room for two of the prompts; without what was sent, its report would draw all of them.
TEST_F(ClusterTest, ABurstBetweenTwoReportsSpreadsWhereTheRoomEnds) {
  ConnectAll();
  constexpr size_t kPromptTokens = 3000;  // 47 pages
  const auto report = [&](const char* decode, uint32_t running, uint64_t free) {
    proto::WorkerMessage message;
    message.mutable_load()->set_running_sequences(running);
    message.mutable_load()->set_kv_pages_free(free);
    message.mutable_load()->set_kv_pages_total(1000);
    channels_.to(decode).Receive(message);
  };
  const auto pick = [&] {
    return PickPair(cluster_.view(), {.num_tokens = kPromptTokens + 1, .policy = PairPolicy::kPrefix}).value();
  };
  report("d0:1", 0, 100);
  report("d1:1", 20, 1000);
  std::vector<RecordingListener> listeners(6);
  std::vector<int> decodes;
  for (RecordingListener& listener : listeners) {
    decodes.push_back(pick().decode);
    Generate(&listener, decodes.back(), /*prefill=*/0, kPromptTokens);
  }
  EXPECT_EQ(decodes, (std::vector<int>{0, 0, 1, 1, 1, 1}));
  EXPECT_EQ(cluster_.view().decodes[0].kv_pages_sent, 2 * 47);
  report("d0:1", 2, 6);
  EXPECT_EQ(cluster_.view().decodes[0].kv_pages_sent, 0) << "the report has them";
  EXPECT_EQ(pick().decode, 1);
  report("d0:1", 0, 100);
  EXPECT_EQ(pick().decode, 0);
}

TEST_F(ClusterTest, LostDecodeWorkerEndsItsRequestsAndNoOthers) {
  ConnectAll();
  RecordingListener on_lost, on_other;
  const uint64_t lost_id = Generate(&on_lost, 0);
  const uint64_t other_id = Generate(&on_other, 1);
  channels_.to("d0:1").Break(absl::UnavailableError("reset"));
  EXPECT_EQ(on_lost.num_lost, 0) << "it may be back";
  WaitInVain();
  EXPECT_EQ(on_lost.num_lost, 1);
  EXPECT_EQ(on_lost.error.message(), "decode worker d0:1 is lost: reset");
  EXPECT_EQ(cluster_.counters().workers_lost, 1);
  EXPECT_EQ(on_other.num_lost, 0);
  EXPECT_TRUE(cluster_.view().decodes[0].peers.empty()) << "what it reported is void";
  cluster_.Forget(lost_id);
  cluster_.Forget(other_id);
}

TEST_F(ClusterTest, WorkersAreAwaitedWhileTheyMayBeBackAndNoLonger) {
  cluster_.Tick(now_);
  EXPECT_FALSE(cluster_.AwaitsWorkers()) << "none was ever there";
  ConnectAll();
  EXPECT_FALSE(cluster_.AwaitsWorkers());
  channels_.to("d0:1").Break(absl::UnavailableError("reset"));
  EXPECT_TRUE(cluster_.AwaitsWorkers());
  Reopen("d0:1", "d0", 3);
  EXPECT_TRUE(cluster_.AwaitsWorkers()) << "it has not said yet whom it can use";
  Report("d0:1", "boot0", true);
  EXPECT_FALSE(cluster_.AwaitsWorkers());
  channels_.to("p0:1").Break(absl::UnavailableError("reset"));
  EXPECT_TRUE(cluster_.AwaitsWorkers());
  WaitInVain();
  EXPECT_FALSE(cluster_.AwaitsWorkers()) << "it is lost";
}

TEST_F(ClusterTest, APairThatHasLostItsLinkIsAwaitedForAWhile) {
  ConnectAll();
  cluster_.Tick(now_);
  Report("d0:1", "boot0", false);
  EXPECT_TRUE(cluster_.AwaitsWorkers()) << "both workers live";
  Report("d0:1", "boot0", true);
  EXPECT_FALSE(cluster_.AwaitsWorkers());
  Report("d0:1", "boot0", false);
  Report("d0:1", "boot0", false);  // the same, in other words
  const absl::Duration lost_at = now_;
  while (now_ - lost_at < Cluster::kPairReturnMax) {
    EXPECT_TRUE(cluster_.AwaitsWorkers());
    cluster_.Tick(now_ += WorkerLink::kTickInterval);
    for (int i = 0; i < channels_.num_opened(); ++i) channels_.opened(i).HeartbeatWhereGreeted();
  }
  EXPECT_FALSE(cluster_.AwaitsWorkers()) << "it is no more than a pair that cannot be";
}

TEST_F(ClusterTest, LostPrefillWorkerEndsNothingButGetsNoMore) {
  ConnectAll();
  RecordingListener listener;
  const uint64_t id = Generate(&listener, 0, 0);
  channels_.to("p0:1").Break(absl::UnavailableError("reset"));
  EXPECT_EQ(listener.num_lost, 0);
  for (uint64_t turn = 0; turn < 4; ++turn) EXPECT_EQ(PickPair(cluster_.view(), 1, turn)->prefill, 1);
  cluster_.Forget(id);
}

TEST_F(ClusterTest, AWorkerThatIsBackHearsFirstWhatEachRequestNeedsNext) {
  ConnectAll();
  RecordingListener some, none, other, left;
  const uint64_t some_id = Generate(&some, 0);
  const uint64_t none_id = Generate(&none, 0);
  const uint64_t other_id = Generate(&other, 1);
  const uint64_t left_id = Generate(&left, 0);
  SendTokens("d0:1", KeyOf(some_id), 0, {10, 11, 12});
  channels_.to("d0:1").Break(absl::UnavailableError("reset"));
  cluster_.TokensTaken(some_id, 0, 1024);  // while nobody can be told
  cluster_.Cancel(left_id, "client left");
  FakeChannelState& channel = Reopen("d0:1", "d0", 3);
  ASSERT_GE(channel.sent.size(), 4u);
  ASSERT_TRUE(channel.sent[1].has_reattach()) << "right after the hello";
  const proto::Reattach& reattach = channel.sent[1].reattach();
  EXPECT_TRUE(reattach.is_last());
  ASSERT_EQ(reattach.positions_size(), 3);
  EXPECT_EQ(reattach.positions(0).key().request_id(), some_id);
  EXPECT_EQ(reattach.positions(0).next_position(), 3u);
  EXPECT_EQ(reattach.positions(0).granted_bytes(), 1024u * 8 + 16384);
  EXPECT_EQ(reattach.positions(1).key().request_id(), none_id);
  EXPECT_EQ(reattach.positions(1).next_position(), 0u);
  EXPECT_EQ(reattach.positions(2).key().request_id(), left_id);
  EXPECT_EQ(NumCancels("d0:1"), 1) << "the cancel that found no stream is said now";
  EXPECT_TRUE(channel.sent.back().has_prefill_set());
  EXPECT_EQ(some.num_lost + none.num_lost + other.num_lost + left.num_lost, 0);
  SendTokens("d0:1", KeyOf(some_id), 3, {13});
  EXPECT_EQ(some.received, (std::vector<TokenId>{10, 11, 12, 13}));
  EXPECT_EQ(cluster_.counters().streams_lost, 1);
  EXPECT_EQ(cluster_.counters().streams_reattached, 1);
  EXPECT_EQ(cluster_.counters().workers_lost, 0);
  for (const uint64_t id : {some_id, none_id, other_id, left_id}) cluster_.Forget(id);
}

TEST_F(ClusterTest, CancelsOfSingleChoicesAreSaidAgainToAWorkerThatIsBack) {
  ConnectAll();
  RecordingListener listener;
  const uint64_t id = Generate(&listener, 0, 0, 3, /*num_choices=*/3);
  cluster_.Cancel(id, "stop string", 1);
  channels_.to("d0:1").Break(absl::UnavailableError("reset"));
  FakeChannelState& channel = Reopen("d0:1", "d0", 3);
  ASSERT_TRUE(channel.sent[1].has_reattach());
  EXPECT_EQ(channel.sent[1].reattach().positions_size(), 3) << "one a choice";
  ASSERT_EQ(NumCancels("d0:1"), 1);
  ASSERT_TRUE(channel.sent[2].has_cancel());
  EXPECT_EQ(channel.sent[2].cancel().choice(), 1u);
  cluster_.Forget(id);
}

TEST_F(ClusterTest, ARestartedWorkerHasLostItsRequestsAndIsAskedForNone) {
  ConnectAll();
  RecordingListener listener;
  const uint64_t id = Generate(&listener, 0);
  channels_.to("d0:1").Break(absl::UnavailableError("reset"));
  FakeChannelState& channel = Reopen("d0:1", "d0", 33);
  EXPECT_EQ(listener.num_lost, 1);
  ASSERT_TRUE(channel.sent[1].has_reattach());
  EXPECT_TRUE(channel.sent[1].reattach().is_last());
  EXPECT_EQ(channel.sent[1].reattach().positions_size(), 0);
  cluster_.Forget(id);
}

TEST_F(ClusterTest, PositionsAreCutIntoMessagesOfBoundedSize) {
  ConnectAll();
  RecordingListener listener;
  std::vector<uint64_t> ids;
  for (int i = 0; i < 2 * Cluster::kPositionsPerMessage + 1; ++i) ids.push_back(Generate(&listener, 0));
  channels_.to("d0:1").Break(absl::UnavailableError("reset"));
  FakeChannelState& channel = Reopen("d0:1", "d0", 3);
  std::vector<uint64_t> listed;
  for (int i = 1; i <= 3; ++i) {
    ASSERT_TRUE(channel.sent[i].has_reattach());
    EXPECT_EQ(channel.sent[i].reattach().is_last(), i == 3);
    EXPECT_LE(channel.sent[i].ByteSizeLong(), size_t{256} << 10);
    for (const auto& position : channel.sent[i].reattach().positions()) listed.push_back(position.key().request_id());
  }
  EXPECT_EQ(listed, ids);
  for (const uint64_t id : ids) cluster_.Forget(id);
}

TEST_F(ClusterTest, DrainedWorkerIsDownOnceItsStreamClosesAndUpWithItsNextHello) {
  ConnectAll();
  proto::WorkerMessage draining;
  draining.mutable_draining();
  channels_.to("d0:1").Receive(draining);
  EXPECT_TRUE(cluster_.view().decodes[0].is_draining);
  channels_.to("d0:1").Break(absl::UnavailableError("gone"));
  EXPECT_FALSE(cluster_.view().decodes[0].is_draining);
  EXPECT_EQ(cluster_.view().decodes[0].detail, "gone");
  for (int i = 0; i < 10; ++i) cluster_.Tick(now_ += WorkerLink::kTickInterval);
  channels_.to("d0:1").Greet("d0", 9);
  EXPECT_FALSE(cluster_.view().decodes[0].is_draining);
  EXPECT_EQ(cluster_.view().decodes[0].incarnation, 9u);
}

TEST_F(ClusterTest, WorkerThatWasNeverUpIsLoggedOnceForEachKindOfFailure) {
  const auto fail_for_a_while = [this](const absl::Status& cause) {
    testing::internal::CaptureStderr();
    for (int i = 0; i < 400; ++i) {
      const int before = channels_.num_opened();
      cluster_.Tick(now_ += WorkerLink::kTickInterval);
      for (int opened = before; opened < channels_.num_opened(); ++opened) channels_.opened(opened).Break(cause);
    }
    return testing::internal::GetCapturedStderr();
  };
  const auto count = [](const std::string& log, absl::string_view what) {
    return static_cast<int>(std::vector<std::string>(absl::StrSplit(log, what)).size()) - 1;
  };
  std::string log = fail_for_a_while(absl::UnavailableError("refused"));
  ASSERT_GT(channels_.num_opened(), 4 * 3) << "several attempts at each of the four";
  EXPECT_EQ(count(log, "WARNING"), 4) << log;
  EXPECT_EQ(count(log, "refused"), 4) << log;
  log = fail_for_a_while(absl::UnimplementedError(""));
  EXPECT_EQ(count(log, "WARNING"), 4) << "another reason is news: " << log;
  EXPECT_EQ(cluster_.view().decodes[0].detail, "UNIMPLEMENTED") << "a reason never is empty";
}

TEST_F(ClusterTest, RestartedPrefillAtANewAddressIsAnnounced) {
  ConnectAll();
  channels_.to("p0:1").Break(absl::UnavailableError("gone"));
  for (int i = 0; i < 10; ++i) cluster_.Tick(now_ += WorkerLink::kTickInterval);
  channels_.to("p0:1").Greet("p0", 8, "boot0-new");
  const auto& set = channels_.to("d0:1").sent.back().prefill_set().bootstrap_addresses();
  EXPECT_EQ(std::vector<std::string>(set.begin(), set.end()), (std::vector<std::string>{"boot0-new", "boot1"}));
}

}  // namespace
}  // namespace tandem::router
