#include "router/testing/fake_worker.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/grpcpp.h"
#include "proto/worker.grpc.pb.h"

namespace tandem::router {
namespace {

constexpr absl::Duration kHeartbeatEvery = absl::Milliseconds(100);

using LiveStream = grpc::ServerReaderWriter<proto::WorkerMessage, proto::RouterMessage>;
using BulkStream = grpc::ServerReaderWriter<proto::BulkReply, proto::GeneratePart>;

}  // namespace

class FakeWorker::Service final : public proto::DecodeWorker::Service, public proto::PrefillWorker::Service {
 public:
  explicit Service(const Options& options) : options_(options), incarnation_(++num_started_) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(absl::StrCat("127.0.0.1:", options.port), grpc::InsecureServerCredentials(), &port_);
    if (options.role == WorkerRole::kDecode) {
      builder.RegisterService(static_cast<proto::DecodeWorker::Service*>(this));
    } else {
      builder.RegisterService(static_cast<proto::PrefillWorker::Service*>(this));
    }
    server_ = builder.BuildAndStart();
    heartbeats_ = std::thread([this] { SendHeartbeats(); });
  }

  ~Service() override { Kill(); }

  void Kill() {
    {
      absl::MutexLock lock(&mutex_);
      is_killed_ = true;
    }
    if (heartbeats_.joinable()) heartbeats_.join();
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
  }

  grpc::Status Live(grpc::ServerContext* context, LiveStream* stream) override {
    {
      absl::MutexLock lock(&mutex_);
      contexts_.insert(context);
    }
    proto::RouterMessage message;
    uint64_t incarnation = 0;
    while (stream->Read(&message)) {
      absl::MutexLock lock(&mutex_);
      if (message.has_hello()) {
        incarnation = message.hello().incarnation();
        Greet(stream);
        streams_[incarnation] = stream;
      } else if (message.has_prefill_set()) {
        prefill_set_size_ = message.prefill_set().bootstrap_addresses_size();
      } else if (message.has_reattach() && message.reattach().positions_size() > 0) {
        reattaches_.push_back(message.reattach());
      } else if (message.has_cancel()) {
        cancels_.push_back(message.cancel());
        ++num_cancels_;
        if (confirms_cancels_ && !message.cancel().has_choice())
          End(message.cancel().key(), absl::StatusCode::kOk, "", true);
      }
    }
    absl::MutexLock lock(&mutex_);
    contexts_.erase(context);
    if (const auto it = streams_.find(incarnation); it != streams_.end() && it->second == stream) streams_.erase(it);
    return grpc::Status::OK;
  }

  grpc::Status Bulk(grpc::ServerContext* context, BulkStream* stream) override {
    proto::GeneratePart part;
    while (stream->Read(&part)) {
      absl::MutexLock lock(&mutex_);
      Request& request = assembling_[part.key().request_id()];
      if (part.part_index() == 0) {
        request.key = part.key();
        request.head = part.head();
      }
      request.prompt.insert(request.prompt.end(), part.prompt_tokens().begin(), part.prompt_tokens().end());
      const auto& generated = part.generated_tokens();
      request.generated.insert(request.generated.end(), generated.begin(), generated.end());
      if (!part.is_last()) continue;
      if (has_answer_) Answer(request);
      requests_.push_back(std::move(request));
      assembling_.erase(part.key().request_id());
    }
    return grpc::Status::OK;
  }

  int port() const { return port_; }

