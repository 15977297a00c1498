// Proves what a router that reads late gets: every token once and in order, then the end; the newest of what only
// counts as it is now; messages of bounded size, and memory that does not grow with the number of steps.
#include "worker_shell/live_mailbox.h"

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace tandem::worker_shell {
namespace {

proto::RequestKey Key(uint64_t request) {
  proto::RequestKey key;
  key.set_router_incarnation(7);
  key.set_request_id(request);
  key.set_attempt(1);
  return key;
}

void AddTokens(proto::WorkerMessage& message, uint64_t request, uint32_t choice, uint32_t position,
               const std::vector<uint32_t>& tokens) {
  proto::SequenceTokens& sequence = *message.mutable_tokens()->add_sequences();
  *sequence.mutable_key() = Key(request);
  sequence.set_choice(choice);
  sequence.set_first_position(position);
  sequence.mutable_tokens()->Add(tokens.begin(), tokens.end());
}

proto::WorkerMessage Tokens(uint64_t request, uint32_t position, const std::vector<uint32_t>& tokens,
                            uint32_t choice = 0) {
  proto::WorkerMessage message;
  AddTokens(message, request, choice, position, tokens);
  return message;
}

proto::WorkerMessage Ended(uint64_t request) {
  proto::WorkerMessage message;
  *message.mutable_ended()->mutable_key() = Key(request);
  return message;
}

TEST(LiveMailboxTest, TokensThatWaitAreJoinedByThoseThatFollowThem) {
  LiveMailbox mailbox;
  mailbox.Push(Tokens(1, 0, {10}));
  mailbox.Push(Tokens(2, 5, {20}));
  mailbox.Push(Tokens(1, 1, {11, 12}));
  const proto::WorkerMessage message = mailbox.Take();
  EXPECT_TRUE(mailbox.empty());
  EXPECT_EQ(mailbox.bytes(), 0u);
  ASSERT_EQ(message.tokens().sequences_size(), 2);
  const proto::SequenceTokens& first = message.tokens().sequences(0);
  EXPECT_EQ(first.key().request_id(), 1u);
  EXPECT_EQ(first.first_position(), 0u);
  EXPECT_EQ(std::vector<uint32_t>(first.tokens().begin(), first.tokens().end()), (std::vector<uint32_t>{10, 11, 12}));
  EXPECT_EQ(message.tokens().sequences(1).first_position(), 5u);
}

TEST(LiveMailboxTest, OnlyTokensThatFollowJoin) {
  LiveMailbox mailbox;
  mailbox.Push(Tokens(1, 0, {10}));
  mailbox.Push(Tokens(1, 0, {10}));     // said again
  mailbox.Push(Tokens(1, 1, {11}, 1));  // another choice
  EXPECT_EQ(mailbox.Take().tokens().sequences_size(), 3);
}

TEST(LiveMailboxTest, LogprobsAndTheFinishComeAlong) {
  LiveMailbox mailbox;
  for (uint32_t position = 0; position < 3; ++position) {
    proto::WorkerMessage message = Tokens(1, position, {position});
    proto::SequenceTokens& sequence = *message.mutable_tokens()->mutable_sequences(0);
    sequence.add_logprobs(-static_cast<float>(position));
    sequence.add_top_logprobs()->add_tokens(100 + position);
    if (position > 0) sequence.mutable_drafts()->set_windows(position);
    if (position == 2) sequence.set_finish_reason(proto::FINISH_REASON_LENGTH);
    mailbox.Push(std::move(message));
  }
  const proto::WorkerMessage message = mailbox.Take();
  ASSERT_EQ(message.tokens().sequences_size(), 1);
  const proto::SequenceTokens& sequence = message.tokens().sequences(0);
  ASSERT_EQ(sequence.logprobs_size(), 3);
  EXPECT_EQ(sequence.logprobs(2), -2.0f);
  ASSERT_EQ(sequence.top_logprobs_size(), 3);
  EXPECT_EQ(sequence.top_logprobs(1).tokens(0), 101u);
  EXPECT_EQ(sequence.drafts().windows(), 2u) << "counts so far: the newest";
  EXPECT_EQ(sequence.finish_reason(), proto::FINISH_REASON_LENGTH);
}

TEST(LiveMailboxTest, AnEndComesAfterTheTokensOfItsRequest) {
  LiveMailbox mailbox;
  mailbox.Push(Tokens(1, 0, {10}));
  mailbox.Push(Tokens(2, 0, {20}));
  mailbox.Push(Ended(2));
  mailbox.Push(Tokens(1, 1, {11}));
  mailbox.Push(Ended(1));
  EXPECT_EQ(mailbox.Take().tokens().sequences_size(), 2);
  EXPECT_EQ(mailbox.Take().ended().key().request_id(), 2u);
  EXPECT_EQ(mailbox.Take().ended().key().request_id(), 1u);
  EXPECT_TRUE(mailbox.empty());
}

TEST(LiveMailboxTest, OfLoadsHeartbeatsAndPeersOnlyTheNewestCounts) {
  LiveMailbox mailbox;
  proto::WorkerMessage hello, load, heartbeat, peer;
  hello.mutable_hello();
  mailbox.Push(hello);
  for (int i = 1; i <= 1000; ++i) {
    load.mutable_load()->set_waiting_requests(i);
    mailbox.Push(load);
    heartbeat.mutable_heartbeat()->set_sequence(i);
    mailbox.Push(heartbeat);
    peer.mutable_peer_status()->set_bootstrap_address(i % 2 == 0 ? "even" : "odd");
    peer.mutable_peer_status()->set_detail(std::to_string(i));
    mailbox.Push(peer);
  }
  EXPECT_TRUE(mailbox.Take().has_hello()) << "before anything else";
  EXPECT_EQ(mailbox.Take().heartbeat().sequence(), 1000u);
  EXPECT_EQ(mailbox.Take().load().waiting_requests(), 1000u);
  EXPECT_EQ(mailbox.Take().peer_status().detail(), "1000");
  EXPECT_EQ(mailbox.Take().peer_status().detail(), "999");
  EXPECT_TRUE(mailbox.empty());
}

// Any order of pushes and takes: each choice's tokens come once, in order, and before the end of their request.
TEST(LiveMailboxTest, NothingIsLostDoubledOrOvertakenWhateverTheReaderDoes) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    std::mt19937 rng(seed);
    LiveMailbox mailbox;
    std::map<std::pair<uint64_t, uint32_t>, uint32_t> sent, received;
    std::map<uint64_t, bool> is_ended, has_heard_end;
    const auto take = [&] {
      const proto::WorkerMessage message = mailbox.Take();
      ASSERT_LE(message.ByteSizeLong(), LiveMailbox::kMessageBytesMax);
      for (const proto::SequenceTokens& sequence : message.tokens().sequences()) {
        const uint64_t request = sequence.key().request_id();
        ASSERT_FALSE(has_heard_end[request]);
        uint32_t& next = received[{request, sequence.choice()}];
        ASSERT_EQ(sequence.first_position(), next);
        for (const uint32_t token : sequence.tokens()) ASSERT_EQ(token, next++);
      }
      if (message.has_ended()) has_heard_end[message.ended().key().request_id()] = true;
    };
    for (int turn = 0; turn < 3000; ++turn) {
      const uint64_t request = rng() % 5;
      if (rng() % 10 < 8 && !is_ended[request]) {
        uint32_t& next = sent[{request, static_cast<uint32_t>(rng() % 2)}];
        const uint32_t choice = &next == &sent[{request, 0}] ? 0 : 1;
        std::vector<uint32_t> tokens(1 + rng() % (rng() % 50 == 0 ? 40000 : 3));
        for (uint32_t& token : tokens) token = next++;
        mailbox.Push(Tokens(request, next - static_cast<uint32_t>(tokens.size()), tokens, choice));
      } else if (rng() % 200 == 0 && !is_ended[request]) {
        is_ended[request] = true;
        mailbox.Push(Ended(request));
      } else if (rng() % 3 == 0 && !mailbox.empty()) {
        take();
      }
    }
    while (!mailbox.empty()) take();
    EXPECT_EQ(received, sent);
    EXPECT_EQ(mailbox.bytes(), 0u);
    for (const auto& [request, ended] : is_ended) EXPECT_EQ(has_heard_end[request], ended);
  }
}

TEST(LiveMailboxTest, MemoryIsThatOfTheTokensAndNotOfTheSteps) {
  LiveMailbox one, many;
  std::vector<uint32_t> all;
  for (uint32_t position = 0; position < 2048; ++position) {
    all.push_back(position);
    many.Push(Tokens(1, position, {position}));
  }
  one.Push(Tokens(1, 0, all));
  EXPECT_EQ(many.bytes(), one.bytes());
}

}  // namespace
}  // namespace tandem::worker_shell
