// Proves: strangers of every kind (port scanners, health probes, half-open connections, decode workers that mean
// another process) can neither end the source nor keep a decode worker out, nor read a byte; a peer that breaks the
// protocol loses its own connection and no other. Not proved here: a good lane's bytes (lane_conformance_test.cc).
#include "kvtransfer/tcp_source.h"

#include <sys/resource.h>

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/held_port.h"
#include "base/host_port.h"
#include "gtest/gtest.h"
#include "kvtransfer/lane_rig.h"
#include "kvtransfer/tcp_test_socket.h"
#include "kvtransfer/tcp_wire.h"

namespace tandem::kvtransfer {
namespace {

constexpr size_t kPoolBytes = 4 << 20;

class TcpSourceTest : public testing::Test {
 protected:
  TcpSourceTest() : pool_(kPoolBytes) {
    FillRandom(pool_, 1);
    auto source =
        TcpSource::Start({.pool = pool_, .listen_host = "127.0.0.1", .is_epoch_readable = IsRigEpochReadable});
    EXPECT_TRUE(source.ok()) << source.status();
    source_ = *std::move(source);
  }

  const std::string& address() const { return source_->lane_end().worker_address; }
  TcpGreeting Greeting() const {
    TcpGreeting greeting = {.target_incarnation = kRigIncarnation};
    std::memcpy(greeting.key, source_->lane_end().remote_key.data(), sizeof(greeting.key));
    return greeting;
  }
  TestSocket Greeted() const {
    TestSocket socket(address());
    EXPECT_TRUE(socket.Write(BytesOf(Greeting())));
    EXPECT_EQ(socket.ReadStruct<TcpWelcome>().pool_bytes, kPoolBytes);
    return socket;
  }
  static std::string RequestOf(uint64_t request, uint64_t epoch, const std::vector<TcpRun>& runs) {
    std::string bytes = BytesOf(TcpRequest{.request = request, .epoch = epoch, .num_runs = runs.size()});
    for (const TcpRun& run : runs) bytes += BytesOf(run);
    return bytes;
  }
  std::string PoolBytes(uint64_t offset, uint64_t num_bytes) const {
    return std::string(reinterpret_cast<const char*>(pool_.data()) + offset, num_bytes);
  }
  // A decode worker gets in and gets its bytes.
  void ExpectServes() {
    TestSocket socket = Greeted();
    ASSERT_TRUE(socket.Write(RequestOf(1, 1, {{5, 1000}})));
    const TcpReply reply = socket.ReadStruct<TcpReply>();
    EXPECT_EQ(reply.code, 0u);
    EXPECT_EQ(reply.num_bytes, 1000u);
    EXPECT_EQ(socket.Read(1000), PoolBytes(5, 1000));
  }

