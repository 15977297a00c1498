// One shard: a whole router on one core. Its own thread and io_context, listener, worker connections and requests.
//
// Shards share nothing but the immutable context, the metrics, their words on being ready and on their state, and the
// pool that prepares large bodies; to the workers each is a router of its own, with its own incarnation. So no token
// crosses a core and no lock is taken on its way.
// Tested by router_integration_test.cc.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/peer_security.h"
#include "router/abort_relay.h"
#include "router/access_control.h"
#include "router/admission.h"
#include "router/cors.h"
#include "router/discovery/worker_directory.h"
#include "router/http/http_limits.h"
#include "router/http/http_server.h"
#include "router/metrics.h"
#include "router/pool_shortage.h"
#include "router/preparation_threads.h"
#include "router/prepared_request.h"
#include "router/readiness.h"
#include "router/request_pipeline.h"
#include "router/status_board.h"
#include "router/timeline/timeline_store.h"
#include "router/worker_link.h"

namespace tandem::router {

class Shard final {
 public:
  struct Options {
    std::string instance;  // unique among the shards of all routers
    std::string host;
    int port = 0;
    PortSharing port_sharing = PortSharing::kExclusive;
    std::vector<std::string> prefill_workers;
    std::vector<std::string> decode_workers;
    LinkTimes link_times;
    int64_t credit_bytes = 16 * 1024;
    Admission::Limits admission = {.in_flight_max = 1024, .waiting_max = 0};
    HttpLimits http;
    PipelineSettings pipeline;
    PoolShortageJudge::Limits shortage;
  };
  struct Shared {  // outlives the shards
    const ModelContext* context = nullptr;
    RouterMetrics* metrics = nullptr;
    Readiness* readiness = nullptr;
    StatusBoard* status_board = nullptr;
    TimelineStore* timelines = nullptr;
    AbortRelay* abort_relay = nullptr;
    WorkerDirectory* directory = nullptr;  // that requests may change; nullptr: none may
    const AccessControl* access = nullptr;
    const CorsPolicy* cors = nullptr;
    TlsCertificate* tls = nullptr;        // null: plain HTTP
    base::PeerSecurity* peers = nullptr;  // towards workers; outlives the shard
    PreparationThreads* preparation = nullptr;
  };

  // Listens and starts to connect to the workers; serves from here on. UNAVAILABLE where the port is taken.
  static absl::StatusOr<std::unique_ptr<Shard>> Start(const Options& options, const Shared& shared);
  ~Shard();  // as Drain() without any time, where that has not been called
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  int port() const;
  // Cluster::SetWorkers() on the shard's thread. From any thread.
  void SetWorkers(std::vector<std::string> prefill_workers, std::vector<std::string> decode_workers);
  struct DrainTimes {
    absl::Duration notice = absl::ZeroDuration();  // not ready, but serving: so that load balancers look away first
    absl::Duration grace = absl::ZeroDuration();   // after it, for requests under way
  };
  // Not ready from here on; after the notice it refuses new requests. The other paths are served until the last request
  // has ended, so that whoever watches sees the drain. Returns when every request has ended, at the latest after both
  // times plus what workers have to confirm. Requests that the grace was too short for end with UNAVAILABLE, inside
  // their streams where these have begun; DEADLINE_EXCEEDED says how many.
  absl::Status Drain(const DrainTimes& times);
  // Ends a drain under way at once: as if its time were over, and workers get no time to confirm. From any thread.
  void HurryDrain();

 private:
  class Loop;
  explicit Shard(std::unique_ptr<Loop> loop);
  const std::unique_ptr<Loop> loop_;
};

}  // namespace tandem::router
