// Proves that both configurations have the specification's tensor counts and bytes, that a folder's bytes are pinned
// and do not depend on anything but (config, seed, shards), that the weights have the specified distributions, and that
// a folder appears whole or not at all.
#include "tools/make_checkpoint/checkpoint_writer.h"

#include <openssl/sha.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/dtypes.h"
#include "model/model_config.h"
#include "model/safetensors.h"

namespace tandem::make_checkpoint {
namespace {

namespace fs = std::filesystem;

std::string TestFolder(const std::string& name) {
  const std::string folder = absl::StrCat(::testing::TempDir(), "/checkpoint_writer_test/", name);
  fs::remove_all(folder);
  fs::create_directories(fs::path(folder).parent_path());
  return folder;
}

std::map<std::string, std::string> ReadFolder(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    files[entry.path().filename()] = std::string(std::istreambuf_iterator<char>(file), {});
  }
  return files;
}

std::string Sha256(const std::string& bytes) {
  uint8_t digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), digest);
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(digest), sizeof(digest)));
}

// All tensors of a folder by name; the files stay open with it.
struct Tensors {
  explicit Tensors(const std::string& folder) {
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() != ".safetensors") continue;
      files.push_back(*model::SafetensorsFile::Open(entry.path()));
      for (const model::Tensor& tensor : files.back()->tensors()) {
        EXPECT_TRUE(by_name.emplace(tensor.name, &tensor).second) << tensor.name;
        num_bytes += tensor.bytes.size();
      }
    }
  }
  std::vector<float> Values(const std::string& name) const {
    const model::Tensor& tensor = *by_name.at(name);
    std::vector<float> values;
    const int size = model::DTypeBits(tensor.dtype) / 8;
    for (size_t i = 0; i < tensor.bytes.size(); i += size) {
      if (tensor.dtype == model::DType::kF32) {
        float value;
        std::memcpy(&value, &tensor.bytes[i], 4);
        values.push_back(value);
      } else if (tensor.dtype == model::DType::kBf16) {
        values.push_back(
            kernels::ToFloat(kernels::Bf16{static_cast<uint16_t>(tensor.bytes[i] | tensor.bytes[i + 1] << 8)}));
      } else {
        values.push_back(kernels::ToFloat(kernels::E4m3{tensor.bytes[i]}));
      }
    }
    return values;
  }
  std::vector<std::unique_ptr<model::SafetensorsFile>> files;
  std::map<std::string, const model::Tensor*> by_name;
  size_t num_bytes = 0;
};

struct Moments {
  double mean = 0, deviation = 0;
  explicit Moments(const std::vector<float>& values) {
    for (float value : values) mean += value;
    mean /= static_cast<double>(values.size());
    for (float value : values) deviation += (value - mean) * (value - mean);
    deviation = std::sqrt(deviation / static_cast<double>(values.size()));
  }
};

TEST(CheckpointWriterTest, TinyHasTheSpecifiedTensorsAndBytes) {
  const std::string folder = TestFolder("tiny");
  ASSERT_TRUE(WriteCheckpoint("v32-tiny", 1, folder).ok());
  const Tensors tensors(folder);
  EXPECT_EQ(tensors.by_name.size(), 536u);
  EXPECT_EQ(tensors.num_bytes, 25'061'800u);
  auto config = model::LoadModelConfig(folder);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->num_layers(), 5);
  EXPECT_EQ(config->index_topk, 64);
  EXPECT_EQ(config->sampling.top_p, 0.95f);
}

TEST(CheckpointWriterTest, MicroHasTheSpecifiedTensorsAndPinnedBytes) {
  const std::string folder = TestFolder("micro");
  ASSERT_TRUE(WriteCheckpoint("v32-micro", 1, folder).ok());
  const Tensors tensors(folder);
  EXPECT_EQ(tensors.by_name.size(), 190u);
  EXPECT_EQ(tensors.num_bytes, 4'695'212u);
  // Golden tensors are made from these bytes: a change here makes every one of them stale.
  const std::map<std::string, std::string> files = ReadFolder(folder);
  EXPECT_EQ(files.size(), 7u);
  EXPECT_EQ(Sha256(files.at("model-00001-of-000002.safetensors")),
            "ae2a1ffa3d212f53e9601f19e4c9007db8e3855319853cbab29532d778123e9d");
  EXPECT_EQ(Sha256(files.at("model-00002-of-000002.safetensors")),
            "4653ace797c98bd3dcd44ac921b56d34b9d223c491f8eef5678cdac3efa26af9");
}

