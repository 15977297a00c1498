// Proves that every linear is read in both storage forms, that bytes aligned for nothing give the same values, and that
// a missing or misshapen tensor is named with its file.
#include "model/weights.h"

#include <cstring>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "kernels/cpu_backend.h"
#include "model/testing/edited_checkpoint.h"

namespace tandem::model {
namespace {

using kernels::Bf16;

class WeightsTest : public ::testing::Test {
 protected:
  kernels::CpuBackend backend_{1};
  const std::shared_ptr<const Checkpoint> original_ = MakeEditedCheckpoint([](std::vector<OwnTensor>&) {});

  absl::Status EditedStatus(const TensorEdit& edit, bool with_mtp = true) {
    return LoadWeights(backend_, MakeEditedCheckpoint(edit), with_mtp).status();
  }
};

TEST_F(WeightsTest, ReadsAlignedBytesInPlace) {
  auto weights = LoadWeights(backend_, original_, true);
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_EQ(static_cast<const void*>((*weights)->embed_tokens.data),
            static_cast<const void*>(original_->Find("model.embed_tokens.weight")->bytes.data()));
  EXPECT_EQ((*weights)->copies.num_blocks(), 3) << "kv_b_proj of each layer, dequantised";
  EXPECT_TRUE((*weights)->layers[0].mlp.has_value());
  EXPECT_FALSE((*weights)->layers[0].moe.has_value());
  EXPECT_EQ((*weights)->layers[1].moe->gate_proj.fp8.size(), 8u);
  EXPECT_FALSE((*weights)->mtp->eh_proj.is_fp8());
  EXPECT_EQ((*weights)->layers[0].self_attn.kv_a_proj_with_mqa.fp8.scale.shape[0], 5) << "a ragged block of rows";
}

TEST_F(WeightsTest, SplitsKvBIntoItsHeads) {
  auto weights = LoadWeights(backend_, original_, false);
  ASSERT_TRUE(weights.ok()) << weights.status();
  const AttentionWeights& attention = (*weights)->layers[1].self_attn;
  const std::string name = "model.layers.1.self_attn.kv_b_proj.weight";
  const auto* codes = reinterpret_cast<const kernels::E4m3*>(original_->Find(name)->bytes.data());
  const uint8_t* scales = original_->Find(name + "_scale_inv")->bytes.data();
  // Row h * 256 + i of [heads * 256, 512]: W_UK for i < 128, W_UV beyond.
  for (int head = 0; head < 4; ++head) {
    for (int row : {0, 5, 127, 128, 255}) {
      for (int column : {0, 200, 511}) {
        const int full_row = head * 256 + row;
        float scale;
        std::memcpy(&scale, scales + (full_row / 128 * 4 + column / 128) * 4, 4);
        const Bf16 expected = kernels::ToBf16(kernels::ToFloat(codes[full_row * 512 + column]) * scale);
        const Bf16 actual =
            row < 128 ? attention.w_uk.Row(head, row)[column] : attention.w_uv.Row(head, row - 128)[column];
        EXPECT_EQ(actual, expected) << head << " " << row << " " << column;
      }
    }
  }
}

TEST_F(WeightsTest, CopiesBytesThatAreAlignedForNothing) {
  // One byte in front shifts every tensor after it.
  const auto shifted = MakeEditedCheckpoint([](std::vector<OwnTensor>& tensors) {
    tensors.insert(tensors.begin(), OwnTensor{{"odd", DType::kU8, {1}, {}}, {1}});
  });
  auto expected = LoadWeights(backend_, original_, true);
  auto weights = LoadWeights(backend_, shifted, true);
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_GT((*weights)->copies.num_blocks(), 50);
  EXPECT_TRUE(std::equal((*weights)->lm_head.data, (*weights)->lm_head.data + 1024 * 128, (*expected)->lm_head.data));
  const kernels::Matrix<const float>& scale = (*weights)->layers[0].self_attn.o_proj.fp8.scale;
  EXPECT_EQ(reinterpret_cast<uintptr_t>(scale.data) % alignof(float), 0u);
  EXPECT_TRUE(std::equal(scale.data, scale.data + scale.num_elements(),
                         (*expected)->layers[0].self_attn.o_proj.fp8.scale.data));
}

TEST_F(WeightsTest, TakesTheModelsEmbeddingAndHeadWhereTheMtpCopiesAreAbsent) {
  auto with_copies = LoadWeights(backend_, original_, true);
  EXPECT_NE((*with_copies)->mtp->embed_tokens.data, (*with_copies)->embed_tokens.data);
  auto without = LoadWeights(backend_, MakeEditedCheckpoint([](std::vector<OwnTensor>& tensors) {
                               Erase(tensors, "model.layers.2.embed_tokens.weight");
                               Erase(tensors, "model.layers.2.shared_head.head.weight");
                             }),
                             true);
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_EQ((*without)->mtp->embed_tokens.data, (*without)->embed_tokens.data);
  EXPECT_EQ((*without)->mtp->head.data, (*without)->lm_head.data);
}

TEST_F(WeightsTest, AsksForTheMtpLayerOnlyWhereItIsWanted) {
  auto without_mtp = [](std::vector<OwnTensor>& tensors) {
    std::erase_if(tensors, [](const OwnTensor& own) { return absl::StartsWith(own.tensor.name, "model.layers.2."); });
  };
  EXPECT_TRUE(EditedStatus(without_mtp, false).ok());
  EXPECT_TRUE(absl::StrContains(EditedStatus(without_mtp, true).message(), "'model.layers.2.enorm.weight' is missing"));
}

TEST_F(WeightsTest, ReadsBf16LinearsAndBf16IndexNorms) {
  auto weights = LoadWeights(backend_, MakeEditedCheckpoint([](std::vector<OwnTensor>& tensors) {
                               const std::string name = "model.layers.0.mlp.up_proj.weight";
                               Erase(tensors, name + "_scale_inv");
                               OwnTensor& up = At(tensors, name);
                               up.tensor.dtype = DType::kBf16;
                               up.bytes.assign(256 * 128 * 2, 0);
                               OwnTensor& norm = At(tensors, "model.layers.0.self_attn.indexer.k_norm.bias");
                               norm.tensor.dtype = DType::kBf16;
                               norm.bytes.assign(256, 0x3f);
                             }),
                             false);
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_FALSE((*weights)->layers[0].mlp->up_proj.is_fp8());
  EXPECT_EQ((*weights)->layers[0].self_attn.indexer.k_norm_bias.data[127], 0x1.7ep-1f) << "0x3f3f";
}

TEST_F(WeightsTest, NamesWhatIsMissingOrMisshapen) {
  auto message = [&](const TensorEdit& edit) { return std::string(EditedStatus(edit).message()); };
  EXPECT_TRUE(
      absl::StrContains(message([](auto& tensors) { Erase(tensors, "model.layers.1.mlp.experts.3.down_proj.weight"); }),
                        "/edited: tensor 'model.layers.1.mlp.experts.3.down_proj.weight' is missing"));
  EXPECT_TRUE(absl::StrContains(
      message([](auto& tensors) { Erase(tensors, "model.layers.0.self_attn.o_proj.weight_scale_inv"); }),
      "tensor 'model.layers.0.self_attn.o_proj.weight_scale_inv' is missing"));
  EXPECT_TRUE(absl::StrContains(
      message([](auto& tensors) {
        At(tensors, "model.layers.0.self_attn.q_b_proj.weight").tensor.shape = {128, 768};
      }),
      "model.safetensors: tensor 'model.layers.0.self_attn.q_b_proj.weight' is F8_E4M3 [128, 768], expected F8_E4M3 or "
      "BF16 [768, 128]"));
  EXPECT_TRUE(absl::StrContains(
      message([](auto& tensors) { At(tensors, "model.layers.0.mlp.gate_proj.weight").tensor.dtype = DType::kU8; }),
      "is U8 [256, 128], expected F8_E4M3 or BF16"));
  EXPECT_TRUE(absl::StrContains(message([](auto& tensors) {
                                  const std::string name = "model.layers.1.mlp.experts.2.up_proj.weight";
                                  Erase(tensors, name + "_scale_inv");
                                  At(tensors, name).tensor.dtype = DType::kBf16;
                                  At(tensors, name).bytes.resize(128 * 128 * 2);
                                }),
                                "'model.layers.1.mlp.experts.2.up_proj.weight' is BF16, unlike the experts before it"));
}

}  // namespace
}  // namespace tandem::model
