#include "router/constraints/answer_constraint.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "router/constraints/ebnf.h"
#include "router/constraints/grammar.h"
#include "router/constraints/json_grammar.h"
#include "router/constraints/json_schema.h"
#include "router/constraints/markup.h"
#include "router/constraints/pattern.h"
#include "router/openai/api_error.h"

namespace tandem::router {
namespace {

constexpr absl::string_view kReasoningEnd = "</think>";
constexpr uint32_t kMarkBar = 0xFF5C;  // ｜, in every mark
constexpr int kOtherParameterBytesMax = 64;
// How marks of calls begin, as a text that is long and free must not write them.
constexpr const char* kMarkFronts[] = {"<｜DSML｜", "</｜DSML｜", "<｜tool"};

Dfa FreeText(bool is_reasoning) {
  std::vector<std::string> forbidden(std::begin(kMarkFronts), std::end(kMarkFronts));
  if (is_reasoning) forbidden.emplace_back(kReasoningEnd);
  return TextWithout(forbidden);
}

// Short enough to be counted along with a length: any mark's beginning.
Dfa BareText() { return TextWithout({"<｜", "</｜"}); }

class Compiler {
 public:
  Compiler(const AnswerConstraint& answer, const Tokenizer& tokenizer)
      : answer_(answer),
        tokenizer_(tokenizer),
        json_(&grammar_, answer.calls == AnswerConstraint::Calls::kNone ? CharClass() : CharClass::Of(kMarkBar)) {}

  absl::StatusOr<proto::Constraint> Compile(absl::Span<const uint32_t> end_tokens) {
    RETURN_IF_ERROR(json_.Init());
    Nfa root;
    const int end = root.AddState();
    root.SetAccepting(end);
    int begin = Nfa::kStart;
    if (answer_.starts_with_reasoning) {
      const int reasoned = root.AddState();
      root.AddDfa(begin, FreeText(/*is_reasoning=*/true), reasoned);
      begin = AddMarkup(&root, reasoned, kReasoningEnd, tokenizer_);
    }
    if (answer_.form.has_value()) RETURN_IF_ERROR(AddForm(&root, begin, end));
    if (answer_.calls != AnswerConstraint::Calls::kNone) {
      int calls = begin;
      if (answer_.allows_text) {
        calls = root.AddState();
        root.AddDfa(begin, FreeText(/*is_reasoning=*/false), calls);
        root.AddEpsilon(calls, end);
      }
      RETURN_IF_ERROR(AddCalls(&root, calls, end));
    }
    const uint32_t rule = grammar_.Reserve();
    RETURN_IF_ERROR(AboutWhole(grammar_.Define(rule, root)));
    absl::StatusOr<proto::Constraint> constraint = grammar_.Finish(rule, end_tokens);
    RETURN_IF_ERROR(AboutWhole(constraint.status()));
    return constraint;
  }

 private:
  absl::Status AboutWhole(const absl::Status& status) const {
    if (status.ok()) return status;
    const bool has_tools = answer_.calls != AnswerConstraint::Calls::kNone;
    return FieldError(has_tools && !answer_.form.has_value() ? "tools" : answer_.form->field,
                      std::string(status.message()));
  }

  absl::Status AddForm(Nfa* root, int from, int to) {
    const AnswerForm& form = *answer_.form;
    switch (form.kind) {
      case AnswerForm::Kind::kSchema:
        schema_ = std::make_unique<JsonSchema>(form.schema, form.field, &grammar_, &json_, BareText());
        RETURN_IF_ERROR(schema_->AddRoot(root, from, to));
        return schema_->Define();
      case AnswerForm::Kind::kRegex: {
        absl::StatusOr<Dfa> text =
            CompilePattern(form.text, PatternReach::kWhole, kConstraintStatesMax, grammar_.budget());
        if (!text.ok()) return FieldError(form.field, std::string(text.status().message()));
        root->AddDfa(from, *text, to);
        return absl::OkStatus();
      }
      case AnswerForm::Kind::kEbnf: {
        const absl::Status added = AddEbnf(form.text, &grammar_, root, from, to);
        return added.ok() ? added : FieldError(form.field, std::string(added.message()));
      }
      case AnswerForm::Kind::kStructuralTag:
        return AddStructures(root, from, to);
    }
    return absl::OkStatus();
  }