TEST(CheckpointWriterTest, TheCalmModelDiffersInTheScalesOfWhatLayersAddAndInNothingElse) {
  const std::string tiny = TestFolder("tiny_again"), calm = TestFolder("calm");
  ASSERT_TRUE(WriteCheckpoint("v32-tiny", 1, tiny).ok());
  ASSERT_TRUE(WriteCheckpoint("v32-tiny-calm", 1, calm).ok());
  const Tensors a(tiny), b(calm);
  ASSERT_EQ(a.by_name.size(), b.by_name.size());
  int num_scaled = 0;
  for (const auto& [name, tensor] : a.by_name) {
    if (!absl::EndsWith(name, "o_proj.weight_scale_inv") && !absl::EndsWith(name, "down_proj.weight_scale_inv")) {
      EXPECT_EQ(tensor->bytes, b.by_name.at(name)->bytes) << name;
      continue;
    }
    const std::vector<float> scales = a.Values(name), calm_scales = b.Values(name);
    for (size_t i = 0; i < scales.size(); ++i) EXPECT_EQ(calm_scales[i], scales[i] / 32) << name;
    ++num_scaled;
  }
  EXPECT_EQ(num_scaled, 5 + 1 + 4 * 17) << "o_proj of five layers, one dense MLP, 16 experts and a shared one in four";
}

TEST(CheckpointWriterTest, WritesTheSameBytesAgainAndOtherBytesForAnotherSeed) {
  ASSERT_TRUE(WriteCheckpoint("v32-micro", 3, TestFolder("first")).ok());
  const std::string first = absl::StrCat(::testing::TempDir(), "/checkpoint_writer_test/first");
  const std::string second = TestFolder("second");
  ASSERT_TRUE(WriteCheckpoint("v32-micro", 3, second).ok());
  EXPECT_EQ(ReadFolder(first), ReadFolder(second));
  const std::string other = TestFolder("other");
  ASSERT_TRUE(WriteCheckpoint("v32-micro", 4, other).ok());
  EXPECT_NE(ReadFolder(first).at("model-00001-of-000002.safetensors"),
            ReadFolder(other).at("model-00001-of-000002.safetensors"));
}

TEST(CheckpointWriterTest, ShardsDoNotChangeTensors) {
  const std::string one = TestFolder("one"), five = TestFolder("five");
  ASSERT_TRUE(WriteCheckpoint({.config_name = "v32-micro", .seed = 3, .folder = one, .num_shards = 1}).ok());
  ASSERT_TRUE(WriteCheckpoint({.config_name = "v32-micro", .seed = 3, .folder = five, .num_shards = 5}).ok());
  const Tensors a(one), b(five);
  EXPECT_EQ(a.files.size(), 1u);
  EXPECT_EQ(b.files.size(), 5u);
  ASSERT_EQ(a.by_name.size(), b.by_name.size());
  for (const auto& [name, tensor] : a.by_name) EXPECT_EQ(tensor->bytes, b.by_name.at(name)->bytes) << name;
}

