// The bodies of GET /v1/models and /v1/models/{id}: from the router's own knowledge, no worker is asked.
// Tested by chat_response_test.cc.
#pragma once

#include <cstdint>
#include <string>

namespace tandem::router {

struct ModelCard {
  std::string id;             // served_model_name
  int64_t created = 0;        // Unix seconds: when this router started
  int64_t max_model_len = 0;  // prompt and answer together, tokens
};

std::string ModelListBody(const ModelCard& card);
std::string ModelBody(const ModelCard& card);

}  // namespace tandem::router
