// Proves that weights from a seed are a model's: every tensor there, of the spread that it should have, the same
// wherever they are made; other seeds are other models; and that a model runs on them without a NaN and tells tokens
// apart.
#include "model/dummy_weights.h"

#include <cmath>
#include <set>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu_backend.h"
#include "kernels/detached_backend.h"
#include "model/deepseek_model.h"
#include "model/testing/micro_model.h"

namespace tandem::model {
namespace {

using kernels::CpuBackend;
using kernels::DetachedBackend;

constexpr int kTokens = 100;

class DummyWeightsTest : public ::testing::Test {
 protected:
  // Logits of every row of a prompt.
  std::vector<float> Logits(kernels::Backend& backend, std::unique_ptr<const ModelWeights> weights) {
    const int vocab = weights->config.vocab_size;
    const kvcache::KvLayout layout{.num_layers = weights->config.num_hidden_layers, .num_pages = 2};
    std::vector<uint8_t> pool(layout.pool_bytes());
    auto model = DeepseekModel::Create(backend, std::move(weights), layout, absl::MakeSpan(pool), {});
    EXPECT_TRUE(model.ok()) << model.status();
    const std::vector<int32_t> tokens = GoldenTokens(kTokens, vocab), pages = {1, 0};
    std::vector<int32_t> rows(kTokens);
    for (int i = 0; i < kTokens; ++i) rows[i] = i;
    const Segment segment{.row_begin = 0, .num_rows = kTokens, .first_position = 0, .page_table = pages};
    std::vector<float> logits(static_cast<size_t>(kTokens) * vocab);
    const absl::Status status = (*model)->Forward(
        {.tokens = tokens, .segments = {&segment, 1}, .logits_rows = rows}, [](int) {}, absl::MakeSpan(logits));
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ((*model)->num_nan_index_logits(), 0);
    return logits;
  }

  const ModelConfig config_ = MakeTestCheckpoint("v32-micro", 1)->config();
  CpuBackend host_{1};
};

double SpreadOf(const std::vector<float>& values) {
  double sum = 0, squares = 0;
  for (const float value : values) {
    sum += value;
    squares += static_cast<double>(value) * value;
  }
  const double mean = sum / static_cast<double>(values.size());
  return std::sqrt(squares / static_cast<double>(values.size()) - mean * mean);
}

TEST_F(DummyWeightsTest, AreTheSameWhereverTheyAreMadeAndOthersWithAnotherSeed) {
  DetachedBackend detached;
  auto on_host = MakeDummyWeights(host_, config_, false, 1);
  auto apart = MakeDummyWeights(detached, config_, false, 1);
  auto other = MakeDummyWeights(host_, config_, false, 2);
  ASSERT_TRUE(on_host.ok() && apart.ok() && other.ok());
  const std::vector<float> logits = Logits(host_, *std::move(on_host));
  EXPECT_EQ(Logits(detached, *std::move(apart)), logits);
  EXPECT_NE(Logits(host_, *std::move(other)), logits);
  for (const float logit : logits) ASSERT_TRUE(std::isfinite(logit));
  EXPECT_GT(SpreadOf(logits), 0.2);
  EXPECT_LT(SpreadOf(logits), 5);
  std::set<int> best;
  for (int row = 0; row < kTokens; ++row) {
    const auto first = logits.begin() + row * config_.vocab_size;
    best.insert(static_cast<int>(std::max_element(first, first + config_.vocab_size) - first));
  }
  EXPECT_GT(best.size(), 10u) << "contexts are told apart";
}

TEST_F(DummyWeightsTest, HaveEveryTensorAndTheSpreadOfALinear) {
  const auto weights = MakeDummyWeights(host_, config_, true, 7);
  ASSERT_TRUE(weights.ok()) << weights.status();
  ASSERT_EQ(static_cast<int>((*weights)->layers.size()), config_.num_hidden_layers);
  ASSERT_TRUE((*weights)->mtp.has_value());
  const MoeWeights& moe = *(*weights)->layers.back().moe;
  ASSERT_EQ(static_cast<int>(moe.gate_proj.fp8.size()), config_.n_routed_experts);
  const kernels::Fp8Weight &first = moe.down_proj.fp8[0], &second = moe.down_proj.fp8[1],
                           &last = moe.down_proj.fp8.back();
  const int64_t experts_between = config_.n_routed_experts - 1;
  EXPECT_EQ(last.weight.data - first.weight.data, experts_between * (second.weight.data - first.weight.data));
  EXPECT_EQ(last.scale.data - first.scale.data, experts_between * (second.scale.data - first.scale.data));
  std::vector<float> values;
  for (int64_t row = 0; row < first.weight.shape[0]; ++row) {
    for (int64_t column = 0; column < first.weight.shape[1]; ++column) {
      const float value = kernels::ToFloat(first.weight.Row(row)[column]) * first.scale.Row(row / 128)[column / 128];
      ASSERT_TRUE(std::isfinite(value));
      values.push_back(value);
    }
  }
  const double expected = 1 / std::sqrt(static_cast<double>(first.weight.shape[1]));
  EXPECT_GT(SpreadOf(values), expected * 0.6);
  EXPECT_LT(SpreadOf(values), expected * 1.6);
}

TEST_F(DummyWeightsTest, MayBeBf16WhichADeviceRefusesForExperts) {
  ModelConfig config = config_;
  config.has_fp8_weights = false;
  auto on_host = MakeDummyWeights(host_, config, false, 1);
  ASSERT_TRUE(on_host.ok()) << on_host.status();
  EXPECT_TRUE((*on_host)->has_bf16_experts());
  for (const float logit : Logits(host_, *std::move(on_host))) ASSERT_TRUE(std::isfinite(logit));

  DetachedBackend detached;
  auto apart = MakeDummyWeights(detached, config, false, 1);
  ASSERT_TRUE(apart.ok()) << apart.status();
  const kvcache::KvLayout layout{.num_layers = config.num_hidden_layers, .num_pages = 2};
  std::vector<uint8_t> pool(layout.pool_bytes());
  const absl::Status refused =
      DeepseekModel::Create(detached, *std::move(apart), layout, absl::MakeSpan(pool), {}).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(refused.message(), "the model's experts are BF16, detached runs FP8 experts only");
}

TEST_F(DummyWeightsTest, HaveAHashOfConfigurationAndSeed) {
  const std::string hash = DummyModelHash(config_, 1);
  EXPECT_EQ(hash.size(), 64u);
  EXPECT_EQ(DummyModelHash(config_, 1), hash);
  EXPECT_NE(DummyModelHash(config_, 2), hash);
  ModelConfig other = config_;
  ++other.n_routed_experts;
  EXPECT_NE(DummyModelHash(other, 1), hash);
}

TEST_F(DummyWeightsTest, SayWhenThereIsNoRoom) {
  DetachedBackend detached(1 << 20);
  EXPECT_EQ(MakeDummyWeights(detached, config_, false, 1).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(detached.num_bytes(), 0);
}

}  // namespace
}  // namespace tandem::model
