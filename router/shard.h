// One shard: a whole router on one core. Its own thread and io_context, listener, worker connections and requests.
//
// Shards share nothing but the immutable context, the metrics, their word on being ready and the pool that prepares
// large bodies; to the workers
// each is a router of its own, with its own incarnation. So no token crosses a core and no lock is taken on its way.
// Tested by router_integration_test.cc.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "router/http/http_limits.h"
#include "router/http/http_server.h"
#include "router/metrics.h"
#include "router/prepared_request.h"
#include "router/readiness.h"
#include "router/request_pipeline.h"

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
    int requests_max = 1024;
    HttpLimits http;
    PipelineSettings pipeline;
  };
  struct Shared {  // outlives the shards
    const ModelContext* context = nullptr;
    RouterMetrics* metrics = nullptr;
    Readiness* readiness = nullptr;
    boost::asio::thread_pool* thread_pool = nullptr;
  };

  // Listens and starts to connect to the workers; serves from here on. UNAVAILABLE where the port is taken.
  static absl::StatusOr<std::unique_ptr<Shard>> Start(const Options& options, const Shared& shared);
  ~Shard();  // as Drain() without grace, where that has not been called
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  int port() const;
  // Not ready from here on, refuses new chat requests; the other paths are served until the last request has ended, so
  // that whoever watches sees the drain. Returns when every request has ended, at the latest after grace plus the
  // time that workers have to confirm. Requests that the grace was too short for end with UNAVAILABLE.
  void Drain(absl::Duration grace);

 private:
  class Loop;
  explicit Shard(std::unique_ptr<Loop> loop);
  const std::unique_ptr<Loop> loop_;
};

}  // namespace tandem::router
