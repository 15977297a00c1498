// Proves that the two workers work as processes do: real gRPC, real UCX, real threads, a real checkpoint (v32-micro),
// and this test in the router's place. The tokens are those of one process without any engine, over either lane and for
// any chunk size; everything is given back; a drain ends; a restarted prefill worker is found again.
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/clock.h"
#include "decode_worker/config.h"
#include "decode_worker/worker.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "kvcache/kv_layout.h"
#include "model/testing/micro_model.h"
#include "prefill_worker/config.h"
#include "prefill_worker/worker.h"
#include "proto/worker.grpc.pb.h"
#include "tests/workers/http_get.h"
#include "tools/generate/generate.h"
#include "tools/make_checkpoint/checkpoint_writer.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kRouter = 77;
constexpr int kVocabSize = 1024;
constexpr int kNumLayers = 2;  // of v32-micro, as its config.json says

// v32-micro of that seed, written once for this process.
std::string CheckpointFolder(uint64_t seed = 1) {
  const std::string folder = absl::StrCat(::testing::TempDir(), "/two_workers-", getpid(), "-", seed);
  static std::set<std::string> written;
  if (written.insert(folder).second) {
    const absl::Status status = make_checkpoint::WriteCheckpoint("v32-micro", seed, folder);
    TANDEM_CHECK(status.ok(), "the test cannot write its checkpoint");
  }
  return folder;
}

std::vector<uint32_t> Prompt(int num_tokens) {
  const std::vector<int32_t> tokens = model::GoldenTokens(num_tokens, kVocabSize);
  return {tokens.begin(), tokens.end()};
}

// A router reduced to two streams of one decode worker.
class RouterEnd final {
 public:
  explicit RouterEnd(int rpc_port)
      : stub_(proto::DecodeWorker::NewStub(
            grpc::CreateChannel(absl::StrCat("127.0.0.1:", rpc_port), grpc::InsecureChannelCredentials()))) {
    const auto deadline = std::chrono::system_clock::now() + std::chrono::seconds(50);
    live_context_.set_deadline(deadline);
    bulk_context_.set_deadline(deadline);
    live_ = stub_->Live(&live_context_);
    bulk_ = stub_->Bulk(&bulk_context_);
    proto::RouterMessage message;
    message.mutable_hello()->set_instance("router");
    message.mutable_hello()->set_incarnation(kRouter);
    message.mutable_hello()->set_role("router");
    live_->Write(message);
    message.mutable_reattach()->set_is_last(true);  // nothing runs yet
    live_->Write(message);
  }
  ~RouterEnd() {
    live_context_.TryCancel();
    bulk_context_.TryCancel();
  }

  void NamePrefill(int bootstrap_port) {
    prefill_address_ = absl::StrCat("127.0.0.1:", bootstrap_port);
    proto::RouterMessage message;
    message.mutable_prefill_set()->add_bootstrap_addresses(prefill_address_);
    live_->Write(message);
  }
  // The next message that is neither heartbeat nor load; an empty one where the stream has ended.
  proto::WorkerMessage Read() {
    proto::WorkerMessage message;
    while (live_->Read(&message)) {
      if (!message.has_heartbeat() && !message.has_load()) return message;
    }
    return {};
  }
  // Waits for a peer status like that.
  proto::PeerStatus AwaitPeer(bool is_usable) {
    while (true) {
      const proto::WorkerMessage message = Read();
      if (message.message_case() == proto::WorkerMessage::MESSAGE_NOT_SET) return {};
      if (message.has_peer_status() && message.peer_status().is_usable() == is_usable) return message.peer_status();
    }
  }
  void Generate(uint64_t id, const std::vector<uint32_t>& prompt, uint32_t max_new_tokens, float temperature) {
    proto::GeneratePart part;
    SetKey(id, *part.mutable_key());
    part.set_is_last(true);
    part.mutable_prompt_tokens()->Add(prompt.begin(), prompt.end());
    proto::GenerateHead& head = *part.mutable_head();
    head.set_prefill_address(prefill_address_);
    head.set_num_prompt_tokens(prompt.size());
    head.mutable_sampling()->set_temperature(temperature);
    head.mutable_sampling()->set_top_p(1);
    head.mutable_sampling()->set_seed(id);
    head.mutable_stopping()->set_max_new_tokens(max_new_tokens);
    bulk_->Write(part);
  }
  void Cancel(uint64_t id) {
    proto::RouterMessage message;
    SetKey(id, *message.mutable_cancel()->mutable_key());
    live_->Write(message);
  }
  struct Answer {
    std::vector<uint32_t> tokens;
    proto::Ended ended;
  };
  // Until `count` requests have ended; what all have been answered since the start, by id.
  std::map<uint64_t, Answer> Collect(int count) {
    while (num_ended_ < count && TakeOne()) {
    }
    EXPECT_EQ(num_ended_, count) << "the stream has ended before";
    return answers_;
  }
  void AwaitFirstToken(uint64_t id) {
    while (answers_[id].tokens.empty() && TakeOne()) {
    }
  }

