// Proves that config.json is read as the specification lists it (its three rope spellings, its quantisation block),
// that 4-bit formats are refused by name, and that each bad field is refused with field, value and limit.
// The real files of ../shared are read where they are at hand; without them those tests skip.
#include "model/model_config.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"

namespace tandem::model {
namespace {

// The configuration of the specification's section 1.1, with unknown keys among it.
constexpr char kV32[] = R"({
  "architectures": ["DeepseekV32ForCausalLM"], "model_type": "deepseek_v32", "vocab_size": 129280,
  "hidden_size": 7168, "num_hidden_layers": 61, "num_nextn_predict_layers": 1, "first_k_dense_replace": 3,
  "moe_layer_freq": 1, "intermediate_size": 18432, "moe_intermediate_size": 2048, "n_routed_experts": 256,
  "n_shared_experts": 1, "num_experts_per_tok": 8, "n_group": 8, "topk_group": 4, "topk_method": "noaux_tc",
  "scoring_func": "sigmoid", "norm_topk_prob": true, "routed_scaling_factor": 2.5, "num_attention_heads": 128,
  "num_key_value_heads": 128, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
  "qk_rope_head_dim": 64, "v_head_dim": 128, "index_n_heads": 64, "index_head_dim": 128, "index_topk": 2048,
  "rms_norm_eps": 1e-06, "rope_theta": 10000, "max_position_embeddings": 163840, "hidden_act": "silu",
  "tie_word_embeddings": false, "bos_token_id": 0, "eos_token_id": 1, "a_key_of_the_future": {"x": [1, 2]},
  "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "beta_fast": 32,
                   "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0},
  "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                          "weight_block_size": [128, 128], "scale_fmt": "ue8m0"}
})";

std::string Edited(const std::string& from, const std::string& to) {
  std::string text = absl::StrReplaceAll(kV32, {{from, to}});
  EXPECT_NE(text, kV32) << "the edit must hit: " << from;
  return text;
}

absl::Status ParseStatus(const std::string& text) { return ParseModelConfig(text, "config.json").status(); }

TEST(ModelConfigTest, ReadsEveryField) {
  auto config = ParseModelConfig(kV32, "config.json");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->vocab_size, 129280);
  EXPECT_EQ(config->num_layers(), 62);
  EXPECT_FALSE(config->IsMoeLayer(2));
  EXPECT_TRUE(config->IsMoeLayer(3));
  EXPECT_TRUE(config->IsMoeLayer(61));
  EXPECT_EQ(config->qk_head_dim(), 192);
  EXPECT_EQ(config->n_group, 8);
  EXPECT_EQ(config->topk_group, 4);
  EXPECT_EQ(config->routed_scaling_factor, 2.5f);
  EXPECT_EQ(config->index_topk, 2048);
  EXPECT_EQ(config->rms_norm_eps, 1e-6f);
  EXPECT_EQ(config->yarn.factor, 40);
  EXPECT_EQ(config->yarn.original_max_position, 4096);
  EXPECT_EQ(config->mscale_all_dim, 1);
  EXPECT_TRUE(config->has_fp8_weights);
  EXPECT_EQ(config->scale_format, kernels::ScaleFormat::kUe8m0);
  EXPECT_EQ(config->eos_token_ids, std::vector<int>{1});
}

TEST(ModelConfigTest, ReadsTheThreeSpellingsOfRopeScalingAlike) {
  const std::string expected = ParseModelConfig(kV32, "config.json")->CanonicalText();
  const std::string with_rope_type = Edited(R"("type": "yarn")", R"("rope_type": "yarn")");
  const std::string with_rope_parameters = absl::StrReplaceAll(
      kV32,
      {{R"("rope_theta": 10000, )", ""},
       {R"("rope_scaling": {"type": "yarn",)", R"("rope_parameters": {"rope_type": "yarn", "rope_theta": 10000,)"}});
  for (const std::string& text : {with_rope_type, with_rope_parameters}) {
    auto config = ParseModelConfig(text, "config.json");
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(config->CanonicalText(), expected);
  }
}

TEST(ModelConfigTest, TakesPlainRopeWhereThereIsNoScaling) {
  auto config = ParseModelConfig(
      Edited(R"("rope_scaling": {"type": "yarn", "factor": 40,)", R"("rope_scaling": null, "unused": {"factor": 40,)"),
      "config.json");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->yarn.factor, 1);
}

TEST(ModelConfigTest, TakesFloat32ScalesWhereScaleFmtIsAbsentAndBf16WhereNothingIsQuantised) {
  auto config = ParseModelConfig(Edited(R"(, "scale_fmt": "ue8m0")", ""), "config.json");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->scale_format, kernels::ScaleFormat::kFloat32);
  config = ParseModelConfig(Edited(R"("quantization_config")", R"("ignored")"), "config.json");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_FALSE(config->has_fp8_weights);
}

