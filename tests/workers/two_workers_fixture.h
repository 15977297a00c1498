// For tests: both workers in this process, as processes are: real gRPC, real UCX, real threads, a real checkpoint
// (v32-micro), and the test in the router's place.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/check.h"
#include "base/clock.h"
#include "decode_worker/config.h"
#include "decode_worker/worker.h"
#include "gtest/gtest.h"
#include "model/testing/micro_model.h"
#include "prefill_worker/config.h"
#include "prefill_worker/worker.h"
#include "tests/workers/http_get.h"
#include "tests/workers/router_end.h"
#include "tools/make_checkpoint/checkpoint_writer.h"

namespace tandem {

inline constexpr absl::Duration kPatience = absl::Minutes(2);  // of tests on a busy machine, not of the product
inline constexpr int kVocabSize = 1024;
inline constexpr int kNumLayers = 2;  // of v32-micro, as its config.json says

// v32-micro of that seed, written once for this process.
inline std::string CheckpointFolder(uint64_t seed = 1) {
  const std::string folder = absl::StrCat(::testing::TempDir(), "/two_workers-", getpid(), "-", seed);
  static std::set<std::string> written;
  if (written.insert(folder).second) {
    const absl::Status status = make_checkpoint::WriteCheckpoint("v32-micro", seed, folder);
    TANDEM_CHECK(status.ok(), "the test cannot write its checkpoint");
  }
  return folder;
}

inline std::vector<uint32_t> Prompt(int num_tokens) {
  const std::vector<int32_t> tokens = model::GoldenTokens(num_tokens, kVocabSize);
  return {tokens.begin(), tokens.end()};
}

class TwoWorkersFixture : public ::testing::Test {
 protected:
  void StartPrefill(const std::vector<std::string>& lanes, int chunked_prefill_size = 512, int bootstrap_port = 0) {
    prefill::PrefillConfig config;
    config.cluster.model_path = CheckpointFolder();
    config.cluster.load_format = load_format_;
    config.cluster.speculative.num_steps = num_drafts_;
    config.instance = "prefill-0";
    config.listen_host = config.admin_host = "127.0.0.1";
    config.rpc_port = config.admin_port = 0;
    config.bootstrap_port = bootstrap_port;
    config.kv_cache_tokens = kv_tokens_;
    config.chunked_prefill_size = chunked_prefill_size;
    config.context_parallel_size = context_parallel_size_;
    config.context_parallel_kv = context_parallel_kv_;
    config.data_parallel_size = prefill_data_parallel_size_;
    config.tensor_parallel_size = prefill_tensor_parallel_size_;
    config.pipeline_parallel_size = prefill_pipeline_parallel_size_;
    if (spreads_experts_) config.expert_parallel_size = config.num_ranks();
    config.lanes = lanes;
    config.net_devices = "lo";
    config.peer_silence_max = kPatience;  // a busy test machine is no dead peer
    Change(config);
    auto worker = prefill::Worker::Start(config, base::RealClock());
    ASSERT_TRUE(worker.ok()) << worker.status();
    prefill_ = *std::move(worker);
  }
  void StartDecode(const std::vector<std::string>& lanes, const std::string& model_path = CheckpointFolder(),
                   const std::string& instance = "decode-0") {
    decode::DecodeConfig config;
    config.cluster.model_path = model_path;
    config.cluster.load_format = load_format_;
    config.cluster.speculative.num_steps = num_drafts_;
    config.instance = instance;
    config.listen_host = config.admin_host = "127.0.0.1";
    config.rpc_port = config.admin_port = 0;
    config.kv_cache_tokens = kv_tokens_;
    config.speculative_adaptive = false;
    config.data_parallel_size = decode_data_parallel_size_;
    config.tensor_parallel_size = decode_tensor_parallel_size_;
    config.pipeline_parallel_size = decode_pipeline_parallel_size_;
    config.pipeline_parallel_micro_batch_size = 1;
    if (spreads_experts_) config.expert_parallel_size = config.num_ranks();
    config.lanes = lanes;
    config.net_devices = "lo";
    config.peer_silence_max = kPatience;  // a busy test machine is no dead peer
    Change(config);
    auto worker = decode::Worker::Start(config, base::RealClock());
    ASSERT_TRUE(worker.ok()) << worker.status();
    decode_ = *std::move(worker);
    router_ = std::make_unique<tests::RouterEnd>(decode_->rpc_port());
    router_->NamePrefill(prefill_->bootstrap_port());
  }
  // What a test sets besides.
  virtual void Change(prefill::PrefillConfig& config) {}
  virtual void Change(decode::DecodeConfig& config) {}
  void TearDown() override {
    router_.reset();
    decode_.reset();
    prefill_.reset();
  }

  // Value of a gauge or counter that has no label but its role.
  static double Metric(int admin_port, const std::string& name) {
    const std::string text = tests::HttpGet(admin_port, "/metrics");
    const size_t at = text.find(absl::StrCat("\n", name, "{"));
    if (at == std::string::npos) {
      ADD_FAILURE() << "no metric " << name;
      return -1;
    }
    return std::stod(text.substr(text.find("} ", at) + 2));
  }

  // An engine tells its figures at the end of a step, whose tokens may be here before. The value, or the last one seen.
  static double AwaitMetric(int admin_port, const std::string& name, double value) {
    const absl::Duration deadline = base::RealClock().Now() + kPatience;
    double seen;
    do seen = Metric(admin_port, name);
    while (seen != value && base::RealClock().Now() < deadline);
    return seen;
  }
  // A page of that worker once it says this, or as it was last seen.
  static std::string AwaitPage(int admin_port, const std::string& path, absl::string_view text) {
    const absl::Duration deadline = base::RealClock().Now() + kPatience;
    std::string page;
    do page = tests::HttpGet(admin_port, path);
    while (!absl::StrContains(page, text) && base::RealClock().Now() < deadline);
    return page;
  }

  int64_t kv_tokens_ = 2048;  // of each worker
  std::string load_format_ = "auto";
  int context_parallel_size_ = 1;
  std::string context_parallel_kv_ = "copied";
  int num_drafts_ = 0;  // of both workers: cluster.speculative.num_steps
  int prefill_data_parallel_size_ = 1;
  int decode_data_parallel_size_ = 1;
  int prefill_tensor_parallel_size_ = 1;
  int decode_tensor_parallel_size_ = 1;
  int prefill_pipeline_parallel_size_ = 1;
  int decode_pipeline_parallel_size_ = 1;
  bool spreads_experts_ = false;
  std::unique_ptr<prefill::Worker> prefill_;
  std::unique_ptr<decode::Worker> decode_;
  std::unique_ptr<tests::RouterEnd> router_;
};

}  // namespace tandem
