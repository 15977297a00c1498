// Proves that the defaults are valid and printable, and that contradictions between fields are named.
#include "decode_worker/config.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::decode {
namespace {

using ::testing::HasSubstr;

TEST(DecodeConfigTest, DefaultsAreValidAndReadThemselvesBack) {
  DecodeConfig config, read_back;
  EXPECT_TRUE(Validate(config).ok());
  base::ConfigSchema schema("decode_worker"), other("decode_worker");
  AddFields(schema, config);
  AddFields(other, read_back);
  read_back.max_running_requests = 1;
  ASSERT_TRUE(other.Apply(schema.Print(), "printed.yaml", {}).ok());
  EXPECT_EQ(read_back.max_running_requests, config.max_running_requests);
  EXPECT_EQ(other.Print(), schema.Print());
}

TEST(DecodeConfigTest, NamesAnUnknownLane) {
  DecodeConfig config;
  config.lanes = {"ucx_shm", "carrier_pigeon"};
  EXPECT_THAT(Validate(config).message(), HasSubstr("carrier_pigeon"));
  config.lanes = {};
  EXPECT_FALSE(Validate(config).ok());
}

TEST(DecodeConfigTest, NamesWhatIsWrongWithAFaultSpec) {
  DecodeConfig config;
  config.fault_lane = "seed=7,corrupt=0.001,at=12:stall";
  EXPECT_TRUE(Validate(config).ok());
  config.fault_lane = "corrupt=2";
  EXPECT_THAT(Validate(config).message(), HasSubstr("process.fault_lane: fault spec: corrupt=2"));
}

TEST(DecodeConfigTest, GeneratedTokensAreKeptInAPrefixCacheOrNot) {
  DecodeConfig config;
  config.prefix_cache_generated_tokens = true;
  EXPECT_TRUE(Validate(config).ok());
  config.prefix_cache = false;
  EXPECT_EQ(Validate(config).message(),
            "process.prefix_cache_generated_tokens with process.prefix_cache: false, which keeps no pages");
}

TEST(DecodeConfigTest, AWindowHasOneRowMoreThanDrafts) {
  DecodeConfig config;
  EXPECT_TRUE(Validate(config).ok()) << "off";
  config.cluster.speculative.num_steps = 3;
  EXPECT_TRUE(Validate(config).ok());
  config.cluster.speculative.num_draft_tokens = 4;
  EXPECT_TRUE(Validate(config).ok());
  config.cluster.speculative.num_draft_tokens = 3;
  EXPECT_EQ(Validate(config).message(), "cluster.speculative.num_draft_tokens is 3, must be num_steps + 1 = 4");
  config.cluster.speculative.num_steps = 0;
  EXPECT_EQ(Validate(config).message(), "cluster.speculative.num_draft_tokens is 3, must be 0 where num_steps is 0");
  base::ConfigSchema schema("decode_worker");
  AddFields(schema, config);
  EXPECT_THAT(schema.Apply("cluster:\n  speculative:\n    topk: 2\n", "decode.yaml", {}).message(),
              HasSubstr("cluster.speculative.topk"));
}

TEST(DecodeConfigTest, SilenceIsLongerThanTwoHeartbeats) {
  DecodeConfig config;
  config.heartbeat_interval = absl::Milliseconds(400);
  EXPECT_THAT(Validate(config).message(), HasSubstr("peer_silence_max"));
}

TEST(DecodeConfigTest, MemorySaysHowManyRunUnlessANumberIsSet) {
  DecodeConfig config;
  EXPECT_EQ(config.max_running_requests, 0);
  base::ConfigSchema schema("decode_worker");
  AddFields(schema, config);
  EXPECT_TRUE(schema.Apply("process:\n  max_running_requests: 7\n", "decode.yaml", {}).ok());
  EXPECT_EQ(config.max_running_requests, 7);
  EXPECT_THAT(schema.Apply("process:\n  max_running_requests: 4097\n", "decode.yaml", {}).message(),
              HasSubstr("process.max_running_requests"));
}

TEST(DecodeConfigTest, RetractionToTheHostHasASwitchAndASize) {
  DecodeConfig config;
  EXPECT_EQ(config.retraction_host_tokens, 16384);
  base::ConfigSchema schema("decode_worker");
  AddFields(schema, config);
  EXPECT_TRUE(schema.Apply("process:\n  retraction_host_tokens: 0\n", "decode.yaml", {}).ok());
  EXPECT_EQ(config.retraction_host_tokens, 0);
  EXPECT_THAT(schema.Apply("process:\n  retraction_host_tokens: -1\n", "decode.yaml", {}).message(),
              HasSubstr("process.retraction_host_tokens"));
}

TEST(DecodeConfigTest, PortsOfOneProcessDiffer) {
  DecodeConfig config;
  config.admin_port = config.rpc_port;
  EXPECT_EQ(Validate(config).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(Validate(config).message()), HasSubstr("process.rpc_port and process.admin_port"));
}

TEST(DecodeConfigTest, RangesAreRefusedWithTheirPlace) {
  DecodeConfig config;
  base::ConfigSchema schema("decode_worker");
  AddFields(schema, config);
  const absl::Status status = schema.Apply("process:\n  rpc_port: 70000\n", "decode.yaml", {});
  EXPECT_THAT(status.message(), HasSubstr("decode.yaml:2"));
  EXPECT_FALSE(schema.Apply("cluster:\n  page_size: 32\n", "decode.yaml", {}).ok());
}

}  // namespace
}  // namespace tandem::decode
