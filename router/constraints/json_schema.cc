#include "router/constraints/json_schema.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "router/constraints/json_pointer.h"
#include "router/constraints/schema_keywords.h"
#include "router/openai/api_error.h"

namespace tandem::router {
namespace {

using Kind = OrderedJson::Kind;

bool IsTrue(const OrderedJson& schema, const char* keyword) {
  const OrderedJson* value = schema.Find(keyword);
  return value != nullptr && value->kind == Kind::kTrue;
}

}  // namespace

JsonSchema::JsonSchema(const OrderedJson& root, std::string field, Grammar* grammar, const JsonGrammar* json,
                       Dfa bare_text)
    : root_(root), field_(std::move(field)), grammar_(*grammar), json_(*json), bare_text_(std::move(bare_text)) {}

absl::Status JsonSchema::Refuse(const std::string& pointer, absl::string_view what) const {
  return FieldError(field_, absl::StrCat(what, pointer.empty() ? "" : absl::StrCat(" (at ", pointer, ")")));
}

absl::Status JsonSchema::CheckKeywords(const OrderedJson& schema, const std::string& pointer) const {
  if (schema.kind != Kind::kObject) return Refuse(pointer, "a schema must be an object or a boolean");
  for (const char* keyword : kRefusedKeywords) {
    const OrderedJson* value = schema.Find(keyword);
    if (value == nullptr) continue;
    // What asks for nothing.
    const bool is_neutral = (absl::string_view(keyword) == "uniqueItems" && value->kind == Kind::kFalse) ||
                            (absl::string_view(keyword) == "minProperties" && value->text == "0");
    if (!is_neutral) return Refuse(PointerInto(pointer, keyword), absl::StrCat(keyword, " is not supported"));
  }
  return absl::OkStatus();
}

// ---- Rules ----

uint32_t JsonSchema::RuleOf(const OrderedJson& schema, const std::string& pointer) {
  const auto [it, is_new] = rules_.emplace(&schema, 0);
  if (is_new) {
    it->second = grammar_.Reserve();
    pending_.push_back({.schema = &schema, .pointer = pointer, .rule = it->second});
  }
  return it->second;
}

absl::Status JsonSchema::AddCall(Nfa* nfa, int from, const OrderedJson& schema, const std::string& pointer, int to) {
  if (!IsNothing(schema)) nfa->AddCall(from, RuleOf(schema, pointer), to);
  return absl::OkStatus();
}

// In place where it is a simple value, so that a call costs no depth; as a rule where it may be large or refer back.
absl::Status JsonSchema::AddInline(Nfa* nfa, int from, const OrderedJson& schema, const std::string& pointer, int to) {
  const OrderedJson* type = schema.Find("type");
  const bool is_simple =
      schema.kind != Kind::kObject || (type != nullptr && type->kind == Kind::kString && type->text != "object" &&
                                       type->text != "array" && !HasAny(schema, {"$ref", "allOf", "anyOf", "oneOf"}));
  return is_simple ? AddValue(nfa, from, schema, pointer, Form::kJson, to) : AddCall(nfa, from, schema, pointer, to);
}

absl::Status JsonSchema::Define() {
  while (!pending_.empty()) {
    const Pending next = std::move(pending_.front());
    pending_.pop_front();
    Nfa nfa;
    const int end = nfa.AddState();
    nfa.SetAccepting(end);
    RETURN_IF_ERROR(AddValue(&nfa, Nfa::kStart, *next.schema, next.pointer, Form::kJson, end));
    if (const absl::Status status = grammar_.Define(next.rule, nfa); !status.ok()) {
      return Refuse(next.pointer, status.message());
    }
  }
  return absl::OkStatus();
}

// ---- Values ----

absl::Status JsonSchema::AddValue(Nfa* nfa, int from, const OrderedJson& schema, const std::string& pointer, Form form,
                                  int to) {
  if (schema.kind == Kind::kFalse) return absl::OkStatus();
  if (schema.kind == Kind::kTrue) {
    if (form != Form::kBareStrings) json_.AddAny(nfa, from, to, form == Form::kJson);
    if (form == Form::kBareStrings) nfa->AddDfa(from, bare_text_, to);
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(CheckKeywords(schema, pointer));
  if (schema.Find("$ref") != nullptr && form == Form::kJson) {
    std::string target_pointer;
    ASSIGN_OR_RETURN(const OrderedJson* target, Resolve(schema, pointer, &target_pointer));
    if (!HasAssertions(schema)) return AddCall(nfa, from, *target, target_pointer, to);
  }
  std::string flat_pointer = pointer;
  ASSIGN_OR_RETURN(const OrderedJson* flat, Flatten(schema, &flat_pointer, 0));
  if (flat->kind != Kind::kObject) return AddValue(nfa, from, *flat, flat_pointer, form, to);
  RETURN_IF_ERROR(CheckKeywords(*flat, flat_pointer));
  if (IsTrue(*flat, "nullable") && form != Form::kBareStrings) nfa->AddEpsilon(nfa->AddText(from, "null"), to);
  for (const char* keyword : {"anyOf", "oneOf"}) {
    if (flat->Find(keyword) != nullptr) return AddAlternatives(nfa, from, *flat, flat_pointer, keyword, form, to);
  }
  if (flat->Find("enum") != nullptr || flat->Find("const") != nullptr) {
    return AddConstants(nfa, from, *flat, flat_pointer, form, to);
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> types, TypesOf(*flat, flat_pointer));
  for (const std::string& type : types) {
    RETURN_IF_ERROR(AddTyped(nfa, from, *flat, flat_pointer, type, form, to));
  }
  return absl::OkStatus();
}

// The names of `type`, or what the keywords speak of; all of them where they speak of nothing.
absl::StatusOr<std::vector<std::string>> JsonSchema::TypesOf(const OrderedJson& schema,
                                                             const std::string& pointer) const {
  static constexpr const char* kAll[] = {"null", "boolean", "integer", "number", "string", "array", "object"};
  const OrderedJson* type = schema.Find("type");
  std::vector<std::string> types;
  if (type == nullptr) {
    if (HasAny(schema, {"properties", "required", "additionalProperties"})) return std::vector<std::string>{"object"};
    if (HasAny(schema, {"items", "prefixItems", "minItems", "maxItems"})) return std::vector<std::string>{"array"};
    if (HasAny(schema, {"pattern", "minLength", "maxLength", "format"})) return std::vector<std::string>{"string"};
    if (HasAny(schema, {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})) {
      return std::vector<std::string>{"number"};
    }
    return std::vector<std::string>{"null", "boolean", "number", "string", "array", "object"};
  }
  if (type->kind == Kind::kString) {
    types.push_back(type->text);
  } else if (type->kind == Kind::kArray && !type->items.empty()) {
    for (const OrderedJson& item : type->items) types.push_back(item.kind == Kind::kString ? item.text : "");
  } else {
    return Refuse(PointerInto(pointer, "type"), "type must be a name or a list of names");
  }
  for (const std::string& name : types) {
    const bool is_known =
        std::any_of(std::begin(kAll), std::end(kAll), [&](const char* known) { return name == known; });
    if (!is_known) {
      return Refuse(PointerInto(pointer, "type"),
                    absl::StrCat("type must be one of ", absl::StrJoin(kAll, ", "), ", got ", Quoted(name)));
    }
  }
  return types;
}

absl::Status JsonSchema::AddTyped(Nfa* nfa, int from, const OrderedJson& schema, const std::string& pointer,
                                  const std::string& type, Form form, int to) {
  if (type == "string") {
    return form == Form::kJsonButStrings ? absl::OkStatus() : AddStringOf(nfa, from, schema, pointer, form, to);
  }
  if (form == Form::kBareStrings) return absl::OkStatus();
  if (type == "null") {
    nfa->AddEpsilon(nfa->AddText(from, "null"), to);
  } else if (type == "boolean") {
    nfa->AddEpsilon(nfa->AddText(from, "true"), to);
    nfa->AddEpsilon(nfa->AddText(from, "false"), to);
  } else if (type == "integer" || type == "number") {
    return AddNumberOf(nfa, from, schema, pointer, type == "integer", to);
  } else if (type == "object") {
    return AddObjectOf(nfa, from, schema, pointer, to);
  } else if (type == "array") {
    return AddArrayOf(nfa, from, schema, pointer, to);
  }
  return absl::OkStatus();
}

}  // namespace tandem::router
