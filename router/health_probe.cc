#include "router/health_probe.h"

#include <memory>
#include <string>

#include "base/status_macros.h"
#include "router/generation_plan.h"
#include "router/openai/generation_fields.h"

namespace tandem::router {
namespace {

// Only that there is an answer counts.
class HealthFormat final : public AnswerFormat {
 public:
  void AppendOpening(std::string& /*out*/, int /*index*/) const override {}
  void AppendDelta(std::string& /*out*/, int /*index*/, const ChoiceDelta& /*delta*/) override {}
  void AppendUsage(std::string& /*out*/, const Usage& /*usage*/) const override {}
  std::string WholeBody(absl::Span<const WholeChoice> /*choices*/, const Usage& /*usage*/) const override {
    return "{\"status\":\"ok\"}";
  }
};

}  // namespace

absl::StatusOr<PreparedRequest> PrepareHealthProbe(absl::string_view /*body*/, const ModelContext& context) {
  GenerationFields fields;
  fields.model = context.served_model_name;
  fields.temperature = 0;
  fields.max_new_tokens = 1;
  PreparedRequest prepared;
  SetForm(fields, &prepared);
  prepared.time_max = kHealthProbeTimeMax;
  std::vector<TokenId> prompt = {context.facts.bos_token_id.value_or(0)};
  ASSIGN_OR_RETURN(GenerateOrder order, PlanGeneration(fields, std::move(prompt), "probe", context));
  prepared.orders.push_back(std::move(order));
  prepared.make_format = [](const AnswerIdentity&) { return std::make_unique<HealthFormat>(); };
  return prepared;
}

}  // namespace tandem::router
