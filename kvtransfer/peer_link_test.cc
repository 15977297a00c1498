// Both ends of a link over real gRPC on loopback: greeting, refusal, restart, silence, order and bounds. The rules of
// suspicion are tested without a network in link_liveness_test.cc, what travels over the link in
// transfer_protocol_test.cc.
#include "kvtransfer/peer_link.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "base/clock.h"
#include "base/held_port.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvtransfer/bootstrap_service.h"
#include "kvtransfer/fingerprint.h"
#include "proto/kv_transfer.grpc.pb.h"
#include "proto/protocol_version.h"

namespace tandem::kvtransfer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Minutes(2);  // of tests on a busy machine, not of the product

// What a link or a service has said, as lines.
template <typename Event>
class EventLog {
 public:
  void Add(Event event) {
    absl::MutexLock lock(&mutex_);
    events_.push_back(std::move(event));
  }
  // The first event of this type that satisfies `is_wanted`, at or after index `from`; fails the test if none comes.
  template <typename Kind>
  Kind Await(
      std::function<bool(const Kind&)> is_wanted = [](const Kind&) { return true; }, size_t from = 0) {
    std::optional<Kind> found;
    const auto look = [&] {
      for (size_t i = from; i < events_.size(); ++i) {
        const Kind* event = std::get_if<Kind>(&events_[i]);
        if (event != nullptr && is_wanted(*event)) {
          found = *event;
          return true;
        }
      }
      return false;
    };
    absl::MutexLock lock(&mutex_);
    mutex_.AwaitWithTimeout(absl::Condition(&look), kPatience);
    EXPECT_TRUE(found.has_value()) << "the event did not come";
    return found.value_or(Kind{});
  }
  std::vector<Event> all() {
    absl::MutexLock lock(&mutex_);
    return events_;
  }
  size_t size() { return all().size(); }
  template <typename Kind>
  bool Has() {
    absl::MutexLock lock(&mutex_);
    return std::any_of(events_.begin(), events_.end(), [](const Event& e) { return std::holds_alternative<Kind>(e); });
  }

 private:
  absl::Mutex mutex_;
  std::vector<Event> events_;
};

// A clock that the test moves, and that tells when others have looked at it.
class WatchedClock final : public base::Clock {
 public:
  absl::Duration Now() const override {
    const absl::Duration now = clock_.Now();
    absl::MutexLock lock(&mutex_);
    ++num_looks_;
    return now;
  }
  absl::Time WallTime() const override { return clock_.WallTime(); }
  // Small steps that are all seen: one that a starved thread sees together with the next is a stall of its own, which
  // it holds against nobody. Goes on after a second, for whoever looks no more.
  void AdvanceSeen(absl::Duration by) {
    clock_.Advance(by);
    absl::MutexLock lock(&mutex_);
    const int goal = num_looks_ + 2;  // one may have been under way
    const auto is_seen = [&] { return num_looks_ >= goal; };
    mutex_.AwaitWithTimeout(absl::Condition(&is_seen), absl::Seconds(1));
  }

 private:
  base::FakeClock clock_;
  mutable absl::Mutex mutex_;
  mutable int num_looks_ ABSL_GUARDED_BY(mutex_) = 0;
};

using LinkLog = EventLog<PeerEvent>;
using ServiceLog = EventLog<BootstrapEvent>;

proto::Identity IdentityOf(std::string instance, uint64_t incarnation, std::string role) {
  proto::Identity identity;
  identity.set_instance(instance);
  identity.set_incarnation(incarnation);
  identity.set_role(role);
  identity.set_group(instance);
  identity.set_protocol_version(proto::kProtocolVersion);
  return identity;
}

base::PeerSecurity& Unguarded() {
  static base::PeerSecurity* const security = base::PeerSecurity::None(base::RealClock()).release();
  return *security;
}

BootstrapOptions ServiceOptions(uint64_t incarnation, int port = 0, int num_layers = 4) {
  BootstrapOptions options;
  options.security = &Unguarded();
  options.listen = {.host = "127.0.0.1", .port = port};
  *options.hello.mutable_identity() = IdentityOf("prefill-0", incarnation, "prefill");
  *options.hello.mutable_fingerprint() = BuildFingerprint({.model_hash = "abc", .num_layers = num_layers});
  options.hello.set_num_pages(16);
  options.hello.add_ranks()->add_lanes()->set_kind("loopback");
  return options;
}