TEST(ModelConfigTest, RefusesOtherModels) {
  for (const std::string& text :
       {Edited("deepseek_v32", "deepseek_v3"), Edited("deepseek_v32", "llama"), std::string("{}")}) {
    absl::Status status = ParseStatus(text);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("not a DeepSeek-V3.2 model"), std::string::npos) << status;
  }
}

TEST(ModelConfigTest, RefusesFourBitFormatsByName) {
  const std::string fp8 = R"({"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                          "weight_block_size": [128, 128], "scale_fmt": "ue8m0"})";
  const std::pair<std::string, std::string> cases[] = {
      {R"({"quant_method": "modelopt", "quant_algo": "NVFP4"})", "ModelOpt NVFP4"},
      {R"({"quant_method": "modelopt", "quantization": {"quant_algo": "NVFP4"}})", "ModelOpt NVFP4"},
      {R"({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"})",
       "compressed-tensors nvfp4-pack-quantized"},
      {R"({"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized"})",
       "compressed-tensors mxfp4-pack-quantized"},
      {R"({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4", "group_size": 32}}})",
       "quark MXFP4"},
      {R"({"quant_method": "awq"})", "quant_method 'awq'"},
  };
  for (const auto& [block, name] : cases) {
    absl::Status status = ParseStatus(Edited(fp8, block));
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
    EXPECT_NE(status.message().find(absl::StrCat("checkpoint format ", name, " is not served")), std::string::npos)
        << status;
    EXPECT_EQ(status.message().find('\n'), std::string::npos) << status;
  }
  absl::Status status = CheckHfQuantConfig(R"({"quantization": {"quant_algo": "NVFP4"}})", "hf_quant_config.json");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(status.message().find("hf_quant_config.json: checkpoint format ModelOpt NVFP4"), std::string::npos);
}

TEST(ModelConfigTest, RefusesBadFieldsWithFieldValueAndLimit) {
  struct Case {
    const char* from;
    const char* to;
    const char* message;
  };
  const Case cases[] = {
      {R"("vocab_size": 129280)", R"("vocab_size": 0)", "config.json: vocab_size is 0, allowed 1 to 4194304"},
      {R"("vocab_size": 129280)", R"("vocab_size": "x")", "vocab_size is not an integer"},
      {R"("vocab_size": 129280)", R"("vocab_size": 1.5)", "vocab_size is not an integer"},
      {R"("hidden_size": 7168,)", "", "hidden_size is missing"},
      {R"("hidden_size": 7168)", R"("hidden_size": 7169)", "hidden_size is 7169, must be a multiple of 128"},
      {R"("kv_lora_rank": 512)", R"("kv_lora_rank": 256)", "kv_lora_rank is 256, allowed 512 to 512"},
      {R"("index_head_dim": 128)", R"("index_head_dim": 64)", "index_head_dim is 64, allowed 128 to 128"},
      {R"("topk_group": 4)", R"("topk_group": 9)", "topk_group is 9, allowed 1 to 8"},
      {R"("n_group": 8)", R"("n_group": 7)", "n_routed_experts is 256, must be a multiple of 7"},
      {R"("num_experts_per_tok": 8)", R"("num_experts_per_tok": 33, "n_group": 32, "topk_group": 1)",
       "config.json: key 'n_group' appears twice"},
      {R"("first_k_dense_replace": 3)", R"("first_k_dense_replace": 62)", "first_k_dense_replace is 62, allowed 0 to"},
      {R"("scoring_func": "sigmoid")", R"("scoring_func": "softmax")", "scoring_func is 'softmax', only 'sigmoid'"},
      {R"("tie_word_embeddings": false)", R"("tie_word_embeddings": true)", "tie_word_embeddings is true, only false"},
      {R"([128, 128])", R"([64, 128])", "weight_block_size is not [128, 128]"},
      {R"("scale_fmt": "ue8m0")", R"("scale_fmt": "e5m2")", "scale_fmt is 'e5m2', allowed 'ue8m0' or none"},
      {R"("fmt": "e4m3")", R"("fmt": "e5m2")", "fmt is 'e5m2', only 'e4m3'"},
      {R"("type": "yarn")", R"("type": "linear")", "rope_scaling: type is 'linear', only 'yarn'"},
      {R"("factor": 40)", R"("factor": 0.5)", "factor is 0.5, allowed 1 to 1e+06"},
      {R"("mscale": 1.0)", R"("mscale": 0.7)", "mscale is 0.7 and mscale_all_dim 1, only equal values"},
      {R"("eos_token_id": 1)", R"("eos_token_id": 129280)", "eos_token_id is not an id below vocab_size 129280"},
  };
  for (const Case& c : cases) {
    absl::Status status = ParseStatus(Edited(c.from, c.to));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.to;
    EXPECT_NE(status.message().find(c.message), std::string::npos) << c.to << " gave " << status;
  }
}

