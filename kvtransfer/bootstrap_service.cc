#include "kvtransfer/bootstrap_service.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/check.h"
#include "base/grpc_security.h"
#include "base/listen_failure.h"
#include "base/status_macros.h"
#include "kvtransfer/handshake.h"
#include "kvtransfer/message_stream.h"
#include "proto/instance_succession.h"
#include "proto/kv_transfer.grpc.pb.h"

namespace tandem::kvtransfer {
namespace {

// The thread looks at the clock at least this often, so that a clock that is not the machine's works too.
constexpr absl::Duration kLookInterval = absl::Milliseconds(50);
// Decode workers that have greeted and not opened their stream yet.
constexpr size_t kGreetedMax = 1024;

grpc::Status ToGrpcStatus(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

}  // namespace

class BootstrapService::Core final : public proto::Bootstrap::CallbackService {
 public:
  Core(BootstrapOptions options, const base::Clock& clock, std::function<EngineVitals()> vitals,
       std::function<void(BootstrapEvent)> on_event)
      : options_(std::move(options)), clock_(clock), vitals_(std::move(vitals)), on_event_(std::move(on_event)) {}

  ~Core() override {
    if (server_ == nullptr) return;
    {
      absl::MutexLock lock(&mutex_);
      is_stopping_ = true;
    }
    thread_.join();
    // Cancels every call and waits until gRPC has let go of all streams.
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
  }

  absl::Status Listen() {
    grpc::ServerBuilder builder;
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // two workers on one port are a mistake
    builder.AddListeningPort(options_.listen.ToString(), base::PeerServerCredentials(*options_.security), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port_ == 0) {
      server_ = nullptr;
      return base::ListenFailure(options_.listen, "decode workers");
    }
    thread_ = std::thread([this] { Run(); });
    return absl::OkStatus();
  }

  int port() const { return port_; }

  void Send(uint64_t target_incarnation, const proto::TransferMessage& message) {
    absl::MutexLock lock(&mutex_);
    const auto it = sessions_.find(target_incarnation);
    if (it != sessions_.end()) SendLocked(*it->second, message);
  }

  size_t num_sessions() {
    absl::MutexLock lock(&mutex_);
    return sessions_.size();
  }

 private:
  // gRPC's end of one control stream. Holds itself until OnDone.
  class Stream final : public MessageStream<grpc::ServerBidiReactor<proto::TransferMessage, proto::TransferMessage>> {
   public:
    Stream(Core& core, grpc::CallbackServerContext* context)
        : MessageStream(core.options_.send_queue_bytes_max), core_(core), context_(context) {}

    void Begin(std::shared_ptr<Stream> self) {
      self_ = std::move(self);
      ReadFirst();
    }
    // Ends the stream with this status, once. A stuck write would keep it alive: `is_broken` gives that up too.
    void End(const absl::Status& status, bool is_broken) {
      Stop();
      if (is_finished_.exchange(true)) return;
      if (is_broken) context_->TryCancel();
      Finish(ToGrpcStatus(status));
    }

    // Guarded by the core's mutex. 0 until the first message.
    uint64_t target_incarnation = 0;
    std::optional<LinkLiveness> liveness;
    absl::Status fault;  // found by a sender; the service's thread ends the session

   private:
    void OnMessage(proto::TransferMessage& message) override { core_.OnMessage(self_, message); }
    void OnEnd() override {
      core_.EndSession(*this, absl::UnavailableError("decode closed the control stream"));
      End(absl::OkStatus(), /*is_broken=*/false);
    }
    void OnDone() override { self_.reset(); }

    Core& core_;
    grpc::CallbackServerContext* const context_;
    std::atomic<bool> is_finished_ = false;
    std::shared_ptr<Stream> self_;
  };

  // ---- gRPC's threads ----

  grpc::ServerUnaryReactor* Hello(grpc::CallbackServerContext* context, const proto::HelloRequest* hello,
                                  proto::HelloReply* reply) override {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    const grpc::Status known = base::CheckToken(*context, *options_.security);
    reactor->Finish(known.ok() ? ToGrpcStatus(Greet(*hello, *reply)) : known);
    return reactor;
  }