PeerLinkOptions LinkOptions(int port, uint64_t incarnation) {
  PeerLinkOptions options;
  options.security = &Unguarded();
  options.address = absl::StrCat("127.0.0.1:", port);
  *options.hello.mutable_identity() = IdentityOf("decode-0", incarnation, "decode");
  *options.hello.mutable_fingerprint() = BuildFingerprint({.model_hash = "abc", .num_layers = 4});
  options.hello.set_num_pages(16);
  options.retry_min = absl::Milliseconds(5);
  options.retry_max = absl::Milliseconds(20);
  options.refused_retry = absl::Milliseconds(20);
  options.hello_timeout = kPatience;
  options.liveness.silence_max = kPatience;
  return options;
}

EngineVitals NoVitals() { return {}; }

std::unique_ptr<BootstrapService> StartService(BootstrapOptions options, ServiceLog& log,
                                               const base::Clock& clock = base::RealClock()) {
  options.liveness.silence_max = kPatience;
  auto service = BootstrapService::Start(std::move(options), clock, NoVitals,
                                         [&log](BootstrapEvent event) { log.Add(std::move(event)); });
  EXPECT_TRUE(service.ok()) << service.status();
  return *std::move(service);
}

std::unique_ptr<PeerLink> StartLink(PeerLinkOptions options, LinkLog& log,
                                    const base::Clock& clock = base::RealClock()) {
  return std::make_unique<PeerLink>(std::move(options), clock, NoVitals,
                                    [&log](PeerEvent event) { log.Add(std::move(event)); });
}

proto::TransferMessage MessageOf(uint64_t sender, uint64_t receiver, uint64_t epoch) {
  proto::TransferMessage message;
  message.set_sender_incarnation(sender);
  message.set_receiver_incarnation(receiver);
  message.set_epoch(epoch);
  message.mutable_done();
  return message;
}

bool IsUpOf(const PeerUp& up, uint64_t incarnation) { return up.reply.identity().incarnation() == incarnation; }

TEST(PeerLinkTest, AFittingPairComesUpAndCarriesMessagesBothWaysInOrder) {
  ServiceLog service_log;
  LinkLog link_log;
  const auto service = StartService(ServiceOptions(7), service_log);
  const auto link = StartLink(LinkOptions(service->port(), 3), link_log);
  const PeerUp up = link_log.Await<PeerUp>();
  EXPECT_EQ(up.reply.identity().incarnation(), 7u);
  EXPECT_EQ(up.reply.num_pages(), 16u);
  EXPECT_EQ(service_log.Await<TargetUp>().hello.identity().incarnation(), 3u);

  constexpr uint64_t kCount = 500;
  for (uint64_t epoch = 1; epoch <= kCount; ++epoch) {
    link->Send(up.session, MessageOf(3, 7, epoch));
    service->Send(3, MessageOf(7, 3, epoch));
  }
  service_log.Await<TargetMessage>([](const TargetMessage& m) { return m.message.epoch() == kCount; });
  link_log.Await<PeerMessage>([](const PeerMessage& m) { return m.message.epoch() == kCount; });
  uint64_t next = 1;
  for (const BootstrapEvent& event : service_log.all()) {
    if (const auto* message = std::get_if<TargetMessage>(&event)) {
      EXPECT_EQ(message->message.epoch(), next++);
    }
  }
  EXPECT_EQ(next, kCount + 1);
  next = 1;
  for (const PeerEvent& event : link_log.all()) {
    if (const auto* message = std::get_if<PeerMessage>(&event)) {
      EXPECT_EQ(message->message.epoch(), next++);
    }
  }
  EXPECT_EQ(next, kCount + 1);
}

