// Proves that each back end gets the members its API knows, and that text survives JSON.
#include "tools/bench_serving/request_body.h"

#include <gtest/gtest.h>

#include "boost/json/parse.hpp"

namespace tandem::bench_serving {
namespace {

namespace json = boost::json;

Flags FlagsFor(Backend backend) {
  Flags flags;
  flags.backend = backend;
  return flags;
}

json::value Body(const Flags& flags, const BenchRequest& request) {
  return json::parse(RequestBody(flags, "a \"model\"", request));
}

TEST(RequestBodyTest, EachApiGetsItsOwnMembers) {
  const BenchRequest request{.text = "say \"hi\"\n\u4e16", .prompt_len = 5, .output_len = 9};
  EXPECT_EQ(Body(FlagsFor(Backend::kGenerate), request),
            json::parse(R"({"text":"say \"hi\"\n世","sampling_params":{"temperature":0.0,"max_new_tokens":9,
                            "ignore_eos":true},"stream":true,"return_logprob":false})"));
  EXPECT_EQ(Body(FlagsFor(Backend::kCompletions), request),
            json::parse(R"({"model":"a \"model\"","prompt":"say \"hi\"\n世","max_tokens":9,"temperature":0.0,
                            "ignore_eos":true,"stream":true,"stream_options":{"include_usage":true}})"));
  EXPECT_EQ(Body(FlagsFor(Backend::kChat), request),
            json::parse(R"({"model":"a \"model\"","messages":[{"role":"user","content":"say \"hi\"\n世"}],
                            "max_completion_tokens":9,"temperature":0.0,"ignore_eos":true,"stream":true,
                            "stream_options":{"include_usage":true}})"));
}

TEST(RequestBodyTest, IdsGoAsIds) {
  const BenchRequest request{.ids = {5, 0, 129279}, .prompt_len = 3, .output_len = 1};
  EXPECT_EQ(Body(FlagsFor(Backend::kGenerate), request).at("input_ids"), json::parse("[5,0,129279]"));
  EXPECT_EQ(Body(FlagsFor(Backend::kCompletions), request).at("prompt"), json::parse("[5,0,129279]"));
}

TEST(RequestBodyTest, FlagsChangeTheBodyAndExtraMembersReplaceOurs) {
  Flags flags = FlagsFor(Backend::kChat);
  flags.disable_stream = true;
  flags.disable_ignore_eos = true;
  flags.temperature = 0.5;
  flags.top_p = 0.9;
  flags.extra_request_body = R"({"temperature":1,"tools":[]})";
  const json::value body =
      Body(flags, {.messages = R"([{"role":"system","content":"x"}])", .prompt_len = 1, .output_len = 1});
  EXPECT_EQ(body, json::parse(R"({"model":"a \"model\"","messages":[{"role":"system","content":"x"}],
                                  "max_completion_tokens":1,"temperature":1,"top_p":0.9,"ignore_eos":false,
                                  "stream":false,"tools":[]})"));
}

}  // namespace
}  // namespace tandem::bench_serving
