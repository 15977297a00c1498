// For tests of the workers: a router reduced to two gRPC streams of one decode worker.
//
// Reads are by the test's own thread: it waits for what it asks for, whatever else comes is kept.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "grpcpp/grpcpp.h"
#include "proto/worker.grpc.pb.h"

namespace tandem::tests {

struct ChoiceAnswer {
  std::vector<uint32_t> tokens;
  std::vector<float> logprobs;
  std::vector<proto::TopLogprobs> top_logprobs;
};
struct Answer {
  std::map<uint32_t, ChoiceAnswer> choices;
  proto::Ended ended;
  const std::vector<uint32_t>& tokens() { return choices[0].tokens; }  // of the first choice
};

class RouterEnd final {
 public:
  static constexpr uint64_t kIncarnation = 77;

  explicit RouterEnd(int rpc_port);
  ~RouterEnd();

  void NamePrefill(int bootstrap_port);
  // The next message that is neither heartbeat nor load; an empty one where the stream has ended.
  proto::WorkerMessage Read();
  // Waits for a peer status like that.
  proto::PeerStatus AwaitPeer(bool is_usable);
  // The prefill address is filled in.
  void Generate(uint64_t id, const std::vector<uint32_t>& prompt, proto::GenerateHead head);
  // credit_bytes: what each choice may make before it is granted more; 0 = everything.
  void Generate(uint64_t id, const std::vector<uint32_t>& prompt, uint32_t max_new_tokens, float temperature,
                uint64_t credit_bytes = 0);
  void Cancel(uint64_t id);
  void FlushPrefixCache();
  // granted_bytes: in all, since its Generate.
  void Grant(uint64_t id, uint32_t choice, uint64_t granted_bytes);
  // Until `count` requests have ended; what all have been answered since the start, by id.
  std::map<uint64_t, Answer> Collect(int count);
  void AwaitFirstToken(uint64_t id, uint32_t choice = 0);

 private:
  bool TakeOne();

  std::unique_ptr<proto::DecodeWorker::Stub> stub_;
  grpc::ClientContext live_context_, bulk_context_;
  std::unique_ptr<grpc::ClientReaderWriter<proto::RouterMessage, proto::WorkerMessage>> live_;
  std::unique_ptr<grpc::ClientReaderWriter<proto::GeneratePart, proto::BulkReply>> bulk_;
  std::string prefill_address_;
  std::map<uint64_t, Answer> answers_;
  int num_ended_ = 0;
};

}  // namespace tandem::tests
