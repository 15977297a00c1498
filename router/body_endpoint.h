// Endpoints that are a function of their body: large bodies are worked on by the pool, so that they stall no stream.
// Tested by router_integration_test.cc.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "router/http/exchange.h"
#include "router/preparation_threads.h"
#include "router/prepared_request.h"

namespace tandem::router {

// The body of the answer, JSON. Pure, for any thread.
using AnswerBody = absl::StatusOr<std::string> (*)(absl::string_view body, const ModelContext& context);

struct BodyEndpointParts {  // outlive the exchanges
  // To the shard's thread, for as long as there is one.
  std::function<void(std::function<void()> work)> post;
  PreparationThreads* preparation = nullptr;
  const ModelContext* context = nullptr;
};

void ServeBody(const BodyEndpointParts& parts, std::shared_ptr<Exchange> exchange, AnswerBody answer);

// Of a body that asks for an answer of the model: prepared as ServeBody()'s, and answered on the shard's thread.
using PrepareBody = absl::StatusOr<PreparedRequest> (*)(absl::string_view body, const ModelContext& context);
void ServePrepared(const BodyEndpointParts& parts, std::shared_ptr<Exchange> exchange, PrepareBody prepare,
                   std::function<std::string(const PreparedRequest& prepared)> answer);

}  // namespace tandem::router
