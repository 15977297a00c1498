// A worker for router tests: real gRPC on a free port, behaviour by the test.
//
// It greets, sends heartbeats, collects what the router sends, and confirms every cancel unless told not to. It
// generates nothing by itself: the test says which tokens come, or sets an answer that every request gets.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/worker.pb.h"
#include "router/worker_channel.h"

namespace tandem::router {

class FakeWorker final {
 public:
  static constexpr absl::Duration kPatience = absl::Minutes(1);

  struct Options {
    WorkerRole role = WorkerRole::kDecode;
    std::string bootstrap_address = "127.0.0.1:1";  // of a prefill worker
    uint32_t context_length_max = 0;
    std::string port = "0";  // to come back at an old address
  };
  // A request as it arrived, its parts joined.
  struct Request {
    proto::RequestKey key;
    proto::GenerateHead head;
    std::vector<uint32_t> prompt;
    std::vector<uint32_t> generated;  // of all choices, that the router brought
  };

  explicit FakeWorker(const Options& options);
  ~FakeWorker();
  FakeWorker(const FakeWorker&) = delete;
  FakeWorker& operator=(const FakeWorker&) = delete;

  std::string address() const;  // host:port of the gRPC service
  int port() const;

  // Nothing was asked in time: the call returns an empty request, and the test's next expectation fails.
  Request AwaitRequest();
  proto::Cancel AwaitCancel();
  // What a router that came back has said (its first word on a fresh worker, which names nothing, does not count).
  proto::Reattach AwaitReattach();
  // The prefill set last received has this many addresses.
  bool AwaitPrefillSet(int num_addresses);
  bool AwaitRouters(int num_routers);  // streams that have said hello
  int num_cancels() const;

  // To the router that sent the key.
  void SendTokens(const proto::RequestKey& key, int first_position, const std::vector<uint32_t>& tokens,
                  proto::FinishReason finish = proto::FINISH_REASON_UNSPECIFIED);
  // Tokens of one choice as the test writes them, with logprobs where it wants them; the key is filled in.
  void SendSequence(const proto::RequestKey& key, proto::SequenceTokens sequence);
  void SendEnded(const proto::RequestKey& key, absl::StatusCode code = absl::StatusCode::kOk,
                 const std::string& message = "", bool is_cancelled = false);
  // To every router.
  void SendPeerStatus(const std::string& bootstrap_address, bool is_usable, const std::string& detail = "");
  void SendDraining();

  // Every request from now on gets these tokens, one message each, then finish and Ended; each of its choices the same.
  // Where logprobs are asked for, the token at position i has -i - 1, as likeliest of tokens that have 1 less each.
  void AnswerEverything(std::vector<uint32_t> tokens, proto::FinishReason finish);
  // The peer that each router hears of as usable right after its hello.
  void ReportUsable(const std::string& bootstrap_address);
  void ReportNobody();  // takes that back, for routers that greet from now on
  void ConfirmCancels(bool confirms);
  void SetSilent(bool is_silent);  // no heartbeats
  void CutStreams();               // as a connection that breaks: the worker lives on
  void Kill();                     // streams break, the port closes

 private:
  class Service;
  const std::unique_ptr<Service> service_;
};

}  // namespace tandem::router
