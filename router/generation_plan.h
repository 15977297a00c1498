// What a prompt and a request's fields become for the workers, within what the model and the settings allow.
// Pure. Tested by chat_preparation_test.cc and completion_preparation_test.cc.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "router/cluster.h"
#include "router/openai/generation_fields.h"
#include "router/parsing/stop_matcher.h"
#include "router/prepared_request.h"

namespace tandem::router {

// NOT_FOUND: there is no such model.
absl::Status CheckModel(const GenerationFields& fields, const ModelContext& context);
// INVALID_ARGUMENT: more choices than one request may have.
absl::Status CheckNumChoices(const GenerationFields& fields, const char* prompt_field, size_t num_prompts,
                             const ModelContext& context);

// What the fields say of the request as a whole: model, id, stream, usage.
void SetForm(const GenerationFields& fields, PreparedRequest* prepared);

// An order for the prompt, all but the deadline. A seed is drawn where the client gave none. max_tokens beyond the
// context is cut to what is left of it: the answer then says finish_reason "length". INVALID_ARGUMENT: the prompt
// leaves no room for an answer (laid at prompt_field) and may not be cut, or an id is none of the vocabulary.
absl::StatusOr<GenerateOrder> PlanGeneration(const GenerationFields& fields, std::vector<TokenId> prompt,
                                             const char* prompt_field, const ModelContext& context);

// INVALID_ARGUMENT: ignore_eos, where the field `asked_by` says how the answer ends.
absl::Status CheckMayEnd(const GenerationFields& fields, absl::string_view asked_by);

// The form that the fields ask for, of an answer that begins with no reasoning and makes no calls.
absl::StatusOr<std::optional<AnswerConstraint>> PlanForm(const GenerationFields& fields);

absl::StatusOr<std::shared_ptr<const StopSet>> BuildStops(const GenerationFields& fields);

// The error of a later stage, laid at the field that it is about.
absl::Status AboutField(const char* param, const absl::Status& status);

}  // namespace tandem::router