TEST(PeerLinkTest, MessagesOfEverySizeArriveWholeInBothDirections) {
  ServiceLog service_log;
  LinkLog link_log;
  const auto service = StartService(ServiceOptions(7), service_log);
  const auto link = StartLink(LinkOptions(service->port(), 3), link_log);
  const uint64_t session = link_log.Await<PeerUp>().session;
  std::vector<size_t> sizes;
  for (int exponent = 0; exponent <= 20; ++exponent) {
    for (const int delta : {-1, 0, 1}) sizes.push_back((size_t{1} << exponent) + delta);
  }
  const auto message_of = [&](uint64_t sender, uint64_t receiver, size_t i) {
    proto::TransferMessage message = MessageOf(sender, receiver, i + 1);
    message.mutable_prompt_hidden()->set_hidden(std::string(sizes[i], static_cast<char>('a' + i % 26)));
    return message;
  };
  for (size_t i = 0; i < sizes.size(); ++i) {
    link->Send(session, message_of(3, 7, i));
    service->Send(3, message_of(7, 3, i));
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    const auto at_service =
        service_log.Await<TargetMessage>([&](const TargetMessage& m) { return m.message.epoch() == i + 1; });
    EXPECT_EQ(at_service.message.SerializeAsString(), message_of(3, 7, i).SerializeAsString()) << sizes[i];
    const auto at_link = link_log.Await<PeerMessage>([&](const PeerMessage& m) { return m.message.epoch() == i + 1; });
    EXPECT_EQ(at_link.message.SerializeAsString(), message_of(7, 3, i).SerializeAsString()) << sizes[i];
  }
}

TEST(PeerLinkTest, SidesThatDoNotFitAreRefusedWithAReadableListUntilThePeerIsReplaced) {
  ServiceLog service_log;
  LinkLog link_log;
  const base::HeldPort held_port;
  const int port = held_port.port();
  auto service = StartService(ServiceOptions(7, port, /*num_layers=*/5), service_log);
  const auto link = StartLink(LinkOptions(port, 3), link_log);
  const PeerDown down = link_log.Await<PeerDown>();
  EXPECT_EQ(down.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(down.status.message()), HasSubstr("num_layers: decode has \"4\", prefill has \"5\""));
  EXPECT_EQ(service->num_sessions(), 0u);

  service.reset();
  service = StartService(ServiceOptions(8, port), service_log);
  link_log.Await<PeerUp>([](const PeerUp& up) { return IsUpOf(up, 8); });
}

TEST(PeerLinkTest, ARestartedPrefillIsSeenAsDownAndThenAsANewPeer) {
  ServiceLog service_log;
  LinkLog link_log;
  const base::HeldPort held_port;
  const int port = held_port.port();
  auto service = StartService(ServiceOptions(7, port), service_log);
  const auto link = StartLink(LinkOptions(port, 3), link_log);
  const PeerUp first = link_log.Await<PeerUp>();
  service.reset();
  const PeerDown down = link_log.Await<PeerDown>();
  EXPECT_EQ(down.session, first.session);
  EXPECT_EQ(down.status.code(), absl::StatusCode::kUnavailable);
  service = StartService(ServiceOptions(8, port), service_log);
  const PeerUp second = link_log.Await<PeerUp>([](const PeerUp& up) { return IsUpOf(up, 8); });
  EXPECT_NE(second.session, first.session);
  // What was meant for the first session goes nowhere.
  link->Send(first.session, MessageOf(3, 7, 1));
  link->Send(second.session, MessageOf(3, 8, 2));
  const TargetMessage message = service_log.Await<TargetMessage>();
  EXPECT_EQ(message.message.epoch(), 2u);
}

TEST(PeerLinkTest, APeerThatIsNotThereYetIsReportedOnceAndUsedWhenItComes) {
  ServiceLog service_log;
  LinkLog link_log;
  const base::HeldPort held_port;
  const int port = held_port.port();
  const auto link = StartLink(LinkOptions(port, 3), link_log);
  EXPECT_EQ(link_log.Await<PeerDown>().status.code(), absl::StatusCode::kUnavailable);
  const auto service = StartService(ServiceOptions(8, port), service_log);
  link_log.Await<PeerUp>();
  EXPECT_EQ(link_log.size(), 2u);  // one PeerDown for many tries
}

TEST(PeerLinkTest, ASilentPrefillIsTakenDownAlthoughItsStreamIsOpen) {
  ServiceLog service_log;
  LinkLog link_log;
  base::FakeClock stopped;  // no heartbeat after the first
  const auto service = StartService(ServiceOptions(7), service_log, stopped);
  WatchedClock clock;
  PeerLinkOptions options = LinkOptions(service->port(), 3);
  options.liveness.silence_max = absl::Milliseconds(750);
  const auto link = StartLink(options, link_log, clock);
  link_log.Await<PeerUp>();
  const absl::Duration silent_since = clock.Now();
  while (!link_log.Has<PeerDown>()) clock.AdvanceSeen(absl::Milliseconds(50));
  EXPECT_GE(clock.Now() - silent_since, absl::Milliseconds(750));
  const PeerDown down = link_log.Await<PeerDown>();
  EXPECT_EQ(down.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(down.status.message()), HasSubstr("at most 750ms"));
}

