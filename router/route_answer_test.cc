// What /debug/route says of a view, member by member, and which bodies it takes.
#include "router/route_answer.h"

#include <string>
#include <vector>

#include "boost/json.hpp"
#include "gtest/gtest.h"
#include "router/openai/api_error.h"
#include "router/testing/byte_tokenizer.h"
#include "router/testing/healthy_view.h"

namespace tandem::router {
namespace {

namespace json = boost::json;
using B = ByteTokenizer;

TEST(RouteAnswerTest, SaysWhoGetsItAtWhatCostAndWhoCannot) {
  ClusterView view = HealthyView(3, 4);
  view.prefills[0].load.waiting_tokens = 700;
  view.prefills[2].is_draining = true;
  view.decodes[0].load.running_sequences = 2;
  view.decodes[0].load.kv_pages_total = 20;
  view.decodes[0].load.kv_pages_free = 16;
  view.decodes[0].kv_pages_sent = 1;  // room for 960 of 1,000 tokens
  view.decodes[0].peers["boot0"].is_usable = false;
  view.decodes[0].peers["boot0"].detail = "no lane";
  view.decodes[1].is_ejected = true;
  view.decodes[2].kv_tokens_capacity = 999;
  view.decodes[3].is_up = false;
  view.decodes[3].detail = "connection refused";
  const std::vector<int64_t> cached = {0, 640, 0};
  const PairRequest request{.num_tokens = 1000, .policy = PairPolicy::kPrefix, .cached_tokens = cached};
  EXPECT_EQ(json::parse(RouteAnswer(view, request)), json::parse(R"({
    "policy": "prefix", "needs_tokens": 1000,
    "choice": {"prefill": "p1", "decode": "d0", "num_cheapest": 1, "cached_tokens": 640, "best_cached_tokens": 640},
    "why": "prefill p1 (load 0) with decode d0 (load 2): cost 584 = 0 waiting + 360 uncached (640 cached, at best 640) + 64 decode load + 160 short room + 0 slow lane, one of 1 cheapest among 1 usable pairs",
    "pairs_total": 1,
    "pairs": [{"prefill": "p1", "decode": "d0", "cost": 584, "cached_tokens": 640,
               "parts": {"waiting": 0, "uncached": 360, "decode_load": 64, "short_room": 160, "slow_lane": 0}}],
    "excluded_total": 6,
    "excluded": [{"prefill": "p2", "decode": null, "why": "draining"},
                 {"prefill": null, "decode": "d1", "why": "ejected"},
                 {"prefill": null, "decode": "d3", "why": "down: connection refused"},
                 {"prefill": "p0", "decode": "d0", "why": "not linked: no lane"},
                 {"prefill": "p0", "decode": "d2", "why": "too small: holds 999 tokens"},
                 {"prefill": "p1", "decode": "d2", "why": "too small: holds 999 tokens"}]})"));
}

TEST(RouteAnswerTest, OtherPoliciesHaveNoPartsAndNobodyIsSaidWithItsReason) {
  ClusterView view = HealthyView(1, 1);
  const PairRequest request{.num_tokens = 9};
  const json::value answer = json::parse(RouteAnswer(view, request));
  EXPECT_EQ(answer.at("policy").as_string(), "least_load");
  EXPECT_FALSE(answer.at("pairs").at(0).as_object().contains("parts"));
  view.prefills[0].is_up = false;
  const json::value none = json::parse(RouteAnswer(view, request));
  EXPECT_TRUE(none.at("choice").is_null());
  EXPECT_EQ(std::string(none.at("why").as_string()), std::string(PickPair(view, request).status().message()));
  EXPECT_EQ(none.at("pairs_total").as_int64(), 0);
}

TEST(RouteAnswerTest, ListsAtMostSixtyFour) {
  const ClusterView view = HealthyView(10, 10);
  const json::value answer = json::parse(RouteAnswer(view, {.num_tokens = 1, .policy = PairPolicy::kPrefix}));
  EXPECT_EQ(answer.at("pairs").as_array().size(), 64u);
  EXPECT_EQ(answer.at("pairs_total").as_int64(), 100);
}

TEST(RouteAnswerTest, TakesWhatAChatOrACompletionTakesOfOnePrompt) {
  ByteTokenizer tokenizer;
  ModelContext context;
  context.tokenizer = &tokenizer;
  context.facts.vocab_size = B::kNumIds;
  context.facts.context_length = 64;
  context.facts.bos_token_id = B::kBos;
  context.facts.eos_token_ids = {B::kEos};
  context.served_model_name = "m";
  context.context_length = 64;
  const auto prompt_of = [&](const std::string& body) {
    return PrepareRoute(body, context).value().orders.front().prompt.size();
  };
  EXPECT_EQ(prompt_of(R"({"model":"m","prompt":"hi"})"), 3u);
  EXPECT_EQ(prompt_of(R"({"model":"m","messages":[{"role":"user","content":"hi"}]})"), 6u);
  const auto refusal = [&](const std::string& body) {
    return std::string(PrepareRoute(body, context).status().message());
  };
  EXPECT_EQ(refusal(R"({"model":"m","prompt":["a","b"]})"), "prompt: has 2 prompts, a route is of one");
  EXPECT_EQ(refusal(R"({"model":"m"})"), "prompt: is required, or messages");
  EXPECT_EQ(refusal(R"({"model":"m","prompt":"a","messages":[]})"),
            "messages: is allowed only where prompt is not sent");
  EXPECT_EQ(HttpStatusOf(PrepareRoute("[]", context).status()), 400);
}

}  // namespace
}  // namespace tandem::router
