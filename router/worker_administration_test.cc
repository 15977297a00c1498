#include "router/worker_administration.h"

#include <string>

#include "absl/strings/match.h"
#include "boost/json.hpp"
#include "gtest/gtest.h"

namespace tandem::router {
namespace {

namespace json = boost::json;

ClusterView View() {
  ClusterView view;
  view.prefills.resize(2);
  view.prefills[1].address = "10.0.0.1:8101";
  view.prefills[1].is_up = true;
  view.prefills[1].instance = "p0";
  view.decodes.resize(2);
  view.decodes[0].address = "[fd00::1]:8102";
  view.decodes[0].detail = "silent";
  view.decodes[1].address = "10.0.0.2:8102";
  view.decodes[1].is_up = true;
  view.decodes[1].is_removed = true;
  view.decodes[1].requests_in_flight = 3;
  return view;
}

TEST(WorkerAdministrationTest, TheListHasEveryWorkerAndNoEmptyPlace) {
  const json::value body = json::parse(WorkersBody(View(), "m"));
  EXPECT_EQ(body.at("total").as_int64(), 3);
  EXPECT_EQ(body.at("stats"), json::parse(R"({"prefill_count":1,"decode_count":2,"regular_count":0})"));
  const json::value& prefill = body.at("workers").at(0);
  EXPECT_EQ(prefill.at("id").as_string(), "10.0.0.1:8101");
  EXPECT_EQ(prefill.at("worker_type").as_string(), "prefill");
  EXPECT_EQ(prefill.at("model_id").as_string(), "m");
  EXPECT_TRUE(prefill.at("is_healthy").as_bool());
  const json::value& removed = body.at("workers").at(2);
  EXPECT_EQ(removed.at("state").as_string(), "removed");
  EXPECT_FALSE(removed.at("is_healthy").as_bool());
  EXPECT_EQ(removed.at("load").as_int64(), 3);
}

TEST(WorkerAdministrationTest, OneWorkerIsFoundByItsAddress) {
  const json::value body = json::parse(WorkerBody(View(), "m", "[fd00::1]:8102").value());
  EXPECT_EQ(body.at("state").as_string(), "down");
  EXPECT_EQ(body.at("detail").as_string(), "silent");
  EXPECT_EQ(WorkerBody(View(), "m", "").status().code(), absl::StatusCode::kNotFound);
}

TEST(WorkerAdministrationTest, AWorkerIsAddedByItsUrlInAnySpelling) {
  for (const char* url : {"10.0.0.7:1", "grpc://10.0.0.7:1", "http://10.0.0.7:1/"}) {
    WorkerDirectory directory;
    const auto body = AddWorker(std::string(R"({"worker_type":"decode","url":")") + url + "\"}", directory);
    ASSERT_TRUE(body.ok()) << body.status();
    EXPECT_EQ(json::parse(*body).at("worker_id").as_string(), "10.0.0.7:1");
    EXPECT_EQ(directory.lists(), (WorkerLists{{}, {"10.0.0.7:1"}}));
    EXPECT_TRUE(DrainWorker("10.0.0.7:1", directory).ok());
    EXPECT_EQ(directory.lists(), WorkerLists());
    EXPECT_TRUE(RemoveWorker("10.0.0.7:1", directory).ok());
    EXPECT_EQ(RemoveWorker("10.0.0.7:1", directory).status().code(), absl::StatusCode::kNotFound);
  }
}

TEST(WorkerAdministrationTest, BadBodiesNameTheField) {
  WorkerDirectory directory;
  const auto error = [&](const char* body) { return std::string(AddWorker(body, directory).status().message()); };
  EXPECT_TRUE(absl::StartsWith(error(R"({"worker_type":"decode"})"), "url: is required"));
  EXPECT_TRUE(absl::StartsWith(error(R"({"worker_type":"decode","url":"10.0.0.7"})"), "url: "));
  EXPECT_TRUE(absl::StartsWith(error(R"({"worker_type":"decode","url":"0.0.0.0:1"})"), "url: "));
  EXPECT_TRUE(absl::StartsWith(error(R"({"worker_type":"regular","url":"a:1"})"), "worker_type: must be prefill or"));
  EXPECT_TRUE(absl::StartsWith(error(R"({"url":"a:1"})"), "worker_type: must be prefill or decode"));
  EXPECT_TRUE(absl::StartsWith(error(R"({"url":1})"), "url: "));
  EXPECT_NE(error("["), "");
  EXPECT_EQ(directory.lists(), WorkerLists());
}

}  // namespace
}  // namespace tandem::router