// Its heartbeats go on: only what they say of the engine tells.
TEST(PeerLinkTest, APrefillWhoseEngineHangsIsTakenDownAlthoughItIsHeard) {
  ServiceLog service_log;
  LinkLog link_log;
  WatchedClock service_clock, clock;
  std::atomic<int64_t> work_age_ms = 0;
  BootstrapOptions service_options = ServiceOptions(7);
  service_options.liveness.silence_max = absl::Minutes(10);
  const auto service = BootstrapService::Start(
      service_options, service_clock,
      [&] { return EngineVitals{.steps = 41, .oldest_work_age = absl::Milliseconds(work_age_ms.load())}; },
      [&](BootstrapEvent event) { service_log.Add(std::move(event)); });
  ASSERT_TRUE(service.ok()) << service.status();
  PeerLinkOptions options = LinkOptions((*service)->port(), 3);
  options.liveness.silence_max = absl::Minutes(10);
  options.liveness.engine_stall_max = absl::Seconds(5);
  const auto link = StartLink(options, link_log, clock);
  link_log.Await<PeerUp>();
  for (int i = 0; i < 40; ++i) {  // ten seconds without a step and without work: nobody is blamed
    service_clock.AdvanceSeen(absl::Milliseconds(250));
    clock.AdvanceSeen(absl::Milliseconds(250));
    ASSERT_FALSE(link_log.Has<PeerDown>());
  }
  const absl::Duration hung_since = clock.Now();
  while (!link_log.Has<PeerDown>()) {
    service_clock.AdvanceSeen(absl::Milliseconds(250));
    clock.AdvanceSeen(absl::Milliseconds(250));
    work_age_ms += 250;
  }
  EXPECT_GE(clock.Now() - hung_since, absl::Seconds(4));  // the step before the hang was up to a heartbeat earlier
  const PeerDown down = link_log.Await<PeerDown>();
  EXPECT_EQ(down.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(down.status.message()), HasSubstr("its engine is stuck at step 41"));
}

TEST(PeerLinkTest, ASilentDecodeIsTakenDownAlthoughItsStreamIsOpen) {
  ServiceLog service_log;
  LinkLog link_log;
  WatchedClock clock;
  BootstrapOptions options = ServiceOptions(7);
  options.liveness.silence_max = absl::Milliseconds(750);
  auto service = BootstrapService::Start(options, clock, NoVitals,
                                         [&](BootstrapEvent event) { service_log.Add(std::move(event)); });
  ASSERT_TRUE(service.ok()) << service.status();
  base::FakeClock stopped;
  const auto link = StartLink(LinkOptions((*service)->port(), 3), link_log, stopped);
  link_log.Await<PeerUp>();
  while (!service_log.Has<TargetDown>()) clock.AdvanceSeen(absl::Milliseconds(50));
  const TargetDown down = service_log.Await<TargetDown>();
  EXPECT_EQ(down.target_incarnation, 3u);
  EXPECT_THAT(std::string(down.status.message()), HasSubstr("no sign of life"));
  EXPECT_EQ(link_log.Await<PeerDown>().status.code(), absl::StatusCode::kUnavailable);
}

TEST(PeerLinkTest, ALaterIncarnationOfADecodeWorkerEndsTheSessionOfTheEarlierFirst) {
  ServiceLog service_log;
  LinkLog old_log;
  LinkLog new_log;
  const auto service = StartService(ServiceOptions(7), service_log);
  PeerLinkOptions options = LinkOptions(service->port(), 3);
  options.retry_min = options.retry_max = absl::Hours(1);  // it does not come back
  const auto old_link = StartLink(options, old_log);
  old_log.Await<PeerUp>();
  const auto new_link = StartLink(LinkOptions(service->port(), 4), new_log);
  new_log.Await<PeerUp>();
  old_log.Await<PeerDown>();
  std::vector<std::string> lines;
  for (const BootstrapEvent& event : service_log.all()) {
    if (const auto* up = std::get_if<TargetUp>(&event)) {
      lines.push_back(absl::StrCat("up ", up->hello.identity().incarnation()));
    } else if (const auto* down = std::get_if<TargetDown>(&event)) {
      lines.push_back(absl::StrCat("down ", down->target_incarnation));
    }
  }
  EXPECT_THAT(lines, ElementsAre("up 3", "down 3", "up 4"));
  EXPECT_EQ(service->num_sessions(), 1u);
}

