// Proves the numbers: checkpoints of tools/make_checkpoint (seed 1) and the trained checkpoints/tandem-tiny against the
// NumPy float64 reference, whose goldens and bounds are in tests/golden/model.
//
// Two correct implementations sum in different orders; rounding to BF16 and E4M3 turns that into differences that grow
// from layer to layer (tools/reference/README.md, Chaos). So each layer is compared alone, embedding -> layer -> head,
// where almost every row agrees to the last bit and bounds are tight enough to show a mistake of 2 %; the stages inside
// it are compared one by one; the whole model within what such noise does to it; and the whole of v32-tiny-calm, whose
// layers add little to the residual stream, within what noise does to the reference's own (well within the
// specification's d and KL of 1e-3). Where an argmax is another, the reference's two largest logits are closer than
// noise can move them; that mistakes are beyond these bounds is tested, too. Contexts of up to 1,000 tokens, with FP8
// and with BF16 cache records; deepseek_model_golden_long_test.cc goes on to 4,097.
#include <openssl/sha.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <map>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/testing/golden_model.h"

namespace tandem::model {
namespace {

using kernels::Bf16;
// Captured tensors by name; the second is the first's bytes.
using Stages = std::map<std::string, std::pair<Tensor, std::vector<uint8_t>>>;

const GoldenCase kMicro{"v32-micro", "v32-micro", {1, 16, 17, 40, 200}};
const GoldenCase kTiny{"v32-tiny", "v32-tiny", {1, 64, 65, 200, 1000}};
// Its layers are v32-tiny's but for a factor: only the whole is of interest.
const GoldenCase kTinyCalm{"v32-tiny-calm", "v32-tiny-calm", {1, 64, 65, 200, 1000}};
const GoldenCase kTinyBf16{"v32-tiny-bf16", "v32-tiny", {65, 200}, kvcache::KvCacheDtype::kBfloat16};
const GoldenCase kTinyCalmBf16{"v32-tiny-calm-bf16", "v32-tiny-calm", {65, 1000}, kvcache::KvCacheDtype::kBfloat16};
const GoldenCase kTrained{"tandem-tiny", "tandem-tiny", {135, 200}};
const GoldenCase kTrainedBf16{"tandem-tiny-bf16", "tandem-tiny", {200}, kvcache::KvCacheDtype::kBfloat16};
const GoldenCase kIndexCache{
    .name = "v32-micro-index-cache", .checkpoint = "v32-micro", .contexts = {200}, .index_topk_pattern = "FS"};
// Rows of 17 to 120 tokens attend to all of them, longer ones to index_topk.
const GoldenCase kDense{
    .name = "v32-micro-dense", .checkpoint = "v32-micro", .contexts = {200}, .dense_context_max = 120};

std::string NameOfCase(const ::testing::TestParamInfo<GoldenCase>& info) {
  return absl::StrReplaceAll(info.param.name, {{"-", "_"}});
}

class CheckpointGoldenTest : public ::testing::TestWithParam<GoldenCase> {
 protected:
  const std::shared_ptr<const Checkpoint> checkpoint_ = MakeTestCheckpoint(GetParam().checkpoint, 1);
};

TEST_P(CheckpointGoldenTest, TheCheckpointIsTheOneThatTheGoldensWereMadeFrom) {
  for (const char* file : {"model-00001-of-000002.safetensors", "model-00002-of-000002.safetensors"}) {
    const Tensor* some = nullptr;
    for (const char* name : {"model.embed_tokens.weight", "lm_head.weight"}) {
      const Tensor* tensor = checkpoint_->Find(name);
      if (absl::EndsWith(checkpoint_->FileOf(*tensor), file)) some = tensor;
    }
    ASSERT_NE(some, nullptr) << file;
    const absl::Span<const uint8_t> bytes = checkpoint_->FileBytesOf(*some);
    uint8_t digest[SHA256_DIGEST_LENGTH];
    SHA256(bytes.data(), bytes.size(), digest);
    EXPECT_EQ(absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(digest), sizeof(digest))),
              ReadCheckpointSha256(GetParam().name, file))
        << "make the goldens again: tools/reference/README.md";
  }
}

