// Proves that the defaults are valid and printable, and that contradictions between fields are named.
#include "prefill_worker/config.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::prefill {
namespace {

using ::testing::HasSubstr;

TEST(PrefillConfigTest, DefaultsAreValidAndReadThemselvesBack) {
  PrefillConfig config, read_back;
  EXPECT_TRUE(Validate(config).ok());
  base::ConfigSchema schema("prefill_worker"), other("prefill_worker");
  AddFields(schema, config);
  AddFields(other, read_back);
  read_back.max_running_requests = 1;
  ASSERT_TRUE(other.Apply(schema.Print(), "printed.yaml", {}).ok());
  EXPECT_EQ(read_back.max_running_requests, config.max_running_requests);
  EXPECT_EQ(other.Print(), schema.Print());
}

TEST(PrefillConfigTest, NamesAnUnknownLane) {
  PrefillConfig config;
  config.lanes = {"ucx_shm", "carrier_pigeon"};
  EXPECT_THAT(Validate(config).message(), HasSubstr("carrier_pigeon"));
  config.lanes = {};
  EXPECT_FALSE(Validate(config).ok());
}

TEST(PrefillConfigTest, APrefixCacheHoldsAPageOrAll) {
  PrefillConfig config;
  config.prefix_cache_tokens_max = 63;
  EXPECT_THAT(Validate(config).message(), HasSubstr("process.prefix_cache_tokens_max 63: less than a page"));
  config.prefix_cache_tokens_max = 64;
  EXPECT_TRUE(Validate(config).ok());
}

TEST(PrefillConfigTest, SilenceIsLongerThanTwoHeartbeats) {
  PrefillConfig config;
  config.heartbeat_interval = absl::Milliseconds(400);
  EXPECT_THAT(Validate(config).message(), HasSubstr("peer_silence_max"));
}

TEST(PrefillConfigTest, OnlyWhatOthersCanConnectToMayBeAdvertised) {
  PrefillConfig config;
  for (const char* bad : {"0.0.0.0", "::", "", "[::1]", "10.0.0.7:8998"}) {
    config.advertise_host = bad;
    EXPECT_EQ(Validate(config).code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(std::string(Validate(config).message()), HasSubstr("process.advertise_host")) << bad;
  }
  for (const char* good : {"prefill-0.prefill", "localhost", "10.0.0.7", "2001:db8::1", "::1", "fe80::1%lo"}) {
    config.advertise_host = good;
    EXPECT_TRUE(Validate(config).ok()) << good << " " << Validate(config);
  }
}

TEST(PrefillConfigTest, PortsOfOneProcessDiffer) {
  PrefillConfig config;
  config.bootstrap_port = config.rpc_port;
  EXPECT_EQ(Validate(config).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(Validate(config).message()), HasSubstr("process.rpc_port and process.bootstrap_port"));
  config.bootstrap_port = config.admin_port;
  EXPECT_THAT(std::string(Validate(config).message()), HasSubstr("process.bootstrap_port and process.admin_port"));
  config.rpc_port = config.bootstrap_port = config.admin_port = 0;
  EXPECT_TRUE(Validate(config).ok()) << Validate(config);
}

TEST(PrefillConfigTest, LayoutsOfRanksThatCannotWorkAreRefusedNamingTheField) {
  const auto refusal = [](void (*change)(PrefillConfig&)) {
    PrefillConfig config;
    config.context_parallel_size = 4;
    EXPECT_TRUE(Validate(config).ok()) << Validate(config);
    change(config);
    EXPECT_EQ(Validate(config).code(), absl::StatusCode::kInvalidArgument);
    return std::string(Validate(config).message());
  };
  EXPECT_THAT(refusal([](PrefillConfig& c) { c.context_parallel_strategy = "zigzag"; }),
              HasSubstr("process.context_parallel_strategy zigzag is not served"));
  EXPECT_THAT(refusal([](PrefillConfig& c) { c.context_parallel_strategy = "round"; }),
              HasSubstr("process.context_parallel_strategy is \"round\", allowed interleave"));
  EXPECT_THAT(refusal([](PrefillConfig& c) { c.device = "cuda:0"; }),
              HasSubstr("process.context_parallel_size 4 with process.device cuda:0"));
  EXPECT_THAT(refusal([](PrefillConfig& c) { c.num_threads = 3; }),
              HasSubstr("process.num_threads 3 is less than process.context_parallel_size 4"));
  EXPECT_THAT(refusal([](PrefillConfig& c) { c.data_parallel_size = 2; }),
              HasSubstr("process.context_parallel_size 4 with process.data_parallel_size 2"));
  EXPECT_THAT(refusal([](PrefillConfig& c) { c.pipeline_parallel_size = 2; }),
              HasSubstr("process.context_parallel_size 4 with process.pipeline_parallel_size 2"));
  EXPECT_THAT(refusal([](PrefillConfig& c) {
                c.context_parallel_size = 1;
                c.pipeline_parallel_size = c.expert_parallel_size = 2;
              }),
              HasSubstr("process.expert_parallel_size 2 with process.pipeline_parallel_size 2"));
  EXPECT_THAT(refusal([](PrefillConfig& c) { c.tensor_parallel_size = 2; }),
              HasSubstr("process.context_parallel_size 4 with process.tensor_parallel_size 2"));
  EXPECT_THAT(refusal([](PrefillConfig& c) { c.expert_parallel_size = 2; }),
              HasSubstr("process.expert_parallel_size 2 is neither 1 nor the worker's number of ranks, 4"));
  EXPECT_THAT(refusal([](PrefillConfig& c) { c.chunked_prefill_size = 3; }),
              HasSubstr("process.chunked_prefill_size 3 is less than process.context_parallel_size 4"));
}

TEST(PrefillConfigTest, RangesAreRefusedWithTheirPlace) {
  PrefillConfig config;
  base::ConfigSchema schema("prefill_worker");
  AddFields(schema, config);
  const absl::Status status = schema.Apply("process:\n  rpc_port: 70000\n", "prefill.yaml", {});
  EXPECT_THAT(status.message(), HasSubstr("prefill.yaml:2"));
  EXPECT_FALSE(schema.Apply("cluster:\n  page_size: 32\n", "prefill.yaml", {}).ok());
  EXPECT_FALSE(schema.Apply("process:\n  context_parallel_size: 0\n", "prefill.yaml", {}).ok());
  EXPECT_FALSE(schema.Apply("process:\n  context_parallel_kv: lost\n", "prefill.yaml", {}).ok());
}

}  // namespace
}  // namespace tandem::prefill