  absl::Status Greet(const proto::HelloRequest& hello, proto::HelloReply& reply) {
    RETURN_IF_ERROR(CheckHello(hello, options_.hello));
    {
      absl::MutexLock lock(&mutex_);
      RETURN_IF_ERROR(succession_.Greet(hello.identity()));
    }
    reply = options_.hello;
    // A restarted decode worker is a new one: what its predecessor held ends before the newcomer gets anything.
    EndSessionsOf(hello.identity(), absl::AbortedError("replaced by a later incarnation"), /*all=*/false);
    if (options_.offer_lanes) {
      ASSIGN_OR_RETURN(const std::vector<proto::SourceRank> ranks, options_.offer_lanes(hello));
      reply.mutable_ranks()->Assign(ranks.begin(), ranks.end());
    }
    absl::MutexLock lock(&mutex_);
    std::erase_if(greeted_, [&](const proto::HelloRequest& other) {
      return other.identity().instance() == hello.identity().instance();
    });
    greeted_.push_back(hello);
    if (greeted_.size() > kGreetedMax) greeted_.pop_front();
    return absl::OkStatus();
  }

  grpc::ServerBidiReactor<proto::TransferMessage, proto::TransferMessage>* Control(
      grpc::CallbackServerContext* context) override {
    if (const grpc::Status known = base::CheckToken(*context, *options_.security); !known.ok()) {
      return base::RefusedCall<proto::TransferMessage, proto::TransferMessage>::With(known);
    }
    auto stream = std::make_shared<Stream>(*this, context);
    stream->Begin(stream);
    return stream.get();
  }

  void OnMessage(const std::shared_ptr<Stream>& stream, proto::TransferMessage& message) {
    const uint64_t sender = message.sender_incarnation();
    bool is_new = false;
    {
      absl::MutexLock lock(&mutex_);
      is_new = stream->target_incarnation == 0;
    }
    if (message.receiver_incarnation() != options_.hello.identity().incarnation()) {
      return Break(*stream, absl::AbortedError("spoken to an earlier incarnation of prefill"));
    }
    if (is_new && !OpenSession(stream, sender)) {
      return Break(*stream, absl::FailedPreconditionError("greet with Hello before opening Control"));
    }
    absl::MutexLock emit_lock(&emit_mutex_);
    {
      absl::MutexLock lock(&mutex_);
      if (!IsCurrentLocked(*stream)) return;
      if (!is_new) {  // the first message is the session's beginning
        const absl::Duration now = clock_.Now();
        stream->liveness->Heard(now);
        if (message.has_heartbeat()) stream->liveness->HeardHeartbeat(now, message.heartbeat());
      }
    }
    if (sender != stream->target_incarnation) return;  // of no session: cannot be answered
    if (!message.has_heartbeat()) {
      EmitLocked(TargetMessage{.target_incarnation = sender, .message = std::move(message)});
    }
  }

  // The stream's first message names its decode worker, which must have greeted.
  bool OpenSession(const std::shared_ptr<Stream>& stream, uint64_t incarnation) {
    std::optional<proto::HelloRequest> hello;
    {
      absl::MutexLock lock(&mutex_);
      const auto it = std::find_if(greeted_.begin(), greeted_.end(), [&](const proto::HelloRequest& greeted) {
        return greeted.identity().incarnation() == incarnation;
      });
      if (it == greeted_.end()) return false;
      hello = std::move(*it);
      greeted_.erase(it);
    }
    EndSessionsOf(hello->identity(), absl::AbortedError("replaced by a later stream"), /*all=*/true);
    const EngineVitals vitals = vitals_();
    absl::MutexLock emit_lock(&emit_mutex_);
    {
      absl::MutexLock lock(&mutex_);
      if (sessions_.contains(incarnation)) return false;  // two streams at once: the later one greets again
      const absl::Duration now = clock_.Now();
      stream->target_incarnation = incarnation;
      stream->liveness.emplace(options_.liveness, now);
      sessions_[incarnation] = stream;
      instances_[incarnation] = hello->identity().instance();
    }
    EmitLocked(TargetUp{.hello = *std::move(hello)});
    absl::MutexLock lock(&mutex_);
    HeartbeatLocked(*stream, clock_.Now(), vitals);  // tells D that the session is open
    return true;
  }

  // ---- Sessions ----

  bool IsCurrentLocked(const Stream& stream) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto it = sessions_.find(stream.target_incarnation);
    return it != sessions_.end() && it->second.get() == &stream;
  }

  // Says TargetDown where the stream is a session.
  void EndSession(Stream& stream, const absl::Status& status) {
    absl::MutexLock emit_lock(&emit_mutex_);
    {
      absl::MutexLock lock(&mutex_);
      if (!IsCurrentLocked(stream)) return;
      sessions_.erase(stream.target_incarnation);
      instances_.erase(stream.target_incarnation);
    }
    EmitLocked(TargetDown{.target_incarnation = stream.target_incarnation, .status = status});
  }

  void Break(Stream& stream, const absl::Status& status) {
    EndSession(stream, status);
    stream.End(status, /*is_broken=*/false);
  }

