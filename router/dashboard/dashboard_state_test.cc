// The members that the page reads, and that no cluster makes the document large.
#include "router/dashboard/dashboard_state.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "boost/json.hpp"
#include "gtest/gtest.h"

namespace tandem::router {
namespace {
namespace json = boost::json;

class DashboardStateTest : public ::testing::Test {
 protected:
  DashboardStateTest() {
    sources_.instance = "r0";
    sources_.now = absl::Seconds(100);
    sources_.limits = {.in_flight_max = 8, .waiting_max = 4};
    sources_.view = &view_;
    sources_.metrics = &metrics_;
    sources_.board = &board_;
    sources_.timelines = &timelines_;
  }
  json::object State() const { return json::parse(DashboardState(sources_)).as_object(); }

  void AddPrefill(const std::string& name) {
    PrefillView& worker = view_.prefills.emplace_back();
    worker.address = name + ":1";
    worker.bootstrap_address = name + ":2";
    worker.is_up = true;
  }
  void AddDecode(const std::string& name) {
    DecodeView& worker = view_.decodes.emplace_back();
    worker.address = name + ":1";
    worker.is_up = true;
    for (const PrefillView& prefill : view_.prefills) {
      worker.peers[prefill.bootstrap_address] = {.is_usable = true, .lane = "tcp", .lane_bytes_per_second = 1e9};
    }
  }
  void EndRequest(const std::string& id, int status, absl::Duration began_at) {
    const TimelineStore::Timeline timeline = timelines_.Begin({.id = id, .began_at = began_at});
    timeline->Waited(absl::Milliseconds(5));
    timeline->Ended({.http_status = status, .error = status == 200 ? "" : "broke", .took = absl::Seconds(1)});
    timelines_.End(timeline, began_at + absl::Seconds(1));
  }

