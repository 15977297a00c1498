#include "prefill_worker/router_service.h"

#include <utility>

#include "base/grpc_security.h"
#include "grpcpp/grpcpp.h"
#include "proto/worker.grpc.pb.h"
#include "worker_shell/grpc_listen.h"
#include "worker_shell/live_streams.h"

namespace tandem::prefill {

class RouterService::Core final : public proto::PrefillWorker::CallbackService {
 public:
  Core(worker_shell::LiveOptions options, base::PeerSecurity& security, const base::Clock& clock,
       worker_shell::LiveEvents events)
      : security_(security), live_(std::move(options), clock, std::move(events)) {}
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

  int port() const { return listener_.port; }
  worker_shell::LiveStreams& live() { return live_; }

 private:
  base::PeerSecurity& security_;
  worker_shell::LiveStreams live_;
  worker_shell::Listener listener_;
};

RouterService::RouterService(std::unique_ptr<Core> core) : core_(std::move(core)) {}
RouterService::~RouterService() = default;

absl::StatusOr<std::unique_ptr<RouterService>> RouterService::Start(const std::string& listen_address,
                                                                    worker_shell::LiveOptions options,
                                                                    base::PeerSecurity& security,
                                                                    const base::Clock& clock,
                                                                    worker_shell::LiveEvents events) {
  auto core = std::make_unique<Core>(std::move(options), security, clock, std::move(events));
  if (absl::Status status = core->Listen(listen_address); !status.ok()) return status;
  return std::unique_ptr<RouterService>(new RouterService(std::move(core)));
}

int RouterService::port() const { return core_->port(); }
int RouterService::num_routers() const { return core_->live().num_streams(); }
void RouterService::Send(uint64_t stream_id, proto::WorkerMessage message) {
  core_->live().Send(stream_id, std::move(message));
}
void RouterService::AnnounceDraining() { core_->live().AnnounceDraining(); }
void RouterService::Farewell(absl::Duration limit) { core_->live().Farewell(limit); }

}  // namespace tandem::prefill
