// The shard's knowledge of its workers, over fake channels: who hears of whom, which request hears what.
#include "router/cluster.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "router/testing/fake_channel.h"

namespace tandem::router {
namespace {

class RecordingListener final : public RequestListener {
 public:
  void OnTokens(GeneratedTokens tokens) override {
    EXPECT_EQ(tokens.first_position, static_cast<int64_t>(received.size()));
    received.insert(received.end(), tokens.tokens.begin(), tokens.tokens.end());
    last = std::move(tokens);
  }
  void OnEnded(const absl::Status& status, bool cancelled) override {
    ++num_ended;
    error = status;
    is_cancelled = cancelled;
  }
  void OnWorkerLost(const absl::Status& cause) override {
    ++num_lost;
    error = cause;
  }
  std::vector<TokenId> received;
  GeneratedTokens last;
  absl::Status error;
  bool is_cancelled = false;
  int num_ended = 0;
  int num_lost = 0;
};

class ClusterTest : public testing::Test {
 protected:
  ClusterTest() : cluster_(Options(), channels_.Factory()) {}
  static Cluster::Options Options() {
    Cluster::Options options;
    options.prefill_workers = {"p0:1", "p1:1"};
    options.decode_workers = {"d0:1", "d1:1"};
    options.identity.set_instance("r");
    options.identity.set_incarnation(77);
    return options;
  }
  void ConnectAll() {
    cluster_.Tick(now_);
    channels_.to("p0:1").Greet("p0", 1, "boot0");
    channels_.to("p1:1").Greet("p1", 2, "boot1");
    channels_.to("d0:1").Greet("d0", 3);
    channels_.to("d1:1").Greet("d1", 4);
    for (const char* decode : {"d0:1", "d1:1"}) {
      for (const char* prefill : {"boot0", "boot1"}) Report(decode, prefill, true);
    }
  }
  void Report(const std::string& decode, const std::string& prefill, bool is_usable) {
    proto::WorkerMessage message;
    message.mutable_peer_status()->set_bootstrap_address(prefill);
    message.mutable_peer_status()->set_is_usable(is_usable);
    channels_.to(decode).Receive(message);
  }
  uint64_t Generate(RecordingListener* listener, int decode = 0, int prefill = 0, size_t prompt_size = 3,
                    uint32_t num_choices = 1) {
    GenerateOrder order;
    order.num_choices = num_choices;
    order.prompt.resize(prompt_size);
    std::iota(order.prompt.begin(), order.prompt.end(), 0);
    order.max_new_tokens = 9;
    PairChoice pair;
    pair.decode = decode;
    pair.prefill = prefill;
    return cluster_.Generate(pair, order, listener);
  }
  proto::RequestKey KeyOf(uint64_t request_id) {
    proto::RequestKey key;
    key.set_router_incarnation(77);
    key.set_request_id(request_id);
    key.set_attempt(1);
    return key;
  }
  void SendTokens(const std::string& decode, const proto::RequestKey& key, int position, std::vector<TokenId> tokens) {
    proto::WorkerMessage message;
    proto::SequenceTokens* sequence = message.mutable_tokens()->add_sequences();
    *sequence->mutable_key() = key;
    sequence->set_first_position(static_cast<uint32_t>(position));
    sequence->mutable_tokens()->Add(tokens.begin(), tokens.end());
    channels_.to(decode).Receive(message);
  }
  // The other workers live on; the lost one does not come back in time.
  void WaitInVain() {
    for (const absl::Duration end = now_ + kReattachWaitMax; now_ < end;) {
      cluster_.Tick(now_ += WorkerLink::kTickInterval);
      for (int i = 0; i < channels_.num_opened(); ++i) channels_.opened(i).HeartbeatWhereGreeted();
    }
  }
  // The next stream to that worker, greeted; the messages that came on it so far.
  FakeChannelState& Reopen(const std::string& address, const std::string& instance, uint64_t incarnation) {
    cluster_.Tick(now_ += WorkerLink::kTickInterval);
    FakeChannelState& channel = channels_.to(address);
    channel.Greet(instance, incarnation);
    return channel;
  }
  int NumCancels(const std::string& decode) {
    const auto& sent = channels_.to(decode).sent;
    return static_cast<int>(std::count_if(sent.begin(), sent.end(), [](const auto& m) { return m.has_cancel(); }));
  }

