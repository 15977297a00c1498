// WorkerChannels without sockets: tests see what was sent and say what comes back.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "router/worker_channel.h"

namespace tandem::router {

// What a test holds of one channel; outlives it.
struct FakeChannelState {
  std::string address;
  WorkerRole role = WorkerRole::kDecode;
  WorkerChannel::Events events;
  std::vector<proto::RouterMessage> sent;
  std::vector<proto::GeneratePart> parts;
  bool is_greeted = false;
  bool is_open = true;  // false once the router has let it go

  void Receive(const proto::WorkerMessage& message) {
    if (is_open) events.on_message(message);
  }
  void Greet(const std::string& instance, uint64_t incarnation, const std::string& bootstrap_address = "") {
    is_greeted = true;
    proto::WorkerMessage message;
    proto::WorkerHello* hello = message.mutable_hello();
    hello->mutable_identity()->set_instance(instance);
    hello->mutable_identity()->set_incarnation(incarnation);
    hello->mutable_identity()->set_role(WorkerRoleName(role));
    hello->mutable_identity()->set_protocol_version(1);
    hello->set_bootstrap_address(bootstrap_address);
    Receive(message);
  }
  void Heartbeat() {
    proto::WorkerMessage message;
    message.mutable_heartbeat();
    Receive(message);
  }
  void HeartbeatWhereGreeted() {
    if (is_greeted) Heartbeat();
  }
  void Break(const absl::Status& cause) {
    if (is_open) events.on_closed(cause);
  }
};

class FakeChannels final {
 public:
  WorkerChannelFactory Factory() {
    return [this](const std::string& address, WorkerRole role, WorkerChannel::Events events) {
      auto state = std::make_shared<FakeChannelState>();
      state->address = address;
      state->role = role;
      state->events = std::move(events);
      opened_.push_back(state);
      return std::make_unique<Channel>(state);
    };
  }
  int num_opened() const { return static_cast<int>(opened_.size()); }
  FakeChannelState& opened(int index) { return *opened_.at(index); }
  FakeChannelState& last() { return *opened_.back(); }
  // The channel now open to an address; the test fails where there is none.
  FakeChannelState& to(const std::string& address) {
    for (auto it = opened_.rbegin(); it != opened_.rend(); ++it) {
      if ((*it)->address == address && (*it)->is_open) return **it;
    }
    return *opened_.at(opened_.size());
  }

 private:
  class Channel final : public WorkerChannel {
   public:
    explicit Channel(std::shared_ptr<FakeChannelState> state) : state_(std::move(state)) {}
    ~Channel() override { state_->is_open = false; }
    void Send(proto::RouterMessage message) override { state_->sent.push_back(std::move(message)); }
    void SendPart(proto::GeneratePart part) override { state_->parts.push_back(std::move(part)); }

   private:
    const std::shared_ptr<FakeChannelState> state_;
  };
  std::vector<std::shared_ptr<FakeChannelState>> opened_;
};

}  // namespace tandem::router
