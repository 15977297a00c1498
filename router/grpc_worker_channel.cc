#include "router/grpc_worker_channel.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "base/grpc_security.h"
#include "grpcpp/grpcpp.h"
#include "proto/worker.grpc.pb.h"

namespace tandem::router {
namespace {

// Why a stream of the worker at that address ended; never without words.
absl::Status FromGrpc(const grpc::Status& status, const std::string& address, WorkerRole role) {
  if (status.ok()) return absl::UnavailableError("stream closed by the worker");
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  if (code == absl::StatusCode::kUnimplemented && status.error_message().empty()) {
    // The server has no service of this role: as a rule an address in the wrong list.
    const WorkerRole other = role == WorkerRole::kPrefill ? WorkerRole::kDecode : WorkerRole::kPrefill;
    return absl::Status(code, absl::StrCat(address, " is not a ", WorkerRoleName(role), " worker; is it a ",
                                           WorkerRoleName(other), " worker?"));
  }
  return absl::Status(code, status.error_message().empty() ? absl::StatusCodeToString(code) : status.error_message());
}

// A connection of its own: channels to one address would otherwise share one socket, and a prompt could hold up a
// cancel. Reconnecting is the link's business, so gRPC's own back-off must not stand in its way.
std::shared_ptr<grpc::Channel> OwnConnection(const std::string& address, base::PeerSecurity& security) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  return base::ConnectToPeer(address, std::move(arguments), security);
}

// What the channel's owner and gRPC's threads share: says whether the owner still wants to hear.
struct Owner {
  std::string address;  // of the worker
  WorkerRole role;
  PostToOwner post;
  WorkerChannel::Events events;
  bool is_listening = true;  // read and written on the owner's thread only

  void Closed(const absl::Status& cause) {
    if (!std::exchange(is_listening, false)) return;
    events.on_closed(cause);
  }
};

// One bidirectional stream. Whoever holds it keeps it until IsDone(), and lets it go on a thread that is not gRPC's:
// the call holds its connection, and gRPC cannot end its last connection from its own thread.
template <typename Request, typename Reply>
class Stream final : public grpc::ClientBidiReactor<Request, Reply>,
                     public std::enable_shared_from_this<Stream<Request, Reply>> {
 public:
  using OnReply = std::function<void(const Reply&)>;

  Stream(std::shared_ptr<Owner> owner, std::string name, OnReply on_reply)
      : owner_(std::move(owner)), name_(std::move(name)), on_reply_(std::move(on_reply)) {}

  grpc::ClientContext* context() { return &context_; }
  bool IsDone() const { return done_.HasBeenNotified(); }
  void AwaitDone() const { done_.WaitForNotification(); }

  // After the stub has bound the reactor to its call.
  void Start() {
    this->AddHold();  // Send() writes from outside of reactions
    this->StartRead(&incoming_);
    this->StartCall();
  }

  void Send(Request message) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    if (is_closed_) return;
    outgoing_.push_back(std::move(message));
    if (outgoing_.size() == 1) this->StartWrite(&outgoing_.front());
  }

  // Ends the call; OnDone() follows.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_) {
    context_.TryCancel();
    absl::MutexLock lock(&mutex_);
    is_closing_ = true;
    if (std::exchange(is_read_paused_, false)) this->StartRead(&incoming_);  // fails, and gives up the hold
  }

 private:
  void OnWriteDone(bool ok) override ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    outgoing_.pop_front();
    if (!ok || is_closed_) return;  // OnReadDone tells why
    if (!outgoing_.empty()) this->StartWrite(&outgoing_.front());
  }

  void OnReadDone(bool ok) override ABSL_LOCKS_EXCLUDED(mutex_) {
    if (!ok) {
      {
        absl::MutexLock lock(&mutex_);
        is_closed_ = true;
      }
      this->RemoveHold();
      return;
    }
    auto reply = std::make_shared<Reply>(std::move(incoming_));
    incoming_.Clear();
    owner_->post([self = this->shared_from_this(), reply] {
      if (self->owner_->is_listening) self->on_reply_(*reply);
      self->ReplyTaken();
    });
    absl::MutexLock lock(&mutex_);
    ++num_unread_;
    is_read_paused_ = num_unread_ >= kUnreadMax && !is_closing_;
    if (!is_read_paused_) this->StartRead(&incoming_);
  }

  // On the owner's thread. The hold stands while a read is paused, for only a failed read gives it up.
  void ReplyTaken() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    --num_unread_;
    if (std::exchange(is_read_paused_, false)) this->StartRead(&incoming_);
  }

  void OnDone(const grpc::Status& status) override {
    owner_->post([owner = owner_, cause = FromGrpc(status, owner_->address, owner_->role), name = name_] {
      owner->Closed(absl::Status(cause.code(), absl::StrCat(name, " stream: ", std::string(cause.message()))));
    });
    done_.Notify();  // the last access
  }

  const std::shared_ptr<Owner> owner_;
  const std::string name_;
  const OnReply on_reply_;
  grpc::ClientContext context_;
  Reply incoming_;
  absl::Notification done_;
  absl::Mutex mutex_;
  std::deque<Request> outgoing_ ABSL_GUARDED_BY(mutex_);  // front() is being written; bounded by the requests in flight
  int num_unread_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_read_paused_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_closing_ ABSL_GUARDED_BY(mutex_) = false;  // by us
  bool is_closed_ ABSL_GUARDED_BY(mutex_) = false;   // no write is started any more
};

