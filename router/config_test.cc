// The schema's YAML, and what it cannot check alone.
#include "router/config.h"

#include "gtest/gtest.h"

namespace tandem::router {
namespace {

TEST(RouterConfigTest, ReadsAFileOfEveryKind) {
  RouterConfig config;
  base::ConfigSchema schema("router");
  DefineRouterConfig(schema, &config);
  const absl::Status status = schema.Apply(
      "cluster:\n  model_path: /m/tiny\nprocess:\n  port: 0\n  prefill_workers: [127.0.0.1:9001]\n"
      "  decode_workers: [127.0.0.1:9002]\n  request_timeout: 10s\n  http:\n    idle_timeout: 5s\n",
      "router.yaml", {"process.num_shards=2"});
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(CheckRouterConfig(config).ok());
  EXPECT_EQ(config.model_path, "/m/tiny");
  EXPECT_EQ(config.port, 0);
  EXPECT_EQ(config.num_shards, 2);
  EXPECT_EQ(config.prefill_workers, std::vector<std::string>{"127.0.0.1:9001"});
  EXPECT_EQ(config.request_time_max, absl::Seconds(10));
  EXPECT_EQ(config.idle_max, absl::Seconds(5));
}

TEST(RouterConfigTest, TheClusterSectionMayBeTheOneOfTheWorkers) {
  RouterConfig config;
  base::ConfigSchema schema("router");
  DefineRouterConfig(schema, &config);
  EXPECT_TRUE(schema
                  .Apply("cluster:\n  model_path: /m/tiny\n  page_size: 64\n  kv_cache_dtype: bfloat16\n"
                         "  context_length: 4096\n",
                         "cluster.yaml", {})
                  .ok());
  EXPECT_EQ(config.context_length, 4096);
  EXPECT_FALSE(schema.Apply("cluster:\n  pagesize: 64\n", "cluster.yaml", {}).ok()) << "what nobody knows is refused";
}

TEST(RouterConfigTest, PrintedSettingsReadBackToThemselves) {
  RouterConfig config;
  config.model_path = "/m/tiny";
  config.decode_workers = {"[::1]:9002", "10.0.0.1:9002"};
  base::ConfigSchema schema("router");
  DefineRouterConfig(schema, &config);
  const std::string printed = schema.Print();
  RouterConfig again;
  base::ConfigSchema schema_again("router");
  DefineRouterConfig(schema_again, &again);
  ASSERT_TRUE(schema_again.Apply(printed, "printed", {}).ok());
  EXPECT_EQ(schema_again.Print(), printed);
}

TEST(RouterConfigTest, BadAddressesAreNamed) {
  RouterConfig config;
  EXPECT_FALSE(CheckRouterConfig(config).ok()) << "no model_path";
  config.model_path = "/m";
  config.prefill_workers = {"nonsense"};
  EXPECT_NE(CheckRouterConfig(config).message().find("process.prefill_workers"), absl::string_view::npos);
  config.prefill_workers = {"0.0.0.0:1"};
  EXPECT_NE(CheckRouterConfig(config).message().find("cannot be connected to"), absl::string_view::npos);
  config.prefill_workers = {"localhost:1"};
  config.decode_workers = {"127.0.0.1:1"};
  EXPECT_NE(CheckRouterConfig(config).message().find("named twice"), absl::string_view::npos);
}

}  // namespace
}  // namespace tandem::router
