#include "tools/bench/router_cost/step_workers.h"

#include <algorithm>
#include <map>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/random.h"
#include "grpcpp/grpcpp.h"
#include "proto/protocol_version.h"
#include "proto/worker.grpc.pb.h"

namespace tandem::router_cost {
namespace {

constexpr absl::Duration kHeartbeatEvery = absl::Milliseconds(200);
constexpr int kSequencesAMessageMax = 4096;  // about 160 KB; workers cut at 256 KiB

using LiveStream = grpc::ServerReaderWriter<proto::WorkerMessage, proto::RouterMessage>;
using BulkStream = grpc::ServerReaderWriter<proto::BulkReply, proto::GeneratePart>;
using Key = std::pair<uint64_t, uint64_t>;  // router incarnation, request id

Key KeyOf(const proto::RequestKey& key) { return {key.router_incarnation(), key.request_id()}; }

struct Request {
  proto::RequestKey key;
  std::vector<uint32_t> prompt;
  uint32_t num_choices = 1;
  uint32_t num_tokens_max = 1;
  uint64_t seed = 0;
  uint32_t position = 0;
};

// From the middle of the prompt: its ends are markup, which is no text.
uint32_t TokenAt(const Request& request) {
  const size_t size = request.prompt.size();
  return request.prompt[size / 4 + request.position % (size / 2 + 1)];
}

std::unique_ptr<grpc::Server> Listen(int port, grpc::Service* service) {
  grpc::ServerBuilder builder;
  builder.AddListeningPort(absl::StrCat("127.0.0.1:", port), grpc::InsecureServerCredentials());
  builder.RegisterService(service);
  return builder.BuildAndStart();
}

proto::WorkerMessage Hello(const char* role) {
  proto::WorkerMessage message;
  proto::WorkerHello* const hello = message.mutable_hello();
  hello->mutable_identity()->set_role(role);
  hello->mutable_identity()->set_instance(absl::StrCat(role, "-0"));
  hello->mutable_identity()->set_group(absl::StrCat(role, "-0"));
  hello->mutable_identity()->set_incarnation(base::RandomId());
  hello->mutable_identity()->set_protocol_version(proto::kProtocolVersion);
  return message;
}

// A stream to one router. gRPC takes one write at a time.
class Link final {
 public:
  explicit Link(LiveStream* stream) : stream_(stream) {}
  // Nothing where the stream is over.
  void Write(const proto::WorkerMessage& message) {
    absl::MutexLock lock(&mutex_);
    if (!is_closed_) stream_->Write(message);
  }
  // While the router speaks to us it hears that we live. Returns at the end of its stream.
  template <typename Take>
  void Serve(const Take& take) {
    bool is_over = false;
    absl::Mutex mutex;
    std::thread heartbeats([&] {
      proto::WorkerMessage message;
      message.mutable_heartbeat();
      absl::MutexLock lock(&mutex);
      while (!mutex.AwaitWithTimeout(absl::Condition(&is_over), kHeartbeatEvery)) Write(message);
    });
    proto::RouterMessage message;
    while (stream_->Read(&message)) take(message);
    {
      absl::MutexLock lock(&mutex);
      is_over = true;
    }
    heartbeats.join();
    absl::MutexLock lock(&mutex_);
    is_closed_ = true;  // the stream goes with the call that brought it
  }

 private:
  LiveStream* const stream_;
  absl::Mutex mutex_;
  bool is_closed_ ABSL_GUARDED_BY(mutex_) = false;
};

class PrefillService final : public proto::PrefillWorker::Service {
 public:
  explicit PrefillService(std::string bootstrap_address) : hello_(Hello("prefill")) {
    hello_.mutable_hello()->set_bootstrap_address(bootstrap_address);
  }
  grpc::Status Live(grpc::ServerContext*, LiveStream* stream) override {
    Link link(stream);
    link.Write(hello_);
    link.Serve([](const proto::RouterMessage&) {});
    return grpc::Status::OK;
  }

 private:
  proto::WorkerMessage hello_;
};

}  // namespace

class StepWorkers::Service final : public proto::DecodeWorker::Service {
 public:
  Service(const Options& options, const base::Clock& clock)
      : clock_(clock),
        bootstrap_address_(absl::StrCat("127.0.0.1:", options.prefill_port)),
        prefill_(bootstrap_address_),
        prefill_server_(Listen(options.prefill_port, &prefill_)),
        decode_server_(Listen(options.decode_port, this)),
        steps_([this, interval = options.step_interval] { RunSteps(interval); }) {}

  ~Service() override {
    {
      absl::MutexLock lock(&mutex_);
      is_ending_ = true;
    }
    steps_.join();
    for (const auto* server : {&prefill_server_, &decode_server_}) {
      if (*server != nullptr) (*server)->Shutdown(std::chrono::system_clock::now());
    }
  }

  bool is_listening() const { return prefill_server_ != nullptr && decode_server_ != nullptr; }

  void Watch(uint64_t seed) {
    absl::MutexLock lock(&mutex_);
    watched_[seed];
  }

  std::optional<Times> TakeTimes(uint64_t seed) {
    absl::MutexLock lock(&mutex_);
    const auto node = watched_.extract(seed);
    if (node.empty() || node.mapped().sent.empty()) return std::nullopt;
    return node.mapped();
  }

