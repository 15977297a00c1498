// Any single lost message, of every kind that the protocol has, in every kind of end that a transfer has: nothing is
// held five seconds later, and only a lost Start costs a request that would have gone well.
#include <algorithm>
#include <deque>
#include <functional>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvtransfer/transfer_rig.h"

namespace tandem::kvtransfer {
namespace {

using ::testing::ElementsAre;

enum class Story {
  kFinishes,
  kAbortedBeforeItIsAccepted,
  kAbortedWhileItIsComputed,
  kAbortedWhenAllIsSaid,
  kFailedByPrefill,
  kFailedByPrefillAsDecodeAborts,
};

struct Told {
  std::vector<std::string> lines;  // what both sides put out
  bool is_at_rest = false;         // five seconds after the last input
  std::vector<std::string> sent;   // names of all messages, in order
};

// Tells the story and loses the nth message that is sent; none where n is negative.
Told Tell(Story story, int lost) {
  TransferRig rig({.prompt_hidden_bytes = 4});
  Told told;
  const auto lose = [&](std::deque<proto::TransferMessage>& queue) {
    for (auto it = queue.begin(); it != queue.end();) {
      const int index = static_cast<int>(told.sent.size());
      told.sent.push_back(NameOf(*it));
      it = index == lost ? queue.erase(it) : std::next(it);
    }
  };
  // Each message is delivered as soon as it is sent, so that every one passes `lose` once.
  const auto settle = [&] {
    while (!rig.to_source.empty() || !rig.to_target.empty()) {
      std::deque<proto::TransferMessage> to_source = std::exchange(rig.to_source, {});
      std::deque<proto::TransferMessage> to_target = std::exchange(rig.to_target, {});
      lose(to_source);
      lose(to_target);
      for (const auto& message : to_source) rig.source.Receive(kDecode, message);
      for (const auto& message : to_target) rig.target.Receive(kPeer, message);
      rig.Drain();
    }
  };
  const auto abort = [&] {
    rig.target.Abort(1, absl::CancelledError("the client left"));
    rig.Drain();
  };
  const auto fail = [&] {
    rig.source.Fail(rig.Id(1), absl::InternalError("prefill cannot go on"));
    rig.Drain();
  };
  bool is_served = false;
  const auto serve = [&] {
    if (is_served || !rig.admitted.contains(1)) return;
    is_served = true;
    if (story == Story::kAbortedBeforeItIsAccepted) return abort();
    rig.Accept(1);
    settle();
    rig.Compute(1, 0, 1, 0, 2);
    settle();
    if (story == Story::kAbortedWhileItIsComputed) return abort();
    if (story == Story::kFailedByPrefill) return fail();
    if (story == Story::kFailedByPrefillAsDecodeAborts) {
      abort();
      return fail();
    }
    rig.Compute(1, 1, 2, 0, 2);
    settle();
    rig.Sample(1, 0, 42);
    settle();
    rig.source.PromptHidden(rig.Id(1), "wxyz");
    rig.Drain();
    settle();
    if (story == Story::kAbortedWhenAllIsSaid) abort();
  };
  rig.Begin(rig.Request(100));
  for (int second = 0; second < 5; ++second) {
    settle();
    serve();
    settle();
    rig.CompleteFetches();
    settle();
    rig.Advance(absl::Seconds(1));
  }
  told.lines = rig.lines;
  told.is_at_rest = rig.IsAtRest();
  return told;
}

// Loses each message in turn. How many of these transfers became ready.
int LoseEach(Story story, size_t num_messages) {
  int num_ready = 0;
  for (size_t lost = 0; lost < num_messages; ++lost) {
    const Told told = Tell(story, static_cast<int>(lost));
    EXPECT_TRUE(told.is_at_rest) << "without " << told.sent[lost] << ": " << testing::PrintToString(told.lines);
    num_ready += static_cast<int>(std::count(told.lines.begin(), told.lines.end(), "ready 1 with hidden wxyz"));
  }
  return num_ready;
}

TEST(TransferLossTest, ATransferThatGoesWellLosesOneMessage) {
  const Told undisturbed = Tell(Story::kFinishes, -1);
  ASSERT_TRUE(undisturbed.is_at_rest);
  ASSERT_THAT(undisturbed.sent, ElementsAre("start", "accepted", "announce", "announce", "source_sums", "first_token",
                                            "prompt_hidden", "done", "done_ack"));
  EXPECT_EQ(LoseEach(Story::kFinishes, undisturbed.sent.size()), 8);  // only a lost Start costs the request
}

TEST(TransferLossTest, ATransferThatDecodeAbortsLosesOneMessage) {
  for (const Story story :
       {Story::kAbortedBeforeItIsAccepted, Story::kAbortedWhileItIsComputed, Story::kAbortedWhenAllIsSaid}) {
    const Told undisturbed = Tell(story, -1);
    ASSERT_TRUE(undisturbed.is_at_rest);
    ASSERT_EQ(std::count(undisturbed.sent.begin(), undisturbed.sent.end(), "abort"), 1);
    ASSERT_EQ(undisturbed.sent.back(), "abort_ack");
    LoseEach(story, undisturbed.sent.size());
  }
}

TEST(TransferLossTest, ATransferThatPrefillFailsLosesOneMessage) {
  for (const Story story : {Story::kFailedByPrefill, Story::kFailedByPrefillAsDecodeAborts}) {
    const Told undisturbed = Tell(story, -1);
    ASSERT_TRUE(undisturbed.is_at_rest);
    ASSERT_GE(std::count(undisturbed.sent.begin(), undisturbed.sent.end(), "abort"), 1);
    EXPECT_EQ(LoseEach(story, undisturbed.sent.size()), 0);
  }
}

// What is said only because something was lost may be lost too, a second before it is said again.
TEST(TransferLossTest, ARepeatThatIsLostIsSaidAgain) {
  TransferRig rig;
  rig.Begin(rig.Request(64));
  rig.to_source.clear();  // the Start
  for (int second = 0; second < 5; ++second) {
    rig.Advance(absl::Seconds(1));
    ASSERT_FALSE(rig.to_source.empty());
    if (second == 0) {
      EXPECT_EQ(NameOf(rig.to_source.front()), "repeat");
      rig.to_source.clear();
    }
    rig.Deliver();
    if (rig.IsAtRest()) break;
  }
  EXPECT_TRUE(rig.IsAtRest()) << testing::PrintToString(rig.lines);
}

TEST(TransferLossTest, TheseStoriesLoseEveryKindOfMessageThatThereIs) {
  std::set<std::string> kinds;
  for (const Story story : {Story::kFinishes, Story::kAbortedWhileItIsComputed, Story::kFailedByPrefill}) {
    for (const std::string& name : Tell(story, -1).sent) kinds.insert(name);
  }
  kinds.insert("repeat");     // ARepeatThatIsLostIsSaidAgain
  kinds.insert("heartbeat");  // a second one is 250 ms away: link_liveness_test.cc
  EXPECT_EQ(kinds.size(),
            static_cast<size_t>(proto::TransferMessage::descriptor()->FindOneofByName("message")->field_count()))
      << testing::PrintToString(kinds);
}

}  // namespace
}  // namespace tandem::kvtransfer