  Request AwaitRequest() {
    absl::MutexLock lock(&mutex_);
    if (!mutex_.AwaitWithTimeout(absl::Condition(
                                     +[](std::deque<Request>* q) { return !q->empty(); }, &requests_),
                                 kPatience)) {
      return Request();
    }
    Request request = std::move(requests_.front());
    requests_.pop_front();
    return request;
  }
  proto::Cancel AwaitCancel() {
    absl::MutexLock lock(&mutex_);
    if (!mutex_.AwaitWithTimeout(absl::Condition(
                                     +[](std::deque<proto::Cancel>* q) { return !q->empty(); }, &cancels_),
                                 kPatience)) {
      return proto::Cancel();
    }
    proto::Cancel cancel = std::move(cancels_.front());
    cancels_.pop_front();
    return cancel;
  }
  proto::Reattach AwaitReattach() {
    absl::MutexLock lock(&mutex_);
    if (!mutex_.AwaitWithTimeout(absl::Condition(
                                     +[](std::deque<proto::Reattach>* q) { return !q->empty(); }, &reattaches_),
                                 kPatience)) {
      return proto::Reattach();
    }
    proto::Reattach reattach = std::move(reattaches_.front());
    reattaches_.pop_front();
    return reattach;
  }
  void CutStreams() {
    absl::MutexLock lock(&mutex_);
    for (grpc::ServerContext* context : contexts_) context->TryCancel();
  }
  bool AwaitPrefillSet(int num_addresses) {
    absl::MutexLock lock(&mutex_);
    const auto has_size = [this, num_addresses] { return prefill_set_size_ == num_addresses; };
    return mutex_.AwaitWithTimeout(absl::Condition(&has_size), kPatience);
  }
  bool AwaitRouters(int num_routers) {
    absl::MutexLock lock(&mutex_);
    const auto has_size = [this, num_routers] {
      mutex_.AssertHeld();
      return static_cast<int>(streams_.size()) == num_routers;
    };
    return mutex_.AwaitWithTimeout(absl::Condition(&has_size), kPatience);
  }
  int num_cancels() {
    absl::MutexLock lock(&mutex_);
    return num_cancels_;
  }

  // mutex_ is held by none of the callers below.
  void SendTokens(const proto::RequestKey& key, int first_position, const std::vector<uint32_t>& tokens,
                  proto::FinishReason finish) {
    absl::MutexLock lock(&mutex_);
    Tokens(key, first_position, tokens, finish);
  }
  void SendSequence(const proto::RequestKey& key, proto::SequenceTokens sequence) {
    absl::MutexLock lock(&mutex_);
    proto::WorkerMessage message;
    *sequence.mutable_key() = key;
    *message.mutable_tokens()->add_sequences() = std::move(sequence);
    Write(key.router_incarnation(), message);
  }
  void SendEnded(const proto::RequestKey& key, absl::StatusCode code, const std::string& message, bool is_cancelled) {
    absl::MutexLock lock(&mutex_);
    End(key, code, message, is_cancelled);
  }
  void SendToAll(const proto::WorkerMessage& message) {
    absl::MutexLock lock(&mutex_);
    for (auto& [incarnation, stream] : streams_) stream->Write(message);
  }
  void AnswerEverything(std::vector<uint32_t> tokens, proto::FinishReason finish) {
    absl::MutexLock lock(&mutex_);
    has_answer_ = true;
    answer_ = std::move(tokens);
    answer_finish_ = finish;
  }
  void ReportUsable(const std::string& bootstrap_address) {
    absl::MutexLock lock(&mutex_);
    usable_peers_.insert(bootstrap_address);
  }
  void ReportNobody() {
    absl::MutexLock lock(&mutex_);
    usable_peers_.clear();
  }
  void ConfirmCancels(bool confirms) {
    absl::MutexLock lock(&mutex_);
    confirms_cancels_ = confirms;
  }
  void SetSilent(bool is_silent) {
    absl::MutexLock lock(&mutex_);
    is_silent_ = is_silent;
  }

 private:
  void Write(uint64_t incarnation, const proto::WorkerMessage& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (const auto it = streams_.find(incarnation); it != streams_.end()) it->second->Write(message);
  }