  // Of other incarnations of the instance; of this one too where `all`.
  void EndSessionsOf(const proto::Identity& identity, const absl::Status& status, bool all) {
    std::vector<std::shared_ptr<Stream>> streams;
    {
      absl::MutexLock lock(&mutex_);
      for (const auto& [incarnation, stream] : sessions_) {
        if (instances_.at(incarnation) == identity.instance() && (all || incarnation != identity.incarnation())) {
          streams.push_back(stream);
        }
      }
    }
    for (const std::shared_ptr<Stream>& stream : streams) {
      EndSession(*stream, status);
      stream->End(status, /*is_broken=*/true);
    }
  }

  void SendLocked(Stream& stream, const proto::TransferMessage& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (stream.Send(message)) return;
    stream.fault = absl::UnavailableError(
        absl::StrCat("decode leaves more than ", options_.send_queue_bytes_max, " bytes unread"));
  }

  void HeartbeatLocked(Stream& stream, absl::Duration now, const EngineVitals& vitals)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    proto::TransferMessage message;
    message.set_sender_incarnation(options_.hello.identity().incarnation());
    message.set_receiver_incarnation(stream.target_incarnation);
    *message.mutable_heartbeat() = stream.liveness->NextHeartbeat(now, vitals);
    SendLocked(stream, message);
  }

  void EmitLocked(BootstrapEvent event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(emit_mutex_) {
    {
      absl::MutexLock lock(&mutex_);
      if (is_stopping_) return;
    }
    on_event_(std::move(event));
  }

  // ---- The service's own thread: heartbeats and silence ----

  void Run() {
    while (true) {
      const EngineVitals vitals = vitals_();
      const absl::Duration now = clock_.Now();
      absl::Duration next_due = now + kLookInterval;
      std::vector<std::pair<std::shared_ptr<Stream>, absl::Status>> ended;
      {
        absl::MutexLock lock(&mutex_);
        for (const auto& [incarnation, stream] : sessions_) {
          const absl::Status status = stream->fault.ok() ? stream->liveness->Check(now) : stream->fault;
          if (!status.ok()) {
            ended.emplace_back(stream, status);
            continue;
          }
          if (stream->liveness->IsHeartbeatDue(now)) HeartbeatLocked(*stream, now, vitals);
          next_due = std::min(next_due, stream->liveness->NextDue());
        }
      }
      for (const auto& [stream, status] : ended) {
        EndSession(*stream, status);
        stream->End(status, /*is_broken=*/true);
      }
      ended.clear();
      absl::MutexLock lock(&mutex_);
      const absl::Duration wait = std::clamp(next_due - clock_.Now(), absl::Milliseconds(1), kLookInterval);
      if (mutex_.AwaitWithTimeout(absl::Condition(&is_stopping_), wait)) return;
    }
  }

  const BootstrapOptions options_;
  const base::Clock& clock_;
  const std::function<EngineVitals()> vitals_;
  const std::function<void(BootstrapEvent)> on_event_;

  absl::Mutex emit_mutex_ ABSL_ACQUIRED_BEFORE(mutex_);  // one event at a time
  absl::Mutex mutex_;
  proto::InstanceSuccession succession_ ABSL_GUARDED_BY(mutex_) = proto::InstanceSuccession("decode worker");
  std::deque<proto::HelloRequest> greeted_ ABSL_GUARDED_BY(mutex_);               // without a stream yet, oldest first
  std::map<uint64_t, std::shared_ptr<Stream>> sessions_ ABSL_GUARDED_BY(mutex_);  // by target incarnation
  std::map<uint64_t, std::string> instances_ ABSL_GUARDED_BY(mutex_);             // same keys
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  std::thread thread_;
};

absl::StatusOr<std::unique_ptr<BootstrapService>> BootstrapService::Start(
    BootstrapOptions options, const base::Clock& clock, std::function<EngineVitals()> vitals,
    std::function<void(BootstrapEvent)> on_event) {
  auto core = std::make_unique<Core>(std::move(options), clock, std::move(vitals), std::move(on_event));
  RETURN_IF_ERROR(core->Listen());
  return std::unique_ptr<BootstrapService>(new BootstrapService(std::move(core)));
}

BootstrapService::BootstrapService(std::unique_ptr<Core> core) : core_(std::move(core)) {}
BootstrapService::~BootstrapService() = default;

int BootstrapService::port() const { return core_->port(); }

void BootstrapService::Send(uint64_t target_incarnation, const proto::TransferMessage& message) {
  core_->Send(target_incarnation, message);
}

size_t BootstrapService::num_sessions() const { return core_->num_sessions(); }

}  // namespace tandem::kvtransfer
