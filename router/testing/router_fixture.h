// A whole router shard between raw HTTP clients and fake workers, over real sockets on free ports.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "router/abort_relay.h"
#include "router/access_control.h"
#include "router/cors.h"
#include "router/metrics.h"
#include "router/preparation_threads.h"
#include "router/prepared_request.h"
#include "router/readiness.h"
#include "router/shard.h"
#include "router/status_board.h"
#include "router/testing/byte_tokenizer.h"
#include "router/testing/fake_worker.h"
#include "router/testing/raw_client.h"

namespace tandem::router {

class RouterTest : public testing::Test {
 protected:
  double AwaitMetric(const std::string& series, const std::function<bool(double)>& is_right);

  static constexpr char kBootstrap[] = "127.0.0.1:8998";

  RouterTest();

  // One prefill and one decode worker that can use it; returns when the router is ready.
  void StartPair();
  void StartShard();
  Shard::Shared SharedParts() {
    return {.context = &context_,
            .metrics = &metrics_,
            .readiness = &readiness_,
            .status_board = &status_board_,
            .timelines = &timelines_,
            .abort_relay = &abort_relay_,
            .access = &access_,
            .cors = &cors_,
            .peers = peers_.get(),
            .preparation = &preparation_};
  }
  bool AwaitReady(int status = 200);
  int port() const { return shard_->port(); }

  // members: further members of the request's JSON object.
  static std::string ChatBody(absl::string_view members = "", absl::string_view content = "hi");
  static std::string PostChat(absl::string_view body);
  static std::string PostCompletion(absl::string_view body);
  static std::string Get(absl::string_view path);
  RawClient::Response Ask(absl::string_view members = "");
  // The same of /v1/completions; members are all but the model.
  RawClient::Response AskCompletion(absl::string_view members);
  // The usage of an answer that did not think, as JSON.
  static std::string UsageText(int prompt_tokens, int completion_tokens);
  // The data of each event of a stream.
  static std::vector<std::string> Events(const std::string& body);
  // The content of all its deltas, joined.
  static std::string ContentOf(const std::vector<std::string>& events);
  // The body of that page once it says this, or as it was when patience was over.
  std::string AwaitPage(absl::string_view path, absl::string_view text);
  // Reads /metrics until the series has the value, and returns it; else the last value, once patience is over.
  double AwaitMetric(const std::string& series, double value);
  // The same until it is above the value.
  double AwaitMetricAbove(const std::string& series, double value);

  ByteTokenizer tokenizer_;
  ModelContext context_;
  RouterMetrics metrics_;
  Readiness readiness_;
  StatusBoard status_board_;
  TimelineStore timelines_{64};
  const std::unique_ptr<base::PeerSecurity> peers_ = base::PeerSecurity::None(base::RealClock());
  AbortRelay abort_relay_;
  AccessControl access_;
  CorsPolicy cors_;
  PreparationThreads preparation_;
  Shard::Options options_;
  std::unique_ptr<FakeWorker> prefill_;
  std::unique_ptr<FakeWorker> decode_;
  std::unique_ptr<Shard> shard_;
};

}  // namespace tandem::router
