#include "worker_shell/live_streams.h"

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/own_stall.h"
#include "worker_shell/live_mailbox.h"
#include "worker_shell/server_stream.h"

namespace tandem::worker_shell {
namespace {

grpc::Status CheckHello(const proto::RouterMessage& message) {
  if (!message.has_hello()) return {grpc::StatusCode::INVALID_ARGUMENT, "the first message of Live is not a hello"};
  const proto::Identity& router = message.hello();
  if (router.role() != "router") {
    return {grpc::StatusCode::INVALID_ARGUMENT,
            absl::StrCat("role \"", router.role(), "\" greets where \"router\" may")};
  }
  if (router.incarnation() == 0 || router.instance().empty()) {
    return {grpc::StatusCode::INVALID_ARGUMENT, "hello names no instance or no incarnation"};
  }
  return grpc::Status::OK;
}

proto::WorkerMessage DrainingMessage() {
  proto::WorkerMessage message;
  message.mutable_draining();
  return message;
}

}  // namespace

class LiveStreams::Stream final : public ServerStream<proto::RouterMessage, proto::WorkerMessage, LiveMailbox> {
 public:
  Stream(grpc::CallbackServerContext* context, LiveStreams& streams, uint64_t id)
      : ServerStream(context, streams.options_.queue_bytes_max),
        streams_(streams),
        id_(id),
        last_heard_ns_(absl::ToInt64Nanoseconds(streams.clock_.Now())) {}

  uint64_t id() const { return id_; }
  uint64_t incarnation() const { return incarnation_; }
  absl::Duration last_heard() const { return absl::Nanoseconds(last_heard_ns_.load()); }
  void Excuse(absl::Duration time) { last_heard_ns_ += absl::ToInt64Nanoseconds(time); }
  bool has_promised_heartbeats() const { return has_promised_heartbeats_; }

  void Replace(grpc::Status status) {
    CloseAfterWrite(std::move(status));
    is_replaced_ = true;
  }
  // On the heartbeat thread. A router that has been replaced gets one whole interval to read why.
  void CutWhereReplaced() {
    if (is_replaced_ && ++num_beats_replaced_ > 1) Cut();
  }

 private:
  void OnMessage(proto::RouterMessage message) override {
    last_heard_ns_ = absl::ToInt64Nanoseconds(streams_.clock_.Now());
    if (incarnation_ == 0) {
      if (grpc::Status status = CheckHello(message); !status.ok()) {
        Close(std::move(status));
        return;
      }
      const auto self = std::static_pointer_cast<Stream>(shared_from_this());
      if (grpc::Status status = streams_.Attach(self, message.hello()); !status.ok()) {
        Close(std::move(status));
        return;
      }
      incarnation_ = message.hello().incarnation();
      instance_ = message.hello().instance();
      return;
    }
    if (message.has_heartbeat()) has_promised_heartbeats_ = true;
    streams_.events_.message(id_, std::move(message));
  }
  void OnEnded() override {
    if (incarnation_ != 0) {
      LOG_INFO("router lost", {"router", instance_}, {"stream", id_});
      streams_.Detach(*this);
    }
    absl::MutexLock lock(&streams_.mutex_);
    --streams_.num_open_;
  }

  LiveStreams& streams_;
  const uint64_t id_;
  std::string instance_;
  std::atomic<uint64_t> incarnation_ = 0;
  std::atomic<int64_t> last_heard_ns_;  // point of the clock
  std::atomic<bool> has_promised_heartbeats_ = false;
  std::atomic<bool> is_replaced_ = false;
  int num_beats_replaced_ = 0;
};

LiveStreams::LiveStreams(LiveOptions options, const base::Clock& clock, LiveEvents events)
    : options_(std::move(options)), clock_(clock), events_(std::move(events)), heart_([this] { Beat(); }) {}

LiveStreams::~LiveStreams() {
  {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(
        +[](int* num_open) { return *num_open == 0; }, &num_open_));
    is_stopping_ = true;
  }
  heart_.join();
}

LiveReactor* LiveStreams::Open(grpc::CallbackServerContext* context) {
  uint64_t id;
  {
    absl::MutexLock lock(&mutex_);
    id = next_stream_id_++;
    ++num_open_;
  }
  return std::make_shared<Stream>(context, *this, id)->Run();
}

grpc::Status LiveStreams::Attach(const std::shared_ptr<Stream>& stream, const proto::Identity& router) {
  proto::WorkerMessage hello;
  *hello.mutable_hello() = options_.hello;
  absl::MutexLock lock(&mutex_);
  if (const absl::Status status = succession_.Greet(router); !status.ok()) {
    if (refusals_logged_.size() >= proto::InstanceSuccession::kKnownMax) refusals_logged_.clear();
    if (refusals_logged_.insert(router.incarnation()).second) {
      LOG_WARNING("router refused", {"router", router.instance()}, {"why", status});
    }
    return {grpc::StatusCode::FAILED_PRECONDITION, std::string(status.message())};
  }
  ReplaceStreamsOf(router);
  stream->Send(std::move(hello));  // before anything else can be sent on it
  if (is_draining_) stream->Send(DrainingMessage());
  by_id_[stream->id()] = {stream, router};
  newest_of_[router.incarnation()] = stream->id();
  LOG_INFO("router attached", {"router", router.instance()}, {"stream", stream->id()});
  events_.attached(stream->id(), router);  // under the lock: whoever came last must also be told of last
  return grpc::Status::OK;
}