  // Free text in which every trigger begins a structure: begin, JSON of its schema, end; then free text again.
  absl::Status AddStructures(Nfa* root, int from, int to) {
    const int behind_text = root->AddState();
    root->AddDfa(from, TextWithout(answer_.form->triggers), behind_text);
    root->AddEpsilon(behind_text, to);
    const int behind = root->AddState();
    for (const AnswerForm::Structure& structure : answer_.form->structures) {
      schemas_.push_back(
          std::make_unique<JsonSchema>(structure.schema, structure.field, &grammar_, &json_, BareText()));
      const int value_end = root->AddState();
      RETURN_IF_ERROR(schemas_.back()->AddRoot(root, root->AddText(behind_text, structure.begin), value_end));
      RETURN_IF_ERROR(schemas_.back()->Define());
      root->AddEpsilon(root->AddText(value_end, structure.end), behind);
    }
    root->AddDfa(behind, TextWithout(answer_.form->triggers), behind_text);
    return absl::OkStatus();
  }

  absl::Status AddCalls(Nfa* root, int from, int to) {
    const bool is_dsml = answer_.markup == CallMarkup::kDsml;
    const int first =
        AddMarkup(root, from, is_dsml ? "\n\n<｜DSML｜function_calls>\n" : "<｜tool▁calls▁begin｜>", tokenizer_);
    const int behind = root->AddState();
    for (const ConstrainedTool& tool : answer_.tools) {
      const uint32_t rule = grammar_.Reserve();
      Nfa call;
      const int end = call.AddState();
      call.SetAccepting(end);
      RETURN_IF_ERROR(is_dsml ? DsmlCall(tool, &call, end) : MarkedCall(tool, &call, end));
      if (const absl::Status status = grammar_.Define(rule, call); !status.ok()) {
        return FieldError(tool.field, std::string(status.message()));
      }
      root->AddCall(first, rule, behind);
    }
    if (!answer_.is_single_call) root->AddEpsilon(behind, first);
    root->AddEpsilon(
        AddMarkup(root, behind, is_dsml ? "</｜DSML｜function_calls>" : "<｜tool▁calls▁end｜>", tokenizer_), to);
    return absl::OkStatus();
  }

  JsonSchema* SchemaOf(const ConstrainedTool& tool) {
    static const OrderedJson* const kObject = [] {
      auto* object = new OrderedJson;
      object->kind = OrderedJson::Kind::kObject;
      object->keys = {"type"};
      OrderedJson& type = object->items.emplace_back();
      type.kind = OrderedJson::Kind::kString;
      type.text = "object";
      return object;
    }();
    static const OrderedJson* const kNoMembers = [] {
      auto* object = new OrderedJson(*kObject);
      object->keys.emplace_back("additionalProperties");
      object->items.emplace_back().kind = OrderedJson::Kind::kFalse;
      return object;
    }();
    const OrderedJson* root = !tool.has_parameters ? kNoMembers : tool.is_enforced ? &tool.parameters : kObject;
    schemas_.push_back(std::make_unique<JsonSchema>(*root, tool.field, &grammar_, &json_, BareText()));
    return schemas_.back().get();
  }

  // <｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{...}<｜tool▁call▁end｜>
  absl::Status MarkedCall(const ConstrainedTool& tool, Nfa* call, int end) {
    const int name = AddMarkup(call, Nfa::kStart, "<｜tool▁call▁begin｜>", tokenizer_);
    const int arguments = AddMarkup(call, call->AddText(name, tool.name), "<｜tool▁sep｜>", tokenizer_);
    const int behind = call->AddState();
    JsonSchema* schema = SchemaOf(tool);
    RETURN_IF_ERROR(schema->RootMembers().status());  // an object
    RETURN_IF_ERROR(schema->AddRoot(call, arguments, behind));
    RETURN_IF_ERROR(schema->Define());
    call->AddEpsilon(AddMarkup(call, behind, "<｜tool▁call▁end｜>", tokenizer_), end);
    return absl::OkStatus();
  }

