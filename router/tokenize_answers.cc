#include "router/tokenize_answers.h"

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "router/chat_preparation.h"
#include "router/openai/json_text.h"
#include "router/openai/tokenize_request.h"
#include "router/prompt_orders.h"

namespace tandem::router {
namespace {

// One value, or an array of them.
std::string OneOrList(bool is_list, const std::vector<std::string>& values) {
  return is_list ? absl::StrCat("[", absl::StrJoin(values, ","), "]") : values.front();
}

}  // namespace

absl::StatusOr<std::string> TokenizeBody(absl::string_view body, const ModelContext& context) {
  ASSIGN_OR_RETURN(const TokenizeRequest request, ParseTokenizeRequest(body));
  std::vector<std::string> tokens;
  std::vector<std::string> counts;
  const auto add = [&](const std::vector<TokenId>& ids) {
    tokens.push_back(absl::StrCat("[", absl::StrJoin(ids, ","), "]"));
    counts.push_back(absl::StrCat(ids.size()));
  };
  const bool is_list = request.prompts.has_value() && request.prompts->is_list;
  if (request.prompts.has_value()) {
    for (size_t i = 0; i < request.prompts->inputs.size(); ++i) {
      ASSIGN_OR_RETURN(const std::vector<TokenId> ids,
                       EncodePrompt(std::get<std::string>(request.prompts->inputs[i]), request.prompts->PathOf(i),
                                    request.adds_special_tokens, context));
      add(ids);
    }
  } else {
    ASSIGN_OR_RETURN(const PreparedRequest chat, PrepareChat(body, context));
    add(chat.orders.front().prompt);
  }
  return absl::StrCat("{\"tokens\":", OneOrList(is_list, tokens), ",\"count\":", OneOrList(is_list, counts),
                      ",\"max_model_len\":", context.context_length, "}");
}

absl::StatusOr<std::string> DetokenizeBody(absl::string_view body, const ModelContext& context) {
  ASSIGN_OR_RETURN(DetokenizeRequest request, ParseDetokenizeRequest(body));
  std::vector<std::string> texts;
  for (size_t i = 0; i < request.tokens.inputs.size(); ++i) {
    auto& ids = std::get<std::vector<uint32_t>>(request.tokens.inputs[i]);
    RETURN_IF_ERROR(CheckTokenIds(ids, request.tokens.PathOf(i), context));
    if (request.skips_special_tokens) {
      std::erase_if(ids, [&](TokenId id) { return context.tokenizer->IsSpecial(id); });
    }
    texts.push_back(JsonString(context.tokenizer->Decode(ids)));
  }
  const std::string text = OneOrList(request.tokens.is_list, texts);
  return absl::StrCat("{\"text\":", text, ",\"prompt\":", text, "}");
}

}  // namespace tandem::router