 private:
  bool TakeOne() {
    const proto::WorkerMessage message = Read();
    for (const proto::SequenceTokens& tokens : message.tokens().sequences()) {
      Answer& answer = answers_[tokens.key().request_id()];
      EXPECT_EQ(tokens.first_position(), answer.tokens.size());
      answer.tokens.insert(answer.tokens.end(), tokens.tokens().begin(), tokens.tokens().end());
    }
    if (message.has_ended()) {
      answers_[message.ended().key().request_id()].ended = message.ended();
      ++num_ended_;
    }
    return message.message_case() != proto::WorkerMessage::MESSAGE_NOT_SET;
  }
  static void SetKey(uint64_t id, proto::RequestKey& key) {
    key.set_router_incarnation(kRouter);
    key.set_request_id(id);
    key.set_attempt(1);
  }

  std::unique_ptr<proto::DecodeWorker::Stub> stub_;
  grpc::ClientContext live_context_, bulk_context_;
  std::unique_ptr<grpc::ClientReaderWriter<proto::RouterMessage, proto::WorkerMessage>> live_;
  std::unique_ptr<grpc::ClientReaderWriter<proto::GeneratePart, proto::BulkReply>> bulk_;
  std::string prefill_address_;
  std::map<uint64_t, Answer> answers_;
  int num_ended_ = 0;
};

class TwoWorkersTest : public ::testing::Test {
 protected:
  void StartPrefill(const std::vector<std::string>& lanes, int chunked_prefill_size = 512, int bootstrap_port = 0) {
    prefill::PrefillConfig config;
    config.cluster.model_path = CheckpointFolder();
    config.instance = "prefill-0";
    config.listen_host = config.admin_host = "127.0.0.1";
    config.rpc_port = config.admin_port = 0;
    config.bootstrap_port = bootstrap_port;
    config.kv_cache_tokens = 2048;
    config.chunked_prefill_size = chunked_prefill_size;
    config.lanes = lanes;
    config.net_devices = "lo";
    config.peer_silence_max = absl::Seconds(20);  // a busy test machine is no dead peer
    auto worker = prefill::Worker::Start(config, base::RealClock());
    ASSERT_TRUE(worker.ok()) << worker.status();
    prefill_ = *std::move(worker);
  }
  void StartDecode(const std::vector<std::string>& lanes, const std::string& model_path = CheckpointFolder(),
                   const std::string& instance = "decode-0") {
    decode::DecodeConfig config;
    config.cluster.model_path = model_path;
    config.instance = instance;
    config.listen_host = config.admin_host = "127.0.0.1";
    config.rpc_port = config.admin_port = 0;
    config.kv_cache_tokens = 2048;
    config.lanes = lanes;
    config.net_devices = "lo";
    config.peer_silence_max = absl::Seconds(20);  // a busy test machine is no dead peer
    auto worker = decode::Worker::Start(config, base::RealClock());
    ASSERT_TRUE(worker.ok()) << worker.status();
    decode_ = *std::move(worker);
    router_ = std::make_unique<RouterEnd>(decode_->rpc_port());
    router_->NamePrefill(prefill_->bootstrap_port());
  }
  void TearDown() override {
    router_.reset();
    decode_.reset();
    prefill_.reset();
  }