// Two decode workers that were given one name: the later one serves, and the earlier one cannot throw it out again.
TEST(PeerLinkTest, AnInstanceWhosePlaceWasTakenIsRefusedByName) {
  ServiceLog service_log;
  LinkLog old_log;
  LinkLog new_log;
  const auto service = StartService(ServiceOptions(7), service_log);
  const auto old_link = StartLink(LinkOptions(service->port(), 3), old_log);
  old_log.Await<PeerUp>();
  const auto new_link = StartLink(LinkOptions(service->port(), 4), new_log);
  new_log.Await<PeerUp>();
  const PeerDown refused = old_log.Await<PeerDown>(
      [](const PeerDown& down) { return down.status.code() == absl::StatusCode::kFailedPrecondition; });
  EXPECT_THAT(std::string(refused.status.message()),
              HasSubstr("another decode worker has greeted later as instance \"decode-0\""));
  EXPECT_FALSE(new_log.Has<PeerDown>());
  EXPECT_EQ(service->num_sessions(), 1u);
}

TEST(PeerLinkTest, AClosedLinkIsSeenByPrefillAtOnce) {
  ServiceLog service_log;
  LinkLog link_log;
  const auto service = StartService(ServiceOptions(7), service_log);
  auto link = StartLink(LinkOptions(service->port(), 3), link_log);
  link_log.Await<PeerUp>();
  link.reset();
  EXPECT_EQ(service_log.Await<TargetDown>().target_incarnation, 3u);
  EXPECT_EQ(service->num_sessions(), 0u);
}

TEST(PeerLinkTest, AResetTakesTheSessionDownAndGreetsAnew) {
  ServiceLog service_log;
  LinkLog link_log;
  const auto service = StartService(ServiceOptions(7), service_log);
  const auto link = StartLink(LinkOptions(service->port(), 3), link_log);
  const PeerUp first = link_log.Await<PeerUp>();
  link->Reset(first.session, absl::UnavailableError("its lanes hang"));
  EXPECT_EQ(link_log.Await<PeerDown>().status, absl::UnavailableError("its lanes hang"));
  const PeerUp second = link_log.Await<PeerUp>([&](const PeerUp& up) { return up.session != first.session; });
  link->Reset(first.session, absl::UnavailableError("too late"));  // of a session that is over
  link->Send(second.session, MessageOf(3, 7, 9));
  EXPECT_EQ(service_log.Await<TargetMessage>().message.epoch(), 9u);
}

TEST(PeerLinkTest, APeerThatDoesNotReadIsTakenDownInsteadOfFillingMemory) {
  LinkLog link_log;
  absl::Notification may_read;
  auto service = BootstrapService::Start(ServiceOptions(7), base::RealClock(), NoVitals, [&](BootstrapEvent event) {
    if (std::holds_alternative<TargetMessage>(event)) may_read.WaitForNotification();
  });
  ASSERT_TRUE(service.ok()) << service.status();
  PeerLinkOptions options = LinkOptions((*service)->port(), 3);
  options.send_queue_bytes_max = size_t{1} << 20;
  const auto link = StartLink(options, link_log);
  const PeerUp up = link_log.Await<PeerUp>();
  proto::TransferMessage message = MessageOf(3, 7, 1);
  message.mutable_abort()->mutable_cause()->set_message(std::string(64 << 10, 'x'));
  for (int i = 0; i < 2000; ++i) link->Send(up.session, message);  // 128 MiB: more than sockets and gRPC buffer
  EXPECT_THAT(std::string(link_log.Await<PeerDown>().status.message()), HasSubstr("unread"));
  may_read.Notify();
}

TEST(PeerLinkTest, AWildcardAddressIsRefusedAtOnce) {
  LinkLog link_log;
  PeerLinkOptions options = LinkOptions(8998, 3);
  options.address = "0.0.0.0:8998";
  const auto link = StartLink(options, link_log);
  EXPECT_EQ(link_log.Await<PeerDown>().status.code(), absl::StatusCode::kInvalidArgument);
}

