// Which path and method is answered by whom.
//
//   POST /v1/chat/completions, /v1/completions   request_pipeline.h; 503 while the router drains
//   GET  /v1/models[/{id}]      from the router's own knowledge
//   GET  /health                200 while the process lives
//   GET  /readyz                200 while every shard has a usable pair and the router is not draining, else 503 with
//                              the reason
//   GET  /metrics, /statusz    both of all shards
// Anything else is 404, a known path with another method 405; both as OpenAI error objects.
// Tested by router_integration_test.cc.
#pragma once

#include <memory>
#include <string>

#include "router/http/http_server.h"
#include "router/openai/models_response.h"
#include "router/readiness.h"
#include "router/request_pipeline.h"
#include "router/status_board.h"

namespace tandem::router {

class Routes final : public HttpHandler {
 public:
  struct Parts {  // all outlive the routes
    RequestPipeline* pipeline = nullptr;
    const Cluster* cluster = nullptr;
    RouterMetrics* metrics = nullptr;
    const Admission* admission = nullptr;
    const base::Clock* clock = nullptr;
    Readiness* readiness = nullptr;
    StatusBoard* status_board = nullptr;
    int shard = 0;  // among those of readiness
  };
  Routes(const Parts& parts, std::string instance, ModelCard model_card);

  void Handle(std::shared_ptr<Exchange> exchange) override;
  // Tells the board how this shard is.
  void PostStatus();
  void OnRefused(int status) override;
  // /readyz says 503 from here on; everything is served as before.
  void SetNotReady() { is_leaving_ = true; }
  // New chat requests get 503, too.
  void SetDraining() { is_leaving_ = is_draining_ = true; }

 private:
  HttpResponse Models(const std::string& path) const;
  HttpResponse Ready() const;

  const Parts parts_;
  const std::string instance_;
  const ModelCard model_card_;
  bool is_leaving_ = false;
  bool is_draining_ = false;
};

}  // namespace tandem::router
