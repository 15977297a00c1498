// Proves that the two workers work as processes do: real gRPC, real UCX, real threads, a real checkpoint (v32-micro),
// and this test in the router's place. The tokens are those of one process without any engine, over either lane and for
// any chunk size; everything is given back; a drain ends; a restarted prefill worker is found again.
// Several choices, log-probabilities and every mix of a batch are worker_numerics_test.cc's business.
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/held_port.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu_backend.h"
#include "kvcache/kv_layout.h"
#include "model/deepseek_model.h"
#include "model/dummy_weights.h"
#include "tests/workers/two_workers_fixture.h"
#include "tools/generate/generate.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kCreditBytes = 512;  // of a request that is to be held: some tokens, far from its end

class TwoWorkersTest : public TwoWorkersFixture {
 protected:
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
      EXPECT_EQ(answers[id].tokens(), Expected(id, length, kNewTokens, id % 2 == 0 ? 0.0f : 0.9f))
          << "prompt of " << length << " tokens";
      EXPECT_FALSE(answers[id].ended.has_error()) << answers[id].ended.error().message();
      ++id;
    }
  }
};

TEST_F(TwoWorkersTest, OverSharedMemoryTheTokensAreThoseOfOneProcess) {
  ASSERT_NO_FATAL_FAILURE(StartPrefill({"ucx_shm"}));
  ASSERT_NO_FATAL_FAILURE(StartDecode({"ucx_shm"}));
  EXPECT_EQ(router_->AwaitPeer(true).lane(), "ucx_shm");
  ExpectRightAnswers();
  EXPECT_EQ(AwaitMetric(decode_->admin_port(), "tandem_kv_pages_used", 0), 0);
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
    auto answers = router_->Collect(static_cast<int>(++id));
    EXPECT_EQ(answers[id - 1].tokens(), Expected(id - 1, length, 3, 0.0f)) << "prompt of " << length << " tokens";
    expected_bytes += static_cast<double>((length + 63) / 64) * kNumLayers * kvcache::KvLayout{}.page_bytes();
    EXPECT_EQ(AwaitMetric(decode_->admin_port(), "tandem_kv_transfer_fetched_bytes_total", expected_bytes),
              expected_bytes)
        << "prompt of " << length << " tokens";
  }
  EXPECT_EQ(AwaitMetric(prefill_->admin_port(), "tandem_kv_transfer_announced_bytes_total", expected_bytes),
            expected_bytes);
}

TEST_F(TwoWorkersTest, ACancelIsConfirmedWhenBothSidesHoldNothing) {
  ASSERT_NO_FATAL_FAILURE(StartPrefill({"ucx_shm"}));
  ASSERT_NO_FATAL_FAILURE(StartDecode({"ucx_shm"}));
  router_->AwaitPeer(true);
  router_->Generate(0, Prompt(100), 1500, 0.0f, kCreditBytes);
  router_->AwaitFirstToken(0);
  router_->Cancel(0);
  auto answers = router_->Collect(1);
  EXPECT_TRUE(answers[0].ended.is_cancelled());
  EXPECT_LT(answers[0].tokens().size(), 1500u);
  ASSERT_TRUE(prefill_->Drain(kPatience).ok());
  EXPECT_EQ(AwaitMetric(prefill_->admin_port(), "tandem_kv_pages_used", 0), 0);
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

TEST_F(TwoWorkersTest, WeightsFromASeedAreTheSameOnBothSides) {
  load_format_ = "dummy";
  ASSERT_NO_FATAL_FAILURE(StartPrefill({"tcp"}));
  ASSERT_NO_FATAL_FAILURE(StartDecode({"tcp"}));
  router_->AwaitPeer(true);
  router_->Generate(1, Prompt(100), 12, 0.0f);
  auto answers = router_->Collect(1);
  EXPECT_FALSE(answers[1].ended.has_error()) << answers[1].ended.error().message();

  kernels::CpuBackend backend(1);
  auto weights = model::MakeDummyWeights(backend, model::MakeTestCheckpoint("v32-micro", 1)->config(), false, 1);
  ASSERT_TRUE(weights.ok()) << weights.status();
  const kvcache::KvLayout layout{.num_layers = (*weights)->config.num_hidden_layers, .num_pages = 4};
  std::vector<uint8_t> pool(layout.pool_bytes());
  auto executor = model::DeepseekModel::Create(backend, *std::move(weights), layout, absl::MakeSpan(pool),
                                               {.num_positions_max = 200});
  ASSERT_TRUE(executor.ok()) << executor.status();
  const auto expected =
      generate::Generate(**executor, model::GoldenTokens(100, kVocabSize),
                         {.sampling = {.temperature = 0, .seed = 1}, .max_new_tokens = 12, .stop_token_ids = {}});
  ASSERT_TRUE(expected.ok()) << expected.status();
  EXPECT_EQ(answers[1].tokens(), std::vector<uint32_t>(expected->tokens.begin(), expected->tokens.end()));
}

TEST_F(TwoWorkersTest, ADeviceThatIsNotThereIsOneClearLine) {
  prefill::PrefillConfig prefill;
  prefill.cluster.model_path = CheckpointFolder();
  prefill.device = "cuda:63";
  decode::DecodeConfig decode;
  decode.cluster.model_path = CheckpointFolder();
  decode.device = "cuda:63";
  for (const absl::Status& status : {prefill::Worker::Start(prefill, base::RealClock()).status(),
                                     decode::Worker::Start(decode, base::RealClock()).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), ::testing::StartsWith("process.device cuda:63: "));
  }
}

