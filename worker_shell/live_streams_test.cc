// Proves the rules of Live streams over real gRPC on loopback: hello first, replacement, bounded queues, silence.
#include "worker_shell/live_streams.h"

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/worker.grpc.pb.h"

namespace tandem::worker_shell {
namespace {

constexpr absl::Duration kBeatOften = absl::Milliseconds(20);
constexpr absl::Duration kPatience = absl::Minutes(2);  // of tests on a busy machine, not of the product

class Service final : public proto::PrefillWorker::CallbackService {
 public:
  explicit Service(LiveStreams& streams) : streams_(streams) {}
  LiveReactor* Live(grpc::CallbackServerContext* context) override { return streams_.Open(context); }

 private:
  LiveStreams& streams_;
};

proto::RouterMessage Hello(const std::string& instance, uint64_t incarnation) {
  proto::RouterMessage message;
  message.mutable_hello()->set_instance(instance);
  message.mutable_hello()->set_incarnation(incarnation);
  message.mutable_hello()->set_role("router");
  return message;
}

class LiveStreamsTest : public ::testing::Test {
 protected:
  using Client = grpc::ClientReaderWriter<proto::RouterMessage, proto::WorkerMessage>;

  // Where nobody waits for heartbeats there are none: what else is written is then the test's alone.
  void Serve(LiveOptions options, absl::Duration heartbeat_interval = absl::Hours(1)) {
    options.hello.set_model_hash("m");
    options.heartbeat_interval = heartbeat_interval;
    LiveEvents events{.attached =
                          [this](uint64_t stream, const proto::Identity& router) {
                            Note(absl::StrCat("attached ", router.instance()));
                            absl::MutexLock lock(&mutex_);
                            attached_.push_back(stream);
                          },
                      .message =
                          [this](uint64_t stream, proto::RouterMessage message) {
                            if (message.has_cancel()) Note(absl::StrCat("cancel ", message.cancel().reason()));
                          },
                      .lost = [this](uint64_t stream) { Note("lost"); },
                      .vitals =
                          [this] {
                            absl::MutexLock lock(&mutex_);
                            ++num_beats_;
                            return WorkerVitals{.engine_steps = 7};
                          }};
    streams_ = std::make_unique<LiveStreams>(options, clock_, std::move(events));
    service_ = std::make_unique<Service>(*streams_);
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(service_.get());
    server_ = builder.BuildAndStart();
    stub_ = proto::PrefillWorker::NewStub(
        grpc::CreateChannel(absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials()));
  }
  void TearDown() override {
    server_->Shutdown(std::chrono::system_clock::now());
    streams_.reset();
  }

  void Note(std::string event) {
    absl::MutexLock lock(&mutex_);
    events_.push_back(std::move(event));
  }
  // Until `count` events have come; what they are.
  std::vector<std::string> Events(size_t count) {
    absl::MutexLock lock(&mutex_);
    const auto enough = [&] { return events_.size() >= count; };
    mutex_.AwaitWithTimeout(absl::Condition(&enough), kPatience);
    return events_;
  }
  // Ids of the streams that have attached, once there are `count`.
  std::vector<uint64_t> Attached(size_t count) {
    absl::MutexLock lock(&mutex_);
    const auto enough = [&] { return attached_.size() >= count; };
    mutex_.AwaitWithTimeout(absl::Condition(&enough), kPatience);
    return attached_;
  }
  // Until the heartbeat thread, which looks at the clock once in each turn, has had a whole turn from now on.
  void AwaitBeat() {
    absl::MutexLock lock(&mutex_);
    const int goal = num_beats_ + 2;  // the turn that runs now may have looked already
    const auto enough = [&] { return num_beats_ >= goal; };
    EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&enough), kPatience));
  }
  // The next message that is neither heartbeat nor load.
  static proto::WorkerMessage ReadNews(Client& client) {
    proto::WorkerMessage message;
    while (client.Read(&message) && (message.has_heartbeat() || message.has_load())) {
    }
    return message;
  }

  // Reads to the end; how the stream ended. Finish alone would wait for ever behind an unread heartbeat.
  static grpc::Status Drain(Client& client) {
    proto::WorkerMessage unread;
    while (client.Read(&unread)) {
    }
    return client.Finish();
  }

  base::FakeClock clock_;
  std::unique_ptr<LiveStreams> streams_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<proto::PrefillWorker::Stub> stub_;
  absl::Mutex mutex_;
  std::vector<std::string> events_;
  std::vector<uint64_t> attached_;
  int num_beats_ = 0;
};