INSTANTIATE_TEST_SUITE_P(Models, CheckpointGoldenTest,
                         ::testing::Values(kMicro, kTiny, kTinyCalm, kTinyBf16, kTinyCalmBf16), NameOfCase);

TEST(TrainedCheckpointGoldenTest, TheCheckpointIsTheOneThatTheGoldensWereMadeFrom) {
  for (int i = 1; i <= 3; ++i) {
    const std::string file = absl::StrFormat("model-%05d-of-000003.safetensors", i);
    std::ifstream stream("checkpoints/tandem-tiny/" + file, std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
    ASSERT_FALSE(bytes.empty()) << file;
    uint8_t digest[SHA256_DIGEST_LENGTH];
    SHA256(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), digest);
    for (const GoldenCase& of : {kTrained, kTrainedBf16}) {
      EXPECT_EQ(absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(digest), sizeof(digest))),
                ReadCheckpointSha256(of.name, file))
          << "make the goldens again: tools/reference/README.md";
    }
  }
}

class LayerGoldenTest : public ::testing::TestWithParam<GoldenCase> {};

TEST_P(LayerGoldenTest, EachLayerAloneMatchesTheReference) { GoldenModel(GetParam()).ExpectEachLayerAloneMatches(); }

INSTANTIATE_TEST_SUITE_P(Models, LayerGoldenTest, ::testing::Values(kMicro, kTiny, kTinyBf16, kTrained), NameOfCase);

// The bounds have power: mistakes of the size that is easily made are beyond them, in a dense layer and in one of MoE.
class MistakeTest : public ::testing::TestWithParam<LayerAlone::Mistake> {};