TEST_F(TwoWorkersTest, ARestartedPrefillWorkerIsFoundAgain) {
  const base::HeldPort held_port;
  ASSERT_NO_FATAL_FAILURE(StartPrefill({"ucx_shm", "tcp", "ucx_am"}, 512, held_port.port()));
  ASSERT_NO_FATAL_FAILURE(StartDecode({"ucx_shm", "tcp", "ucx_am"}));
  router_->AwaitPeer(true);
  prefill_.reset();
  router_->AwaitPeer(false);
  ASSERT_NO_FATAL_FAILURE(StartPrefill({"ucx_shm", "tcp", "ucx_am"}, 512, held_port.port()));
  router_->AwaitPeer(true);
  ExpectRightAnswers();
}

TEST_F(TwoWorkersTest, ADrainEndsWhenTheRunningRequestsHaveAndRefusesNewOnes) {
  ASSERT_NO_FATAL_FAILURE(StartPrefill({"ucx_shm"}));
  ASSERT_NO_FATAL_FAILURE(StartDecode({"ucx_shm"}));
  router_->AwaitPeer(true);
  EXPECT_THAT(AwaitPage(decode_->admin_port(), "/readyz", "200"), HasSubstr("200"));
  constexpr int kNewTokens = 300;
  router_->Generate(0, Prompt(50), kNewTokens, 0.0f, kCreditBytes);
  router_->AwaitFirstToken(0);
  auto drained = std::async(std::launch::async, [this] { return decode_->Drain(kPatience); });
  EXPECT_THAT(AwaitPage(decode_->admin_port(), "/readyz", "503"), HasSubstr("503"));
  router_->Generate(1, Prompt(50), 30, 0.0f);
  router_->Collect(1);  // the refusal: the first request has no credit to come to its end
  router_->Grant(0, /*choice=*/0, kNewTokens * kCreditBytes);
  auto answers = router_->Collect(2);
  EXPECT_TRUE(drained.get().ok());
  EXPECT_EQ(answers[0].tokens().size(), size_t{kNewTokens});
  EXPECT_EQ(answers[1].ended.error().code(), static_cast<int>(absl::StatusCode::kUnavailable));
}

TEST_F(TwoWorkersTest, StatuszShowsQueuesAndPages) {
  ASSERT_NO_FATAL_FAILURE(StartPrefill({"ucx_shm"}));
  ASSERT_NO_FATAL_FAILURE(StartDecode({"ucx_shm"}));
  router_->AwaitPeer(true);
  constexpr char kPages[] = "kv pages free: 32 of 32", kPeers[] = "decode workers: 1";
  EXPECT_THAT(AwaitPage(decode_->admin_port(), "/statusz", kPages), HasSubstr(kPages));
  EXPECT_THAT(AwaitPage(prefill_->admin_port(), "/statusz", kPeers), HasSubstr(kPeers));
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