  ClusterView view_;
  RouterMetrics metrics_;
  StatusBoard board_;
  TimelineStore timelines_{256};
  DashboardSources sources_;
};

TEST_F(DashboardStateTest, ARouterWithoutWorkers) {
  sources_.ready = absl::UnavailableError("no usable pair: 0 of 0 prefill workers");
  const json::object state = State();
  EXPECT_EQ(state.at("instance").as_string(), "r0");
  EXPECT_FALSE(state.at("is_ready").as_bool());
  ASSERT_EQ(state.at("troubles").as_array().size(), 1u);
  const json::value& trouble = state.at("troubles").as_array()[0];
  EXPECT_EQ(trouble.at("severity").as_string(), "page");
  EXPECT_EQ(trouble.at("metric").as_string(), "tandem_router_usable_pairs");
  EXPECT_EQ(trouble.at("runbook").as_string(), "readyz-of-the-router-is-503");
  EXPECT_TRUE(state.at("workers").as_array().empty() && state.at("streams").as_array().empty());
  EXPECT_EQ(state.at("requests").at("in_flight_max").as_int64(), 8);
}

TEST_F(DashboardStateTest, WhatAWorkerHasToldIsThere) {
  AddPrefill("p");
  AddDecode("d");
  view_.decodes.push_back({});  // a place that nobody has
  view_.prefills[0].requests_in_flight = 2;
  view_.prefills[0].load = {.waiting_requests = 3,
                            .waiting_tokens = 700,
                            .kv_pages_free = 90,
                            .kv_pages_total = 100,
                            .prompt_tokens = 1000,
                            .cached_prompt_tokens = 250,
                            .transferred_kv_bytes = 1 << 20};
  view_.decodes[0].load = {.running_sequences = 4,
                           .spec_windows = 10,
                           .spec_accepted_tokens = 25,
                           .generated_tokens = 35,
                           .hisparse_hits = 90,
                           .hisparse_misses = 10,
                           .device_pages_used = 3,
                           .device_pages_total = 6};
  const json::object state = State();
  EXPECT_EQ(state.at("workers_total").as_int64(), 2);
  EXPECT_EQ(state.at("usable_pairs").as_int64(), 1);
  const json::object& prefill = state.at("workers").as_array()[0].as_object();
  EXPECT_EQ(prefill.at("role").as_string(), "prefill");
  EXPECT_EQ(prefill.at("state").as_string(), "up");
  const std::vector<std::pair<const char*, int>> prefills = {{"usable_peers", 1},
                                                             {"in_flight", 2},
                                                             {"waiting", 3},
                                                             {"waiting_tokens", 700},
                                                             {"kv_pages_used", 10},
                                                             {"kv_pages", 100},
                                                             {"prompt_tokens", 1000},
                                                             {"cached_prompt_tokens", 250},
                                                             {"transferred_kv_bytes", 1 << 20}};
  for (const auto& [name, value] : prefills) EXPECT_EQ(prefill.at(name).as_int64(), value) << name;
  const json::object& decode = state.at("workers").as_array()[1].as_object();
  const std::vector<std::pair<const char*, int>> decodes = {
      {"usable_peers", 1},      {"running", 4},        {"generated_tokens", 35},
      {"spec_windows", 10},     {"hisparse_hits", 90}, {"hisparse_misses", 10},
      {"device_pages_used", 3}, {"device_pages", 6},   {"spec_accepted_tokens", 25}};
  for (const auto& [name, value] : decodes) EXPECT_EQ(decode.at(name).as_int64(), value) << name;
}

TEST_F(DashboardStateTest, WhatNeedsALookComesFirst) {
  for (int i = 0; i < 4; ++i) AddPrefill(absl::StrCat("p", i));
  for (int i = 0; i < 60; ++i) AddDecode(absl::StrCat("d", i));
  view_.decodes[41].is_up = false;
  view_.decodes[41].detail = "<img src=x>";
  view_.decodes[50].is_ejected = true;
  view_.decodes[7].peers["p2:2"] = {.is_usable = false, .detail = "wrong sums"};
  view_.decodes[8].peers["p3:2"].lane_bytes_per_second = 5;
  const json::object state = State();
  const json::array& workers = state.at("workers").as_array();
  EXPECT_EQ(workers[0].at("address").as_string(), "d41:1");
  EXPECT_EQ(workers[0].at("state").as_string(), "down");
  EXPECT_EQ(workers[0].at("why").as_string(), "<img src=x>");
  EXPECT_EQ(workers[1].at("state").as_string(), "ejected");
  EXPECT_EQ(workers[2].at("address").as_string(), "p0:1");
  const json::array& pairs = state.at("pairs").as_array();
  EXPECT_EQ(state.at("pairs_total").as_int64(), 240);
  ASSERT_EQ(pairs.size(), kPairsInStateMax);
  std::set<std::string> reasons;
  for (int i = 0; i < 5; ++i) {
    EXPECT_FALSE(pairs[i].at("is_usable").as_bool());
    reasons.insert(std::string(pairs[i].at("why").as_string()));
  }
  EXPECT_EQ(reasons, (std::set<std::string>{"decode is down", "wrong sums"}));
  EXPECT_TRUE(pairs[5].at("is_usable").as_bool());
  EXPECT_EQ(pairs[5].at("prefill").as_string(), "p3:1");
  EXPECT_EQ(pairs[5].at("lane_bytes_per_second").as_int64(), 5);
}

TEST_F(DashboardStateTest, FailuresOfLongAgoAreShownAndNoTrouble) {
  EndRequest("old", 503, absl::Seconds(1));
  EndRequest("fine", 200, absl::Seconds(2));
  sources_.now = absl::Seconds(1000);
  json::object state = State();
  EXPECT_TRUE(state.at("troubles").as_array().empty());
  ASSERT_EQ(state.at("failed").as_array().size(), 1u);
  EXPECT_EQ(state.at("failed").as_array()[0].at("id").as_string(), "old");
  EXPECT_EQ(state.at("slow").as_array().size(), 2u);
  EndRequest("new", 503, absl::Seconds(990));
  state = State();
  EXPECT_EQ(state.at("troubles").as_array()[0].at("what").as_string(),
            "1 of the 1 requests that ended last failed within five minutes; the latest, new, with 503: broke");
}

TEST_F(DashboardStateTest, StreamsOfAllShardsOldestFirst) {
  for (int shard = 0; shard < 2; ++shard) {
    StatusBoard::Word word;
    word.num_in_flight = 30 + shard;
    word.posted_at = absl::Seconds(99);
    for (int i = 0; i < 40; ++i) {
      RequestView request;
      request.id = absl::StrCat(shard, "-", i);
      request.age = absl::Seconds(2 * i + shard);
      request.num_generated = i;
      word.requests.push_back(request);
    }
    board_.Post(shard, word);
  }
  const json::object state = State();
  const json::array& streams = state.at("streams").as_array();
  ASSERT_EQ(streams.size(), kStreamsInStateMax);
  EXPECT_EQ(streams[0].at("id").as_string(), "1-39");
  EXPECT_EQ(streams[1].at("id").as_string(), "0-39");
  EXPECT_EQ(streams[0].at("age_ms").as_int64(), 79'000);
  EXPECT_EQ(state.at("shards").as_array()[1].at("in_flight").as_int64(), 31);
  EXPECT_EQ(state.at("shards").as_array()[1].at("silent_ms").as_int64(), 1000);
  EXPECT_EQ(state.at("requests").at("in_flight_max").as_int64(), 16) << "of two shards";
}

TEST_F(DashboardStateTest, LatenciesAreCumulativeCounts) {
  metrics_.time_to_first_token.Observe(0.0004);
  metrics_.time_to_first_token.Observe(1000);
  const json::value histogram = State().at("time_to_first_token");
  const json::array& bounds = histogram.at("bounds_s").as_array();
  const json::array& counts = histogram.at("counts").as_array();
  ASSERT_EQ(counts.size(), bounds.size() + 1);
  EXPECT_EQ(bounds[0].to_number<double>(), 0.0005);
  EXPECT_EQ(counts[0].as_int64(), 1);
  EXPECT_EQ(counts[bounds.size() - 1].as_int64(), 1);
  EXPECT_EQ(counts.back().as_int64(), 2);
}

TEST_F(DashboardStateTest, FiveHundredWorkersAndTenThousandStreamsStaySmall) {
  const std::string reason(4000, 'x');
  for (int i = 0; i < 250; ++i) AddPrefill(absl::StrCat("prefill-", i, ".prefill.tandem.svc.cluster.local"));
  for (int i = 0; i < 250; ++i) AddDecode(absl::StrCat("decode-", i, ".decode.tandem.svc.cluster.local"));
  for (DecodeView& decode : view_.decodes) {
    for (auto& [address, peer] : decode.peers) peer = {.is_usable = false, .detail = reason};
  }
  for (int shard = 0; shard < 8; ++shard) {
    StatusBoard::Word word;
    word.requests.resize(100);
    for (RequestView& request : word.requests) request.pair = reason;
    board_.Post(shard, word);
  }
  std::vector<TimelineStore::Timeline> running;
  for (int i = 0; i < 10'000; ++i) running.push_back(timelines_.Begin({.id = absl::StrCat("chatcmpl-", i)}));
  for (int i = 0; i < 300; ++i) EndRequest(absl::StrCat("failed-", i), 503, absl::Seconds(90));
  const std::string text = DashboardState(sources_);
  EXPECT_LT(text.size(), 400'000u);
  EXPECT_EQ(json::parse(text).at("workers").as_array().size(), 500u);
}

}  // namespace
}  // namespace tandem::router
