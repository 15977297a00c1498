#include "router/grpc_worker_channel.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
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

// Takes the completions of all streams, on one thread. gRPC's own threads for callbacks hand each other the right to
// poll at every completion: several switches of threads a message, which cost more than all that we do with it.
class Completions final {
 public:
  using Completion = std::function<void(bool is_ok)>;  // a tag is a pointer to one; runs once for each operation

  Completions() : thread_([this] { Run(); }) {}
  // No operation is under way any more.
  ~Completions() {
    queue_.Shutdown();
    thread_.join();
  }
  grpc::CompletionQueue* queue() { return &queue_; }

 private:
  void Run() {
    void* tag = nullptr;
    for (bool is_ok = false; queue_.Next(&tag, &is_ok);) (*static_cast<Completion*>(tag))(is_ok);
  }
  grpc::CompletionQueue queue_;
  std::thread thread_;
};

// One bidirectional stream. Whoever holds it keeps it until IsDone(), and lets it go on a thread that is not gRPC's:
// the call holds its connection, and gRPC cannot end its last connection from its own thread.
template <typename Request, typename Reply>
class Stream final : public std::enable_shared_from_this<Stream<Request, Reply>> {
 public:
  using OnReply = std::function<void(const Reply&)>;
  using Call = grpc::ClientAsyncReaderWriter<Request, Reply>;

  Stream(std::shared_ptr<Owner> owner, std::string name, OnReply on_reply)
      : owner_(std::move(owner)), name_(std::move(name)), on_reply_(std::move(on_reply)) {}

  grpc::ClientContext* context() { return &context_; }
  bool IsDone() const { return done_.HasBeenNotified(); }
  void AwaitDone() const { done_.WaitForNotification(); }

  // A call of this context, not started.
  void Start(std::unique_ptr<Call> call) {
    call_ = std::move(call);
    call_->StartCall(&on_started_);
  }

  void Send(Request message) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    if (is_closed_) return;
    outgoing_.push_back(std::move(message));
    WriteNext();
  }

  // Ends the call; IsDone() follows.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_) {
    context_.TryCancel();
    absl::MutexLock lock(&mutex_);
    is_closing_ = true;
    if (std::exchange(is_read_paused_, false)) call_->Read(&incoming_, &on_read_);  // fails, and so the call finishes
  }

 private:
  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!is_started_ || is_closed_ || is_writing_ || outgoing_.empty()) return;
    is_writing_ = true;
    call_->Write(outgoing_.front(), &on_written_);
  }

  void OnStarted(bool is_ok) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    if (!is_ok) return Finish();
    is_started_ = true;
    call_->Read(&incoming_, &on_read_);
    WriteNext();
  }

  void OnWritten(bool is_ok) ABSL_LOCKS_EXCLUDED(mutex_) {
    bool is_last = false;
    {
      absl::MutexLock lock(&mutex_);
      is_writing_ = false;
      outgoing_.pop_front();
      if (is_ok) WriteNext();  // else OnRead tells why
      is_last = is_finished_;
    }
    if (is_last) done_.Notify();  // the last access
  }

  void OnRead(bool is_ok) ABSL_LOCKS_EXCLUDED(mutex_) {
    if (!is_ok) {
      absl::MutexLock lock(&mutex_);
      return Finish();
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
    if (!is_read_paused_) call_->Read(&incoming_, &on_read_);
  }

  // On the owner's thread.
  void ReplyTaken() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    --num_unread_;
    if (std::exchange(is_read_paused_, false)) call_->Read(&incoming_, &on_read_);
  }

  // Asks why the call has ended. No read is under way, none follows.
  void Finish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    is_closed_ = true;
    call_->Finish(&status_, &on_finished_);
  }

  void OnFinished() ABSL_LOCKS_EXCLUDED(mutex_) {
    owner_->post([owner = owner_, cause = FromGrpc(status_, owner_->address, owner_->role), name = name_] {
      owner->Closed(absl::Status(cause.code(), absl::StrCat(name, " stream: ", std::string(cause.message()))));
    });
    bool is_last = false;
    {
      absl::MutexLock lock(&mutex_);
      is_finished_ = true;
      is_last = !is_writing_;
    }
    if (is_last) done_.Notify();  // the last access
  }

  const std::shared_ptr<Owner> owner_;
  const std::string name_;
  const OnReply on_reply_;
  Completions::Completion on_started_ = [this](bool is_ok) { OnStarted(is_ok); };
  Completions::Completion on_read_ = [this](bool is_ok) { OnRead(is_ok); };
  Completions::Completion on_written_ = [this](bool is_ok) { OnWritten(is_ok); };
  Completions::Completion on_finished_ = [this](bool) { OnFinished(); };
  grpc::ClientContext context_;
  std::unique_ptr<Call> call_;
  grpc::Status status_;
  Reply incoming_;
  absl::Notification done_;
  absl::Mutex mutex_;
  std::deque<Request> outgoing_ ABSL_GUARDED_BY(mutex_);  // bounded by the requests in flight
  int num_unread_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_started_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_writing_ ABSL_GUARDED_BY(mutex_) = false;  // outgoing_.front()
  bool is_read_paused_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_closing_ ABSL_GUARDED_BY(mutex_) = false;   // by us
  bool is_closed_ ABSL_GUARDED_BY(mutex_) = false;    // no write is started any more
  bool is_finished_ ABSL_GUARDED_BY(mutex_) = false;  // its status is known
};

