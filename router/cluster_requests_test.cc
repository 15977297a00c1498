// The requests of a shard at its workers, over fake channels: what each order, cancel and credit says, in which parts,
// and which request hears what.
#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "router/testing/cluster_fixture.h"

namespace tandem::router {
namespace {

using ClusterRequestsTest = ClusterTest;

TEST_F(ClusterRequestsTest, EveryFieldOfTheOrderIsSent) {
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

TEST_F(ClusterRequestsTest, PromptIsCutIntoPartsThatJoinToIt) {
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

TEST_F(ClusterRequestsTest, PartsOfTheLargestIdsStayUnderTheCut) {
  proto::GeneratePart part;
  for (size_t i = 0; i < Cluster::kTokensPerPart; ++i) part.add_prompt_tokens(0xffffffff);
  EXPECT_LE(part.ByteSizeLong() + 1024, size_t{256} << 10);
}

TEST_F(ClusterRequestsTest, RefusedPartEndsItsRequest) {
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

TEST_F(ClusterRequestsTest, TokensAndEndReachTheirRequestAlone) {
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

TEST_F(ClusterRequestsTest, ChoicesAndLogprobsArriveAsTheWorkerSaysThem) {
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

// Of one choice much, of one nothing, of one that has ended nothing more is wanted.
TEST_F(ClusterRequestsTest, ANextAttemptBringsWhatEachChoiceHasInParts) {
  ConnectAll();
  RecordingListener listener;
  const uint64_t id = Generate(&listener, 0, 0, /*prompt_size=*/10, /*num_choices=*/3);
  cluster_.EndAttempt(id);
  GenerateOrder order;
  order.num_choices = 3;
  order.prompt.assign(10, 7);
  std::vector<TokenId> known(2 * Cluster::kTokensPerPart);
  std::iota(known.begin(), known.end(), 0);
  PairChoice other;
  other.decode = 1;
  other.prefill = 1;
  cluster_.GenerateAgain(id, other, order, {{.tokens = known}, {}, {.has_ended = true}});
  const auto& parts = channels_.to("d1:1").parts;
  ASSERT_EQ(parts.size(), 3u);
  std::vector<TokenId> prompt, generated;
  for (size_t i = 0; i < parts.size(); ++i) {
    EXPECT_EQ(parts[i].part_index(), i);
    EXPECT_EQ(parts[i].is_last(), i + 1 == parts.size());
    EXPECT_LE(parts[i].ByteSizeLong(), size_t{256} << 10);
    prompt.insert(prompt.end(), parts[i].prompt_tokens().begin(), parts[i].prompt_tokens().end());
    generated.insert(generated.end(), parts[i].generated_tokens().begin(), parts[i].generated_tokens().end());
  }
  EXPECT_EQ(prompt, order.prompt);
  EXPECT_EQ(generated, known);
  const proto::GenerateHead& head = parts[0].head();
  ASSERT_EQ(head.resumed_size(), 3);
  EXPECT_EQ(head.resumed(0).num_tokens(), known.size());
  EXPECT_EQ(head.resumed(1).num_tokens(), 0u);
  EXPECT_FALSE(head.resumed(1).has_ended());
  EXPECT_TRUE(head.resumed(2).has_ended());

  // Credit counts from where the attempt began.
  const auto num_grants = [this] {
    const auto& sent = channels_.to("d1:1").sent;
    return std::count_if(sent.begin(), sent.end(), [](const auto& m) { return m.has_credit(); });
  };
  cluster_.TokensTaken(id, 0, static_cast<int64_t>(known.size()) + 1);
  EXPECT_EQ(num_grants(), 0) << "one token is no reason for a message";
  cluster_.TokensTaken(id, 0, static_cast<int64_t>(known.size()) + 1100);
  ASSERT_EQ(num_grants(), 1);
  EXPECT_EQ(channels_.to("d1:1").sent.back().credit().granted_bytes(), head.credit_bytes() + 1100 * 8);
  cluster_.Forget(id);
}

TEST_F(ClusterRequestsTest, AnAttemptThatHasFailedIsNotNamedToAWorkerThatComesBack) {
  ConnectAll();
  RecordingListener listener;
  const uint64_t id = Generate(&listener);
  cluster_.EndAttempt(id);
  channels_.to("d0:1").Break(absl::UnavailableError("reset"));
  FakeChannelState& channel = Reopen("d0:1", "d0", 3);
  ASSERT_TRUE(channel.sent.at(1).has_reattach()) << channel.sent.at(1).ShortDebugString();
  EXPECT_EQ(channel.sent.at(1).reattach().positions_size(), 0);
  SendTokens("d0:1", KeyOf(id), 0, {1});
  EXPECT_TRUE(listener.received.empty());
  cluster_.Forget(id);
}

TEST_F(ClusterRequestsTest, TokensFromAWorkerThatDoesNotHaveTheRequestAreNotItsTokens) {
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

TEST_F(ClusterRequestsTest, TokensOfAForgottenRequestAreAnsweredWithOneCancel) {
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

TEST_F(ClusterRequestsTest, SecondAttemptRunsElsewhereAndTheFirstIsNotHeard) {
  ConnectAll();
  RecordingListener listener;
  const uint64_t id = Generate(&listener, 0, 0);
  PairChoice other;
  other.decode = 1;
  other.prefill = 1;
  GenerateOrder order;
  order.prompt = {1, 2, 3};
  cluster_.EndAttempt(id);
  EXPECT_EQ(cluster_.view().decodes[0].requests_in_flight, 0) << "nobody has it";
  cluster_.GenerateAgain(id, other, order, {});
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

TEST_F(ClusterRequestsTest, CreditIsGivenBackAsTokensAreTaken) {
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

TEST_F(ClusterRequestsTest, EndsAreConfirmedByTheirHighestNumber) {
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

TEST_F(ClusterRequestsTest, NonsenseErrorCodesBecomeUnknown) {
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

TEST_F(ClusterRequestsTest, CancelGoesToTheWorkerThatHasTheRequest) {
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

TEST_F(ClusterRequestsTest, CancelNamesTheChoiceWhereItIsForOneAlone) {
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

// d0 fails whatever it is given: it looks idle, and must not draw the traffic.
TEST_F(ClusterRequestsTest, AWorkerThatFailsAgainAndAgainIsEjectedTriedOnceAndServesAgain) {
  ConnectAll();
  const auto run = [&](const absl::Status& error, int decode, bool has_token) {
    RecordingListener listener;
    const uint64_t id = Generate(&listener, decode);
    if (has_token) SendTokens(decode == 0 ? "d0:1" : "d1:1", KeyOf(id), 0, {5});
    SendEnd(decode == 0 ? "d0:1" : "d1:1", KeyOf(id), error);
    cluster_.Forget(id);
  };
  const absl::Status broken = absl::InternalError("cuda says no");
  for (int i = 0; i < 100; ++i) run(absl::InvalidArgumentError("a client's fault"), 0, false);
  EXPECT_FALSE(cluster_.view().decodes[0].is_ejected);
  for (int i = 0; i < OutlierEjection::kFailuresMax; ++i) run(broken, 0, true);
  EXPECT_TRUE(cluster_.view().decodes[0].is_ejected);
  EXPECT_FALSE(cluster_.view().prefills[0].is_ejected) << "it had done its part";
  EXPECT_FALSE(cluster_.view().decodes[1].is_ejected);
  EXPECT_EQ(cluster_.counters().ejections, 1);

  now_ += OutlierEjection::kTimeMin;
  TickAlive();
  EXPECT_FALSE(cluster_.view().decodes[0].is_ejected);
  RecordingListener listener;
  const uint64_t trial = Generate(&listener, 0);
  EXPECT_TRUE(cluster_.view().decodes[0].is_ejected) << "one tries, the others wait for what becomes of it";
  SendTokens("d0:1", KeyOf(trial), 0, {5});
  SendEnd("d0:1", KeyOf(trial), absl::OkStatus());
  cluster_.Forget(trial);
  EXPECT_FALSE(cluster_.view().decodes[0].is_ejected);
}

TEST_F(ClusterRequestsTest, APrefillWorkerThatNeverGivesAFirstTokenIsEjected) {
  ConnectAll();
  for (int i = 0; i < OutlierEjection::kFailuresMax; ++i) {
    for (int decode = 0; decode < 2; ++decode) {  // with whomever it is paired; these serve others well between
      for (const bool is_bad : {true, false}) {
        RecordingListener listener;
        const uint64_t id = Generate(&listener, decode, is_bad ? 0 : 1);
        const std::string address = decode == 0 ? "d0:1" : "d1:1";
        if (!is_bad) SendTokens(address, KeyOf(id), 0, {5});
        SendEnd(address, KeyOf(id), is_bad ? absl::DataLossError("sums differ") : absl::OkStatus());
        cluster_.Forget(id);
      }
    }
  }
  EXPECT_TRUE(cluster_.view().prefills[0].is_ejected);
  EXPECT_FALSE(cluster_.view().prefills[1].is_ejected);
  EXPECT_FALSE(cluster_.view().decodes[0].is_ejected);
  EXPECT_FALSE(cluster_.view().decodes[1].is_ejected);
}

}  // namespace
}  // namespace tandem::router