  grpc::Status Live(grpc::ServerContext*, LiveStream* stream) override {
    const auto link = std::make_shared<Link>(stream);
    link->Write(Hello("decode"));
    proto::WorkerMessage usable;
    usable.mutable_peer_status()->set_bootstrap_address(bootstrap_address_);
    usable.mutable_peer_status()->set_is_usable(true);
    usable.mutable_peer_status()->set_lane("none");
    link->Write(usable);
    uint64_t incarnation = 0;
    link->Serve([&](const proto::RouterMessage& message) {
      if (message.has_hello()) {
        incarnation = message.hello().incarnation();
        absl::MutexLock lock(&mutex_);
        links_[incarnation] = link;
      } else if (message.has_cancel() && !message.cancel().has_choice()) {
        Cancel(message.cancel().key());
      }
    });
    absl::MutexLock lock(&mutex_);
    if (const auto it = links_.find(incarnation); it != links_.end() && it->second == link) links_.erase(it);
    return grpc::Status::OK;
  }

  grpc::Status Bulk(grpc::ServerContext*, BulkStream* stream) override {
    std::map<Key, Request> assembling;
    proto::GeneratePart part;
    while (stream->Read(&part)) {
      Request& request = assembling[KeyOf(part.key())];
      if (part.part_index() == 0) {
        request.key = part.key();
        request.num_choices = std::max(part.head().num_choices(), 1u);
        request.num_tokens_max = part.head().stopping().max_new_tokens();
        request.seed = part.head().sampling().seed();
      }
      request.prompt.insert(request.prompt.end(), part.prompt_tokens().begin(), part.prompt_tokens().end());
      if (!part.is_last()) continue;
      const absl::Duration now = clock_.Now();
      absl::MutexLock lock(&mutex_);
      if (const auto it = watched_.find(request.seed); it != watched_.end()) it->second.received = now;
      running_[KeyOf(part.key())] = std::move(request);
      assembling.erase(KeyOf(part.key()));
    }
    return grpc::Status::OK;
  }

 private:
  struct Outgoing {
    std::shared_ptr<Link> link;
    proto::WorkerMessage message;
  };

  void Cancel(const proto::RequestKey& key) {
    std::shared_ptr<Link> link;
    {
      absl::MutexLock lock(&mutex_);
      running_.erase(KeyOf(key));
      const auto it = links_.find(key.router_incarnation());
      if (it == links_.end()) return;
      link = it->second;
    }
    proto::WorkerMessage message;
    *message.mutable_ended()->mutable_key() = key;
    message.mutable_ended()->set_is_cancelled(true);
    link->Write(message);
  }

  void RunSteps(absl::Duration interval) {
    absl::Duration due = clock_.Now();
    for (;;) {
      due = std::max(due + interval, clock_.Now());
      std::vector<Outgoing> step;
      {
        absl::MutexLock lock(&mutex_);
        if (mutex_.AwaitWithTimeout(absl::Condition(&is_ending_), due - clock_.Now())) return;
        step = Step();
      }
      for (const Outgoing& outgoing : step) outgoing.link->Write(outgoing.message);
    }
  }

  // The next token of every sequence, and the ends.
  std::vector<Outgoing> Step() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const absl::Duration now = clock_.Now();
    std::vector<Outgoing> step, ends;
    for (auto it = running_.begin(); it != running_.end();) {
      Request& request = it->second;
      const auto link = links_.find(request.key.router_incarnation());
      if (link == links_.end()) {
        it = running_.erase(it);  // its router has gone
        continue;
      }
      if (step.empty() || step.back().link != link->second ||
          step.back().message.tokens().sequences_size() >= kSequencesAMessageMax) {
        step.push_back({link->second, {}});
      }
      const bool is_last = request.position + 1 == request.num_tokens_max;
      for (uint32_t choice = 0; choice < request.num_choices; ++choice) {
        proto::SequenceTokens* const sequence = step.back().message.mutable_tokens()->add_sequences();
        *sequence->mutable_key() = request.key;
        sequence->set_choice(choice);
        sequence->set_first_position(request.position);
        sequence->add_tokens(TokenAt(request));
        if (is_last) sequence->set_finish_reason(proto::FINISH_REASON_LENGTH);
      }
      if (const auto watched = watched_.find(request.seed); watched != watched_.end()) {
        watched->second.sent.push_back(now);
      }
      ++request.position;
      if (!is_last) {
        ++it;
        continue;
      }
      ends.push_back({link->second, {}});
      *ends.back().message.mutable_ended()->mutable_key() = request.key;
      it = running_.erase(it);
    }
    std::move(ends.begin(), ends.end(), std::back_inserter(step));
    return step;
  }

  const base::Clock& clock_;
  const std::string bootstrap_address_;
  absl::Mutex mutex_;
  bool is_ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<uint64_t, std::shared_ptr<Link>> links_ ABSL_GUARDED_BY(mutex_);  // by router incarnation
  std::map<Key, Request> running_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, Times> watched_ ABSL_GUARDED_BY(mutex_);
  PrefillService prefill_;
  const std::unique_ptr<grpc::Server> prefill_server_;
  const std::unique_ptr<grpc::Server> decode_server_;
  std::thread steps_;
};

StepWorkers::StepWorkers(const Options& options, const base::Clock& clock)
    : service_(std::make_unique<Service>(options, clock)) {}
StepWorkers::~StepWorkers() = default;
bool StepWorkers::is_listening() const { return service_->is_listening(); }
void StepWorkers::Watch(uint64_t seed) { service_->Watch(seed); }
std::optional<StepWorkers::Times> StepWorkers::TakeTimes(uint64_t seed) { return service_->TakeTimes(seed); }

}  // namespace tandem::router_cost