  // The executor and the sampler alone.
  static std::vector<uint32_t> Expected(uint64_t id, int num_prompt_tokens, int max_new_tokens, float temperature) {
    model::TestModel model(model::MakeTestCheckpoint("v32-micro", 1), {.num_rows_max = 512});
    const auto tokens = generate::Generate(
        model.model(), model::GoldenTokens(num_prompt_tokens, kVocabSize),
        {.sampling = {.temperature = temperature, .seed = id}, .max_new_tokens = max_new_tokens, .stop_token_ids = {}});
    EXPECT_TRUE(tokens.ok()) << tokens.status();
    return {tokens->tokens.begin(), tokens->tokens.end()};
  }
  void ExpectRightAnswers() {
    constexpr int kLengths[] = {1, 64, 65, 200, 333};
    constexpr int kNewTokens = 12;
    uint64_t id = 0;
    for (const int length : kLengths) {
      router_->Generate(id, Prompt(length), kNewTokens, id % 2 == 0 ? 0.0f : 0.9f);
      ++id;
    }
    auto answers = router_->Collect(static_cast<int>(id));
    id = 0;
    for (const int length : kLengths) {
      EXPECT_EQ(answers[id].tokens, Expected(id, length, kNewTokens, id % 2 == 0 ? 0.0f : 0.9f))
          << "prompt of " << length << " tokens";
      EXPECT_FALSE(answers[id].ended.has_error()) << answers[id].ended.error().message();
      ++id;
    }
  }
  // Value of a gauge or counter that has no label but its role.
  static double Metric(int admin_port, const std::string& name) {
    const std::string text = tests::HttpGet(admin_port, "/metrics");
    const size_t at = text.find(absl::StrCat("\n", name, "{"));
    if (at == std::string::npos) {
      ADD_FAILURE() << "no metric " << name;
      return -1;
    }
    return std::stod(text.substr(text.find("} ", at) + 2));
  }

  std::unique_ptr<prefill::Worker> prefill_;
  std::unique_ptr<decode::Worker> decode_;
  std::unique_ptr<RouterEnd> router_;
};

TEST_F(TwoWorkersTest, OverSharedMemoryTheTokensAreThoseOfOneProcess) {
  ASSERT_NO_FATAL_FAILURE(StartPrefill({"ucx_shm"}));
  ASSERT_NO_FATAL_FAILURE(StartDecode({"ucx_shm"}));
  EXPECT_EQ(router_->AwaitPeer(true).lane(), "ucx_shm");
  ExpectRightAnswers();
  EXPECT_EQ(Metric(decode_->admin_port(), "tandem_kv_pages_used"), 0);
  EXPECT_GT(Metric(decode_->admin_port(), "tandem_kv_transfer_fetched_bytes_total"), 0);
  EXPECT_EQ(Metric(decode_->admin_port(), "tandem_kv_transfer_wrong_sums_total"), 0);
}

TEST_F(TwoWorkersTest, OverTcpAndInSmallChunksTheTokensAreTheSame) {
  for (const char* lane : {"tcp", "ucx_am"}) {
    TearDown();
    ASSERT_NO_FATAL_FAILURE(StartPrefill({lane}, /*chunked_prefill_size=*/100));
    ASSERT_NO_FATAL_FAILURE(StartDecode({lane}));
    EXPECT_EQ(router_->AwaitPeer(true).lane(), lane);
    ExpectRightAnswers();
  }
}

// Around the edges of pages and of chunks: every page crosses the wire once, whole, and nothing else does.
TEST_F(TwoWorkersTest, PromptsAroundTheEdgesOfPagesAndChunksMoveExactlyTheirPages) {
  constexpr int kChunk = 128;
  ASSERT_NO_FATAL_FAILURE(StartPrefill({"tcp"}, kChunk));
  ASSERT_NO_FATAL_FAILURE(StartDecode({"tcp"}));
  router_->AwaitPeer(true);
  constexpr int kLengths[] = {63, 64, 65, kChunk - 1, kChunk, kChunk + 1, 2 * kChunk, 3 * kChunk + 1};
  double expected_bytes = 0;
  uint64_t id = 0;
  for (const int length : kLengths) {
    router_->Generate(id, Prompt(length), 3, 0.0f);
    const auto answers = router_->Collect(static_cast<int>(++id));
    EXPECT_EQ(answers.at(id - 1).tokens, Expected(id - 1, length, 3, 0.0f)) << "prompt of " << length << " tokens";
    expected_bytes += static_cast<double>((length + 63) / 64) * kNumLayers * kvcache::KvLayout{}.page_bytes();
    EXPECT_EQ(Metric(decode_->admin_port(), "tandem_kv_transfer_fetched_bytes_total"), expected_bytes)
        << "prompt of " << length << " tokens";
  }
  EXPECT_EQ(Metric(prefill_->admin_port(), "tandem_kv_transfer_announced_bytes_total"), expected_bytes);
}

