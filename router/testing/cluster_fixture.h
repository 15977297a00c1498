// For tests: a shard's cluster of two prefill and two decode workers over fake channels and time.
#pragma once

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "router/cluster.h"
#include "router/testing/fake_channel.h"

namespace tandem::router {

class RecordingListener final : public RequestListener {
 public:
  void OnTokens(GeneratedTokens tokens) override {
    EXPECT_EQ(tokens.first_position, static_cast<int64_t>(received.size()));
    received.insert(received.end(), tokens.tokens.begin(), tokens.tokens.end());
    last = std::move(tokens);
  }
  void OnEnded(const absl::Status& status, bool cancelled) override {
    ++num_ended;
    error = status;
    is_cancelled = cancelled;
  }
  void OnWorkerLost(const absl::Status& cause) override {
    ++num_lost;
    error = cause;
  }
  std::vector<TokenId> received;
  GeneratedTokens last;
  absl::Status error;
  bool is_cancelled = false;
  int num_ended = 0;
  int num_lost = 0;
};

class ClusterTest : public testing::Test {
 protected:
  ClusterTest() : cluster_(Options(), channels_.Factory()) {}
  static Cluster::Options Options() {
    Cluster::Options options;
    options.prefill_workers = {"p0:1", "p1:1"};
    options.decode_workers = {"d0:1", "d1:1"};
    options.identity.set_instance("r");
    options.identity.set_incarnation(77);
    return options;
  }
  void ConnectAll() {
    cluster_.Tick(now_);
    channels_.to("p0:1").Greet("p0", 1, "boot0");
    channels_.to("p1:1").Greet("p1", 2, "boot1");
    channels_.to("d0:1").Greet("d0", 3);
    channels_.to("d1:1").Greet("d1", 4);
    for (const char* decode : {"d0:1", "d1:1"}) {
      for (const char* prefill : {"boot0", "boot1"}) Report(decode, prefill, true);
    }
  }
  void Report(const std::string& decode, const std::string& prefill, bool is_usable) {
    proto::WorkerMessage message;
    message.mutable_peer_status()->set_bootstrap_address(prefill);
    message.mutable_peer_status()->set_is_usable(is_usable);
    channels_.to(decode).Receive(message);
  }
  uint64_t Generate(RecordingListener* listener, int decode = 0, int prefill = 0, size_t prompt_size = 3,
                    uint32_t num_choices = 1) {
    GenerateOrder order;
    order.num_choices = num_choices;
    order.prompt.resize(prompt_size);
    std::iota(order.prompt.begin(), order.prompt.end(), 0);
    order.max_new_tokens = 9;
    PairChoice pair;
    pair.decode = decode;
    pair.prefill = prefill;
    return cluster_.Generate(pair, order, listener);
  }
  proto::RequestKey KeyOf(uint64_t request_id) {
    proto::RequestKey key;
    key.set_router_incarnation(77);
    key.set_request_id(request_id);
    key.set_attempt(1);
    return key;
  }
  void SendTokens(const std::string& decode, const proto::RequestKey& key, int position, std::vector<TokenId> tokens) {
    proto::WorkerMessage message;
    proto::SequenceTokens* sequence = message.mutable_tokens()->add_sequences();
    *sequence->mutable_key() = key;
    sequence->set_first_position(static_cast<uint32_t>(position));
    sequence->mutable_tokens()->Add(tokens.begin(), tokens.end());
    channels_.to(decode).Receive(message);
  }
  void SendEnd(const std::string& decode, const proto::RequestKey& key, const absl::Status& error) {
    proto::WorkerMessage message;
    *message.mutable_ended()->mutable_key() = key;
    message.mutable_ended()->set_number(++num_ends_);
    if (!error.ok()) {
      message.mutable_ended()->mutable_error()->set_code(static_cast<int>(error.code()));
      message.mutable_ended()->mutable_error()->set_message(std::string(error.message()));
    }
    channels_.to(decode).Receive(message);
  }
  void TickAlive() {
    for (int i = 0; i < channels_.num_opened(); ++i) channels_.opened(i).HeartbeatWhereGreeted();
    cluster_.Tick(now_);
  }
  // The other workers live on; the lost one does not come back in time.
  void WaitInVain() {
    for (const absl::Duration end = now_ + kReattachWaitMax; now_ < end;) {
      cluster_.Tick(now_ += WorkerLink::kTickInterval);
      for (int i = 0; i < channels_.num_opened(); ++i) channels_.opened(i).HeartbeatWhereGreeted();
    }
  }
  // The next stream to that worker, greeted; the messages that came on it so far.
  FakeChannelState& Reopen(const std::string& address, const std::string& instance, uint64_t incarnation) {
    cluster_.Tick(now_ += WorkerLink::kTickInterval);
    FakeChannelState& channel = channels_.to(address);
    channel.Greet(instance, incarnation);
    return channel;
  }
  int NumCancels(const std::string& decode) {
    const auto& sent = channels_.to(decode).sent;
    return static_cast<int>(std::count_if(sent.begin(), sent.end(), [](const auto& m) { return m.has_cancel(); }));
  }

  FakeChannels channels_;
  Cluster cluster_;
  absl::Duration now_ = absl::Seconds(100);
  uint64_t num_ends_ = 0;
};

}  // namespace tandem::router
