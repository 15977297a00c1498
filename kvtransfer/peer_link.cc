#include "kvtransfer/peer_link.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/check.h"
#include "base/grpc_security.h"
#include "kvtransfer/handshake.h"
#include "kvtransfer/message_stream.h"
#include "proto/kv_transfer.grpc.pb.h"

namespace tandem::kvtransfer {
namespace {

// The thread looks at the clock at least this often, so that a clock that is not the machine's works too.
constexpr absl::Duration kLookInterval = absl::Milliseconds(50);

absl::Status ToAbslStatus(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

// Two sides that do not fit, or do not know each other, will not in a moment either.
bool IsRefusal(const absl::Status& status) {
  return absl::IsFailedPrecondition(status) || absl::IsInvalidArgument(status) || absl::IsUnauthenticated(status);
}

// How prefill, or the network, ended the control stream. A cut one is seen as cancelled, reset or even OK.
absl::Status EndOf(const grpc::Status& result) {
  const absl::Status status = ToAbslStatus(result);
  if (absl::IsAborted(status) || absl::IsFailedPrecondition(status) || absl::IsUnauthenticated(status)) return status;
  return absl::UnavailableError(absl::StrCat("prefill closed the control stream: ", status.ToString()));
}

std::unique_ptr<proto::Bootstrap::Stub> NewStub(const std::string& address, base::PeerSecurity& security) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // one connection for each link, a fresh one for each try
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return proto::Bootstrap::NewStub(base::ConnectToPeer(address, std::move(arguments), security));
}

}  // namespace

class PeerLink::Core {
 public:
  Core(PeerLinkOptions options, const base::Clock& clock, std::function<EngineVitals()> vitals,
       std::function<void(PeerEvent)> on_event)
      : options_(std::move(options)),
        clock_(clock),
        vitals_(std::move(vitals)),
        on_event_(std::move(on_event)),
        backoff_(options_.retry_min, options_.retry_max),
        thread_([this] { Run(); }) {}

  ~Core() {
    {
      absl::MutexLock lock(&mutex_);
      is_stopping_ = true;
      has_news_ = true;
    }
    thread_.join();
  }

  void Send(uint64_t session, const proto::TransferMessage& message) {
    absl::MutexLock lock(&mutex_);
    if (phase_ != Phase::kUp || session != session_ || !end_.ok()) return;
    SendLocked(message);
  }

  void Reset(uint64_t session, const absl::Status& status) {
    absl::MutexLock lock(&mutex_);
    if (phase_ == Phase::kUp && session == session_) EndLocked(status);
  }

  const std::string& address() const { return options_.address; }

 private:
  enum class Phase { kWaiting, kGreeting, kOpening, kUp };

  struct Greeting {
    grpc::ClientContext context;
    proto::HelloReply reply;
    std::optional<grpc::Status> result;
  };

  // gRPC's end of the control stream. Lives until OnDone, then the link's thread deletes it.
  class Stream final : public MessageStream<grpc::ClientBidiReactor<proto::TransferMessage, proto::TransferMessage>> {
   public:
    Stream(Core& core, proto::Bootstrap::Stub& stub) : MessageStream(core.options_.send_queue_bytes_max), core_(core) {
      base::ShowToken(context_, *core_.options_.security);
      stub.async()->Control(&context_, this);
      AddHold();  // writes start outside of reactions, as long as reads are under way
      ReadFirst();
      StartCall();
    }
    void Cancel() {
      Stop();
      context_.TryCancel();
    }

   private:
    void OnMessage(proto::TransferMessage& message) override { core_.OnMessage(message); }
    void OnEnd() override {
      Stop();
      RemoveHold();
    }
    void OnDone(const grpc::Status& status) override { core_.OnStreamDone(status); }

    Core& core_;
    grpc::ClientContext context_;
  };

  // ---- The link's thread ----

  void Run() {
    if (const absl::Status status = ValidateAdvertisedAddress(options_.address); !status.ok()) {
      Emit(PeerDown{.session = 0, .status = status});
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(&is_stopping_));
      return;
    }
    while (Step()) {
      absl::MutexLock lock(&mutex_);
      mutex_.AwaitWithTimeout(absl::Condition(&has_news_), WaitLocked());
      has_news_ = false;
    }
  }

