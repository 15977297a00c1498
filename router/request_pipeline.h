// The path of a request through the router, top to bottom. Read request_pipeline.cc from the end.
//
// A coroutine for each request, on its shard's thread: wait for a place, prepare (parse, encode, tokenise), pick a pair
// for each prompt, generate, then turn whatever happens (tokens, ends, a client that leaves, time) into what
// RequestState says, until nobody holds anything of the request. Several prompts are one answer: the first that fails
// fails it, and the others are cancelled. Decisions live in the parts that it calls; this file only orders them. Tested
// by router_integration_test.cc over real sockets and gRPC.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "router/admission.h"
#include "router/caller.h"
#include "router/cluster.h"
#include "router/http/exchange.h"
#include "router/metrics.h"
#include "router/pair_picker.h"
#include "router/pair_question.h"
#include "router/preparation_threads.h"
#include "router/prepared_request.h"
#include "router/request_view.h"
#include "router/resume_pace.h"
#include "router/timeline/timeline_store.h"

namespace boost::asio {
class io_context;
}  // namespace boost::asio

namespace tandem::router {

// What is logged of a request beside errors.
enum class RequestLog {
  kNone,
  kSummary,     // a line at its end: what it cost, and how it ended
  kParameters,  // and one at its begin: what it asks for, but for its prompts
  kPrompts,     // and its prompts, as text, cut
};

struct PipelineSettings {
  absl::Duration request_time_max = absl::Hours(4);       // from the whole request to the end of its answer
  absl::Duration queue_time_max = absl::Minutes(1);       // in line for a place in flight
  absl::Duration keepalive_interval = absl::Seconds(30);  // of a stream without news; zero = none
  size_t unsent_bytes_max = size_t{256} << 10;            // of one stream; beyond it tokens wait, as ids
  // Of an answer that is no stream, and of all of them at once: they are kept until they are whole.
  size_t whole_answer_bytes_max = size_t{256} << 20;
  size_t whole_answers_bytes_max = size_t{1} << 30;
  // What its workers have failed goes on elsewhere, and waits so long for an elsewhere; nullopt: it fails.
  std::optional<absl::Duration> failover_wait_max = absl::Seconds(10);
  int failovers_per_second = 200;  // of all requests; a burst of as many at once
  PairPolicy policy = PairPolicy::kPrefix;
  RequestLog log = RequestLog::kSummary;
  absl::Duration timeline_gap = absl::Seconds(1);   // a longer wait for a token is in the request's timeline
  size_t inline_body_bytes_max = size_t{32} << 10;  // larger bodies are prepared on the thread pool;
                                                    // so are forms of answers, whatever their size
};

class RequestPipeline final {
 public:
  struct Parts {  // all outlive the pipeline
    boost::asio::io_context* io_context = nullptr;
    PreparationThreads* preparation = nullptr;  // shared by the shards
    const base::Clock* clock = nullptr;
    const ModelContext* context = nullptr;
    Cluster* cluster = nullptr;
    Admission* admission = nullptr;
    RouterMetrics* metrics = nullptr;
    TimelineStore* timelines = nullptr;  // shared by the shards; nullptr: none are kept
  };

  RequestPipeline(const Parts& parts, const PipelineSettings& settings);
  ~RequestPipeline();  // after the io_context has stopped
  RequestPipeline(const RequestPipeline&) = delete;
  RequestPipeline& operator=(const RequestPipeline&) = delete;

  // What sets one endpoint apart from the others: what its bodies mean (chat_preparation.h and its like). All else, and
  // the way of the answer, is the same for all.
  struct Endpoint {
    const char* id_prefix;
    absl::StatusOr<PreparedRequest> (*prepare)(absl::string_view body, const ModelContext& context);
    std::string MakeId() const;  // unique
  };

  // How a request is named over HTTP: x-request-id.
  struct HttpId {
    std::string id;
    bool is_clients = false;  // else the router has made it, and the answer's own id is the same
  };

  // All on the shard's thread.
  void Serve(std::shared_ptr<Exchange> exchange, const Endpoint& endpoint, const HttpId& http_id,
             const Caller& caller = {});
  // Ends the answers of the request with that id, or of the prompt with it, where they stand: finish_reason "abort".
  // One that has no tokens to come yet fails with CANCELLED. "": of every request. Returns the number of requests.
  int Abort(absl::string_view id);
  // Fails every answer under way and cancels its request: a drain has run out of time. Returns how many.
  int GiveUpAll(const absl::Status& cause);
  // The oldest, at most num_max.
  std::vector<RequestView> Requests(size_t num_max) const;
  size_t num_requests() const { return runs_.size(); }
  // What a prompt that came now would ask the picker.
  PairQuestion NextQuestion(const GenerateOrder& order) const {
    return PairQuestion(order, *parts_.cluster, settings_.policy, turn_);
  }

 private:
  class Run;  // one request under way
  friend class Run;

  const Parts parts_;
  const PipelineSettings settings_;
  std::vector<Run*> runs_;
  uint64_t turn_ = 0;  // rotates among equal pairs
  ResumePace resume_pace_;
  size_t num_whole_bytes_ = 0;  // of all answers that are no streams
};

}  // namespace tandem::router