using LiveStream = Stream<proto::RouterMessage, proto::WorkerMessage>;
using BulkStream = Stream<proto::GeneratePart, proto::BulkReply>;

// What all channels of one owner share: who takes their completions, and the streams that were closed and whose calls
// gRPC has not ended yet. Belongs to the owner's thread.
class SharedByChannels final {
 public:
  ~SharedByChannels() {
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
  grpc::CompletionQueue* queue() { return completions_.queue(); }
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
  Completions completions_;  // outlives the streams
  std::vector<Pair> pairs_;
};

class GrpcWorkerChannel final : public WorkerChannel {
 public:
  GrpcWorkerChannel(const std::string& address, WorkerRole role, std::shared_ptr<SharedByChannels> shared,
                    PostToOwner post, Events events, base::PeerSecurity& security)
      : shared_(std::move(shared)),
        owner_(std::make_shared<Owner>(Owner{address, role, std::move(post), std::move(events)})) {
    shared_->Sweep();
    Owner* owner = owner_.get();  // lives as long as the streams that call it
    live_ = std::make_shared<LiveStream>(
        owner_, "live", [owner](const proto::WorkerMessage& message) { owner->events.on_message(message); });
    base::ShowToken(*live_->context(), security);
    if (role == WorkerRole::kPrefill) {
      prefill_live_stub_ = proto::PrefillWorker::NewStub(OwnConnection(address, security));
      live_->Start(prefill_live_stub_->PrepareAsyncLive(live_->context(), shared_->queue()));
      return;
    }
    bulk_ = std::make_shared<BulkStream>(
        owner_, "bulk", [owner](const proto::BulkReply& reply) { owner->events.on_bulk_reply(reply); });
    base::ShowToken(*bulk_->context(), security);
    decode_live_stub_ = proto::DecodeWorker::NewStub(OwnConnection(address, security));
    decode_bulk_stub_ = proto::DecodeWorker::NewStub(OwnConnection(address, security));
    live_->Start(decode_live_stub_->PrepareAsyncLive(live_->context(), shared_->queue()));
    bulk_->Start(decode_bulk_stub_->PrepareAsyncBulk(bulk_->context(), shared_->queue()));
  }

  ~GrpcWorkerChannel() override {
    owner_->is_listening = false;
    shared_->Add(std::move(live_), std::move(bulk_));
  }

  void Send(proto::RouterMessage message) override { live_->Send(std::move(message)); }
  void SendPart(proto::GeneratePart part) override { bulk_->Send(std::move(part)); }

 private:
  const std::shared_ptr<SharedByChannels> shared_;
  const std::shared_ptr<Owner> owner_;
  std::shared_ptr<LiveStream> live_;
  std::shared_ptr<BulkStream> bulk_;
  std::unique_ptr<proto::PrefillWorker::Stub> prefill_live_stub_;
  std::unique_ptr<proto::DecodeWorker::Stub> decode_live_stub_;
  std::unique_ptr<proto::DecodeWorker::Stub> decode_bulk_stub_;
};

}  // namespace

WorkerChannelFactory MakeGrpcWorkerChannelFactory(PostToOwner post, base::PeerSecurity& security) {
  return [post = std::move(post), shared = std::make_shared<SharedByChannels>(), &security](
             const std::string& address, WorkerRole role, WorkerChannel::Events events) {
    return std::make_unique<GrpcWorkerChannel>(address, role, shared, post, std::move(events), security);
  };
}

}  // namespace tandem::router
