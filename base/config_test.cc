#include "base/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

namespace tandem::base {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

struct Settings {
  int chunk = 512;
  int64_t tokens = 100000;
  double fraction = 0.5;
  bool verbose = false;
  std::string model = "a \"quoted\"\\ name";
  std::string lane = "auto";
  std::vector<std::string> peers = {"x:1", "y:2"};
  absl::Duration grace = absl::Seconds(30);
};

void Declare(ConfigSchema& schema, Settings& s) {
  schema.String("cluster.model", &s.model, "Checkpoint folder.");
  schema.Int("process.prefill.chunk", &s.chunk, {.unit = "tokens", .min = 1, .max = 65536}, "Chunk.");
  schema.Int64("process.prefill.tokens", &s.tokens, {.min = 64}, "Tokens.");
  schema.Double("process.fraction", &s.fraction, {.min = 0, .max = 1}, "Fraction.");
  schema.Bool("process.verbose", &s.verbose, "Verbose.");
  schema.Choice("process.lane", &s.lane, {"auto", "ucx_am"}, "Lane.");
  schema.StringList("process.peers", &s.peers, "Peers.");
  schema.Duration("process.grace", &s.grace, absl::ZeroDuration(), absl::Minutes(10), "Grace.");
}

std::string ErrorOf(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  Settings s;
  ConfigSchema schema("test");
  Declare(schema, s);
  const absl::Status status = schema.Apply(yaml, "f.yaml", overrides);
  return status.ok() ? "" : std::string(status.message());
}

TEST(ConfigTest, ReadsEveryType) {
  Settings s;
  ConfigSchema schema("test");
  Declare(schema, s);
  ASSERT_TRUE(schema
                  .Apply("cluster: {model: m}\n"
                         "process:\n  prefill: {chunk: 64, tokens: 128}\n  fraction: 0.25\n  verbose: true\n"
                         "  lane: ucx_am\n  peers: [a:1]\n  grace: 1500ms\n",
                         "f.yaml", {})
                  .ok());
  EXPECT_EQ(s.model, "m");
  EXPECT_EQ(s.chunk, 64);
  EXPECT_EQ(s.tokens, 128);
  EXPECT_EQ(s.fraction, 0.25);
  EXPECT_TRUE(s.verbose);
  EXPECT_EQ(s.lane, "ucx_am");
  EXPECT_THAT(s.peers, ElementsAre("a:1"));
  EXPECT_EQ(s.grace, absl::Milliseconds(1500));
}

TEST(ConfigTest, OverridesComeLastAndInOrder) {
  Settings s;
  ConfigSchema schema("test");
  Declare(schema, s);
  ASSERT_TRUE(schema
                  .Apply("process: {prefill: {chunk: 64}}", "f.yaml",
                         {"process.prefill.chunk=65", "process.prefill.chunk=66", "cluster.model=a=b: {c",
                          "process.peers=[p:1, q:2]"})
                  .ok());
  EXPECT_EQ(s.chunk, 66);
  EXPECT_EQ(s.model, "a=b: {c");
  EXPECT_THAT(s.peers, ElementsAre("p:1", "q:2"));
}

TEST(ConfigTest, WhatItPrintsReadsBackUnchanged) {
  Settings s;
  ConfigSchema schema("test");
  Declare(schema, s);
  s.fraction = 0.1 + 0.2;
  const std::string printed = schema.Print();
  Settings other;
  other.model = "different";
  ConfigSchema schema2("test");
  Declare(schema2, other);
  ASSERT_TRUE(schema2.Apply(printed, "printed", {}).ok());
  EXPECT_EQ(other.model, s.model);
  EXPECT_EQ(other.fraction, s.fraction);
  EXPECT_EQ(schema2.Print(), printed);
}

TEST(ConfigTest, FaultsNameFileLineKeyAndWhatIsAllowed) {
  EXPECT_EQ(ErrorOf("process:\n  prefill:\n    chunk: 0\n"),
            "f.yaml:3: process.prefill.chunk: \"0\"; integer expected (1 to 65536)");
  EXPECT_THAT(ErrorOf("process:\n  chunck: 1\n"), HasSubstr("f.yaml:2: process.chunck: no such setting"));
  EXPECT_THAT(ErrorOf("process: {prefill: {chunk: many}}"), HasSubstr("integer expected (1 to 65536)"));
  EXPECT_THAT(ErrorOf("process: {prefill: {chunk: 1.5}}"), HasSubstr("integer expected"));
  EXPECT_THAT(ErrorOf("process: {prefill: {chunk: 99999999999999}}"), HasSubstr("integer expected"));
  EXPECT_THAT(ErrorOf("process: {prefill: {chunk: [1]}}"), HasSubstr("a list; integer expected"));
  EXPECT_THAT(ErrorOf("process: {fraction: .nan}"), HasSubstr("number expected (0 to 1)"));
  EXPECT_THAT(ErrorOf("process: {verbose: yes}"), HasSubstr("true or false"));
  EXPECT_THAT(ErrorOf("process: {lane: rdma}"), HasSubstr("one of expected (auto, ucx_am)"));
  EXPECT_THAT(ErrorOf("process: {peers: a:1}"), HasSubstr("list of texts expected"));
  EXPECT_THAT(ErrorOf("process: {grace: 30}"), HasSubstr("duration such as 250ms"));
  EXPECT_THAT(ErrorOf("process: {grace: 11m}"), HasSubstr("0 to 10m"));
  EXPECT_THAT(ErrorOf("process: {grace: }"), HasSubstr("no value"));
  EXPECT_THAT(ErrorOf("process: {verbose: true, verbose: false}"), HasSubstr("set twice"));
  EXPECT_THAT(ErrorOf("process:\n  a: [1\n"), HasSubstr("not YAML"));
  EXPECT_THAT(ErrorOf("- a\n"), HasSubstr("map of sections"));
  EXPECT_THAT(ErrorOf("", {"process.lane"}), HasSubstr("--set section.name=value"));
  EXPECT_THAT(ErrorOf("", {"process.nothing=1"}), HasSubstr("--set process.nothing: no such setting"));
}

TEST(ConfigTest, AllFaultsAreListedAtOnce) {
  const std::string error = ErrorOf("process: {verbose: 1, lane: x}", {"cluster.none=1"});
  EXPECT_THAT(error, HasSubstr("process.verbose"));
  EXPECT_THAT(error, HasSubstr("process.lane"));
  EXPECT_THAT(error, HasSubstr("cluster.none"));
}

TEST(ConfigTest, ClusterFieldsAreWhatBothSidesMustShare) {
  Settings s;
  ConfigSchema schema("test");
  Declare(schema, s);
  s.model = "m";
  EXPECT_THAT(schema.ClusterFields(), ElementsAre(Pair("cluster.model", "\"m\"")));
}

// Both are YAML, and none is a configuration: the first has no end, the second a million settings in six lines.
TEST(ConfigTest, AliasesWithoutEndAreRefusedInWords) {
  Settings s;
  ConfigSchema schema("test");
  Declare(schema, s);
  EXPECT_THAT(std::string(schema.Apply("a: 1\nprocess: &x {prefill: *x}\n", "f.yaml", {}).message()),
              AllOf(HasSubstr("f.yaml:2: process"), HasSubstr("nested more than 8 deep")));
  std::string wide = "a: &a {0: 1, 1: 1, 2: 1, 3: 1, 4: 1, 5: 1, 6: 1, 7: 1, 8: 1, 9: 1}\n";
  for (char name = 'b'; name <= 'f'; ++name) {
    const std::string before = absl::StrCat("*", std::string(1, static_cast<char>(name - 1)));
    absl::StrAppend(&wide, std::string(1, name), ": &", std::string(1, name), " {");
    for (int i = 0; i < 10; ++i) absl::StrAppend(&wide, i, ": ", before, i < 9 ? ", " : "}\n");
  }
  EXPECT_THAT(std::string(schema.Apply(wide, "f.yaml", {}).message()), HasSubstr("more than 10000 settings"));
}

absl::StatusOr<ConfigArgs> Load(Settings& s, std::vector<std::string> args) {
  ConfigSchema schema("test");
  Declare(schema, s);
  args.insert(args.begin(), "test");
  std::vector<char*> argv;
  for (std::string& arg : args) argv.push_back(arg.data());
  return LoadConfig(schema, static_cast<int>(argv.size()), argv.data());
}

TEST(ConfigTest, TheCommandLineReadsAFileThenOverrides) {
  const std::string name = ::testing::TempDir() + "/config_test.yaml";
  std::ofstream(name) << "process: {prefill: {chunk: 7}, verbose: true}\n";
  Settings s;
  const auto args = Load(s, {"--config", name, "--set=process.prefill.chunk=9"});
  ASSERT_TRUE(args.ok()) << args.status();
  EXPECT_FALSE(args->should_exit);
  EXPECT_EQ(s.chunk, 9);
  EXPECT_TRUE(s.verbose);
  EXPECT_TRUE(Load(s, {"--validate_only"})->should_exit);
}

TEST(ConfigTest, TheCommandLineRefusesWhatItDoesNotKnow) {
  Settings s;
  EXPECT_THAT(std::string(Load(s, {"--chunk", "3"}).status().message()), HasSubstr("unknown argument --chunk"));
  EXPECT_THAT(std::string(Load(s, {"--config"}).status().message()), HasSubstr("--config needs a value"));
  EXPECT_EQ(Load(s, {"--config", "/no/such/file"}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(Load(s, {"--config", ::testing::TempDir()}).status().message()), HasSubstr("is a folder"));
}

}  // namespace
}  // namespace tandem::base
