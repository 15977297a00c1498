// Which path and method is answered by whom.
//
//   POST /v1/chat/completions, /v1/completions   request_pipeline.h; 503 while the router drains
//   GET  /v1/models[/{id}]      from the router's own knowledge
//   GET  /health                200 while the process lives
//   GET  /readyz                200 while every shard has a usable pair and the router is not draining, else 503 with
//   the
//                              reason
//   GET  /metrics, /statusz
// Anything else is 404, a known path with another method 405; both as OpenAI error objects.
// Tested by router_integration_test.cc.
#pragma once

#include <memory>
#include <string>

#include "router/http/http_server.h"
#include "router/openai/models_response.h"
#include "router/readiness.h"
#include "router/request_pipeline.h"

namespace tandem::router {

class Routes final : public HttpHandler {
 public:
  struct Parts {  // all outlive the routes
    RequestPipeline* pipeline = nullptr;
    const Cluster* cluster = nullptr;
    const RouterMetrics* metrics = nullptr;
    Readiness* readiness = nullptr;
    int shard = 0;  // among those of readiness
  };
  Routes(const Parts& parts, std::string instance, ModelCard model_card);

  void Handle(std::shared_ptr<Exchange> exchange) override;
  void SetDraining() { is_draining_ = true; }

 private:
  HttpResponse Models(const std::string& path) const;
  HttpResponse Ready() const;

  const Parts parts_;
  const std::string instance_;
  const ModelCard model_card_;
  bool is_draining_ = false;
};

}  // namespace tandem::router
