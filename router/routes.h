// Which path and method is answered by whom: the table in routes.cc, an entry for each path.
//
// Three kinds of entries: answers that workers generate (RequestPipeline::Endpoint), functions of the body
// (body_endpoint.h), and what the shard knows itself. A path that is not in the table is 404, one with another method
// 405; both as OpenAI error objects. docs/api.md has every path. Tested by router_integration_test.cc and
// tests/e2e/endpoints_test.py.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "router/abort_relay.h"
#include "router/access_control.h"
#include "router/body_endpoint.h"
#include "router/cors.h"
#include "router/discovery/worker_directory.h"
#include "router/http/http_server.h"
#include "router/openai/models_response.h"
#include "router/pool_shortage.h"
#include "router/preparation_threads.h"
#include "router/readiness.h"
#include "router/request_pipeline.h"
#include "router/server_information.h"
#include "router/status_board.h"
#include "router/timeline/timeline_store.h"

namespace tandem::router {

class Routes final : public HttpHandler {
 public:
  struct Parts {  // all outlive the routes
    RequestPipeline* pipeline = nullptr;
    Cluster* cluster = nullptr;
    WorkerDirectory* directory = nullptr;  // nullptr: its workers are not changed by requests
    RouterMetrics* metrics = nullptr;
    const Admission* admission = nullptr;
    const ModelContext* context = nullptr;
    PreparationThreads* preparation = nullptr;
    AbortRelay* abort_relay = nullptr;
    AbortRelay::Post post;  // to this shard's thread
    const base::Clock* clock = nullptr;
    const AccessControl* access = nullptr;
    const CorsPolicy* cors = nullptr;
    Readiness* readiness = nullptr;
    StatusBoard* status_board = nullptr;
    const TimelineStore* timelines = nullptr;
    const PoolShortage* shortage = nullptr;  // nullptr: another shard says it
    int shard = 0;                           // among those of readiness
  };
  Routes(const Parts& parts, std::string instance, ModelCard model_card);

  void Handle(std::shared_ptr<Exchange> exchange) override;
  // Tells the board how this shard is.
  void PostStatus();
  void OnRefused(int status) override;
  // /readyz says 503 from here on; everything is served as before.
  void SetNotReady() { is_leaving_ = true; }
  // New requests for answers get 503, too.
  void SetDraining() { is_leaving_ = is_draining_ = true; }

 private:
  struct Route;
  static const Route kRoutes[];
  static const Route* FindRoute(const std::string& path);
  static RequestPipeline::HttpId HttpIdOf(const HttpRequest& request, const Route* route);
  // Hands the request to whoever answers it.
  void Serve(std::shared_ptr<Exchange> exchange, const Route& route, const RequestPipeline::HttpId& http_id,
             const Caller& caller);
  using Exchanged = std::shared_ptr<Exchange>;

  void ServeModels(Exchanged exchange);
  void ServeModelInfo(Exchanged exchange);
  void ServeServerInfo(Exchanged exchange);
  void ServeLoads(Exchanged exchange);
  void ServeFlushCache(Exchanged exchange);
  void ServeAbort(Exchanged exchange);
  void ServeOpenApi(Exchanged exchange);
  void ServeWorkers(Exchanged exchange);
  void ServeWorker(Exchanged exchange);
  HttpResponse ChangeWorkers(
      const std::function<absl::StatusOr<std::string>(WorkerDirectory& directory)>& change) const;
  void ServeHealth(Exchanged exchange);
  void ServeReady(Exchanged exchange);
  void ServeMetrics(Exchanged exchange);
  void ServeTimelines(Exchanged exchange);
  void ServeStatusz(Exchanged exchange);
  void ServeState(Exchanged exchange);
  void ServeRoute(Exchanged exchange);
  void ServePage(Exchanged exchange);
  absl::Status ReadinessOfAllShards();
  RouterLoad LoadOfAllShards() const;

  const Parts parts_;
  const BodyEndpointParts body_parts_;
  const std::string instance_;
  const ModelCard model_card_;
  bool is_leaving_ = false;
  bool is_draining_ = false;
};

}  // namespace tandem::router