  // One look at everything. False at the end.
  bool Step() {
    const absl::Duration now = clock_.Now();
    const EngineVitals vitals = vitals_();
    std::optional<PeerDown> down;
    std::unique_ptr<Greeting> finished_greeting;  // destroyed outside of the lock
    std::unique_ptr<Stream> finished_stream;
    {
      absl::MutexLock lock(&mutex_);
      if (is_stopping_) EndLocked(absl::CancelledError("the link is closed"));
      switch (phase_) {
        case Phase::kWaiting:
          if (is_stopping_) return false;
          if (now >= phase_until_) GreetLocked(now);
          break;
        case Phase::kGreeting:
          if (now >= phase_until_) EndLocked(NoAnswer());
          if (!greeting_->result.has_value()) break;
          finished_greeting = std::move(greeting_);
          down = TakeGreetingLocked(now, *finished_greeting);
          break;
        case Phase::kOpening:
          if (now >= phase_until_) EndLocked(NoAnswer());
          if (stream_result_.has_value()) finished_stream = TakeStreamLocked(now, &down);
          break;
        case Phase::kUp:
          if (end_.ok()) EndLocked(liveness_->Check(now));
          if (end_.ok() && liveness_->IsHeartbeatDue(now)) HeartbeatLocked(now, vitals);
          if (!end_.ok() && !is_down_said_) {  // before the stream's own end, which may take gRPC a while
            down = PeerDown{.session = session_, .status = end_};
            is_down_said_ = true;
          }
          if (stream_result_.has_value()) finished_stream = TakeStreamLocked(now, &down);
          break;
      }
    }
    if (down.has_value()) Emit(*std::move(down));
    return true;
  }

  absl::Status NoAnswer() const {
    return absl::UnavailableError(absl::StrCat("prefill ", options_.address, " did not answer within ",
                                               absl::FormatDuration(options_.hello_timeout)));
  }

  void GreetLocked(absl::Duration now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    phase_ = Phase::kGreeting;
    phase_until_ = now + options_.hello_timeout;
    end_ = absl::OkStatus();
    is_down_said_ = false;
    stub_ = NewStub(options_.address, *options_.security);
    greeting_ = std::make_unique<Greeting>();
    Greeting* const greeting = greeting_.get();
    base::ShowToken(greeting->context, *options_.security);
    stub_->async()->Hello(&greeting->context, &options_.hello, &greeting->reply, [this, greeting](grpc::Status status) {
      absl::MutexLock lock(&mutex_);
      greeting->result = std::move(status);
      has_news_ = true;
    });
  }

