// What is read of a checkpoint, and that every fault names its file and key.
#include "router/checkpoint_facts.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace tandem::router {
namespace {

constexpr char kConfig[] =
    R"({"vocab_size":129280,"max_position_embeddings":163840,"bos_token_id":0,"eos_token_id":1,"other":[1]})";

TEST(CheckpointFactsTest, ReadsTheReleasesFiles) {
  const CheckpointFacts facts =
      ParseCheckpointFacts(kConfig, R"({"do_sample":true,"temperature":0.6,"top_p":0.95,"eos_token_id":1})").value();
  EXPECT_EQ(facts.vocab_size, 129280);
  EXPECT_EQ(facts.context_length, 163840);
  EXPECT_EQ(facts.bos_token_id, 0u);
  EXPECT_EQ(facts.eos_token_ids, std::vector<uint32_t>{1});
  EXPECT_EQ(facts.sampling.temperature, 0.6);
  EXPECT_EQ(facts.sampling.top_p, 0.95);
  EXPECT_EQ(facts.sampling.top_k, 0);
}

TEST(CheckpointFactsTest, BeginningOfSentenceMayBeAbsent) {
  EXPECT_EQ(ParseCheckpointFacts(R"({"vocab_size":8,"max_position_embeddings":8,"eos_token_id":1})", "")->bos_token_id,
            std::nullopt);
}

TEST(CheckpointFactsTest, WithoutGenerationConfigDefaultsAreNeutral) {
  const CheckpointFacts facts = ParseCheckpointFacts(kConfig, "").value();
  EXPECT_EQ(facts.sampling.temperature, 1);
  EXPECT_EQ(facts.sampling.top_p, 1);
}

TEST(CheckpointFactsTest, GenerationConfigMayNameSeveralEnds) {
  EXPECT_EQ(ParseCheckpointFacts(kConfig, R"({"eos_token_id":[1,7]})")->eos_token_ids, (std::vector<uint32_t>{1, 7}));
}

TEST(CheckpointFactsTest, NoSamplingMeansArgmax) {
  EXPECT_EQ(ParseCheckpointFacts(kConfig, R"({"do_sample":false,"temperature":0.6})")->sampling.temperature, 0);
}

TEST(CheckpointFactsTest, FaultsNameFileAndKey) {
  const struct {
    const char* config;
    const char* generation;
    const char* message;
  } kCases[] = {
      {"{", "", "config.json: not JSON"},
      {"[]", "", "config.json: not a JSON object"},
      {R"({"max_position_embeddings":8,"eos_token_id":1})", "", "config.json: vocab_size is missing"},
      {R"({"vocab_size":-1,"max_position_embeddings":8})", "", "config.json: vocab_size is -1"},
      {R"({"vocab_size":8,"max_position_embeddings":8})", "", "config.json: eos_token_id is missing"},
      {R"({"vocab_size":8,"max_position_embeddings":8,"eos_token_id":8})", "", "eos_token_id is 8"},
      {R"({"vocab_size":8,"max_position_embeddings":8,"eos_token_id":1,"bos_token_id":8})", "", "bos_token_id is 8"},
      {kConfig, R"({"eos_token_id":"x"})", "generation_config.json: eos_token_id"},
      {kConfig, R"({"temperature":-1})", "generation_config.json: temperature is -1"},
      {kConfig, R"({"top_p":0})", "generation_config.json: top_p is 0"},
      {kConfig, R"({"top_p":"x"})", "generation_config.json: top_p is \"x\""},
  };
  for (const auto& test_case : kCases) {
    const auto facts = ParseCheckpointFacts(test_case.config, test_case.generation);
    ASSERT_FALSE(facts.ok()) << test_case.config;
    EXPECT_NE(facts.status().message().find(test_case.message), absl::string_view::npos) << facts.status();
  }
}

TEST(CheckpointFactsTest, MissingFolderIsNamed) {
  const auto facts = LoadCheckpointFacts("/nowhere/at/all");
  EXPECT_EQ(facts.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(facts.status().message().find("/nowhere/at/all/config.json"), absl::string_view::npos) << facts.status();
}

TEST(CheckpointFactsTest, LoadsAFolderWithoutGenerationConfig) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "checkpoint_facts_test";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << kConfig;
  EXPECT_EQ(LoadCheckpointFacts(folder.string())->vocab_size, 129280);
}

}  // namespace
}  // namespace tandem::router