using LiveStream = Stream<proto::RouterMessage, proto::WorkerMessage>;
using BulkStream = Stream<proto::GeneratePart, proto::BulkReply>;

// Streams that were closed and whose calls gRPC has not ended yet. Belongs to the owner's thread.
class ClosedStreams final {
 public:
  ~ClosedStreams() {
    for (const Pair& pair : pairs_) {
      pair.live->AwaitDone();
      if (pair.bulk != nullptr) pair.bulk->AwaitDone();
    }
  }
  void Add(std::shared_ptr<LiveStream> live, std::shared_ptr<BulkStream> bulk) {
    live->Close();
    if (bulk != nullptr) bulk->Close();
    pairs_.push_back({std::move(live), std::move(bulk)});
  }
  void Sweep() {
    const auto is_done = [](const Pair& pair) {
      return pair.live->IsDone() && (pair.bulk == nullptr || pair.bulk->IsDone());
    };
    pairs_.erase(std::remove_if(pairs_.begin(), pairs_.end(), is_done), pairs_.end());
  }

 private:
  struct Pair {
    std::shared_ptr<LiveStream> live;
    std::shared_ptr<BulkStream> bulk;  // nullptr of a prefill worker
  };
  std::vector<Pair> pairs_;
};

class GrpcWorkerChannel final : public WorkerChannel {
 public:
  GrpcWorkerChannel(const std::string& address, WorkerRole role, std::shared_ptr<ClosedStreams> closed_streams,
                    PostToOwner post, Events events, base::PeerSecurity& security)
      : closed_streams_(std::move(closed_streams)),
        owner_(std::make_shared<Owner>(Owner{address, role, std::move(post), std::move(events)})) {
    closed_streams_->Sweep();
    Owner* owner = owner_.get();  // lives as long as the streams that call it
    live_ = std::make_shared<LiveStream>(
        owner_, "live", [owner](const proto::WorkerMessage& message) { owner->events.on_message(message); });
    base::ShowToken(*live_->context(), security);
    if (role == WorkerRole::kPrefill) {
      prefill_live_stub_ = proto::PrefillWorker::NewStub(OwnConnection(address, security));
      prefill_live_stub_->async()->Live(live_->context(), live_.get());
      live_->Start();
      return;
    }
    bulk_ = std::make_shared<BulkStream>(
        owner_, "bulk", [owner](const proto::BulkReply& reply) { owner->events.on_bulk_reply(reply); });
    base::ShowToken(*bulk_->context(), security);
    decode_live_stub_ = proto::DecodeWorker::NewStub(OwnConnection(address, security));
    decode_bulk_stub_ = proto::DecodeWorker::NewStub(OwnConnection(address, security));
    decode_live_stub_->async()->Live(live_->context(), live_.get());
    decode_bulk_stub_->async()->Bulk(bulk_->context(), bulk_.get());
    live_->Start();
    bulk_->Start();
  }

  ~GrpcWorkerChannel() override {
    owner_->is_listening = false;
    closed_streams_->Add(std::move(live_), std::move(bulk_));
  }

  void Send(proto::RouterMessage message) override { live_->Send(std::move(message)); }
  void SendPart(proto::GeneratePart part) override { bulk_->Send(std::move(part)); }

 private:
  const std::shared_ptr<ClosedStreams> closed_streams_;
  const std::shared_ptr<Owner> owner_;
  std::shared_ptr<LiveStream> live_;
  std::shared_ptr<BulkStream> bulk_;
  std::unique_ptr<proto::PrefillWorker::Stub> prefill_live_stub_;
  std::unique_ptr<proto::DecodeWorker::Stub> decode_live_stub_;
  std::unique_ptr<proto::DecodeWorker::Stub> decode_bulk_stub_;
};

}  // namespace

WorkerChannelFactory MakeGrpcWorkerChannelFactory(PostToOwner post, base::PeerSecurity& security) {
  return [post = std::move(post), closed_streams = std::make_shared<ClosedStreams>(), &security](
             const std::string& address, WorkerRole role, WorkerChannel::Events events) {
    return std::make_unique<GrpcWorkerChannel>(address, role, closed_streams, post, std::move(events), security);
  };
}

}  // namespace tandem::router
