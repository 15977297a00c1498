// A simulated worker's end of its routers' streams: what worker_shell/live_streams and decode_worker/router_service do
// over gRPC, over SimLinks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "decode_worker/generate_assembler.h"
#include "proto/worker.pb.h"
#include "router/worker_channel.h"
#include "tests/sim/event_queue.h"
#include "tests/sim/sim_link.h"

namespace tandem::sim {

// The router's end of one connection; `events` are silenced when the router lets go of it.
struct SimChannelClient {
  std::shared_ptr<SimLink> link;
  std::shared_ptr<router::WorkerChannel::Events> events;  // null: silenced
};

class SimLiveServer final : public std::enable_shared_from_this<SimLiveServer> {
 public:
  struct Hooks {
    std::function<void(uint64_t stream, const proto::Identity& router)> attached;
    std::function<void(uint64_t stream, const proto::RouterMessage& message)> message;
    std::function<void(uint64_t stream)> lost;
    std::function<void(decode::GenerateRequest)> generate;  // decode workers only
    std::function<proto::Load()> load;
  };

  static constexpr absl::Duration kHeartbeatInterval = absl::Milliseconds(250);

  SimLiveServer(EventQueue& events, proto::WorkerHello hello, Hooks hooks)
      : events_(events), hello_(std::move(hello)), hooks_(std::move(hooks)) {}

  void Start() { Beat(); }
  // The worker dies.
  void Stop() {
    is_stopped_ = true;
    for (auto& [stream, connection] : std::exchange(streams_, {})) connection.client->link->Close(LinkEnd::kServer);
  }

  void Open(const std::shared_ptr<SimChannelClient>& client) {
    const uint64_t stream = next_stream_++;
    streams_.emplace(stream, Connection{.client = client});
    client->link->OnClosed(LinkEnd::kServer, [weak = weak_from_this(), stream] {
      if (auto self = weak.lock()) self->Lose(stream);
    });
  }
  void Receive(const std::shared_ptr<SimLink>& link, proto::RouterMessage message) {
    const auto it = Find(link);
    if (it == streams_.end()) return;
    if (message.has_hello()) {
      it->second.router = message.hello().incarnation();
      newest_[it->second.router] = it->first;
      proto::WorkerMessage reply;
      *reply.mutable_hello() = hello_;
      SendOn(it->second, std::move(reply));
      hooks_.attached(it->first, message.hello());
    } else if (!message.has_heartbeat()) {
      hooks_.message(it->first, message);
    }
  }
  void ReceivePart(const std::shared_ptr<SimLink>& link, proto::GeneratePart part) {
    const auto it = Find(link);
    if (it == streams_.end()) return;
    const proto::RequestKey key = part.key();
    auto request = it->second.assembler.Add(std::move(part));
    absl::Status status = request.status();
    if (status.ok()) {
      if (!request->has_value()) return;
      if (newest_.contains(key.router_incarnation())) {
        hooks_.generate(*std::move(*request));
      } else {
        status = absl::UnavailableError("no live stream");
      }
    }
    if (status.ok()) return;
    proto::BulkReply reply;
    *reply.mutable_key() = key;
    reply.mutable_error()->set_code(static_cast<int>(status.code()));
    reply.mutable_error()->set_message(std::string(status.message()));
    link->Send(LinkEnd::kServer, 1, [client = it->second.client, reply] {
      if (client->events != nullptr) client->events->on_bulk_reply(reply);
    });
  }
  void Send(uint64_t stream, proto::WorkerMessage message) {
    const auto it = streams_.find(stream);
    if (it != streams_.end()) SendOn(it->second, std::move(message));
  }

 private:
  struct Connection {
    std::shared_ptr<SimChannelClient> client;
    uint64_t router = 0;
    decode::GenerateAssembler assembler{{.num_partial_requests_max = 64, .num_tokens_max = 1 << 20}};
  };
  using Streams = std::map<uint64_t, Connection>;

  Streams::iterator Find(const std::shared_ptr<SimLink>& link) {
    auto it = streams_.begin();
    while (it != streams_.end() && it->second.client->link != link) ++it;
    return it;
  }
  void SendOn(Connection& connection, proto::WorkerMessage message) {
    connection.client->link->Send(LinkEnd::kServer, 0, [client = connection.client, message = std::move(message)] {
      if (client->events != nullptr) client->events->on_message(message);
    });
  }
  void Lose(uint64_t stream) {
    const auto it = streams_.find(stream);
    if (it == streams_.end()) return;
    const uint64_t router = it->second.router;
    streams_.erase(it);
    const auto newest = newest_.find(router);
    if (newest != newest_.end() && newest->second == stream) newest_.erase(newest);
    if (router != 0) hooks_.lost(stream);
  }
  void Beat() {
    if (is_stopped_) return;
    for (auto& [stream, connection] : streams_) {
      if (connection.router == 0) continue;
      proto::WorkerMessage message;
      message.mutable_heartbeat()->set_sequence(++num_beats_);
      SendOn(connection, message);
      *message.mutable_load() = hooks_.load();
      SendOn(connection, message);
    }
    events_.After(kHeartbeatInterval, [weak = weak_from_this()] {
      if (auto self = weak.lock()) self->Beat();
    });
  }

  EventQueue& events_;
  const proto::WorkerHello hello_;
  const Hooks hooks_;
  Streams streams_;
  std::map<uint64_t, uint64_t> newest_;  // router incarnation -> stream
  uint64_t next_stream_ = 1;
  uint64_t num_beats_ = 0;
  bool is_stopped_ = false;
};

}  // namespace tandem::sim