// A cold start of one prefill and two decode workers; both greet, wire and send long prompts at the same moment.
TEST_F(TwoWorkersTest, ABurstRightAfterAColdStartIsAnswered) {
  constexpr int kBurst = 4;  // of each decode worker
  for (int start = 0; start < 3; ++start) {
    TearDown();
    ASSERT_NO_FATAL_FAILURE(StartPrefill({"ucx_shm", "tcp"}, /*chunked_prefill_size=*/100));
    ASSERT_NO_FATAL_FAILURE(StartDecode({"ucx_shm", "tcp"}));
    const auto first_decode = std::move(decode_);
    const auto first_router = std::move(router_);
    ASSERT_NO_FATAL_FAILURE(StartDecode({"tcp"}, CheckpointFolder(), "decode-1"));
    for (RouterEnd* router : {first_router.get(), router_.get()}) router->AwaitPeer(true);
    for (uint64_t id = 0; id < kBurst; ++id) {
      first_router->Generate(id, Prompt(300), 2, 0.0f);
      router_->Generate(kBurst + id, Prompt(300), 2, 0.0f);
    }
    const std::vector<uint32_t> expected = Expected(0, 300, 2, 0.0f);
    for (RouterEnd* router : {first_router.get(), router_.get()}) {
      for (const auto& [id, answer] : router->Collect(kBurst)) {
        EXPECT_EQ(answer.tokens, expected) << id << " " << answer.ended.error().message();
      }
    }
  }
}

TEST_F(TwoWorkersTest, ACancelIsConfirmedWhenBothSidesHoldNothing) {
  ASSERT_NO_FATAL_FAILURE(StartPrefill({"ucx_shm"}));
  ASSERT_NO_FATAL_FAILURE(StartDecode({"ucx_shm"}));
  router_->AwaitPeer(true);
  router_->Generate(0, Prompt(100), 1500, 0.0f);
  router_->AwaitFirstToken(0);
  router_->Cancel(0);
  auto answers = router_->Collect(1);
  EXPECT_TRUE(answers[0].ended.is_cancelled());
  EXPECT_LT(answers[0].tokens.size(), 1500u);
  ASSERT_TRUE(prefill_->Drain(absl::Seconds(20)).ok());
  EXPECT_EQ(Metric(prefill_->admin_port(), "tandem_kv_pages_used"), 0);
}

TEST_F(TwoWorkersTest, WorkersOfDifferentLanesRefuseEachOtherReadably) {
  ASSERT_NO_FATAL_FAILURE(StartPrefill({"ucx_am"}));
  ASSERT_NO_FATAL_FAILURE(StartDecode({"ucx_shm"}));
  EXPECT_THAT(router_->AwaitPeer(false).detail(), HasSubstr("no lane in common"));
}

TEST_F(TwoWorkersTest, WorkersOfDifferentModelsRefuseEachOtherReadably) {
  ASSERT_NO_FATAL_FAILURE(StartPrefill({"ucx_shm"}));
  ASSERT_NO_FATAL_FAILURE(StartDecode({"ucx_shm"}, CheckpointFolder(2)));
  EXPECT_THAT(router_->AwaitPeer(false).detail(), HasSubstr("model_hash"));
}

TEST_F(TwoWorkersTest, ARestartedPrefillWorkerIsFoundAgain) {
  ASSERT_NO_FATAL_FAILURE(StartPrefill({"ucx_shm", "tcp", "ucx_am"}));
  ASSERT_NO_FATAL_FAILURE(StartDecode({"ucx_shm", "tcp", "ucx_am"}));
  router_->AwaitPeer(true);
  const int bootstrap_port = prefill_->bootstrap_port();
  prefill_.reset();
  router_->AwaitPeer(false);
  ASSERT_NO_FATAL_FAILURE(StartPrefill({"ucx_shm", "tcp", "ucx_am"}, 512, bootstrap_port));
  router_->AwaitPeer(true);
  ExpectRightAnswers();
}