TEST_F(LiveStreamsTest, HelloIsAnsweredFirstAndMessagesComeInOrder) {
  Serve({});
  grpc::ClientContext context;
  auto client = stub_->Live(&context);
  ASSERT_TRUE(client->Write(Hello("r", 5)));
  proto::WorkerMessage first;
  ASSERT_TRUE(client->Read(&first));
  EXPECT_EQ(first.hello().model_hash(), "m");
  for (const char* reason : {"a", "b", "c"}) {
    proto::RouterMessage message;
    message.mutable_cancel()->set_reason(reason);
    ASSERT_TRUE(client->Write(message));
  }
  EXPECT_EQ(Events(4), (std::vector<std::string>{"attached r", "cancel a", "cancel b", "cancel c"}));
  proto::WorkerMessage ended;
  ended.mutable_ended()->set_is_cancelled(true);
  streams_->Send(Attached(1)[0], ended);
  EXPECT_TRUE(ReadNews(*client).ended().is_cancelled());
  client->WritesDone();
  // What the worker does not know to be written yet is cut off, and CANCELLED says so.
  const grpc::Status status = Drain(*client);
  EXPECT_TRUE(status.ok() || status.error_code() == grpc::StatusCode::CANCELLED) << status.error_message();
  EXPECT_EQ(Events(5).back(), "lost");
  EXPECT_FALSE(streams_->IsAttached(5));
}

TEST_F(LiveStreamsTest, AFarewellComesBehindEverythingThatWasSent) {
  Serve({});
  grpc::ClientContext context;
  auto client = stub_->Live(&context);
  ASSERT_TRUE(client->Write(Hello("r", 5)));
  const uint64_t stream = Attached(1)[0];
  constexpr uint64_t kMessages = 500;
  proto::WorkerMessage ended;
  for (uint64_t id = 1; id <= kMessages; ++id) {
    ended.mutable_ended()->mutable_key()->set_request_id(id);
    streams_->Send(stream, ended);
  }
  std::thread farewell([this] { streams_->Farewell(kPatience); });
  uint64_t num_read = 0;
  proto::WorkerMessage message;
  while (client->Read(&message)) {
    if (!message.has_ended()) continue;
    EXPECT_EQ(message.ended().key().request_id(), ++num_read);
  }
  EXPECT_EQ(num_read, kMessages);
  const grpc::Status status = client->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(status.error_message(), "the worker has drained and ends");
  farewell.join();
  EXPECT_EQ(streams_->num_streams(), 0);
}

TEST_F(LiveStreamsTest, HeartbeatsCarryTheEnginesSteps) {
  Serve({}, kBeatOften);
  grpc::ClientContext context;
  auto client = stub_->Live(&context);
  client->Write(Hello("r", 5));
  proto::WorkerMessage message;
  while (client->Read(&message) && !message.has_heartbeat()) {
  }
  EXPECT_EQ(message.heartbeat().engine_steps(), 7u);
  context.TryCancel();
}

TEST_F(LiveStreamsTest, AStreamWithoutAHelloIsRefusedAndTellsNobody) {
  Serve({});
  grpc::ClientContext context;
  auto client = stub_->Live(&context);
  proto::RouterMessage message;
  message.mutable_cancel()->set_reason("no hello");
  client->Write(message);
  const grpc::Status status = client->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
  EXPECT_TRUE(Events(0).empty());
}

TEST_F(LiveStreamsTest, WhatIsMeantForAReplacedStreamDoesNotReachTheNewestOne) {
  Serve({});
  grpc::ClientContext old_context, new_context;
  auto old_client = stub_->Live(&old_context);
  old_client->Write(Hello("r", 5));
  Events(1);
  auto new_client = stub_->Live(&new_context);
  new_client->Write(Hello("r", 5));
  Events(2);
  EXPECT_TRUE(ReadNews(*new_client).has_hello());
  const std::vector<uint64_t> attached = Attached(2);
  proto::WorkerMessage ended;
  ended.mutable_ended()->set_number(1);
  streams_->Send(attached[0], ended);
  ended.mutable_ended()->set_number(2);
  streams_->Send(attached[1], ended);
  EXPECT_EQ(ReadNews(*new_client).ended().number(), 2u);
  EXPECT_EQ(Drain(*old_client).error_code(), grpc::StatusCode::ABORTED);
  Events(3);
  EXPECT_TRUE(streams_->IsAttached(5));
  new_context.TryCancel();
}

