// What tools read of the router, parsed back: SGLang's keys, and the numbers of the cluster's view.
#include "router/server_information.h"

#include <string>

#include "absl/strings/match.h"
#include "boost/json.hpp"
#include "gtest/gtest.h"
#include "router/openai/api_error.h"

namespace tandem::router {
namespace {

namespace json = boost::json;

ModelContext Context() {
  ModelContext context;
  context.model_path = "/models/v32";
  context.served_model_name = "m";
  context.context_length = 100;
  context.facts.vocab_size = 7;
  context.facts.model_type = "deepseek_v32";
  context.facts.architectures = {"DeepseekV32ForCausalLM"};
  return context;
}

ClusterView View() {
  ClusterView view;
  view.prefills.resize(2);
  view.decodes.resize(2);
  view.prefills[0].address.clear();  // a place whose worker has left
  view.prefills[1].address = "p0:1";
  view.prefills[1].instance = "p0";
  view.decodes[0].address = "d0:1";
  view.decodes[1].address = "d1:1";
  view.decodes[0].instance = "d0";
  view.decodes[1].instance = "d1";
  for (DecodeView& decode : view.decodes) {
    decode.is_up = true;
    decode.kv_tokens_capacity = 640;
    decode.load = {
        .running_sequences = 3, .waiting_requests = 2, .waiting_tokens = 50, .kv_pages_free = 4, .kv_pages_total = 10};
  }
  return view;
}

TEST(ServerInformationTest, ModelInfoHasWhatTheEvaluationClientsRead) {
  const json::value body = json::parse(ModelInfoBody(Context()));
  EXPECT_EQ(body.at("model_path").as_string(), "/models/v32");
  EXPECT_EQ(body.at("tokenizer_path").as_string(), "/models/v32");
  EXPECT_TRUE(body.at("is_generation").as_bool());
  EXPECT_EQ(body.at("architectures"), json::parse(R"(["DeepseekV32ForCausalLM"])"));
  EXPECT_EQ(body.at("model_type").as_string(), "deepseek_v32");
  EXPECT_EQ(body.at("max_model_len").as_int64(), 100);
}

TEST(ServerInformationTest, ServerInfoHasOneInternalState) {
  const json::value body = json::parse(ServerInfoBody(Context(), "r0", View(), {.num_in_flight = 5, .num_waiting = 1}));
  ASSERT_EQ(body.at("internal_states").as_array().size(), 1u);
  EXPECT_TRUE(body.at("internal_states").at(0).at("avg_spec_accept_length").is_null());
  EXPECT_EQ(body.at("internal_states").at(0).at("num_running_reqs").as_int64(), 6);
  EXPECT_FALSE(body.as_object().contains("decode")) << "bench_serving would look there for the internal states";
  EXPECT_EQ(body.at("max_total_num_tokens").as_int64(), 1280);
  EXPECT_EQ(body.at("router").at("num_in_flight_reqs").as_int64(), 5);
  EXPECT_EQ(body.at("workers").at("decode").at(1).at("instance").as_string(), "d1");
  EXPECT_EQ(body.at("workers").at("prefill").as_array().size(), 1u) << "empty places are nobody's";
}

TEST(ServerInformationTest, AcceptLengthIsTheMeanOfAllWindowsOfWorkersThatAreUp) {
  ClusterView view = View();
  const auto length = [&view] {
    return json::parse(ServerInfoBody(Context(), "r0", view, {}))
        .at("internal_states")
        .at(0)
        .at("avg_spec_accept_length");
  };
  EXPECT_TRUE(length().is_null());
  view.decodes[0].load.spec_windows = 100;
  view.decodes[0].load.spec_accepted_tokens = 300;
  EXPECT_EQ(length().to_number<double>(), 4);
  view.decodes[1].load.spec_windows = 300;
  view.decodes[1].load.spec_accepted_tokens = 0;
  EXPECT_EQ(length().to_number<double>(), 1.75);
  view.decodes[1].is_up = false;
  EXPECT_EQ(length().to_number<double>(), 4);
}

TEST(ServerInformationTest, LoadsHaveAnEntryForEveryWorker) {
  const json::value body = json::parse(LoadsBody("", View(), {}, absl::UnixEpoch()).value());
  EXPECT_EQ(body.at("timestamp").as_string(), "1970-01-01T00:00:00+00:00");
  ASSERT_EQ(body.at("loads").as_array().size(), 3u);
  EXPECT_EQ(body.at("loads").at(0).at("role").as_string(), "prefill");
  EXPECT_EQ(body.at("loads").at(0).at("token_usage").to_number<double>(), 0) << "it has not said anything yet";
  const json::value& decode = body.at("loads").at(2);
  EXPECT_EQ(decode.at("dp_rank").as_int64(), 2);
  EXPECT_EQ(decode.at("num_running_reqs").as_int64(), 3);
  EXPECT_EQ(decode.at("num_waiting_reqs").as_int64(), 2);
  EXPECT_EQ(decode.at("num_waiting_uncached_tokens").as_int64(), 50);
  EXPECT_EQ(decode.at("num_used_tokens").as_int64(), 384);
  EXPECT_EQ(decode.at("max_total_num_tokens").as_int64(), 640);
  EXPECT_DOUBLE_EQ(decode.at("token_usage").to_number<double>(), 0.6);
}

TEST(ServerInformationTest, LoadsRefusesWhatItCannotGive) {
  EXPECT_TRUE(LoadsBody("format=json&include=all", View(), {}, absl::UnixEpoch()).ok());
  const absl::Status format = LoadsBody("format=prometheus", View(), {}, absl::UnixEpoch()).status();
  EXPECT_EQ(HttpStatusOf(format), 400);
  EXPECT_TRUE(absl::StartsWith(format.message(), "format: must be json"));
  EXPECT_EQ(HttpStatusOf(LoadsBody("dp_rank=0", View(), {}, absl::UnixEpoch()).status()), 400);
}

}  // namespace
}  // namespace tandem::router