TEST_F(TwoWorkersTest, ADrainEndsWhenTheRunningRequestsHaveAndRefusesNewOnes) {
  ASSERT_NO_FATAL_FAILURE(StartPrefill({"ucx_shm"}));
  ASSERT_NO_FATAL_FAILURE(StartDecode({"ucx_shm"}));
  router_->AwaitPeer(true);
  EXPECT_THAT(tests::HttpGet(decode_->admin_port(), "/readyz"), HasSubstr("200"));
  router_->Generate(0, Prompt(50), 1900, 0.0f);  // long enough to be running when the next one comes
  router_->AwaitFirstToken(0);
  auto drained = std::async(std::launch::async, [this] { return decode_->Drain(absl::Seconds(30)); });
  while (tests::HttpGet(decode_->admin_port(), "/readyz").find("503") == std::string::npos) {
  }
  router_->Generate(1, Prompt(50), 30, 0.0f);
  auto answers = router_->Collect(2);
  EXPECT_TRUE(drained.get().ok());
  EXPECT_EQ(answers[0].tokens.size(), 1900u);
  EXPECT_EQ(answers[1].ended.error().code(), static_cast<int>(absl::StatusCode::kUnavailable));
}

TEST_F(TwoWorkersTest, StatuszShowsQueuesAndPages) {
  ASSERT_NO_FATAL_FAILURE(StartPrefill({"ucx_shm"}));
  ASSERT_NO_FATAL_FAILURE(StartDecode({"ucx_shm"}));
  router_->AwaitPeer(true);
  EXPECT_THAT(tests::HttpGet(decode_->admin_port(), "/statusz"), HasSubstr("kv pages free: 32 of 32"));
  EXPECT_THAT(tests::HttpGet(prefill_->admin_port(), "/statusz"), HasSubstr("decode workers: 1"));
}

TEST_F(TwoWorkersTest, ABusyPortIsOneClearLine) {
  ASSERT_NO_FATAL_FAILURE(StartPrefill({"ucx_am"}));
  prefill::PrefillConfig config;
  config.cluster.model_path = CheckpointFolder();
  config.listen_host = config.admin_host = "127.0.0.1";
  config.rpc_port = prefill_->rpc_port();
  config.bootstrap_port = config.admin_port = 0;
  config.lanes = {"ucx_am"};
  const auto second = prefill::Worker::Start(config, base::RealClock());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr(absl::StrCat(prefill_->rpc_port(), " for routers: Address already in use")));
  config.rpc_port = 0;
  config.bootstrap_port = prefill_->bootstrap_port();
  const auto third = prefill::Worker::Start(config, base::RealClock());
  EXPECT_EQ(third.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(third.status().message()),
              HasSubstr(absl::StrCat(prefill_->bootstrap_port(), " for decode workers: Address already in use")));
}

TEST_F(TwoWorkersTest, APoolBeyondTheMachinesMemoryIsRefusedAtTheStart) {
  for (const char* lane : {"ucx_shm", "ucx_am"}) {
    prefill::PrefillConfig prefill;
    prefill.cluster.model_path = CheckpointFolder();
    prefill.listen_host = prefill.admin_host = "127.0.0.1";
    prefill.rpc_port = prefill.bootstrap_port = prefill.admin_port = 0;
    prefill.kv_cache_tokens = int64_t{1} << 40;
    prefill.lanes = {lane};
    const absl::Status status = prefill::Worker::Start(prefill, base::RealClock()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("process.kv_cache_tokens 1099511627776 needs "));
  }
  decode::DecodeConfig decode;
  decode.cluster.model_path = CheckpointFolder();
  decode.listen_host = decode.admin_host = "127.0.0.1";
  decode.rpc_port = decode.admin_port = 0;
  decode.kv_cache_tokens = int64_t{1} << 40;
  const absl::Status status = decode::Worker::Start(decode, base::RealClock()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("process.kv_cache_tokens 1099511627776 needs "));
}

}  // namespace
}  // namespace tandem