  absl::Status DsmlCall(const ConstrainedTool& tool, Nfa* call, int end) {
    const int name = AddMarkup(call, Nfa::kStart, "<｜DSML｜invoke name=\"", tokenizer_);
    int none_yet = call->AddText(call->AddText(name, tool.name), "\">\n");
    int some = call->AddState();
    JsonSchema* schema = SchemaOf(tool);
    ASSIGN_OR_RETURN(const JsonSchema::Members members, schema->RootMembers());
    std::vector<std::string> names = {"arguments", "input"};  // the parser takes them for all arguments in one
    for (const JsonSchema::Member& member : members.known) {
      if (member.name.empty() || member.name.find_first_of("<>\"\n") != std::string::npos ||
          member.name.find("｜") != std::string::npos || member.name.size() > kToolParameterBytesMax) {
        return FieldError(tool.field,
                          absl::StrCat("a parameter's name must have 1 to ", kToolParameterBytesMax,
                                       " bytes, none of < > \" ｜ or a line feed (at ", member.pointer, ")"));
      }
      names.push_back(member.name);
      const int after = call->AddState();
      const int key = AddMarkup(call, Either(call, none_yet, some), "<｜DSML｜parameter name=\"", tokenizer_);
      RETURN_IF_ERROR(
          AddParameter(schema, *member.schema, member.pointer, call, call->AddText(key, member.name), after));
      const int none_after = call->AddState();
      if (!member.is_required) {
        call->AddEpsilon(none_yet, none_after);
        call->AddEpsilon(some, after);
      }
      none_yet = none_after;
      some = after;
    }
    if (members.others != nullptr) {
      const CharClass key_chars({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}, {'-', '-'}});
      ASSIGN_OR_RETURN(const Dfa keys,
                       Intersect(TextOtherThan(names, key_chars), CharsBetween(key_chars, 1, kOtherParameterBytesMax),
                                 kConstraintStatesMax, grammar_.budget()));
      const int key = AddMarkup(call, Either(call, none_yet, some), "<｜DSML｜parameter name=\"", tokenizer_);
      const int behind_key = call->AddState();
      call->AddDfa(key, keys, behind_key);
      RETURN_IF_ERROR(AddParameter(schema, *members.others, members.others_pointer, call, behind_key, some));
    }
    RETURN_IF_ERROR(schema->Define());
    const int close = call->AddState();
    call->AddEpsilon(some, close);
    call->AddEpsilon(call->AddText(none_yet, "\n"), close);
    call->AddEpsilon(AddMarkup(call, close, "</｜DSML｜invoke>\n", tokenizer_), end);
    return absl::OkStatus();
  }

  static int Either(Nfa* nfa, int a, int b) {
    const int either = nfa->AddState();
    nfa->AddEpsilon(a, either);
    nfa->AddEpsilon(b, either);
    return either;
  }

  // Behind the name: ` string="true">TEXT` or ` string="false">JSON`, and the end tag.
  absl::Status AddParameter(JsonSchema* schema, const OrderedJson& value, const std::string& pointer, Nfa* call,
                            int from, int to) {
    const int behind = call->AddState();
    RETURN_IF_ERROR(schema->AddValue(call, call->AddText(from, "\" string=\"true\">"), value, pointer,
                                     JsonSchema::Form::kBareStrings, behind));
    RETURN_IF_ERROR(schema->AddValue(call, call->AddText(from, "\" string=\"false\">"), value, pointer,
                                     JsonSchema::Form::kJsonButStrings, behind));
    call->AddEpsilon(AddMarkup(call, behind, "</｜DSML｜parameter>\n", tokenizer_), to);
    return absl::OkStatus();
  }

  static constexpr size_t kToolParameterBytesMax = 256;

  const AnswerConstraint& answer_;
  const Tokenizer& tokenizer_;
  Grammar grammar_;
  JsonGrammar json_;
  std::unique_ptr<JsonSchema> schema_;
  std::vector<std::unique_ptr<JsonSchema>> schemas_;  // of tools, or of structures
};

}  // namespace

absl::StatusOr<std::shared_ptr<const proto::Constraint>> CompileConstraint(const AnswerConstraint& answer,
                                                                           const Tokenizer& tokenizer,
                                                                           absl::Span<const uint32_t> end_tokens) {
  ASSIGN_OR_RETURN(proto::Constraint constraint, Compiler(answer, tokenizer).Compile(end_tokens));
  return std::make_shared<const proto::Constraint>(std::move(constraint));
}

}  // namespace tandem::router
