#include "router/route_answer.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "router/chat_preparation.h"
#include "router/completion_preparation.h"
#include "router/openai/api_error.h"
#include "router/openai/json_text.h"
#include "router/openai/route_request.h"

namespace tandem::router {
namespace {

std::string AddressOf(const auto& workers, int place) {
  return place < 0 ? "null" : JsonString(workers[static_cast<size_t>(place)].address);
}

std::string PairMembers(const ClusterView& view, int prefill, int decode) {
  return absl::StrCat("\"prefill\":", AddressOf(view.prefills, prefill),
                      ",\"decode\":", AddressOf(view.decodes, decode));
}

std::string PartsJson(const PairCost& parts) {
  return absl::StrCat("{\"waiting\":", parts.waiting, ",\"uncached\":", parts.uncached,
                      ",\"decode_load\":", parts.decode_load, ",\"short_room\":", parts.short_room,
                      ",\"slow_lane\":", parts.slow_lane, "}");
}

}  // namespace

absl::StatusOr<PreparedRequest> PrepareRoute(absl::string_view body, const ModelContext& context) {
  ASSIGN_OR_RETURN(const RouteBodyKind kind, RouteBodyKindOf(body));
  if (kind == RouteBodyKind::kChat) return PrepareChat(body, context);
  ASSIGN_OR_RETURN(PreparedRequest prepared, PrepareCompletion(body, context));
  if (prepared.orders.size() != 1) {
    return FieldError("prompt", absl::StrCat("has ", prepared.orders.size(), " prompts, a route is of one"));
  }
  return prepared;
}

std::string RouteAnswer(const ClusterView& view, const PairRequest& request) {
  const PairSurvey survey = SurveyPairs(view, request, kRoutePairsMax);
  const bool has_parts = request.policy == PairPolicy::kPrefix;
  std::string out = absl::StrCat("{\"policy\":\"", kPairPolicyNames[static_cast<int>(request.policy)],
                                 "\",\"needs_tokens\":", request.num_tokens, ",\"choice\":");
  if (survey.choice.ok()) {
    const PairChoice& choice = *survey.choice;
    absl::StrAppend(&out, "{", PairMembers(view, choice.prefill, choice.decode),
                    ",\"num_cheapest\":", choice.num_cheapest, ",\"cached_tokens\":", choice.cached_tokens,
                    ",\"best_cached_tokens\":", choice.best_cached_tokens,
                    "},\"why\":", JsonString(choice.Explain(view)));
  } else {
    absl::StrAppend(&out, "null,\"why\":", JsonString(survey.choice.status().message()));
  }
  absl::StrAppend(&out, ",\"pairs_total\":", survey.num_pairs, ",\"pairs\":[");
  for (size_t i = 0; i < survey.pairs.size(); ++i) {
    const WeighedPair& pair = survey.pairs[i];
    absl::StrAppend(&out, i == 0 ? "{" : ",{", PairMembers(view, pair.prefill, pair.decode), ",\"cost\":", pair.cost,
                    ",\"cached_tokens\":", pair.cached_tokens);
    if (has_parts) absl::StrAppend(&out, ",\"parts\":", PartsJson(pair.parts));
    out += '}';
  }
  absl::StrAppend(&out, "],\"excluded_total\":", survey.num_excluded, ",\"excluded\":[");
  for (size_t i = 0; i < survey.excluded.size(); ++i) {
    const ExcludedPair& excluded = survey.excluded[i];
    absl::StrAppend(&out, i == 0 ? "{" : ",{", PairMembers(view, excluded.prefill, excluded.decode),
                    ",\"why\":", JsonString(excluded.why), "}");
  }
  return out + "]}";
}

}  // namespace tandem::router
