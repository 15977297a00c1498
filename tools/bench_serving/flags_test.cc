// Proves that a command line of SGLang's bench_serving is read as it is there, and that nothing is ignored silently.
#include "tools/bench_serving/flags.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tandem::bench_serving {
namespace {

absl::StatusOr<Flags> Parse(const std::vector<const char*>& words) { return ParseFlags(words); }

std::string MessageOf(const std::vector<const char*>& words) { return std::string(Parse(words).status().message()); }

TEST(FlagsTest, ReadsAnOperatorsCommandLine) {
  const auto flags = Parse({"--backend",
                            "sglang-oai-chat",
                            "--dataset-name",
                            "random-ids",
                            "--random-input-len",
                            "4096",
                            "--random-output-len=512",
                            "--random-range-ratio",
                            "0.5",
                            "--num-prompts",
                            "80",
                            "--max-concurrency",
                            "16",
                            "--request-rate",
                            "2.5",
                            "--base-url",
                            "http://10.0.0.1:30000",
                            "--seed",
                            "7",
                            "--output-details",
                            "--header",
                            "a=b",
                            "c=d=e",
                            "--goodput",
                            "ttft:200",
                            "itl:50",
                            "--extra_request_body",
                            R"({"n":1})"});
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_EQ(flags->backend, Backend::kChat);
  EXPECT_EQ(flags->backend_name, "sglang-oai-chat");
  EXPECT_EQ(flags->dataset, Dataset::kRandomIds);
  EXPECT_EQ(flags->random_input_len, 4096);
  EXPECT_EQ(flags->random_output_len, 512);
  EXPECT_EQ(flags->random_range_ratio, 0.5);
  EXPECT_EQ(flags->num_prompts, 80);
  EXPECT_EQ(flags->max_concurrency, 16);
  EXPECT_EQ(flags->request_rate, 2.5);
  EXPECT_EQ(flags->base_url, "http://10.0.0.1:30000");
  EXPECT_EQ(flags->seed, 7u);
  EXPECT_TRUE(flags->output_details);
  const std::vector<std::pair<std::string, std::string>> headers = {{"a", "b"}, {"c", "d=e"}};
  EXPECT_EQ(flags->headers, headers);
  EXPECT_EQ(flags->goodput.ttft, absl::Milliseconds(200));
  EXPECT_EQ(flags->goodput.itl, absl::Milliseconds(50));
  EXPECT_EQ(flags->extra_request_body, R"({"n":1})") << "underscores are dashes";
}

TEST(FlagsTest, DefaultsAreAnUnboundedBurstAtGenerate) {
  const auto flags = Parse({"--dataset-name", "random-ids"});
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_EQ(flags->backend, Backend::kGenerate);
  EXPECT_TRUE(std::isinf(flags->request_rate));
  EXPECT_EQ(flags->max_concurrency, 0);
  EXPECT_EQ(flags->num_prompts, 1000);
  EXPECT_EQ(flags->warmup_requests, 1);
  EXPECT_FALSE(flags->goodput.any());
  EXPECT_TRUE(Parse({"--dataset-name", "random-ids", "--request-rate", "inf"}).ok());
}

TEST(FlagsTest, RefusesByNameWhatItDoesNotOffer) {
  EXPECT_EQ(MessageOf({"--profile"}), "--profile is not offered; --help lists what is");
  EXPECT_EQ(MessageOf({"random-ids"}), "\"random-ids\" is no flag: they begin with --");
  EXPECT_EQ(MessageOf({"--seed"}), "--seed takes a value");
  EXPECT_EQ(MessageOf({"--output-details=yes"}), "--output-details takes no value");
}

TEST(FlagsTest, RefusesValuesOutOfRangeNamingTheFlag) {
  const std::vector<std::vector<const char*>> cases = {{"--num-prompts", "0"},
                                                       {"--num-prompts", "many"},
                                                       {"--random-range-ratio", "1.5"},
                                                       {"--request-rate", "0"},
                                                       {"--request-rate", "-1"},
                                                       {"--request-rate", "nan"},
                                                       {"--temperature", "3"},
                                                       {"--backend", "gserver"},
                                                       {"--dataset-name", "mmmu"},
                                                       {"--extra-request-body", "[1]"},
                                                       {"--header", "novalue"},
                                                       {"--header", "a=b\r\nx: y"},
                                                       {"--goodput", "ttft"},
                                                       {"--goodput"},
                                                       {"--seed", "-1"},
                                                       {"--request-timeout", "inf"},
                                                       {"--max-concurrency", "0"},
                                                       {"--extra-request-body", "{"}};
  for (const auto& words : cases) {
    const absl::StatusOr<Flags> flags = Parse(words);
    ASSERT_FALSE(flags.ok()) << words[0] << " " << (words.size() > 1 ? words[1] : "");
    EXPECT_EQ(std::string(flags.status().message()).find(words[0]), 0u) << flags.status();
  }
}

TEST(FlagsTest, RefusesCombinationsThatCannotBe) {
  EXPECT_NE(MessageOf({}).find("--dataset-path"), std::string::npos) << "sharegpt is the default and is not downloaded";
  EXPECT_TRUE(Parse({"--dataset-name", "random"}).ok()) << "words will do where there is no file";
  EXPECT_FALSE(Parse({"--dataset-name", "openai", "--dataset-path", "x"}).ok()) << "messages need a chat backend";
  EXPECT_FALSE(Parse({"--dataset-name", "random-ids", "--tokenize-prompt", "--backend", "vllm-chat"}).ok());
  EXPECT_FALSE(Parse({"--dataset-name", "generated-shared-prefix", "--tokenize-prompt"}).ok());
  EXPECT_FALSE(Parse({"--dataset-name", "random-ids", "--disable-stream", "--goodput", "itl:5"}).ok());
  EXPECT_TRUE(Parse({"--help"}).ok()) << "help needs nothing else";
}

}  // namespace
}  // namespace tandem::bench_serving