  FakeChannels channels_;
  Cluster cluster_;
  absl::Duration now_ = absl::Seconds(100);
};

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

TEST_F(ClusterTest, ChoicesAndLogprobsArriveAsTheWorkerSaysThem) {
  ConnectAll();
  RecordingListener listener;
  const uint64_t id = Generate(&listener, 0, 0, 3, /*num_choices=*/4);
  proto::WorkerMessage message;
  proto::SequenceTokens* sequence = message.mutable_tokens()->add_sequences();
  *sequence->mutable_key() = KeyOf(id);
  sequence->set_choice(3);
  sequence->add_tokens(7);
  sequence->add_tokens(8);
  sequence->add_logprobs(-0.5f);
  sequence->add_logprobs(-1.5f);
  sequence->add_top_logprobs();
  sequence->add_top_logprobs()->add_tokens(9);
  sequence->mutable_top_logprobs(1)->add_logprobs(-0.25f);
  sequence->set_finish_reason(proto::FINISH_REASON_LENGTH);
  channels_.to("d0:1").Receive(message);
  EXPECT_EQ(listener.last.choice, 3);
  EXPECT_EQ(listener.last.finish, SequenceFinish::kLength);
  EXPECT_EQ(listener.last.logprobs, (std::vector<float>{-0.5f, -1.5f}));
  ASSERT_EQ(listener.last.top_logprobs.size(), 2u);
  EXPECT_TRUE(listener.last.top_logprobs[0].empty());
  ASSERT_EQ(listener.last.top_logprobs[1].size(), 1u);
  EXPECT_EQ(listener.last.top_logprobs[1][0].token, 9u);
  EXPECT_EQ(listener.last.top_logprobs[1][0].logprob, -0.25f);
  cluster_.Forget(id);
}

TEST_F(ClusterTest, CancelNamesTheChoiceWhereItIsForOneAlone) {
  ConnectAll();
  RecordingListener listener;
  const uint64_t id = Generate(&listener);
  cluster_.Cancel(id, "stop string", 0);
  ASSERT_TRUE(channels_.to("d0:1").sent.back().has_cancel());
  EXPECT_TRUE(channels_.to("d0:1").sent.back().cancel().has_choice());
  EXPECT_EQ(channels_.to("d0:1").sent.back().cancel().choice(), 0u);
  cluster_.Cancel(id, "client left");
  EXPECT_FALSE(channels_.to("d0:1").sent.back().cancel().has_choice());
  cluster_.Forget(id);
}

TEST_F(ClusterTest, EveryFieldOfTheOrderIsSent) {
  ConnectAll();
  RecordingListener listener;
  GenerateOrder order;
  order.prompt = {1};
  order.temperature = 0.5f;
  order.top_p = 0.75f;
  order.top_k = 3;
  order.min_p = 0.125f;
  order.repetition_penalty = 1.5f;
  order.frequency_penalty = -0.5f;
  order.presence_penalty = 0.25f;
  order.logit_bias = {{5, -100.0f}};
  order.seed = 9;
  order.wants_logprobs = true;
  order.num_top_logprobs = 4;
  order.num_choices = 2;
  order.max_new_tokens = 8;
  order.min_new_tokens = 6;
  order.stop_token_ids = {1, 2};
  PairChoice pair;
  pair.decode = 0;
  pair.prefill = 0;
  const uint64_t id = cluster_.Generate(pair, order, &listener);
  const proto::GenerateHead& head = channels_.to("d0:1").parts.back().head();
  EXPECT_EQ(head.sampling().temperature(), 0.5f);
  EXPECT_EQ(head.sampling().top_p(), 0.75f);
  EXPECT_EQ(head.sampling().top_k(), 3);
  EXPECT_EQ(head.sampling().min_p(), 0.125f);
  EXPECT_EQ(head.sampling().repetition_penalty(), 1.5f);
  EXPECT_EQ(head.sampling().frequency_penalty(), -0.5f);
  EXPECT_EQ(head.sampling().presence_penalty(), 0.25f);
  ASSERT_EQ(head.sampling().logit_bias_size(), 1);
  EXPECT_EQ(head.sampling().logit_bias(0).token(), 5u);
  EXPECT_EQ(head.sampling().logit_bias(0).bias(), -100.0f);
  EXPECT_EQ(head.sampling().seed(), 9u);
  EXPECT_TRUE(head.sampling().wants_logprobs());
  EXPECT_EQ(head.sampling().num_top_logprobs(), 4u);
  EXPECT_EQ(head.num_choices(), 2u);
  EXPECT_EQ(head.stopping().max_new_tokens(), 8u);
  EXPECT_EQ(head.stopping().min_new_tokens(), 6u);
  EXPECT_EQ(head.stopping().stop_token_ids_size(), 2);
  cluster_.Forget(id);
}

TEST_F(ClusterTest, TokensAndEndReachTheirRequestAlone) {
  ConnectAll();
  RecordingListener first, second;
  const uint64_t first_id = Generate(&first);
  const uint64_t second_id = Generate(&second);
  SendTokens("d0:1", KeyOf(first_id), 0, {10, 11});
  SendTokens("d0:1", KeyOf(second_id), 0, {20});
  SendTokens("d0:1", KeyOf(first_id), 2, {12});
  EXPECT_EQ(first.received, (std::vector<TokenId>{10, 11, 12}));
  EXPECT_EQ(second.received, std::vector<TokenId>{20});
  proto::WorkerMessage ended;
  *ended.mutable_ended()->mutable_key() = KeyOf(second_id);
  channels_.to("d0:1").Receive(ended);
  EXPECT_EQ(second.num_ended, 1);
  EXPECT_EQ(first.num_ended, 0);
  cluster_.Forget(first_id);
  cluster_.Forget(second_id);
  EXPECT_EQ(cluster_.num_requests(), 0u);
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

TEST_F(ClusterTest, PromptIsCutIntoPartsThatJoinToIt) {
  ConnectAll();
  RecordingListener listener;
  for (size_t size : {size_t{1}, Cluster::kTokensPerPart, Cluster::kTokensPerPart + 1, 5 * Cluster::kTokensPerPart}) {
    channels_.to("d0:1").parts.clear();
    cluster_.Forget(Generate(&listener, 0, 0, size));
    const auto& parts = channels_.to("d0:1").parts;
    ASSERT_EQ(parts.size(), (size + Cluster::kTokensPerPart - 1) / Cluster::kTokensPerPart);
    std::vector<uint32_t> joined;
    for (size_t i = 0; i < parts.size(); ++i) {
      EXPECT_EQ(parts[i].part_index(), i);
      EXPECT_EQ(parts[i].is_last(), i + 1 == parts.size());
      EXPECT_EQ(parts[i].has_head(), i == 0);
      EXPECT_LE(parts[i].ByteSizeLong(), size_t{256} << 10);
      joined.insert(joined.end(), parts[i].prompt_tokens().begin(), parts[i].prompt_tokens().end());
    }
    ASSERT_EQ(joined.size(), size);
    for (size_t i = 0; i < size; ++i) ASSERT_EQ(joined[i], i);
    EXPECT_EQ(parts[0].head().num_prompt_tokens(), size);
    EXPECT_EQ(parts[0].head().prefill_address(), "boot0");
  }
}

TEST_F(ClusterTest, PartsOfTheLargestIdsStayUnderTheCut) {
  proto::GeneratePart part;
  for (size_t i = 0; i < Cluster::kTokensPerPart; ++i) part.add_prompt_tokens(0xffffffff);
  EXPECT_LE(part.ByteSizeLong() + 1024, size_t{256} << 10);
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

TEST_F(ClusterTest, CreditIsGivenBackAsTokensAreTaken) {
  ConnectAll();
  RecordingListener listener;
  const uint64_t id = Generate(&listener, 0);
  EXPECT_EQ(channels_.to("d0:1").parts.back().head().credit_bytes(), 16384u);
  const auto granted = [this] {
    std::vector<uint64_t> bytes;
    for (const auto& message : channels_.to("d0:1").sent) {
      if (message.has_credit()) bytes.push_back(message.credit().granted_bytes());
    }
    return bytes;
  };
  for (int64_t position = 1; position <= 3000; ++position) cluster_.TokensTaken(id, 0, position);
  // 2048 tokens at first; each time that half of them have been taken, as many more.
  EXPECT_EQ(granted(), (std::vector<uint64_t>{16384 + 1024 * 8, 16384 + 2048 * 8}));
  cluster_.TokensTaken(id, 0, 3000);
  EXPECT_EQ(granted().size(), 2u);
  cluster_.Forget(id);
  cluster_.TokensTaken(id, 0, 9000);
  EXPECT_EQ(granted().size(), 2u);
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

TEST_F(ClusterTest, EndsAreConfirmedByTheirHighestNumber) {
  ConnectAll();
  RecordingListener first, second;
  const uint64_t first_id = Generate(&first);
  const uint64_t second_id = Generate(&second);
  proto::WorkerMessage ended;
  for (const auto& [id, number] : {std::pair(first_id, 7), std::pair(second_id, 8)}) {
    *ended.mutable_ended()->mutable_key() = KeyOf(id);
    ended.mutable_ended()->set_number(number);
    channels_.to("d0:1").Receive(ended);
  }
  const auto num_confirmations = [this] {
    const auto& sent = channels_.to("d0:1").sent;
    return std::count_if(sent.begin(), sent.end(), [](const auto& m) { return m.has_ended_received(); });
  };
  cluster_.Tick(now_ += WorkerLink::kTickInterval);
  cluster_.Tick(now_ += WorkerLink::kTickInterval);
  EXPECT_EQ(num_confirmations(), 1);
  for (const auto& message : channels_.to("d0:1").sent) {
    if (message.has_ended_received()) {
      EXPECT_EQ(message.ended_received().number(), 8u);
    }
  }
  cluster_.Forget(first_id);
  cluster_.Forget(second_id);
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

TEST_F(ClusterTest, TokensOfAForgottenRequestAreAnsweredWithOneCancel) {
  ConnectAll();
  RecordingListener listener;
  const uint64_t id = Generate(&listener);
  cluster_.Forget(id);
  SendTokens("d0:1", KeyOf(id), 0, {1});
  SendTokens("d0:1", KeyOf(id), 1, {2});
  EXPECT_EQ(NumCancels("d0:1"), 1);
  EXPECT_TRUE(listener.received.empty());
  proto::WorkerMessage ended;
  *ended.mutable_ended()->mutable_key() = KeyOf(id);
  channels_.to("d0:1").Receive(ended);
  SendTokens("d0:1", KeyOf(id), 2, {3});
  EXPECT_EQ(NumCancels("d0:1"), 2) << "it was confirmed, so this is a new one";
}

TEST_F(ClusterTest, SecondAttemptRunsElsewhereAndTheFirstIsNotHeard) {
  ConnectAll();
  RecordingListener listener;
  const uint64_t id = Generate(&listener, 0, 0);
  PairChoice other;
  other.decode = 1;
  other.prefill = 1;
  GenerateOrder order;
  order.prompt = {1, 2, 3};
  cluster_.GenerateAgain(id, other, order);
  EXPECT_EQ(cluster_.view().decodes[0].requests_in_flight, 0);
  EXPECT_EQ(cluster_.view().prefills[0].requests_in_flight, 0);
  EXPECT_EQ(cluster_.view().decodes[1].requests_in_flight, 1);
  EXPECT_EQ(cluster_.view().prefills[1].requests_in_flight, 1);
  ASSERT_EQ(channels_.to("d1:1").parts.size(), 1u);
  const proto::RequestKey key = channels_.to("d1:1").parts[0].key();
  EXPECT_EQ(key.request_id(), id);
  EXPECT_EQ(key.attempt(), 2u);

  proto::WorkerMessage ended;
  *ended.mutable_ended()->mutable_key() = KeyOf(id);
  channels_.to("d0:1").Receive(ended);
  channels_.to("d1:1").Receive(ended);
  EXPECT_EQ(listener.num_ended, 0) << "the first attempt's end";
  *ended.mutable_ended()->mutable_key() = key;
  channels_.to("d1:1").Receive(ended);
  EXPECT_EQ(listener.num_ended, 1);
  cluster_.Forget(id);
  EXPECT_EQ(cluster_.view().decodes[1].requests_in_flight, 0);
}

TEST_F(ClusterTest, TokensFromAWorkerThatDoesNotHaveTheRequestAreNotItsTokens) {
  ConnectAll();
  RecordingListener listener;
  const uint64_t id = Generate(&listener, /*decode=*/0);
  SendTokens("d1:1", KeyOf(id), 0, {1});
  proto::RequestKey stale = KeyOf(id);
  stale.set_attempt(2);
  SendTokens("d0:1", stale, 0, {1});
  proto::RequestKey foreign = KeyOf(id);
  foreign.set_router_incarnation(78);
  SendTokens("d0:1", foreign, 0, {1});
  EXPECT_TRUE(listener.received.empty());
  cluster_.Forget(id);
}

TEST_F(ClusterTest, RefusedPartEndsItsRequest) {
  ConnectAll();
  RecordingListener listener;
  const uint64_t id = Generate(&listener);
  proto::BulkReply reply;
  *reply.mutable_key() = KeyOf(id);
  reply.mutable_error()->set_code(static_cast<int>(absl::StatusCode::kResourceExhausted));
  reply.mutable_error()->set_message("queue is full");
  channels_.to("d0:1").events.on_bulk_reply(reply);
  EXPECT_EQ(listener.num_ended, 1);
  EXPECT_EQ(listener.error, absl::ResourceExhaustedError("queue is full"));
  cluster_.Forget(id);
}

TEST_F(ClusterTest, NonsenseErrorCodesBecomeUnknown) {
  ConnectAll();
  RecordingListener listener;
  const uint64_t id = Generate(&listener);
  proto::WorkerMessage ended;
  *ended.mutable_ended()->mutable_key() = KeyOf(id);
  ended.mutable_ended()->mutable_error()->set_code(4711);
  channels_.to("d0:1").Receive(ended);
  EXPECT_EQ(listener.error.code(), absl::StatusCode::kUnknown);
  cluster_.Forget(id);
}

TEST_F(ClusterTest, CancelGoesToTheWorkerThatHasTheRequest) {
  ConnectAll();
  RecordingListener listener;
  const uint64_t id = Generate(&listener, 1);
  cluster_.Cancel(id, "client left");
  EXPECT_EQ(NumCancels("d0:1"), 0);
  ASSERT_EQ(NumCancels("d1:1"), 1);
  EXPECT_EQ(channels_.to("d1:1").sent.back().cancel().reason(), "client left");
  cluster_.Forget(id);
  cluster_.Cancel(id, "again");
  EXPECT_EQ(NumCancels("d1:1"), 1);
}

TEST_F(ClusterTest, LoadReportsSteerTheChoice) {
  ConnectAll();
  proto::WorkerMessage message;
  message.mutable_load()->set_running_sequences(50);
  channels_.to("d0:1").Receive(message);
  for (uint64_t turn = 0; turn < 4; ++turn) EXPECT_EQ(PickPair(cluster_.view(), 1, turn)->decode, 1);
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