  void Greet(LiveStream* stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    proto::WorkerMessage message;
    proto::WorkerHello* hello = message.mutable_hello();
    hello->mutable_identity()->set_role(WorkerRoleName(options_.role));
    hello->mutable_identity()->set_instance(absl::StrCat(WorkerRoleName(options_.role), "-", port_));
    hello->mutable_identity()->set_incarnation(incarnation_);
    hello->mutable_identity()->set_protocol_version(1);
    hello->set_context_length_max(options_.context_length_max);
    if (options_.role == WorkerRole::kPrefill) hello->set_bootstrap_address(options_.bootstrap_address);
    stream->Write(message);
    for (const std::string& peer : usable_peers_) stream->Write(PeerStatusOf(peer, true, ""));
  }

  void Tokens(const proto::RequestKey& key, int first_position, const std::vector<uint32_t>& tokens,
              proto::FinishReason finish) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    proto::WorkerMessage message;
    proto::SequenceTokens* sequence = message.mutable_tokens()->add_sequences();
    *sequence->mutable_key() = key;
    sequence->set_first_position(static_cast<uint32_t>(first_position));
    sequence->mutable_tokens()->Add(tokens.begin(), tokens.end());
    sequence->set_finish_reason(finish);
    Write(key.router_incarnation(), message);
  }

  void End(const proto::RequestKey& key, absl::StatusCode code, const std::string& text, bool is_cancelled)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    proto::WorkerMessage message;
    *message.mutable_ended()->mutable_key() = key;
    message.mutable_ended()->set_is_cancelled(is_cancelled);
    if (code != absl::StatusCode::kOk) {
      message.mutable_ended()->mutable_error()->set_code(static_cast<int>(code));
      message.mutable_ended()->mutable_error()->set_message(text);
    }
    Write(key.router_incarnation(), message);
  }

  void Answer(const Request& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (size_t i = 0; i < answer_.size(); ++i) {
      proto::WorkerMessage message;
      for (uint32_t choice = 0; choice < std::max(request.head.num_choices(), 1u); ++choice) {
        proto::SequenceTokens* sequence = message.mutable_tokens()->add_sequences();
        *sequence->mutable_key() = request.key;
        sequence->set_choice(choice);
        sequence->set_first_position(static_cast<uint32_t>(i));
        sequence->add_tokens(answer_[i]);
        if (i + 1 == answer_.size()) sequence->set_finish_reason(answer_finish_);
        AddLogprobs(request.head.sampling(), i, sequence);
      }
      Write(request.key.router_incarnation(), message);
    }
    End(request.key, absl::StatusCode::kOk, "", false);
  }

  void AddLogprobs(const proto::Sampling& sampling, size_t position, proto::SequenceTokens* sequence) const {
    if (!sampling.wants_logprobs()) return;
    const float logprob = -static_cast<float>(position) - 1;
    sequence->add_logprobs(logprob);
    if (sampling.num_top_logprobs() == 0) return;
    proto::TopLogprobs* top = sequence->add_top_logprobs();
    for (uint32_t j = 0; j < sampling.num_top_logprobs(); ++j) {
      top->add_tokens(sequence->tokens(0) + j);
      top->add_logprobs(logprob - static_cast<float>(j));
    }
  }

  void SendHeartbeats() {
    proto::WorkerMessage message;
    message.mutable_heartbeat();
    absl::MutexLock lock(&mutex_);
    while (!mutex_.AwaitWithTimeout(absl::Condition(&is_killed_), kHeartbeatEvery)) {
      if (is_silent_) continue;
      for (auto& [incarnation, stream] : streams_) stream->Write(message);
    }
  }

 public:
  static proto::WorkerMessage PeerStatusOf(const std::string& bootstrap_address, bool is_usable,
                                           const std::string& detail) {
    proto::WorkerMessage message;
    message.mutable_peer_status()->set_bootstrap_address(bootstrap_address);
    message.mutable_peer_status()->set_is_usable(is_usable);
    message.mutable_peer_status()->set_detail(detail);
    message.mutable_peer_status()->set_lane("fake");
    return message;
  }

 private:
  static inline std::atomic<uint64_t> num_started_ = 0;
  const Options options_;
  const uint64_t incarnation_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  std::thread heartbeats_;
  absl::Mutex mutex_;
  bool is_killed_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_silent_ ABSL_GUARDED_BY(mutex_) = false;
  bool confirms_cancels_ ABSL_GUARDED_BY(mutex_) = true;
  bool has_answer_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<uint32_t> answer_ ABSL_GUARDED_BY(mutex_);
  proto::FinishReason answer_finish_ ABSL_GUARDED_BY(mutex_) = proto::FINISH_REASON_UNSPECIFIED;
  std::set<std::string> usable_peers_ ABSL_GUARDED_BY(mutex_);
  std::set<grpc::ServerContext*> contexts_ ABSL_GUARDED_BY(mutex_);  // of open Live streams
  std::deque<proto::Reattach> reattaches_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, LiveStream*> streams_ ABSL_GUARDED_BY(mutex_);  // by router incarnation
  std::map<uint64_t, Request> assembling_ ABSL_GUARDED_BY(mutex_);
  std::deque<Request> requests_ ABSL_GUARDED_BY(mutex_);
  std::deque<proto::Cancel> cancels_ ABSL_GUARDED_BY(mutex_);
  int num_cancels_ ABSL_GUARDED_BY(mutex_) = 0;
  int prefill_set_size_ ABSL_GUARDED_BY(mutex_) = -1;
};