TEST(ModelConfigTest, RefusesMoreExpertsPerTokenThanTheKeptGroupsHold) {
  absl::Status status =
      ParseStatus(absl::StrReplaceAll(kV32, {{R"("num_experts_per_tok": 8)", R"("num_experts_per_tok": 33)"},
                                             {R"("topk_group": 4)", R"("topk_group": 1)"}}));
  EXPECT_NE(status.message().find("num_experts_per_tok is 33, limit 32"), std::string::npos) << status;
}

TEST(GenerationConfigTest, SetsSamplingDefaultsAndStopTokens) {
  ModelConfig config = *ParseModelConfig(kV32, "config.json");
  EXPECT_EQ(config.sampling, SamplingDefaults{});
  ASSERT_TRUE(ApplyGenerationConfig(R"({"do_sample": true, "temperature": 0.6, "top_p": 0.95,
                                        "eos_token_id": [1, 5], "transformers_version": "4.46.3"})",
                                    "generation_config.json", config)
                  .ok());
  EXPECT_EQ(config.sampling.temperature, 0.6f);
  EXPECT_EQ(config.sampling.top_p, 0.95f);
  EXPECT_EQ(config.eos_token_ids, (std::vector<int>{1, 5}));
  ASSERT_TRUE(ApplyGenerationConfig(R"({"do_sample": false})", "generation_config.json", config).ok());
  EXPECT_EQ(config.sampling.temperature, 0);
  absl::Status status = ApplyGenerationConfig(R"({"top_p": 1.5})", "generation_config.json", config);
  EXPECT_NE(status.message().find("generation_config.json: top_p is 1.5"), std::string::npos) << status;
}

class ConfigFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = absl::StrCat(::testing::TempDir(), "/", ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
  }
  void Write(const std::string& name, const std::string& text) { std::ofstream(folder_ + "/" + name) << text; }
  std::string folder_;
};

TEST_F(ConfigFolderTest, WorksWithoutGenerationConfig) {
  Write("config.json", kV32);
  auto config = LoadModelConfig(folder_);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->sampling, SamplingDefaults{});
}

TEST_F(ConfigFolderTest, NamesTheMissingConfigAndTheBrokenGenerationConfig) {
  EXPECT_EQ(LoadModelConfig(folder_).status().code(), absl::StatusCode::kNotFound);
  Write("config.json", kV32);
  Write("generation_config.json", "{");
  absl::Status status = LoadModelConfig(folder_).status();
  EXPECT_NE(status.message().find("generation_config.json: not JSON"), std::string::npos) << status;
}

// Where the checkout's neighbour ../shared is: $TANDEM_SHARED_DIR, else beside the source tree that the runfiles link
// to.
std::string RealConfig(const std::string& name) {
  const char* shared = std::getenv("TANDEM_SHARED_DIR");
  std::filesystem::path root = shared != nullptr ? std::filesystem::path(shared) : std::filesystem::path();
  if (root.empty()) {
    std::error_code error;
    const std::filesystem::path source = std::filesystem::canonical("model/model_config_test.cc", error);
    if (!error) root = source.parent_path().parent_path().parent_path() / "shared";
  }
  std::ifstream file(root / "data/config" / name);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

TEST_F(ConfigFolderTest, ReadsTheRealConfig) {
  const std::string text = RealConfig("deepseek-v3.2.json");
  if (text.empty()) GTEST_SKIP() << "the real config.json is not at hand (TANDEM_SHARED_DIR)";
  Write("config.json", text);
  auto config = LoadModelConfig(folder_);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->CanonicalText(), ParseModelConfig(kV32, "config.json")->CanonicalText());
}

TEST_F(ConfigFolderTest, RefusesTheRealNvfp4Folder) {
  const std::string text = RealConfig("deepseek-v3.2-nvfp4.json");
  const std::string quant = RealConfig("deepseek-v3.2-nvfp4.hf_quant_config.json");
  if (text.empty() || quant.empty()) GTEST_SKIP() << "the real NVFP4 files are not at hand (TANDEM_SHARED_DIR)";
  Write("config.json", text);
  Write("hf_quant_config.json", quant);
  absl::Status status = LoadModelConfig(folder_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(status.message().find("ModelOpt NVFP4"), std::string::npos) << status;
}

}  // namespace
}  // namespace tandem::model