TEST_F(LiveStreamsTest, AnotherIncarnationOfARouterEndsTheStreamOfTheFirstAndKeepsItsPlace) {
  Serve({});
  grpc::ClientContext old_context, other_context, new_context, again_context;
  auto old_client = stub_->Live(&old_context);
  old_client->Write(Hello("r", 900));
  Events(1);
  auto other_client = stub_->Live(&other_context);
  other_client->Write(Hello("other", 7));
  Events(2);
  auto new_client = stub_->Live(&new_context);
  new_client->Write(Hello("r", 100));
  // No client does anything here: the worker ends the stream by itself.
  const grpc::Status replaced = Drain(*old_client);
  EXPECT_EQ(replaced.error_code(), grpc::StatusCode::ABORTED) << replaced.error_message();
  EXPECT_EQ(replaced.error_message(), "replaced by another incarnation of router \"r\"");
  EXPECT_EQ(Events(4), (std::vector<std::string>{"attached r", "attached other", "attached r", "lost"}));
  EXPECT_FALSE(streams_->IsAttached(900));

  auto again = stub_->Live(&again_context);
  again->Write(Hello("r", 900));
  const grpc::Status refused = Drain(*again);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::FAILED_PRECONDITION) << refused.error_message();
  EXPECT_EQ(Events(0).size(), 4u) << "a refused router is nobody";

  EXPECT_TRUE(streams_->IsAttached(100));
  EXPECT_TRUE(streams_->IsAttached(7));
  EXPECT_TRUE(ReadNews(*new_client).has_hello());
  proto::WorkerMessage ended;
  ended.mutable_ended();
  streams_->Send(Attached(3)[2], ended);
  EXPECT_TRUE(ReadNews(*new_client).has_ended());
  new_context.TryCancel();
  other_context.TryCancel();
}

TEST_F(LiveStreamsTest, AReplacedRouterThatDoesNotReadIsCut) {
  Serve({.queue_bytes_max = size_t{64} << 20}, kBeatOften);
  grpc::ClientContext old_context, new_context;
  auto old_client = stub_->Live(&old_context);
  old_client->Write(Hello("r", 5));
  Events(1);
  proto::WorkerMessage big;
  big.mutable_ended()->mutable_error()->set_message(std::string(32 << 20, 'x'));  // more than the transport holds
  streams_->Send(Attached(1)[0], big);
  auto new_client = stub_->Live(&new_context);
  new_client->Write(Hello("r", 6));
  EXPECT_EQ(Events(3), (std::vector<std::string>{"attached r", "attached r", "lost"}));
  EXPECT_EQ(streams_->num_streams(), 1);
  new_context.TryCancel();
}

TEST_F(LiveStreamsTest, ARouterThatDoesNotReadLosesItsStream) {
  Serve({.queue_bytes_max = 1 << 20});
  grpc::ClientContext context;
  auto client = stub_->Live(&context);
  client->Write(Hello("r", 5));
  Events(1);
  proto::WorkerMessage big;
  big.mutable_ended()->mutable_error()->set_message(std::string(256 << 10, 'x'));
  // More than the queue and the transport's windows hold together.
  for (int i = 0; i < 200 && streams_->IsAttached(5); ++i) streams_->Send(Attached(1)[0], big);
  EXPECT_EQ(Events(2).back(), "lost");
}

TEST_F(LiveStreamsTest, OnlyARouterThatPromisedHeartbeatsIsCutForSilence) {
  Serve({.silence_max = absl::Milliseconds(300)}, kBeatOften);
  grpc::ClientContext quiet_context, beating_context;
  auto quiet = stub_->Live(&quiet_context);
  quiet->Write(Hello("quiet", 5));
  Events(1);
  auto beating = stub_->Live(&beating_context);
  beating->Write(Hello("beating", 6));
  proto::RouterMessage heartbeat, cancel;
  heartbeat.mutable_heartbeat();
  cancel.mutable_cancel()->set_reason("after the heartbeat");
  beating->Write(heartbeat);
  beating->Write(cancel);
  Events(3);
  // In turns of the heartbeat thread: a leap would be a stall of this process, which is held against nobody.
  AwaitBeat();
  clock_.Advance(absl::Hours(1));
  AwaitBeat();
  EXPECT_EQ(Events(3).size(), 3u) << "this process did not listen";
  for (int i = 0; i < 12; ++i) {
    clock_.Advance(absl::Milliseconds(30));
    AwaitBeat();
  }
  EXPECT_EQ(Events(4).back(), "lost");
  // A heartbeat that is being written at that moment is cut off, and CANCELLED says so.
  const grpc::StatusCode cut = Drain(*beating).error_code();
  EXPECT_TRUE(cut == grpc::StatusCode::UNAVAILABLE || cut == grpc::StatusCode::CANCELLED) << cut;
  EXPECT_TRUE(streams_->IsAttached(5));
  quiet_context.TryCancel();
}

}  // namespace
}  // namespace tandem::worker_shell