TEST(BootstrapServiceTest, AStreamWithoutAGreetingAndOneForAnEarlierIncarnationAreRefused) {
  ServiceLog service_log;
  const auto service = StartService(ServiceOptions(7), service_log);
  const auto stub = proto::Bootstrap::NewStub(
      grpc::CreateChannel(absl::StrCat("127.0.0.1:", service->port()), grpc::InsecureChannelCredentials()));
  const auto refusal_of = [&](uint64_t receiver_incarnation) {
    grpc::ClientContext context;
    const auto stream = stub->Control(&context);
    EXPECT_TRUE(stream->Write(MessageOf(3, receiver_incarnation, 1)));
    proto::TransferMessage reply;
    EXPECT_FALSE(stream->Read(&reply));
    return stream->Finish().error_code();
  };
  EXPECT_EQ(refusal_of(7), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(refusal_of(6), grpc::StatusCode::ABORTED);
  EXPECT_EQ(service_log.size(), 0u);
}

TEST(BootstrapServiceTest, APortInUseIsAnError) {
  ServiceLog service_log;
  const auto service = StartService(ServiceOptions(7), service_log);
  const auto second =
      BootstrapService::Start(ServiceOptions(8, service->port()), base::RealClock(), NoVitals, [](BootstrapEvent) {});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("cannot listen on 127.0.0.1:"));
}

TEST(BootstrapServiceTest, LanesAreOfferedToEachDecodeWorkerByItsGreeting) {
  ServiceLog service_log;
  LinkLog link_log;
  BootstrapOptions options = ServiceOptions(7);
  options.offer_lanes = [](const proto::HelloRequest& hello) -> absl::StatusOr<std::vector<proto::SourceRank>> {
    proto::SourceRank rank;
    rank.add_lanes()->set_kind(hello.host_id());
    return std::vector<proto::SourceRank>{rank};
  };
  const auto service = StartService(options, service_log);
  PeerLinkOptions link_options = LinkOptions(service->port(), 3);
  link_options.hello.set_host_id("this host");
  const auto link = StartLink(link_options, link_log);
  const PeerUp up = link_log.Await<PeerUp>();
  ASSERT_EQ(up.reply.ranks_size(), 1);
  EXPECT_EQ(up.reply.ranks(0).lanes(0).kind(), "this host");
}

TEST(PeerLinkTest, DecodeThatDoesNotShowTheTokenIsToldSoAndAnotherIsServed) {
  const std::string file = testing::TempDir() + "/peer_link_token";
  std::ofstream(file) << "the-clusters-token\n";
  const auto guarded = base::PeerSecurity::Load({.token_file = file}, base::RealClock()).value();
  ServiceLog service_log;
  LinkLog stranger_log, member_log;
  BootstrapOptions service_options = ServiceOptions(7);
  service_options.security = guarded.get();
  const auto service = StartService(service_options, service_log);
  const auto stranger = StartLink(LinkOptions(service->port(), 3), stranger_log);
  const PeerDown down = stranger_log.Await<PeerDown>();
  EXPECT_EQ(down.status.code(), absl::StatusCode::kUnauthenticated) << down.status;
  EXPECT_THAT(std::string(down.status.message()), HasSubstr("process.peers.token_file"));
  EXPECT_EQ(service_log.size(), 0u);
  PeerLinkOptions options = LinkOptions(service->port(), 4);
  options.security = guarded.get();
  const auto member = StartLink(options, member_log);
  member_log.Await<PeerUp>();
  service_log.Await<TargetUp>();
}

// Greeting once is not enough: whoever opens a control stream shows the token, too.
TEST(BootstrapServiceTest, AControlStreamWithoutTheTokenIsRefused) {
  const std::string file = testing::TempDir() + "/control_token";
  std::ofstream(file) << "the-clusters-token\n";
  const auto guarded = base::PeerSecurity::Load({.token_file = file}, base::RealClock()).value();
  ServiceLog service_log;
  BootstrapOptions service_options = ServiceOptions(7);
  service_options.security = guarded.get();
  const auto service = StartService(service_options, service_log);
  const auto stub = proto::Bootstrap::NewStub(
      grpc::CreateChannel(absl::StrCat("127.0.0.1:", service->port()), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  const auto control = stub->Control(&context);
  proto::TransferMessage message;
  EXPECT_FALSE(control->Read(&message));
  EXPECT_EQ(control->Finish().error_code(), grpc::StatusCode::UNAUTHENTICATED);
}

}  // namespace
}  // namespace tandem::kvtransfer