FakeWorker::FakeWorker(const Options& options) : service_(std::make_unique<Service>(options)) {}
FakeWorker::~FakeWorker() = default;
std::string FakeWorker::address() const { return absl::StrCat("127.0.0.1:", port()); }
int FakeWorker::port() const { return service_->port(); }
FakeWorker::Request FakeWorker::AwaitRequest() { return service_->AwaitRequest(); }
proto::Cancel FakeWorker::AwaitCancel() { return service_->AwaitCancel(); }
proto::Reattach FakeWorker::AwaitReattach() { return service_->AwaitReattach(); }
void FakeWorker::CutStreams() { service_->CutStreams(); }
bool FakeWorker::AwaitPrefillSet(int num_addresses) { return service_->AwaitPrefillSet(num_addresses); }
bool FakeWorker::AwaitRouters(int num_routers) { return service_->AwaitRouters(num_routers); }
int FakeWorker::num_cancels() const { return service_->num_cancels(); }
void FakeWorker::SendTokens(const proto::RequestKey& key, int first_position, const std::vector<uint32_t>& tokens,
                            proto::FinishReason finish) {
  service_->SendTokens(key, first_position, tokens, finish);
}
void FakeWorker::SendSequence(const proto::RequestKey& key, proto::SequenceTokens sequence) {
  service_->SendSequence(key, std::move(sequence));
}
void FakeWorker::SendEnded(const proto::RequestKey& key, absl::StatusCode code, const std::string& message,
                           bool is_cancelled) {
  service_->SendEnded(key, code, message, is_cancelled);
}
void FakeWorker::SendPeerStatus(const std::string& bootstrap_address, bool is_usable, const std::string& detail) {
  service_->SendToAll(Service::PeerStatusOf(bootstrap_address, is_usable, detail));
}
void FakeWorker::SendDraining() {
  proto::WorkerMessage message;
  message.mutable_draining();
  service_->SendToAll(message);
}
void FakeWorker::AnswerEverything(std::vector<uint32_t> tokens, proto::FinishReason finish) {
  service_->AnswerEverything(std::move(tokens), finish);
}
void FakeWorker::ReportUsable(const std::string& bootstrap_address) { service_->ReportUsable(bootstrap_address); }
void FakeWorker::ReportNobody() { service_->ReportNobody(); }
void FakeWorker::ConfirmCancels(bool confirms) { service_->ConfirmCancels(confirms); }
void FakeWorker::SetSilent(bool is_silent) { service_->SetSilent(is_silent); }
void FakeWorker::Kill() { service_->Kill(); }

}  // namespace tandem::router