TEST_P(MistakeTest, IsNoticedInALayerAlone) {
  constexpr int kContext = 1000;
  const GoldenModel golden(kTiny);
  for (const int layer : {0, 2}) {
    const std::string run = absl::StrCat("alone", layer);
    const std::vector<float> logits =
        LayerAlone(golden.backend(), golden.checkpoint(), layer, kvcache::KvCacheDtype::kFp8E4m3)
            .Run(golden.TokensOf(kContext), TensorTap(), GetParam());
    const GoldenModel::Comparison result = golden.Compare(kContext, run, logits);
    const RunBound bound = golden.BoundOfALayerAlone(kContext, run);
    EXPECT_GT(result.num_other_argmax, bound.argmax_other * kContext) << "layer " << layer;
    EXPECT_THAT(GoldenModel::Violations(result, bound, kContext), ::testing::Not(::testing::IsEmpty()));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, MistakeTest,
    ::testing::Values(LayerAlone::Mistake{.name = "SoftmaxScale2PercentOff", .softmax_scale_factor = 1.02f},
                      LayerAlone::Mistake{.name = "OneOf64KeysDropped", .num_keys_dropped = 1},
                      LayerAlone::Mistake{.name = "RopeOneLateInTheSecondHalf", .rope_is_late_from = 500},
                      LayerAlone::Mistake{.name = "OnePageLost", .lost_page = 3}),
    [](const auto& info) { return info.param.name; });

class CalmGoldenTest : public ::testing::TestWithParam<GoldenCase> {};

TEST_P(CalmGoldenTest, TheWholeModelMatchesTheReference) {
  GoldenModel(GetParam()).ExpectTheWholeOfACalmModelMatches();
}

INSTANTIATE_TEST_SUITE_P(Models, CalmGoldenTest, ::testing::Values(kTinyCalm, kTinyCalmBf16), NameOfCase);

class WholeGoldenTest : public ::testing::TestWithParam<GoldenCase> {};

TEST_P(WholeGoldenTest, TheWholeModelMatchesTheReferenceWithinNoise) {
  GoldenModel(GetParam()).ExpectTheWholeModelMatchesWithinNoise();
}

INSTANTIATE_TEST_SUITE_P(Models, WholeGoldenTest,
                         ::testing::Values(kMicro, kTiny, kTrained, kTrainedBf16, kIndexCache, kDense), NameOfCase);

TEST(IndexCacheGoldenTest, LayersThatChooseForThemselvesAreNoticed) {
  GoldenCase without = kIndexCache;
  without.index_topk_pattern.clear();
  const GoldenModel golden(without);
  EXPECT_GT(golden.RunWhole(200).median_row_d, golden.BoundOf(200, "whole").median_row_d);
}

TEST(DenseAttentionGoldenTest, RowsThatChooseAreNoticed) {
  GoldenCase without = kDense;
  without.dense_context_max = 0;
  const GoldenModel golden(without);
  EXPECT_GT(golden.RunWhole(200).median_row_d, golden.BoundOf(200, "whole").median_row_d);
}

class StageGoldenTest : public ::testing::TestWithParam<GoldenCase> {
 protected:
  const GoldenModel model_{GetParam()};
  const Golden& golden_ = model_.golden();
  const std::shared_ptr<const Checkpoint>& checkpoint_ = model_.checkpoint();
  // Whose layers are stored stage by stage.
  int stage_context() const {
    return GetParam().name == "v32-micro" ? 40 : GetParam().name == "tandem-tiny" ? 135 : 65;
  }

  // The rows at `positions` of a captured tensor, as floats.
  static std::vector<float> RowsOf(const std::pair<Tensor, std::vector<uint8_t>>& stage,
                                   const std::vector<int32_t>& positions) {
    Tensor tensor = stage.first;
    tensor.bytes = stage.second;
    std::vector<float> values;
    if (tensor.dtype == DType::kI32) {
      const std::vector<int32_t> ints = Golden::ToInts(tensor);
      values.assign(ints.begin(), ints.end());
    } else {
      values = Golden::ToFloats(tensor);
    }
    const size_t width = values.size() / tensor.shape[0];
    std::vector<float> rows;
    for (int32_t position : positions) {
      rows.insert(rows.end(), values.begin() + position * width, values.begin() + (position + 1) * width);
    }
    return rows;
  }

  // Index logits, chosen positions and experts, with their weights: exact, except in rows whose choice hangs on less
  // than FP32's noise can move.
  void ExpectChoices(const Stages& stages, const std::string& ours, const std::string& theirs,
                     const std::vector<int32_t>& positions) const {
    const int topk = checkpoint_->config().index_topk;
    const std::vector<float> index_margin = golden_.Floats(theirs + "index_margin");
    const std::vector<float> router_margin = golden_.Floats(theirs + "router_margin");
    const std::vector<float> logits = RowsOf(stages.at(ours + "index_logits"), positions);
    const std::vector<float> golden_logits = golden_.Floats(theirs + "index_logits");
    const std::vector<float> selected = RowsOf(stages.at(ours + "selected"), positions);
    const std::vector<int32_t> golden_selected = golden_.Ints(theirs + "selected");
    const size_t columns = golden_logits.size() / positions.size();
    int num_scored = 0;
    for (size_t i = 0; i < positions.size(); ++i) {
      SCOPED_TRACE(absl::StrCat(theirs, " position ", positions[i]));
      const int context = positions[i] + 1;
      if (context > topk) {
        EXPECT_LE(Distance(absl::MakeConstSpan(&logits[i * columns], context),
                           absl::MakeConstSpan(&golden_logits[i * columns], context)),
                  1e-5);
        ++num_scored;
      }
      if (index_margin[positions[i]] < 1e-3f) continue;
      for (int j = 0; j < topk; ++j) EXPECT_EQ(selected[i * topk + j], golden_selected[i * topk + j]) << j;
    }
    EXPECT_GT(num_scored, 0) << "the context is longer than index_topk";
    if (!stages.contains(ours + "router_ids")) return;
    const std::vector<float> ids = RowsOf(stages.at(ours + "router_ids"), positions);
    const std::vector<float> weights = RowsOf(stages.at(ours + "router_weights"), positions);
    const std::vector<int32_t> golden_ids = golden_.Ints(theirs + "router_ids");
    const std::vector<float> golden_weights = golden_.Floats(theirs + "router_weights");
    const size_t num_chosen = ids.size() / positions.size();
    for (size_t i = 0; i < ids.size(); ++i) {
      if (router_margin[positions[i / num_chosen]] < 1e-3f) continue;
      EXPECT_EQ(ids[i], golden_ids[i]) << theirs << i;
      EXPECT_NEAR(weights[i], golden_weights[i], 1e-3) << theirs << i;
    }
  }
};

TEST_P(StageGoldenTest, TheMtpLayerAloneMatchesTheReference) {
  const int n = stage_context();
  const std::string prefix = absl::StrCat("c", n, ".");
  // The reference's hidden states go in, so that this is the MTP layer alone.
  const Tensor& stored = golden_.At(prefix + "whole.final_hidden");
  std::vector<Bf16> hidden(stored.bytes.size() / sizeof(Bf16));
  std::memcpy(hidden.data(), stored.bytes.data(), stored.bytes.size());
  TestModel model(checkpoint_, {});
  const TestSequence sequence = model.NewSequence(n);
  const TestModel::Result result = model.RunMtp(sequence, golden_.Ints(prefix + "mtp.tokens"), hidden, 25);
  const GoldenModel::Comparison comparison = model_.Compare(n, "mtp", result.logits);
  EXPECT_LE(comparison.d, 1e-4);
  EXPECT_LE(comparison.median_row_d, 1e-6);
  EXPECT_LE(comparison.kl, 1e-3);
  EXPECT_LE(comparison.num_other_argmax, 1);
  EXPECT_LE(comparison.other_gap_max, ReadRunBound(GetParam().name, prefix + "mtp").decided_gap);
}

// What each stage of a layer alone may differ by, over the stored rows: FP32 sums move single values by a step of BF16,
// behind an FP8 linear of E4M3.
struct StageBound {
  const char* stage;
  double d;
};
constexpr StageBound kStageBounds[] = {
    {"input", 1e-7},
    {"qr", 1e-6},
    {"q", 1e-5},
    {"c", 1e-6},
    {"k_rope", 1e-6},
    {"index_q", 3e-5},  // a step of E4M3 of one of 2,048 stored values is 1e-5
    {"index_q_scale", 1e-5},
    {"index_k", 3e-5},
    {"index_k_scale", 1e-5},
    {"index_w", 1e-5},
    {"attention", 1e-4},
    {"residual", 1e-5},
    {"ffn_input", 1e-5},
    {"ffn", 3e-4},
};

TEST_P(StageGoldenTest, EveryStageOfEachLayerMatchesTheReference) {
  const int n = stage_context();
  const std::vector<int32_t> positions = golden_.Ints(absl::StrCat("c", n, ".positions"));
  for (int layer = 0; layer < checkpoint_->config().num_hidden_layers; ++layer) {
    Stages stages;
    LayerAlone(model_.backend(), checkpoint_, layer, kvcache::KvCacheDtype::kFp8E4m3)
        .Run(model_.TokensOf(n), [&](const Tensor& tensor) {
          std::vector<uint8_t> bytes(tensor.bytes.begin(), tensor.bytes.end());
          stages[tensor.name] = {tensor, std::move(bytes)};
        });
    const std::string ours = absl::StrCat("L", layer, "."), theirs = absl::StrCat("c", n, ".alone", layer, ".");
    for (const StageBound& bound : kStageBounds) {
      SCOPED_TRACE(theirs + bound.stage);
      ASSERT_TRUE(stages.contains(ours + bound.stage));
      const std::vector<float> expected = golden_.Floats(theirs + bound.stage);
      const double d = Distance(RowsOf(stages.at(ours + bound.stage), positions), expected);
      EXPECT_LE(d, bound.d);
    }
    ExpectChoices(stages, ours, theirs, positions);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, StageGoldenTest, ::testing::Values(kMicro, kTiny, kTrained), NameOfCase);

}  // namespace
}  // namespace tandem::model