void LiveStreams::ReplaceStreamsOf(const proto::Identity& router) {
  for (const auto& [id, other] : by_id_) {
    if (other.router.instance() != router.instance()) continue;
    const bool is_same = other.router.incarnation() == router.incarnation();
    other.stream->Replace(
        {grpc::StatusCode::ABORTED, absl::StrCat("replaced by ", is_same ? "a newer stream" : "another incarnation",
                                                 " of router \"", router.instance(), "\"")});
    newest_of_.erase(other.router.incarnation());
  }
}

void LiveStreams::Detach(const Stream& stream) {
  {
    absl::MutexLock lock(&mutex_);
    by_id_.erase(stream.id());
    const auto newest = newest_of_.find(stream.incarnation());
    if (newest != newest_of_.end() && newest->second == stream.id()) newest_of_.erase(newest);
  }
  events_.lost(stream.id());
}

void LiveStreams::Send(uint64_t stream_id, proto::WorkerMessage message) {
  std::shared_ptr<Stream> stream;
  {
    absl::MutexLock lock(&mutex_);
    const auto found = by_id_.find(stream_id);
    if (found == by_id_.end()) return;
    stream = found->second.stream;
  }
  stream->Send(std::move(message));
}

void LiveStreams::AnnounceDraining() {
  absl::MutexLock lock(&mutex_);
  is_draining_ = true;
  for (const auto& [id, attached] : by_id_) attached.stream->Send(DrainingMessage());
}

void LiveStreams::Farewell(absl::Duration limit) {
  absl::MutexLock lock(&mutex_);
  for (const auto& [id, attached] : by_id_) {
    attached.stream->CloseAfterQueue({grpc::StatusCode::UNAVAILABLE, "the worker has drained and ends"});
  }
  const auto is_empty = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return by_id_.empty(); };
  if (!mutex_.AwaitWithTimeout(absl::Condition(&is_empty), limit)) {
    LOG_WARNING("routers left unread what they were told last", {"streams", by_id_.size()});
  }
}

bool LiveStreams::IsAttached(uint64_t router_incarnation) const {
  absl::MutexLock lock(&mutex_);
  return newest_of_.contains(router_incarnation);
}

int LiveStreams::num_streams() const {
  absl::MutexLock lock(&mutex_);
  return static_cast<int>(by_id_.size());
}

size_t LiveStreams::num_queued_bytes() const {
  absl::MutexLock lock(&mutex_);
  size_t num_bytes = 0;
  for (const auto& [id, attached] : by_id_) num_bytes += attached.stream->num_queued_bytes();
  return num_bytes;
}

void LiveStreams::Beat() {
  proto::WorkerMessage heartbeat, load;
  base::OwnStall own_stall(2 * options_.heartbeat_interval);
  own_stall.Observe(clock_.Now());
  for (uint64_t sequence = 1;; ++sequence) {
    std::vector<std::shared_ptr<Stream>> streams;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.AwaitWithTimeout(absl::Condition(&is_stopping_), options_.heartbeat_interval);
      if (is_stopping_) return;
      for (const auto& [id, attached] : by_id_) streams.push_back(attached.stream);
    }
    const WorkerVitals vitals = events_.vitals();
    heartbeat.mutable_heartbeat()->set_sequence(sequence);
    heartbeat.mutable_heartbeat()->set_engine_steps(vitals.engine_steps);
    heartbeat.mutable_heartbeat()->set_oldest_work_age_us(absl::ToInt64Microseconds(vitals.oldest_work_age));
    *load.mutable_load() = vitals.load;
    const absl::Duration now = clock_.Now();
    const absl::Duration lost_time = own_stall.Observe(now);
    if (lost_time > options_.silence_max) {
      LOG_WARNING("this process was stalled", {"for", lost_time}, {"routers", streams.size()});
    }
    for (const std::shared_ptr<Stream>& stream : streams) {
      stream->CutWhereReplaced();
      stream->Excuse(lost_time);
      const absl::Duration silence = now - stream->last_heard();
      if (stream->has_promised_heartbeats() && silence > options_.silence_max) {
        stream->Close(
            {grpc::StatusCode::UNAVAILABLE, absl::StrCat("router was silent for ", absl::FormatDuration(silence))});
        continue;
      }
      stream->Send(heartbeat);
      stream->Send(load);
    }
  }
}

}  // namespace tandem::worker_shell
