#include "router/chat_constraint.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "router/generation_plan.h"
#include "router/openai/api_error.h"

namespace tandem::router {
namespace {

// The field that asks for a form.
absl::string_view AskedBy(const ChatRequest& request) {
  if (request.tools.must_call()) return "tool_choice";
  if (request.response_format.has_value()) return "response_format";
  return request.generation.form.has_value() ? absl::string_view(request.generation.form->field)
                                             : "tools[].function.strict";
}

absl::Status CheckFits(const ChatRequest& request, bool may_call) {
  RETURN_IF_ERROR(CheckMayEnd(request.generation, AskedBy(request)));
  const ChatMessage& last = request.messages.back();
  if (last.is_prefix && !last.content.empty()) {
    return FieldError(std::string(AskedBy(request)),
                      "cannot be enforced on an answer that goes on with the last message's content");
  }
  const std::optional<AnswerForm>& form = request.generation.form;
  if (may_call && form.has_value() && form->kind != AnswerForm::Kind::kSchema) {
    return FieldError(form->field, "is not supported beside tools that may be called; tool_choice must be none");
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
  const std::optional<AnswerForm>& form =
      request.response_format.has_value() ? request.response_format->form : request.generation.form;
  if (!tools.must_call() && !(may_call && has_strict_tool) && !form.has_value()) {
    return std::optional<AnswerConstraint>();
  }
  RETURN_IF_ERROR(CheckFits(request, may_call));

  AnswerConstraint constraint;
  constraint.markup = MarkupOf(format);
  constraint.is_single_call = tools.is_single_call || tools.choice == ChatTools::Choice::kNamed;
  if (may_call) {
    constraint.calls = tools.must_call() ? AnswerConstraint::Calls::kRequired : AnswerConstraint::Calls::kAllowed;
    AddTools(tools, &constraint);
  }
  if (!tools.must_call()) {
    constraint.form = form;
    constraint.allows_text = !form.has_value();
  }
  return std::optional<AnswerConstraint>(std::move(constraint));
}

}  // namespace tandem::router
