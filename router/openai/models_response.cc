#include "router/openai/models_response.h"

#include "absl/strings/str_cat.h"
#include "router/openai/json_text.h"

namespace tandem::router {

std::string ModelBody(const ModelCard& card) {
  return absl::StrCat("{\"id\":", JsonString(card.id), ",\"object\":\"model\",\"created\":", card.created,
                      ",\"owned_by\":\"tandem\",\"max_model_len\":", card.max_model_len, "}");
}

std::string ModelListBody(const ModelCard& card) {
  return absl::StrCat("{\"object\":\"list\",\"data\":[", ModelBody(card), "]}");
}

}  // namespace tandem::router
