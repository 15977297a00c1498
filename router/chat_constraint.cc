#include "router/chat_constraint.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "router/openai/api_error.h"

namespace tandem::router {
namespace {

// The field that asks for a form.
absl::string_view AskedBy(const ChatRequest& request) {
  if (request.tools.must_call()) return "tool_choice";
  return request.response_format.has_value() ? "response_format" : "tools[].function.strict";
}

absl::Status CheckFits(const ChatRequest& request) {
  if (request.generation.ignores_eos) {
    return FieldError("ignore_eos",
                      absl::StrCat("must be false where ", AskedBy(request), " says how the answer ends"));
  }
  const ChatMessage& last = request.messages.back();
  if (last.is_prefix && !last.content.empty()) {
    return FieldError(std::string(AskedBy(request)),
                      "cannot be enforced on an answer that goes on with the last message's content");
  }
  return absl::OkStatus();
}

void AddTools(const ChatTools& tools, AnswerConstraint* constraint) {
  for (size_t i = 0; i < tools.definitions.size(); ++i) {
    const ChatTools::Definition& definition = tools.definitions[i];
    if (tools.choice == ChatTools::Choice::kNamed && definition.name != tools.named) continue;
    ConstrainedTool& tool = constraint->tools.emplace_back();
    tool.name = definition.name;
    tool.has_parameters = definition.parameters.has_value();
    if (tool.has_parameters) tool.parameters = *definition.parameters;
    // Where the model is free to call, what is not strict is free, too.
    tool.is_enforced = definition.is_strict || tools.must_call();
    tool.field = absl::StrCat("tools[", i, "].function.parameters");
  }
}

}  // namespace

CallMarkup MarkupOf(const PromptFormat& format) {
  return format.kind == PromptFormat::Kind::kV31 ? CallMarkup::kToolMarks : CallMarkup::kDsml;
}

absl::StatusOr<std::optional<AnswerConstraint>> PlanConstraint(const ChatRequest& request, const PromptFormat& format) {
  const ChatTools& tools = request.tools;
  const bool may_call = tools.may_call() && !tools.definitions.empty();
  const bool has_strict_tool = std::any_of(tools.definitions.begin(), tools.definitions.end(),
                                           [](const ChatTools::Definition& tool) { return tool.is_strict; });
  const bool is_enforced = tools.must_call() || (may_call && has_strict_tool) || request.response_format.has_value();
  if (!is_enforced) return std::optional<AnswerConstraint>();
  if (const absl::Status fits = CheckFits(request); !fits.ok()) return fits;

  AnswerConstraint constraint;
  constraint.markup = MarkupOf(format);
  constraint.is_single_call = tools.is_single_call || tools.choice == ChatTools::Choice::kNamed;
  if (may_call) {
    constraint.calls = tools.must_call() ? AnswerConstraint::Calls::kRequired : AnswerConstraint::Calls::kAllowed;
    AddTools(tools, &constraint);
  }
  if (!tools.must_call()) {
    if (request.response_format.has_value()) {
      constraint.schema = request.response_format->schema;
      constraint.schema_field = request.response_format->field;
    } else {
      constraint.allows_text = true;
    }
  }
  return std::optional<AnswerConstraint>(std::move(constraint));
}

}  // namespace tandem::router
