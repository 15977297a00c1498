// Proves how a group of processes comes to be and ends: any order of starts, strangers at the port, a rank of another
// binary or configuration refused with both words on every rank, a rank that never comes named; and that messages
// larger than any socket's buffer pass in both directions at once. The collectives are communicator_test.cc's business.
#include "model/communicator/tcp_group.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::model {
namespace {

using ::testing::HasSubstr;

class TcpGroupTest : public ::testing::Test {
 protected:
  // Joins of ranks on threads of their own, by rank; `change` edits their options.
  std::vector<absl::StatusOr<std::unique_ptr<RankLink>>> Join(
      int size, const std::function<void(TcpGroupOptions&)>& change = [](TcpGroupOptions&) {}) {
    std::vector<TcpGroupPort> ports;
    for (int rank = 0; rank < size; ++rank) {
      auto port = TcpGroupPort::Listen("127.0.0.1", 0);
      EXPECT_TRUE(port.ok()) << port.status();
      ports.push_back(*std::move(port));
    }
    leader_port_ = ports[0].port();
    std::vector<absl::StatusOr<std::unique_ptr<RankLink>>> links(size);
    std::vector<std::thread> threads;
    for (int rank = size - 1; rank >= 0; --rank) {
      threads.emplace_back([&, rank] {
        TcpGroupOptions options{
            .rank = rank, .size = size, .leader = {"127.0.0.1", leader_port_}, .fingerprint = "one"};
        change(options);
        links[rank] = JoinTcpGroup(std::move(ports[rank]), options, base::RealClock());
      });
    }
    for (std::thread& thread : threads) thread.join();
    return links;
  }
  int leader_port_ = 0;
};

TEST_F(TcpGroupTest, MessagesLargerThanBuffersPassInBothDirectionsAtOnce) {
  auto links = Join(3);
  constexpr size_t kBytes = 8 << 20;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(links[rank].ok()) << links[rank].status();
    threads.emplace_back([&, rank] {
      const std::vector<std::byte> mine(kBytes, static_cast<std::byte>(rank + 1));
      std::vector<std::vector<std::byte>> received(3, std::vector<std::byte>(kBytes));
      std::vector<MutableBytes> views;
      for (auto& bytes : received) views.push_back(absl::MakeSpan(bytes));
      const std::vector<ConstBytes> send(3, ConstBytes(mine));
      const absl::Status status = (*links[rank])->Exchange(send, views);
      EXPECT_TRUE(status.ok()) << status;
      for (int peer = 0; peer < 3; ++peer) {
        EXPECT_EQ(received[peer], std::vector<std::byte>(kBytes, static_cast<std::byte>(peer + 1)));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(TcpGroupTest, ARankOfAnotherBinaryOrConfigurationIsRefusedWithBothOnEveryRank) {
  for (const int other : {1, 2}) {
    const auto links = Join(3, [&](TcpGroupOptions& options) {
      if (options.rank == other) options.fingerprint = "another";
    });
    const std::string expected = absl::StrCat("rank ", other, " is \"another\", rank 0 is \"one\"");
    EXPECT_EQ(links[0].status(), absl::FailedPreconditionError(expected));
    EXPECT_EQ(links[other].status(), absl::FailedPreconditionError(expected));
    EXPECT_FALSE(links[3 - other].ok());
  }
}

TEST_F(TcpGroupTest, ARankOfAGroupOfAnotherSizeIsRefused) {
  const auto links = Join(2, [](TcpGroupOptions& options) {
    if (options.rank == 1) options.size = 3;
  });
  EXPECT_EQ(links[0].status(), absl::FailedPreconditionError("rank 1 is of a group of 3, rank 0 of one of 2"));
  EXPECT_EQ(links[1].status(), links[0].status());
}

TEST_F(TcpGroupTest, RanksThatNeverComeAreNamed) {
  auto port = TcpGroupPort::Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok()) << port.status();
  const base::HostPort leader{"127.0.0.1", port->port()};
  const auto link = JoinTcpGroup(
      *std::move(port), {.size = 3, .leader = leader, .start_timeout = absl::Milliseconds(20)}, base::RealClock());
  EXPECT_EQ(link.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(link.status().message()), HasSubstr("rank 0 waits for ranks 1, 2"));
  // And a leader that never comes.
  auto follower = TcpGroupPort::Listen("127.0.0.1", 0);
  ASSERT_TRUE(follower.ok()) << follower.status();
  const auto lost = JoinTcpGroup(*std::move(follower),
                                 {.rank = 1, .size = 2, .leader = leader, .start_timeout = absl::Milliseconds(20)},
                                 base::RealClock());
  EXPECT_EQ(lost.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(lost.status().message()), HasSubstr(absl::StrCat("127.0.0.1:", leader.port)));
}

TEST_F(TcpGroupTest, StrangersAtThePortAreForgotten) {
  std::vector<int> strangers;
  auto links = Join(2, [&](TcpGroupOptions& options) {
    if (options.rank != 1) return;
    // Before rank 1 comes: one that says something else, one that leaves at once.
    for (const std::string& words : {std::string(4096, 'x'), std::string()}) {
      const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
      sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(static_cast<uint16_t>(leader_port_))};
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
      if (words.empty()) {
        ::close(fd);
      } else {
        EXPECT_GT(::send(fd, words.data(), words.size(), MSG_NOSIGNAL), 0);
        strangers.push_back(fd);
      }
    }
  });
  EXPECT_TRUE(links[0].ok()) << links[0].status();
  EXPECT_TRUE(links[1].ok()) << links[1].status();
  for (const int fd : strangers) ::close(fd);
}

TEST_F(TcpGroupTest, ARankThatIsGoneIsNamedByTheOthers) {
  auto links = Join(3);
  for (const auto& link : links) ASSERT_TRUE(link.ok()) << link.status();
  links[1] = absl::UnavailableError("gone");
  std::vector<std::thread> threads;
  std::vector<absl::Status> statuses(3);
  for (const int rank : {0, 2}) {
    threads.emplace_back([&, rank] {
      std::vector<ConstBytes> send(3);
      std::vector<MutableBytes> receive(3);
      statuses[rank] = (*links[rank])->Exchange(send, receive);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const int rank : {0, 2}) {
    EXPECT_EQ(statuses[rank].code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(statuses[rank].message()), HasSubstr("rank 1 failed: "));
  }
}

TEST_F(TcpGroupTest, AnAddressThatCannotBeListenedOnIsNamed) {
  const auto port = TcpGroupPort::Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok()) << port.status();
  const auto again = TcpGroupPort::Listen("127.0.0.1", port->port());
  EXPECT_THAT(std::string(again.status().message()),
              HasSubstr(absl::StrCat("cannot listen on 127.0.0.1:", port->port(), " for ranks: ")));
}

}  // namespace
}  // namespace tandem::model
