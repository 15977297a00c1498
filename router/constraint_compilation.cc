#include "router/constraint_compilation.h"

#include <memory>

#include "base/status_macros.h"

namespace tandem::router {

absl::Status CompileForm(const ModelContext& context, PreparedRequest* prepared) {
  if (!prepared->constraint.has_value()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::shared_ptr<const proto::Constraint> compiled,
                   CompileConstraint(*prepared->constraint, *context.tokenizer, context.facts.eos_token_ids));
  for (GenerateOrder& order : prepared->orders) order.constraint = compiled;
  prepared->constraint.reset();
  return absl::OkStatus();
}

}  // namespace tandem::router