TEST(CheckpointWriterTest, DrawsTheSpecifiedDistributions) {
  const std::string folder = TestFolder("distributions");
  ASSERT_TRUE(WriteCheckpoint("v32-micro", 5, folder).ok());
  const Tensors tensors(folder);
  struct Case {
    const char* name;
    double mean, deviation;
  };
  const double hidden = 1 / std::sqrt(128.0);
  for (const Case& c : {Case{"model.embed_tokens.weight", 0, 1}, Case{"lm_head.weight", 0, 4 * hidden},
                        Case{"model.layers.1.mlp.gate.weight", 0, 2 * hidden},
                        Case{"model.layers.0.self_attn.indexer.weights_proj.weight", 0, hidden},
                        Case{"model.layers.2.eh_proj.weight", 0, 1 / 16.0}, Case{"model.norm.weight", 1, 0.1},
                        Case{"model.layers.0.self_attn.kv_a_layernorm.weight", 1, 0.1},
                        Case{"model.layers.0.self_attn.indexer.k_norm.weight", 1, 0.1},
                        Case{"model.layers.0.self_attn.indexer.k_norm.bias", 0, 0.1}}) {
    const std::vector<float> values = tensors.Values(c.name);
    const Moments moments(values);
    const double error = 5 * c.deviation / std::sqrt(static_cast<double>(values.size()));
    EXPECT_NEAR(moments.mean, c.mean, error) << c.name;
    EXPECT_NEAR(moments.deviation, c.deviation, error) << c.name;
  }
  for (float bias : tensors.Values("model.layers.1.mlp.gate.e_score_correction_bias")) {
    EXPECT_LT(std::fabs(bias), 0.2f);
  }
  EXPECT_EQ(tensors.by_name.at("model.layers.2.embed_tokens.weight")->bytes,
            tensors.by_name.at("model.embed_tokens.weight")->bytes);
  EXPECT_EQ(tensors.by_name.at("model.layers.2.shared_head.head.weight")->bytes,
            tensors.by_name.at("lm_head.weight")->bytes);
}

TEST(CheckpointWriterTest, QuantisesLinearsWithTheSmallestPowerOfTwoThatFits) {
  const std::string folder = TestFolder("quantised");
  ASSERT_TRUE(WriteCheckpoint("v32-micro", 5, folder).ok());
  const Tensors tensors(folder);
  // 576 rows: the last block of rows is 64 high.
  const std::string name = "model.layers.0.self_attn.kv_a_proj_with_mqa.weight";
  EXPECT_EQ(tensors.by_name.at(name + "_scale_inv")->shape, (std::vector<int64_t>{5, 1}));
  const std::vector<float> codes = tensors.Values(name), scales = tensors.Values(name + "_scale_inv");
  std::vector<float> weights;
  for (size_t block = 0; block < scales.size(); ++block) {
    EXPECT_TRUE(kernels::IsPowerOfTwo(scales[block]));
    float amax = 0;
    for (size_t i = block * 128 * 128; i < std::min(codes.size(), (block + 1) * 128 * 128); ++i) {
      amax = std::max(amax, std::fabs(codes[i]));
      weights.push_back(codes[i] * scales[block]);
    }
    EXPECT_GE(amax, 224.0f) << "half the scale would have saturated";
    EXPECT_LE(amax, 448.0f);
  }
  EXPECT_NEAR(Moments(weights).deviation, 1 / std::sqrt(128.0), 0.001);
  int num_scaled = 0;
  for (const auto& [tensor_name, tensor] : tensors.by_name) {
    const bool is_fp8 = tensor->dtype == model::DType::kF8E4m3;
    EXPECT_EQ(is_fp8, tensors.by_name.contains(tensor_name + "_scale_inv")) << tensor_name;
    num_scaled += is_fp8;
  }
  EXPECT_GT(num_scaled, 70);
}

TEST(CheckpointWriterTest, RefusesWhatItCannotWriteAndLeavesNothingBehind) {
  const std::string folder = TestFolder("refused");
  EXPECT_EQ(WriteCheckpoint("v32-huge", 1, folder).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(WriteCheckpoint({.config_name = "v32-micro", .seed = 1, .folder = folder, .num_shards = 0}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(fs::exists(folder));
  fs::create_directories(folder);
  std::ofstream(folder + "/somebody's") << "file";
  EXPECT_EQ(WriteCheckpoint("v32-micro", 1, folder).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(ReadFolder(folder).size(), 1u);
  EXPECT_EQ(WriteCheckpoint("v32-micro", 1, "/proc/nowhere/x").code(), absl::StatusCode::kUnavailable);
}

TEST(CheckpointWriterTest, ReplacesWhatAnInterruptedRunLeft) {
  const std::string folder = TestFolder("resumed");
  fs::create_directories(folder + ".tmp");
  std::ofstream(folder + ".tmp/half.safetensors") << "half";
  ASSERT_TRUE(WriteCheckpoint("v32-micro", 1, folder).ok());
  EXPECT_FALSE(fs::exists(folder + ".tmp"));
  EXPECT_FALSE(ReadFolder(folder).contains("half.safetensors"));
}

}  // namespace
}  // namespace tandem::make_checkpoint
