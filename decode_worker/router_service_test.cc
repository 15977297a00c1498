// Proves the server's rules over real gRPC on loopback: Generates arrive whole, what cannot be taken ends its request
// and not the stream, and a busy port is refused by name.
#include "decode_worker/router_service.h"

#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "base/clock.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/worker.grpc.pb.h"

namespace tandem::decode {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kRouter = 5;

class RouterServiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto service = Start("127.0.0.1:0");
    ASSERT_TRUE(service.ok()) << service.status();
    service_ = *std::move(service);
    stub_ = proto::DecodeWorker::NewStub(
        grpc::CreateChannel(absl::StrCat("127.0.0.1:", service_->port()), grpc::InsecureChannelCredentials()));
  }
  absl::StatusOr<std::unique_ptr<RouterService>> Start(const std::string& address) {
    RouterServiceOptions options;
    options.security = security_.get();
    options.listen_address = address;
    options.assembler = {.num_partial_requests_max = 4, .num_tokens_max = 1000};
    return RouterService::Start(std::move(options), base::RealClock(),
                                {.attached = [this](uint64_t, const proto::Identity&) { attached_.Notify(); },
                                 .message = [](uint64_t, proto::RouterMessage) {},
                                 .lost = [](uint64_t) {},
                                 .vitals = [] { return worker_shell::WorkerVitals(); }},
                                [this](GenerateRequest request) -> absl::Status {
                                  absl::MutexLock lock(&mutex_);
                                  if (requests_.size() == 2) return absl::ResourceExhaustedError("the engine is full");
                                  requests_.push_back(std::move(request));
                                  return absl::OkStatus();
                                });
  }
  void AttachRouter() {
    live_ = stub_->Live(&live_context_);
    proto::RouterMessage hello;
    hello.mutable_hello()->set_instance("router");
    hello.mutable_hello()->set_incarnation(kRouter);
    hello.mutable_hello()->set_role("router");
    ASSERT_TRUE(live_->Write(hello));
    ASSERT_TRUE(attached_.WaitForNotificationWithTimeout(absl::Minutes(2)));
  }
  static proto::GeneratePart Part(uint64_t id, uint32_t index, int num_tokens, bool is_last, uint32_t num_in_all) {
    proto::GeneratePart part;
    part.mutable_key()->set_router_incarnation(kRouter);
    part.mutable_key()->set_request_id(id);
    part.set_part_index(index);
    part.set_is_last(is_last);
    for (int i = 0; i < num_tokens; ++i) part.add_prompt_tokens(i);
    if (index == 0) part.mutable_head()->set_num_prompt_tokens(num_in_all);
    return part;
  }
  std::vector<GenerateRequest> Requests(size_t count) {
    absl::MutexLock lock(&mutex_);
    const auto enough = [&] { return requests_.size() >= count; };
    mutex_.AwaitWithTimeout(absl::Condition(&enough), absl::Minutes(2));
    return requests_;
  }

  const std::unique_ptr<base::PeerSecurity> security_ = base::PeerSecurity::None(base::RealClock());
  absl::Notification attached_;
  absl::Mutex mutex_;
  std::vector<GenerateRequest> requests_;
  std::unique_ptr<RouterService> service_;
  std::unique_ptr<proto::DecodeWorker::Stub> stub_;
  grpc::ClientContext live_context_, bulk_context_;
  std::unique_ptr<grpc::ClientReaderWriter<proto::RouterMessage, proto::WorkerMessage>> live_;
};

TEST_F(RouterServiceTest, BothStreamsAskForTheToken) {
  const std::string file = testing::TempDir() + "/router_service_token";
  std::ofstream(file) << "the-clusters-token\n";
  const auto guarded = base::PeerSecurity::Load({.token_file = file}, base::RealClock()).value();
  RouterServiceOptions options;
  options.security = guarded.get();
  options.listen_address = "127.0.0.1:0";
  const auto service = RouterService::Start(std::move(options), base::RealClock(),
                                            {.attached = [](uint64_t, const proto::Identity&) { FAIL(); },
                                             .message = [](uint64_t, proto::RouterMessage) { FAIL(); },
                                             .lost = [](uint64_t) {},
                                             .vitals = [] { return worker_shell::WorkerVitals(); }},
                                            [](GenerateRequest) { return absl::OkStatus(); });
  ASSERT_TRUE(service.ok()) << service.status();
  const auto stub = proto::DecodeWorker::NewStub(
      grpc::CreateChannel(absl::StrCat("127.0.0.1:", (*service)->port()), grpc::InsecureChannelCredentials()));
  grpc::ClientContext live_context, bulk_context;
  const auto live = stub->Live(&live_context);
  const auto bulk = stub->Bulk(&bulk_context);
  proto::WorkerMessage message;
  proto::BulkReply reply;
  EXPECT_FALSE(live->Read(&message));
  EXPECT_FALSE(bulk->Read(&reply));
  EXPECT_EQ(live->Finish().error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(bulk->Finish().error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(guarded->num_refused(), 2);
}

TEST_F(RouterServiceTest, APromptInPartsArrivesWhole) {
  AttachRouter();
  auto bulk = stub_->Bulk(&bulk_context_);
  bulk->Write(Part(1, 0, 300, false, 500));
  bulk->Write(Part(1, 1, 200, true, 500));
  const auto requests = Requests(1);
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(requests[0].prompt_tokens.size(), 500u);
  live_context_.TryCancel();
  bulk_context_.TryCancel();
}

TEST_F(RouterServiceTest, WhatCannotBeTakenEndsItsRequestAndNotTheStream) {
  AttachRouter();
  auto bulk = stub_->Bulk(&bulk_context_);
  proto::BulkReply reply;
  bulk->Write(Part(1, 0, 3, true, 5));  // contradicts itself
  ASSERT_TRUE(bulk->Read(&reply));
  EXPECT_EQ(reply.key().request_id(), 1u);
  EXPECT_EQ(reply.error().code(), static_cast<int>(absl::StatusCode::kInvalidArgument));
  for (uint64_t id = 2; id <= 4; ++id) bulk->Write(Part(id, 0, 3, true, 3));
  ASSERT_TRUE(bulk->Read(&reply));
  EXPECT_EQ(reply.key().request_id(), 4u);
  EXPECT_EQ(reply.error().code(), static_cast<int>(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(Requests(2).size(), 2u);
  live_context_.TryCancel();
  bulk_context_.TryCancel();
}

TEST_F(RouterServiceTest, AGenerateOfARouterWithoutALiveStreamIsRefused) {
  auto bulk = stub_->Bulk(&bulk_context_);
  bulk->Write(Part(1, 0, 3, true, 3));
  proto::BulkReply reply;
  ASSERT_TRUE(bulk->Read(&reply));
  EXPECT_EQ(reply.error().code(), static_cast<int>(absl::StatusCode::kUnavailable));
  bulk_context_.TryCancel();
}

TEST_F(RouterServiceTest, DrainingIsToldToRoutersThatAreThereAndToThoseThatCome) {
  service_->AnnounceDraining();
  AttachRouter();
  proto::WorkerMessage message;
  ASSERT_TRUE(live_->Read(&message));
  EXPECT_TRUE(message.has_hello());
  ASSERT_TRUE(live_->Read(&message));
  EXPECT_TRUE(message.has_draining());
  live_context_.TryCancel();
}

TEST_F(RouterServiceTest, ABusyPortIsRefusedByName) {
  const std::string address = absl::StrCat("127.0.0.1:", service_->port());
  const auto second = Start(address);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(second.status().message(), HasSubstr(address));
}

}  // namespace
}  // namespace tandem::decode
