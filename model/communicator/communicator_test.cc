// Proves every collective against plain loops over what the ranks gave, for groups of one to eight and sizes that no
// rank divides; that sums are the fixed tree; that bytes are counted; and that a rank that fails at any point of a run,
// or sends what nobody expects, ends it on every rank with its name and cause.
#include "model/communicator/communicator.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "gtest/gtest.h"
#include "model/communicator/in_process_group.h"
#include "model/communicator/tcp_group.h"

namespace tandem::model {
namespace {

using Bytes = std::vector<std::byte>;

enum class Kind { kThreads, kTcp };

class CommunicatorTest : public ::testing::TestWithParam<std::tuple<Kind, int>> {
 protected:
  CommunicatorTest() { Begin(); }
  int size() const { return std::get<1>(GetParam()); }

  // A new group.
  void Begin() {
    ranks_.clear();
    for (auto& link : std::get<0>(GetParam()) == Kind::kTcp ? MakeTcpGroup() : MakeInProcessGroup(size())) {
      ranks_.push_back(std::make_unique<Communicator>(std::move(link), base::RealClock()));
    }
  }
  std::vector<std::unique_ptr<RankLink>> MakeTcpGroup() const {
    std::vector<TcpGroupPort> ports;
    for (int rank = 0; rank < size(); ++rank) {
      auto port = TcpGroupPort::Listen("127.0.0.1", 0);
      EXPECT_TRUE(port.ok()) << port.status();
      ports.push_back(*std::move(port));
    }
    const base::HostPort leader{"127.0.0.1", ports[0].port()};
    std::vector<std::unique_ptr<RankLink>> links(size());
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size(); ++rank) {
      threads.emplace_back([&, rank] {
        auto link =
            JoinTcpGroup(std::move(ports[rank]),
                         {.rank = rank, .size = size(), .leader = leader, .fingerprint = "test"}, base::RealClock());
        EXPECT_TRUE(link.ok()) << link.status();
        if (link.ok()) links[rank] = *std::move(link);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return links;
  }

  // What each rank's thread returned.
  std::vector<absl::Status> OnEveryRank(const std::function<absl::Status(Communicator&)>& work) {
    std::vector<absl::Status> statuses(size());
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size(); ++rank) {
      threads.emplace_back([&, rank] { statuses[rank] = work(*ranks_[rank]); });
    }
    for (std::thread& thread : threads) thread.join();
    return statuses;
  }
  void ExpectOkOnEveryRank(const std::function<absl::Status(Communicator&)>& work) {
    for (const absl::Status& status : OnEveryRank(work)) EXPECT_TRUE(status.ok()) << status;
  }

  static Bytes RandomBytes(uint32_t seed, size_t count) {
    std::mt19937 random(seed);
    Bytes bytes(count);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    return bytes;
  }
  // Of every magnitude: another order of adding gives other bits.
  static std::vector<float> RandomFloats(uint32_t seed, size_t count) {
    std::mt19937 random(seed);
    std::vector<float> values(count);
    for (float& value : values) {
      value = std::ldexp(std::uniform_real_distribution<float>(-1, 1)(random), static_cast<int>(random() % 24));
    }
    return values;
  }
  static bool SameBits(absl::Span<const float> a, absl::Span<const float> b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
  }

  // Element i of what the ranks' vectors add up to.
  float SumOf(const std::vector<std::vector<float>>& values, size_t i) const {
    const auto v = [&](int rank) { return values[rank][i]; };
    if (size() == 1) return v(0);
    const float pair = v(0) + v(1);
    if (size() == 2) return pair;
    if (size() == 3) return pair + v(2);
    const float four = pair + (v(2) + v(3));
    return size() == 4 ? four : four + ((v(4) + v(5)) + (v(6) + v(7)));
  }

  std::vector<std::unique_ptr<Communicator>> ranks_;
};

TEST_P(CommunicatorTest, AllGatherGivesEveryRanksPieceToEveryRank) {
  for (const uint32_t round : {1u, 2u, 3u}) {
    std::vector<Bytes> pieces;
    for (int rank = 0; rank < size(); ++rank)
      pieces.push_back(RandomBytes(100 * round + rank, (rank * 37 + round) % 61));
    ExpectOkOnEveryRank([&](Communicator& rank) {
      std::vector<Bytes> received;
      std::vector<MutableBytes> views;
      for (const Bytes& piece : pieces) received.emplace_back(piece.size());
      for (Bytes& piece : received) views.push_back(absl::MakeSpan(piece));
      const absl::Status status = rank.AllGather(pieces[rank.rank()], views);
      EXPECT_TRUE(received == pieces);
      return status;
    });
  }
}

TEST_P(CommunicatorTest, AllToAllGivesEveryRankWhatWasMeantForIt) {
  // What a sends to b; nothing for some pairs.
  const auto sent = [](int a, int b) { return RandomBytes(a * 16 + b, (a * 5 + b * 3) % 7 * 1000); };
  ExpectOkOnEveryRank([&](Communicator& rank) {
    std::vector<Bytes> send, receive;
    std::vector<ConstBytes> send_views;
    std::vector<MutableBytes> receive_views;
    for (int peer = 0; peer < size(); ++peer) {
      send.push_back(sent(rank.rank(), peer));
      receive.emplace_back(sent(peer, rank.rank()).size());
    }
    for (int peer = 0; peer < size(); ++peer) {
      send_views.emplace_back(send[peer]);
      receive_views.push_back(absl::MakeSpan(receive[peer]));
    }
    const absl::Status status = rank.AllToAll(send_views, receive_views);
    for (int peer = 0; peer < size(); ++peer) EXPECT_TRUE(receive[peer] == sent(peer, rank.rank()));
    return status;
  });
}

TEST_P(CommunicatorTest, BroadcastGivesTheRootsBytesToEveryRank) {
  for (int root = 0; root < size(); ++root) {
    const Bytes expected = RandomBytes(root, 500);
    ExpectOkOnEveryRank([&](Communicator& rank) {
      Bytes bytes = rank.rank() == root ? expected : Bytes(expected.size());
      const absl::Status status = rank.Broadcast(root, absl::MakeSpan(bytes));
      EXPECT_TRUE(bytes == expected);
      return status;
    });
  }
}

TEST_P(CommunicatorTest, SumsAreTheFixedTreeOnEveryRank) {
  for (const size_t count : {0, 1, 7, 8, 1001}) {
    std::vector<std::vector<float>> values;
    for (int rank = 0; rank < size(); ++rank) values.push_back(RandomFloats(rank * 7 + 1, count));
    std::vector<float> expected(count);
    for (size_t i = 0; i < count; ++i) expected[i] = SumOf(values, i);
    ExpectOkOnEveryRank([&](Communicator& rank) {
      std::vector<float> reduced = values[rank.rank()];
      absl::Status status = rank.AllReduce(absl::MakeSpan(reduced));
      EXPECT_TRUE(SameBits(reduced, expected)) << count << " values";
      const ValueShare share = ShareOf(static_cast<int64_t>(count), rank.rank(), size());
      std::vector<float> mine(share.count);
      status.Update(rank.ReduceScatter(values[rank.rank()], absl::MakeSpan(mine)));
      EXPECT_TRUE(SameBits(mine, absl::MakeConstSpan(expected).subspan(share.begin, share.count)));
      return status;
    });
  }
}

TEST_P(CommunicatorTest, SharesAreConsecutiveAndNearlyEqual) {
  for (const int64_t count : {0, 1, 7, 64, 1001}) {
    int64_t next = 0;
    for (int rank = 0; rank < size(); ++rank) {
      const ValueShare share = ShareOf(count, rank, size());
      EXPECT_EQ(share.begin, next);
      EXPECT_LE(share.count - count / size(), 1);
      next += share.count;
    }
    EXPECT_EQ(next, count);
  }
}

TEST_P(CommunicatorTest, CountsCallsAndTheBytesThatARankSendsToOthers) {
  ExpectOkOnEveryRank([&](Communicator& rank) {
    absl::Status status = rank.Barrier();
    Bytes bytes(100);
    status.Update(rank.Broadcast(0, absl::MakeSpan(bytes)));
    std::vector<Bytes> pieces(size(), Bytes(30));
    std::vector<MutableBytes> views;
    for (Bytes& piece : pieces) views.push_back(absl::MakeSpan(piece));
    status.Update(rank.AllGather(ConstBytes(pieces[rank.rank()]), views));
    std::vector<float> values(10 * size());
    status.Update(rank.AllReduce(absl::MakeSpan(values)));
    return status;
  });
  const int64_t others = size() - 1;
  for (int rank = 0; rank < size(); ++rank) {
    const auto sent = [&](Collective op) { return ranks_[rank]->counters(op).bytes_sent; };
    EXPECT_EQ(sent(Collective::kBarrier), 0);
    EXPECT_EQ(sent(Collective::kBroadcast), rank == 0 ? 100 * others : 0);
    EXPECT_EQ(sent(Collective::kAllGather), 30 * others);
    EXPECT_EQ(sent(Collective::kAllReduce), 2 * 40 * others);
    for (const Collective op :
         {Collective::kBarrier, Collective::kBroadcast, Collective::kAllGather, Collective::kAllReduce}) {
      EXPECT_EQ(ranks_[rank]->counters(op).num_calls, 1);
      EXPECT_GE(ranks_[rank]->counters(op).time, absl::ZeroDuration());
    }
    EXPECT_EQ(ranks_[rank]->counters(Collective::kAllToAll).num_calls, 0);
  }
}

// A run of six collectives; one rank fails before the n-th.
TEST_P(CommunicatorTest, ARankThatFailsAtAnyPointEndsTheRunOnEveryRankAtOnce) {
  constexpr int kCalls = 6;
  for (int failing = 0; failing < size(); ++failing) {
    for (int call = 0; call <= kCalls; ++call) {
      Begin();
      const auto statuses = OnEveryRank([&](Communicator& rank) -> absl::Status {
        std::vector<float> values(9, 1.0f), mine(ShareOf(9, rank.rank(), size()).count);
        Bytes bytes(16);
        const std::vector<ConstBytes> send(size(), ConstBytes(bytes).first(1));
        std::vector<Bytes> pieces(size(), Bytes(1));
        std::vector<MutableBytes> views;
        for (Bytes& piece : pieces) views.push_back(absl::MakeSpan(piece));
        const std::function<absl::Status()> calls[kCalls] = {
            [&] { return rank.Barrier(); },
            [&] { return rank.Broadcast(0, absl::MakeSpan(bytes)); },
            [&] { return rank.AllGather(ConstBytes(bytes).first(1), views); },
            [&] { return rank.AllToAll(send, views); },
            [&] { return rank.ReduceScatter(values, absl::MakeSpan(mine)); },
            [&] { return rank.AllReduce(absl::MakeSpan(values)); },
        };
        for (int i = 0; i < kCalls; ++i) {
          if (rank.rank() == failing && i == call) rank.Fail(absl::DataLossError("its memory is gone"));
          if (absl::Status status = calls[i](); !status.ok()) {
            EXPECT_LE(i, call);
            // Over TCP a rank may hear of it while it still waits for another one in the call before.
            EXPECT_GE(i, std::get<0>(GetParam()) == Kind::kTcp ? call - 1 : call);
            EXPECT_TRUE(rank.Barrier() == status) << "it stays so";
            return status;
          }
        }
        if (rank.rank() == failing && call == kCalls) rank.Fail(absl::DataLossError("its memory is gone"));
        return absl::OkStatus();
      });
      const absl::Status expected = absl::DataLossError(absl::StrCat("rank ", failing, " failed: its memory is gone"));
      for (int rank = 0; rank < size(); ++rank) {
        if (call < kCalls || !statuses[rank].ok()) {
          EXPECT_EQ(statuses[rank], expected);
          EXPECT_EQ(ranks_[rank]->status(), expected);
        }
      }
    }
  }
}

TEST_P(CommunicatorTest, TheFirstFailureOfARankIsTheOneThatIsTold) {
  const auto statuses = OnEveryRank([&](Communicator& rank) {
    if (rank.rank() != 0) return rank.Barrier();
    rank.Fail(absl::UnavailableError("first"));
    rank.Fail(absl::InternalError("second"));
    return rank.status();
  });
  for (const absl::Status& status : statuses) EXPECT_EQ(status, absl::UnavailableError("rank 0 failed: first"));
}

TEST_P(CommunicatorTest, BytesThatNobodyExpectsEndTheGroup) {
  if (size() == 1) return;
  const auto statuses = OnEveryRank([&](Communicator& rank) {
    Bytes mine(rank.rank() == 1 ? 5 : 4);
    std::vector<Bytes> pieces(size(), Bytes(4));
    pieces[rank.rank()].resize(mine.size());
    std::vector<MutableBytes> views;
    for (Bytes& piece : pieces) views.push_back(absl::MakeSpan(piece));
    absl::Status status = rank.AllGather(ConstBytes(mine), views);
    return status.ok() ? rank.Barrier() : status;
  });
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_NE(status.message().find("failed: rank 1 sends 5 bytes, 4 are expected of it"), std::string::npos) << status;
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, CommunicatorTest,
                         ::testing::Combine(::testing::Values(Kind::kThreads), ::testing::Values(1, 2, 3, 4, 8)));
INSTANTIATE_TEST_SUITE_P(Tcp, CommunicatorTest,
                         ::testing::Combine(::testing::Values(Kind::kTcp), ::testing::Values(1, 2, 3, 4)));

}  // namespace
}  // namespace tandem::model