  std::vector<std::byte> pool_;
  std::unique_ptr<TcpSource> source_;
};

TEST_F(TcpSourceTest, AnswersWithTheRunsInOrder) {
  TestSocket socket = Greeted();
  ASSERT_TRUE(socket.Write(RequestOf(1, 1, {{100, 10}, {0, 5}}) + RequestOf(2, 2, {{kPoolBytes - 1, 1}})));
  const TcpReply first = socket.ReadStruct<TcpReply>();
  EXPECT_EQ(first.request, 1u);
  EXPECT_EQ(first.epoch, 1u);
  EXPECT_EQ(socket.Read(15), PoolBytes(100, 10) + PoolBytes(0, 5));
  const TcpReply second = socket.ReadStruct<TcpReply>();
  EXPECT_EQ(second.request, 2u);
  EXPECT_EQ(socket.Read(1), PoolBytes(kPoolBytes - 1, 1));
  EXPECT_EQ(source_->num_connections(), 1);
}

TEST_F(TcpSourceTest, ReadsNothingForUnknownEpochsNorOutsideOfItsPoolAndGoesOn) {
  TestSocket socket = Greeted();
  const auto code_of = [&](uint64_t epoch, std::vector<TcpRun> runs) {
    EXPECT_TRUE(socket.Write(RequestOf(9, epoch, runs)));
    const TcpReply reply = socket.ReadStruct<TcpReply>();
    EXPECT_EQ(socket.Read(reply.num_bytes).size(), reply.num_bytes);
    EXPECT_LE(reply.num_bytes, kTcpErrorBytesMax);
    return static_cast<absl::StatusCode>(reply.code);
  };
  EXPECT_EQ(code_of(101, {{0, 1}}), absl::StatusCode::kAborted);
  EXPECT_EQ(code_of(kWarmUpEpoch, {{kWarmUpBytesMax, 1}}), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(code_of(1, {{kPoolBytes, 1}}), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(code_of(1, {{0, 0}}), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(code_of(1, {{~uint64_t{0}, 2}}), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(code_of(1, {{0, kTcpPieceBytesMax}, {0, 1}}), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(code_of(1, {{0, 1}}), absl::StatusCode::kOk);
}

TEST_F(TcpSourceTest, SurvivesWhatPortScannersAndHealthProbesSend) {
  std::mt19937_64 random(1);
  std::vector<std::string> said = {
      "",
      "GET /healthz HTTP/1.1\r\nHost: prefill\r\n\r\n",
      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
      std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11) + std::string(500, 'x'),
      "SSH-2.0-scan\r\n",
      std::string(4096, '\0'),
      std::string(4096, '\xff'),
      std::string(1 << 20, 'A'),
      BytesOf(uint64_t{16}) + std::string(2064, '\0'),  // ends a listener of UCX 1.13.1
      BytesOf(uint64_t{0xCAFEBABE12345678}) + std::string(100, '\x5a'),
  };
  for (int i = 0; i < 40; ++i) {
    std::string noise(random() % 300, '\0');
    for (char& c : noise) c = static_cast<char>(random());
    said.push_back(std::move(noise));
  }
  for (size_t i = 0; i < said.size(); ++i) {
    TestSocket socket(address());
    socket.Write(said[i]);
    if (i % 2 == 0) socket.Reset();
  }
  ExpectServes();
}

TEST_F(TcpSourceTest, CutOffGreetingsAreClosedAndEveryFlippedBitIsRefused) {
  const std::string greeting = BytesOf(Greeting());
  for (size_t length = 0; length < greeting.size(); ++length) {
    TestSocket socket(address());
    EXPECT_TRUE(socket.Write(greeting.substr(0, length)));
  }
  const size_t num_key_end = offsetof(TcpGreeting, target_incarnation);
  for (size_t bit = 0; bit < num_key_end * 8; ++bit) {
    std::string wrong = greeting;
    wrong[bit / 8] = static_cast<char>(wrong[bit / 8] ^ (1 << (bit % 8)));
    TestSocket socket(address());
    socket.Write(wrong);
    EXPECT_EQ(socket.Read(1), "") << "bit " << bit;  // closed without a word
  }
  EXPECT_GE(source_->num_refused(), static_cast<int64_t>(num_key_end * 8));
  ExpectServes();
}

TEST_F(TcpSourceTest, ADecodeWorkerOfAnEarlierSourceAtThisAddressIsRefused) {
  const base::HeldPort held_port;
  TcpGreeting stale;
  for (const bool is_new : {false, true}) {
    source_.reset();
    auto source = TcpSource::Start(
        {.pool = pool_, .listen_host = "127.0.0.1", .port = held_port.port(), .is_epoch_readable = IsRigEpochReadable});
    ASSERT_TRUE(source.ok()) << source.status();  // at once, although connections of the old one are in TIME_WAIT
    source_ = *std::move(source);
    if (is_new) break;
    stale = Greeting();
    ExpectServes();
  }
  TestSocket socket(address());
  socket.Write(BytesOf(stale));
  EXPECT_EQ(socket.Read(1), "");
  ExpectServes();
}

TEST_F(TcpSourceTest, HalfOpenConnectionsKeepNobodyOut) {
  std::vector<TestSocket> silent;
  for (size_t i = 0; i < 2 * TcpSource::kGreetingMax; ++i) silent.emplace_back(address());
  ExpectServes();
  EXPECT_GE(source_->num_refused(), static_cast<int64_t>(TcpSource::kGreetingMax));
  for (TestSocket& socket : silent) EXPECT_TRUE(socket.IsClosed());  // the last after kGreetingLimit
  ExpectServes();
}

TEST_F(TcpSourceTest, APeerThatBreaksTheProtocolLosesItsConnectionAndNoOther) {
  TestSocket other = Greeted();
  std::mt19937_64 random(2);
  for (int i = 0; i < 50; ++i) {
    TestSocket socket = Greeted();
    std::string noise(1 + random() % 5000, '\0');
    for (char& c : noise) c = static_cast<char>(random());
    socket.Write(noise);
    if (i % 3 == 0) socket.Reset();
  }
  {
    TestSocket socket = Greeted();
    socket.Write(RequestOf(1, 1, {}));
    EXPECT_TRUE(socket.IsClosed());
  }
  {
    TestSocket socket = Greeted();
    socket.Write(BytesOf(TcpRequest{.request = 1, .epoch = 1, .num_runs = kTcpPieceRunsMax + 1}));
    EXPECT_TRUE(socket.IsClosed());
  }
  ASSERT_TRUE(other.Write(RequestOf(1, 1, {{0, 3}})));
  EXPECT_EQ(other.ReadStruct<TcpReply>().num_bytes, 3u);
}

TEST_F(TcpSourceTest, APeerThatAsksWithoutReadingIsClosedAndHoldsNobodyUp) {
  TestSocket greedy = Greeted();
  // Far more replies than the sockets' buffers take, then more requests than a window.
  bool is_open = true;
  for (int i = 0; i < 400 && is_open; ++i) is_open = greedy.Write(RequestOf(1 + i, 1, {{0, kTcpPieceBytesMax}}));
  ExpectServes();
  EXPECT_TRUE(greedy.IsClosed());
  ExpectServes();
}

TEST_F(TcpSourceTest, WithoutDescriptorsItWaitsAndServesAgainWhenThereAreSome) {
  ExpectServes();
  TestSocket waiting(address());  // may be accepted, or not
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none = {.rlim_cur = 0, .rlim_max = before.rlim_max};
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);  // while there still is one
  ASSERT_GE(fd, 0);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const SocketAddress to = *Resolve(*base::ParseHostPort(address()));
  EXPECT_EQ(connect(fd, to.get(), to.num_bytes), 0);  // the kernel takes it in; nobody accepts it yet
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  TestSocket socket(fd);
  ASSERT_TRUE(socket.Write(BytesOf(Greeting())));
  EXPECT_EQ(socket.ReadStruct<TcpWelcome>().pool_bytes, kPoolBytes);
  ExpectServes();
}

TEST_F(TcpSourceTest, SaysInOneLineWhereItCannotListen) {
  const auto message_of = [&](std::string host, int port) {
    return TcpSource::Start({.pool = pool_, .listen_host = std::move(host), .port = port}).status().ToString();
  };
  EXPECT_EQ(message_of("198.51.100.1", 0),
            "UNAVAILABLE: cannot listen on tcp lane address 198.51.100.1:0: Cannot assign requested address");
  const int port = base::ParseHostPort(address())->port;
  EXPECT_EQ(
      message_of("127.0.0.1", port),
      absl::StrCat("UNAVAILABLE: cannot listen on tcp lane address 127.0.0.1:", port, ": Address already in use"));
  EXPECT_EQ(TcpSource::Start({.listen_host = "127.0.0.1"}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(TcpSourceTest, AWildcardIsListenedOnButARoutableAddressIsTold) {
  const auto source =
      TcpSource::Start({.pool = pool_, .listen_host = "0.0.0.0", .is_epoch_readable = IsRigEpochReadable});
  ASSERT_TRUE(source.ok()) << source.status();
  const auto told = base::ParseHostPort((*source)->lane_end().worker_address);
  ASSERT_TRUE(told.ok()) << told.status();
  EXPECT_FALSE(base::IsWildcard(told->host));
  const auto named = TcpSource::Start({.pool = pool_,
                                       .listen_host = "127.0.0.1",
                                       .advertised_host = "prefill-0.example",
                                       .is_epoch_readable = IsRigEpochReadable});
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_EQ((*named)->lane_end().worker_address.rfind("prefill-0.example:", 0), 0u);
}

}  // namespace
}  // namespace tandem::kvtransfer