  std::optional<PeerDown> TakeGreetingLocked(absl::Duration now, Greeting& greeting)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    absl::Status status = end_.ok() ? ToAbslStatus(*greeting.result) : end_;
    if (status.ok()) status = CheckHelloReply(options_.hello, greeting.reply);
    if (!status.ok()) return RetryLocked(now, status);
    reply_ = std::move(greeting.reply);
    phase_ = Phase::kOpening;
    phase_until_ = now + options_.hello_timeout;
    liveness_.emplace(options_.liveness, now);
    stream_result_.reset();
    stream_ = std::make_unique<Stream>(*this, *stub_);
    HeartbeatLocked(now, {});  // P takes the stream by its first message, and answers with its own
    return std::nullopt;
  }

  std::unique_ptr<Stream> TakeStreamLocked(absl::Duration now, std::optional<PeerDown>* down)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    absl::Status status = end_;
    if (status.ok()) status = EndOf(*stream_result_);
    const bool was_up = phase_ == Phase::kUp;
    const bool was_said = is_down_said_;
    if (was_up) {
      backoff_.Reset();
      phase_ = Phase::kWaiting;
      phase_until_ = now + (IsRefusal(status) ? options_.refused_retry : backoff_.Next());
      last_reason_ = status;
      if (!was_said) *down = PeerDown{.session = session_, .status = std::move(status)};
    } else {
      *down = RetryLocked(now, status);
    }
    return std::move(stream_);
  }

  // Back to waiting. What to say, where the reason is a new one.
  std::optional<PeerDown> RetryLocked(absl::Duration now, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    phase_ = Phase::kWaiting;
    const bool is_refusal = IsRefusal(status);
    phase_until_ = now + (is_refusal ? options_.refused_retry : backoff_.Next());
    // Of an unreachable peer gRPC says something else each time; a refusal's text is what people need.
    const bool is_known = last_reason_.code() == status.code() && (!is_refusal || last_reason_ == status);
    last_reason_ = status;
    if (is_known) return std::nullopt;
    return PeerDown{.session = 0, .status = status};
  }

  void EndLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (status.ok() || !end_.ok()) return;
    end_ = status;
    has_news_ = true;
    if (greeting_ != nullptr) greeting_->context.TryCancel();
    if (stream_ != nullptr) stream_->Cancel();
  }

  void HeartbeatLocked(absl::Duration now, const EngineVitals& vitals) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    proto::TransferMessage message;
    message.set_sender_incarnation(options_.hello.identity().incarnation());
    message.set_receiver_incarnation(reply_.identity().incarnation());
    *message.mutable_heartbeat() = liveness_->NextHeartbeat(now, vitals);
    SendLocked(message);
  }

  void SendLocked(const proto::TransferMessage& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!stream_->Send(message)) {
      EndLocked(absl::UnavailableError(
          absl::StrCat("prefill leaves more than ", options_.send_queue_bytes_max, " bytes unread")));
    }
  }

  absl::Duration WaitLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    absl::Duration due = phase_until_;
    if (phase_ == Phase::kUp) due = liveness_->NextDue();
    return std::clamp(due - clock_.Now(), absl::Milliseconds(1), kLookInterval);
  }

  // ---- gRPC's threads ----

  void OnMessage(proto::TransferMessage& message) {
    absl::MutexLock emit_lock(&emit_mutex_);
    std::optional<PeerEvent> event;
    {
      absl::MutexLock lock(&mutex_);
      if (!end_.ok()) return;
      if (message.sender_incarnation() != reply_.identity().incarnation() ||
          message.receiver_incarnation() != options_.hello.identity().incarnation()) {
        return EndLocked(absl::AbortedError("prefill spoke for another incarnation"));
      }
      const absl::Duration now = clock_.Now();
      liveness_->Heard(now);
      if (message.has_heartbeat()) liveness_->HeardHeartbeat(now, message.heartbeat());
      if (phase_ == Phase::kOpening) {
        phase_ = Phase::kUp;
        ++session_;
        backoff_.Reset();
        last_reason_ = absl::OkStatus();
        has_news_ = true;
        event = PeerUp{.session = session_, .reply = reply_};
      } else if (!message.has_heartbeat()) {
        event = PeerMessage{.session = session_, .message = std::move(message)};
      }
    }
    if (event.has_value()) on_event_(*std::move(event));
  }

  void OnStreamDone(const grpc::Status& status) {
    absl::MutexLock lock(&mutex_);
    stream_result_ = status;
    has_news_ = true;
  }

  void Emit(PeerDown down) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock emit_lock(&emit_mutex_);
    {
      absl::MutexLock lock(&mutex_);
      if (is_stopping_) return;
    }
    on_event_(std::move(down));
  }

  const PeerLinkOptions options_;
  const base::Clock& clock_;
  const std::function<EngineVitals()> vitals_;
  const std::function<void(PeerEvent)> on_event_;

  absl::Mutex emit_mutex_ ABSL_ACQUIRED_BEFORE(mutex_);  // one event at a time
  absl::Mutex mutex_;
  Phase phase_ ABSL_GUARDED_BY(mutex_) = Phase::kWaiting;
  absl::Duration phase_until_ ABSL_GUARDED_BY(mutex_) = -absl::InfiniteDuration();
  absl::Status end_ ABSL_GUARDED_BY(mutex_);  // why the greeting or the stream under way was given up; OK: it was not
  bool is_down_said_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status last_reason_ ABSL_GUARDED_BY(mutex_);  // of the last PeerDown; OK while up and before the first
  uint64_t session_ ABSL_GUARDED_BY(mutex_) = 0;
  proto::HelloReply reply_ ABSL_GUARDED_BY(mutex_);
  std::optional<LinkLiveness> liveness_ ABSL_GUARDED_BY(mutex_);
  Backoff backoff_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<proto::Bootstrap::Stub> stub_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Greeting> greeting_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Stream> stream_ ABSL_GUARDED_BY(mutex_);
  std::optional<grpc::Status> stream_result_ ABSL_GUARDED_BY(mutex_);
  bool has_news_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses everything above
};

PeerLink::PeerLink(PeerLinkOptions options, const base::Clock& clock, std::function<EngineVitals()> vitals,
                   std::function<void(PeerEvent)> on_event)
    : core_(std::make_unique<Core>(std::move(options), clock, std::move(vitals), std::move(on_event))) {}

PeerLink::~PeerLink() = default;

void PeerLink::Send(uint64_t session, const proto::TransferMessage& message) { core_->Send(session, message); }

void PeerLink::Reset(uint64_t session, const absl::Status& status) { core_->Reset(session, status); }

const std::string& PeerLink::address() const { return core_->address(); }

}  // namespace tandem::kvtransfer
