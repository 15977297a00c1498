#include "decode_worker/router_service.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/grpc_security.h"
#include "base/log.h"
#include "grpcpp/grpcpp.h"
#include "proto/worker.grpc.pb.h"
#include "worker_shell/grpc_listen.h"
#include "worker_shell/live_streams.h"
#include "worker_shell/server_stream.h"

namespace tandem::decode {
namespace {

// What BulkReplies of one stream may queue up to; each is small and ends a request.
constexpr size_t kBulkReplyBytesMax = size_t{1} << 20;

using BulkReactor = grpc::ServerBidiReactor<proto::GeneratePart, proto::BulkReply>;

class BulkStream final : public worker_shell::ServerStream<proto::GeneratePart, proto::BulkReply> {
 public:
  BulkStream(grpc::CallbackServerContext* context, const AssemblerLimits& limits, const worker_shell::LiveStreams& live,
             const std::function<absl::Status(GenerateRequest)>& generate)
      : ServerStream(context, kBulkReplyBytesMax), live_(live), generate_(generate), assembler_(limits) {}

 private:
  void OnMessage(proto::GeneratePart part) override {
    const proto::RequestKey key = part.key();
    auto request = assembler_.Add(std::move(part));
    absl::Status status = request.status();
    if (status.ok()) {
      if (!request->has_value()) return;
      if (live_.IsAttached(key.router_incarnation())) {
        status = generate_(*std::move(*request));
      } else {
        status = absl::UnavailableError("the router has no Live stream that could carry the answer");
      }
    }
    if (status.ok()) return;
    proto::BulkReply reply;
    *reply.mutable_key() = key;
    reply.mutable_error()->set_code(static_cast<int>(status.code()));
    reply.mutable_error()->set_message(std::string(status.message()));
    Send(std::move(reply));
  }
  void OnEnded() override {}

  const worker_shell::LiveStreams& live_;
  const std::function<absl::Status(GenerateRequest)>& generate_;
  GenerateAssembler assembler_;
};

}  // namespace

class RouterService::Core final : public proto::DecodeWorker::CallbackService {
 public:
  Core(const RouterServiceOptions& options, const base::Clock& clock, worker_shell::LiveEvents events,
       std::function<absl::Status(GenerateRequest)> generate)
      : security_(*options.security),
        assembler_limits_(options.assembler),
        generate_(std::move(generate)),
        live_(options.live, clock, std::move(events)) {}
  ~Core() override {
    if (listener_.server != nullptr) worker_shell::ShutDown(*listener_.server);
  }

  absl::Status Listen(const std::string& address) {
    auto listener = worker_shell::Listen(address, *this, security_);
    if (!listener.ok()) return listener.status();
    listener_ = *std::move(listener);
    return absl::OkStatus();
  }

  worker_shell::LiveReactor* Live(grpc::CallbackServerContext* context) override {
    const grpc::Status known = base::CheckToken(*context, security_);
    if (!known.ok()) return base::RefusedCall<proto::RouterMessage, proto::WorkerMessage>::With(known);
    return live_.Open(context);
  }
  BulkReactor* Bulk(grpc::CallbackServerContext* context) override {
    const grpc::Status known = base::CheckToken(*context, security_);
    if (!known.ok()) return base::RefusedCall<proto::GeneratePart, proto::BulkReply>::With(known);
    return std::make_shared<BulkStream>(context, assembler_limits_, live_, generate_)->Run();
  }

  int port() const { return listener_.port; }
  worker_shell::LiveStreams& live() { return live_; }

 private:
  base::PeerSecurity& security_;
  const AssemblerLimits assembler_limits_;
  const std::function<absl::Status(GenerateRequest)> generate_;
  worker_shell::LiveStreams live_;
  worker_shell::Listener listener_;
};

RouterService::RouterService(std::unique_ptr<Core> core) : core_(std::move(core)) {}
RouterService::~RouterService() = default;

absl::StatusOr<std::unique_ptr<RouterService>> RouterService::Start(
    RouterServiceOptions options, const base::Clock& clock, worker_shell::LiveEvents events,
    std::function<absl::Status(GenerateRequest)> generate) {
  auto core = std::make_unique<Core>(options, clock, std::move(events), std::move(generate));
  if (absl::Status status = core->Listen(options.listen_address); !status.ok()) return status;
  return std::unique_ptr<RouterService>(new RouterService(std::move(core)));
}

int RouterService::port() const { return core_->port(); }
int RouterService::num_routers() const { return core_->live().num_streams(); }
size_t RouterService::num_queued_bytes() const { return core_->live().num_queued_bytes(); }
void RouterService::Send(uint64_t stream_id, proto::WorkerMessage message) {
  core_->live().Send(stream_id, std::move(message));
}
void RouterService::AnnounceDraining() { core_->live().AnnounceDraining(); }
void RouterService::Farewell(absl::Duration limit) { core_->live().Farewell(limit); }

}  // namespace tandem::decode
