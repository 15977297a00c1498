#include "base/mailbox.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>

namespace tandem::base {
namespace {

TEST(MailboxTest, KeepsOrderAndRefusesWhatDoesNotFit) {
  Mailbox<std::unique_ptr<int>> mailbox(2);
  auto one = std::make_unique<int>(1), two = std::make_unique<int>(2), three = std::make_unique<int>(3);
  EXPECT_TRUE(mailbox.Push(one));
  EXPECT_TRUE(mailbox.Push(two));
  EXPECT_FALSE(mailbox.Push(three));
  ASSERT_NE(three, nullptr) << "a refused message stays with its sender";
  const auto all = mailbox.TakeAll(absl::ZeroDuration());
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(*all[0], 1);
  EXPECT_EQ(*all[1], 2);
  EXPECT_TRUE(mailbox.Push(three));
}

TEST(MailboxTest, ReservedMessagesAlwaysFit) {
  Mailbox<int> mailbox(1);
  int one = 1;
  EXPECT_TRUE(mailbox.Push(one));
  mailbox.PushReserved(2);
  EXPECT_EQ(mailbox.TakeAll(absl::ZeroDuration()), (std::vector<int>{1, 2}));
}

TEST(MailboxTest, WakesItsOwner) {
  Mailbox<int> mailbox(1);
  std::vector<int> taken;
  std::thread owner([&] { taken = mailbox.TakeAll(absl::InfiniteDuration()); });
  int one = 1;
  EXPECT_TRUE(mailbox.Push(one));
  owner.join();
  EXPECT_EQ(taken, std::vector<int>{1});
}

TEST(MailboxTest, CloseWakesItsOwnerAndRefusesLateMessages) {
  Mailbox<int> mailbox(4);
  std::thread owner([&] { EXPECT_TRUE(mailbox.TakeAll(absl::InfiniteDuration()).empty()); });
  mailbox.Close();
  owner.join();
  int one = 1;
  EXPECT_FALSE(mailbox.Push(one));
  mailbox.PushReserved(2);
  EXPECT_EQ(mailbox.size(), 0u);
}

TEST(MailboxTest, LosesNothingBetweenThreads) {
  Mailbox<int> mailbox(16);
  constexpr int kThreads = 4, kEach = 2000;
  std::vector<std::thread> senders;
  for (int t = 0; t < kThreads; ++t) {
    senders.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        int message = t * kEach + i;
        while (!mailbox.Push(message)) std::this_thread::yield();
      }
    });
  }
  std::vector<int> last(kThreads, -1);
  int received = 0;
  while (received < kThreads * kEach) {
    for (const int message : mailbox.TakeAll(absl::InfiniteDuration())) {
      const int sender = message / kEach;
      ASSERT_EQ(message % kEach, last[sender] + 1) << "one sender's messages keep their order";
      last[sender] = message % kEach;
      ++received;
    }
  }
  for (auto& sender : senders) sender.join();
  EXPECT_EQ(mailbox.size(), 0u);
}

}  // namespace
}  // namespace tandem::base
