#include "router/constraints/json_schema.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "router/constraints/json_pointer.h"
#include "router/constraints/pattern.h"
#include "router/constraints/schema_keywords.h"
#include "router/constraints/string_format.h"
#include "router/openai/api_error.h"

namespace tandem::router {
namespace {

using Kind = OrderedJson::Kind;

constexpr int kStringStatesMax = 8192;                    // of what one schema says of a string
constexpr int64_t kCountMax = 100'000;                    // of characters and items; states bound it long before
constexpr int64_t kIntegerMax = 999'999'999'999'999'999;  // JsonGrammar::kDigitsMax digits

std::string Print(const OrderedJson& value) {
  std::string text;
  AppendPythonJson(value, &text);
  return text;
}

// The schema that allows every value.
const OrderedJson& Anything() {
  static const OrderedJson* const kAnything = [] {
    auto* anything = new OrderedJson;
    anything->kind = Kind::kTrue;
    return anything;
  }();
  return *kAnything;
}

bool IsTrue(const OrderedJson& schema, const char* keyword) {
  const OrderedJson* value = schema.Find(keyword);
  return value != nullptr && value->kind == Kind::kTrue;
}

const char* TypeNameOf(const OrderedJson& value) {
  switch (value.kind) {
    case Kind::kNull:
      return "null";
    case Kind::kFalse:
    case Kind::kTrue:
      return "boolean";
    case Kind::kNumber:
      return value.text.find_first_of(".eE") == std::string::npos ? "integer" : "number";
    case Kind::kString:
      return "string";
    case Kind::kArray:
      return "array";
    case Kind::kObject:
      return "object";
  }
  return "";
}

bool IsOfType(const OrderedJson& value, const std::string& type) {
  const absl::string_view name = TypeNameOf(value);
  return name == type || (name == "integer" && type == "number");
}

bool HasAny(const OrderedJson& schema, std::initializer_list<const char*> keywords) {
  return std::any_of(keywords.begin(), keywords.end(),
                     [&](const char* keyword) { return schema.Find(keyword) != nullptr; });
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

absl::Status JsonSchema::AddConstants(Nfa* nfa, int from, const OrderedJson& schema, const std::string& pointer,
                                      Form form, int to) {
  if (HasAny(schema, {"pattern", "minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
                      "properties", "required", "items", "prefixItems", "minItems", "maxItems"})) {
    return Refuse(pointer, "enum and const are not supported beside keywords that restrict them");
  }
  std::vector<const OrderedJson*> values;
  const OrderedJson* constant = schema.Find("const");
  if (const OrderedJson* list = schema.Find("enum"); list != nullptr) {
    if (list->kind != Kind::kArray || list->items.empty()) {
      return Refuse(PointerInto(pointer, "enum"), "enum must be a list of at least one value");
    }
    for (const OrderedJson& value : list->items) {
      if (constant == nullptr || Print(*constant) == Print(value)) values.push_back(&value);
    }
  } else {
    values.push_back(constant);
  }
  std::optional<std::vector<std::string>> types;
  if (schema.Find("type") != nullptr) {
    ASSIGN_OR_RETURN(types, TypesOf(schema, pointer));
  }
  for (const OrderedJson* value : values) {
    const bool is_of_types = !types.has_value() || std::any_of(types->begin(), types->end(), [&](const auto& type) {
      return IsOfType(*value, type);
    });
    const bool is_string = value->kind == Kind::kString;
    if (!is_of_types || (is_string ? form == Form::kJsonButStrings : form == Form::kBareStrings)) continue;
    if (form != Form::kBareStrings) {
      json_.AddLiteral(nfa, from, *value, to);
      continue;
    }
    Nfa text;
    text.SetAccepting(text.AddText(Nfa::kStart, value->text));
    ASSIGN_OR_RETURN(const Dfa exact, text.Determinize(kStringStatesMax, grammar_.budget()));
    ASSIGN_OR_RETURN(const Dfa bare, Intersect(exact, bare_text_, kStringStatesMax, grammar_.budget()));
    nfa->AddDfa(from, bare, to);
  }
  return absl::OkStatus();
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

absl::StatusOr<std::optional<int64_t>> JsonSchema::CountOf(const OrderedJson& schema, const std::string& pointer,
                                                           const char* keyword) const {
  const OrderedJson* value = schema.Find(keyword);
  if (value == nullptr) return std::nullopt;
  double number = 0;
  const bool is_count = value->kind == Kind::kNumber && absl::SimpleAtod(value->text, &number) && number >= 0 &&
                        number == std::floor(number);
  if (!is_count) return Refuse(PointerInto(pointer, keyword), absl::StrCat(keyword, " must be a count"));
  if (number > kCountMax) {
    // No answer is as long: as an upper bound it says nothing.
    if (absl::string_view(keyword).substr(0, 3) == "max") return std::nullopt;
    return Refuse(PointerInto(pointer, keyword), absl::StrCat(keyword, " is supported up to ", kCountMax));
  }
  return static_cast<int64_t>(number);
}

absl::Status JsonSchema::AddStringOf(Nfa* nfa, int from, const OrderedJson& schema, const std::string& pointer,
                                     Form form, int to) {
  ASSIGN_OR_RETURN(const std::optional<int64_t> min, CountOf(schema, pointer, "minLength"));
  ASSIGN_OR_RETURN(const std::optional<int64_t> max, CountOf(schema, pointer, "maxLength"));
  const OrderedJson* pattern = schema.Find("pattern");
  const OrderedJson* format = schema.Find("format");
  std::vector<std::pair<const char*, absl::StatusOr<Dfa>>> parts;
  if (min.value_or(0) > 0 || max.has_value()) {
    const char* keyword = max.has_value() ? "maxLength" : "minLength";
    if (std::max(min.value_or(0), max.value_or(0)) > kStringStatesMax) {
      return Refuse(PointerInto(pointer, keyword), absl::StrCat(keyword, " is supported up to ", kStringStatesMax));
    }
    if (max.has_value() && min.value_or(0) > *max) return absl::OkStatus();
    parts.emplace_back(
        keyword, CharsBetween(CharClass::All(), static_cast<int>(min.value_or(0)), static_cast<int>(max.value_or(-1))));
  }
  if (pattern != nullptr) {
    if (pattern->kind != Kind::kString) return Refuse(PointerInto(pointer, "pattern"), "pattern must be a string");
    parts.emplace_back("pattern",
                       CompilePattern(pattern->text, PatternReach::kAnywhere, kStringStatesMax, grammar_.budget()));
  }
  if (format != nullptr && format->kind == Kind::kString) {
    if (const absl::string_view known = PatternOfFormat(format->text); !known.empty()) {
      parts.emplace_back("format", CompilePattern(known, PatternReach::kAnywhere, kStringStatesMax, grammar_.budget()));
    }
  }
  if (form == Form::kBareStrings) parts.emplace_back("type", bare_text_);
  if (parts.empty()) {
    json_.AddString(nfa, from, to);
    return absl::OkStatus();
  }
  Dfa content;
  for (size_t i = 0; i < parts.size(); ++i) {
    auto& [keyword, part] = parts[i];
    if (part.ok() && i > 0) part = Intersect(content, *part, kStringStatesMax, grammar_.budget());
    if (!part.ok()) {
      return Refuse(PointerInto(pointer, keyword), absl::StrCat(keyword, ": ", std::string(part.status().message())));
    }
    content = *std::move(part);
  }
  if (form == Form::kBareStrings) {
    nfa->AddDfa(from, content, to);
  } else {
    json_.AddString(nfa, from, content, to);
  }
  return absl::OkStatus();
}

absl::Status JsonSchema::AddNumberOf(Nfa* nfa, int from, const OrderedJson& schema, const std::string& pointer,
                                     bool is_integer, int to) {
  if (!HasAny(schema, {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})) {
    is_integer ? json_.AddInteger(nfa, from, to) : json_.AddNumber(nfa, from, to);
    return absl::OkStatus();
  }
  double min = -static_cast<double>(kIntegerMax), max = static_cast<double>(kIntegerMax);
  for (const char* keyword : {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"}) {
    const OrderedJson* value = schema.Find(keyword);
    if (value == nullptr) continue;
    double bound = 0;
    if (value->kind != Kind::kNumber || !absl::SimpleAtod(value->text, &bound)) {
      return Refuse(PointerInto(pointer, keyword), absl::StrCat(keyword, " must be a number"));
    }
    const bool is_exclusive = keyword[0] == 'e';
    const bool is_min = keyword[is_exclusive ? 10 : 1] == 'i';
    // Inwards to a whole number.
    if (is_min) {
      min = std::max(min, is_exclusive ? std::floor(bound) + 1 : std::ceil(bound));
    } else {
      max = std::min(max, is_exclusive ? std::ceil(bound) - 1 : std::floor(bound));
    }
    if (min > max) {
      return Refuse(PointerInto(pointer, keyword),
                    absl::StrCat(keyword, " leaves no whole number of up to ", JsonGrammar::kDigitsMax, " digits"));
    }
  }
  const auto whole = [](double bound) {  // the doubles next to the ends have one digit more
    return std::clamp(static_cast<int64_t>(bound), -kIntegerMax, kIntegerMax);
  };
  is_integer ? json_.AddIntegerBetween(nfa, from, whole(min), whole(max), to)
             : json_.AddNumberBetween(nfa, from, whole(min), whole(max), to);
  return absl::OkStatus();
}

// ---- Containers ----

absl::StatusOr<JsonSchema::Members> JsonSchema::MembersOf(const OrderedJson& schema, const std::string& pointer) {
  Members members;
  const OrderedJson* properties = schema.Find("properties");
  if (properties != nullptr) {
    if (properties->kind != Kind::kObject) return Refuse(PointerInto(pointer, "properties"), "must be an object");
    for (size_t i = 0; i < properties->keys.size(); ++i) {
      members.known.push_back({.name = properties->keys[i],
                               .schema = &properties->items[i],
                               .pointer = PointerInto(PointerInto(pointer, "properties"), properties->keys[i])});
    }
  }
  const OrderedJson* others = schema.Find("additionalProperties");
  members.others_pointer = PointerInto(pointer, "additionalProperties");
  if (others != nullptr) {
    members.others = IsNothing(*others) ? nullptr : others;
  } else if (properties == nullptr) {
    members.others = &Anything();
  }
  if (const OrderedJson* required = schema.Find("required"); required != nullptr) {
    const std::string at = PointerInto(pointer, "required");
    if (required->kind != Kind::kArray) return Refuse(at, "required must be a list of names");
    for (const OrderedJson& name : required->items) {
      if (name.kind != Kind::kString) return Refuse(at, "required must be a list of names");
      auto known = std::find_if(members.known.begin(), members.known.end(),
                                [&](const Member& member) { return member.name == name.text; });
      if (known == members.known.end()) {
        // Named nowhere else: any value will do, where others are not forbidden.
        if (others != nullptr && IsNothing(*others)) {
          return Refuse(at, absl::StrCat(Quoted(name.text), " is required, and additionalProperties is false"));
        }
        members.known.push_back(
            {.name = name.text, .schema = others != nullptr ? others : &Anything(), .pointer = members.others_pointer});
        known = members.known.end() - 1;
      }
      known->is_required = true;
    }
  }
  return members;
}

absl::StatusOr<JsonSchema::Members> JsonSchema::RootMembers() {
  if (root_.kind != Kind::kObject) return Refuse("", "must be the schema of an object");
  std::string pointer;
  RETURN_IF_ERROR(CheckKeywords(root_, pointer));
  ASSIGN_OR_RETURN(const OrderedJson* flat, Flatten(root_, &pointer, 0));
  RETURN_IF_ERROR(CheckKeywords(*flat, pointer));
  for (const char* keyword : {"anyOf", "oneOf", "enum", "const"}) {
    if (flat->Find(keyword) != nullptr) {
      return Refuse(PointerInto(pointer, keyword), absl::StrCat(keyword, " is not supported at the top of parameters"));
    }
  }
  const OrderedJson* type = flat->Find("type");
  if (type != nullptr && type->text != "object") return Refuse(PointerInto(pointer, "type"), "must be \"object\"");
  return MembersOf(*flat, pointer);
}

// `before[i]` with i members behind it: the members are in order, each may be left out that is not required.
absl::Status JsonSchema::AddObjectOf(Nfa* nfa, int from, const OrderedJson& schema, const std::string& pointer,
                                     int to) {
  ASSIGN_OR_RETURN(const Members members, MembersOf(schema, pointer));
  int none_yet = json_.AfterOptionalWhiteSpace(nfa, nfa->AddText(from, "{"));
  int some = nfa->AddState();  // at least one member stands before
  const auto add_value = [&](int behind_key, const OrderedJson& value, const std::string& at, int behind_value) {
    const int begin = json_.AfterOptionalWhiteSpace(nfa, nfa->AddText(behind_key, ":"));
    return AddInline(nfa, begin, value, at, behind_value);
  };
  for (const Member& member : members.known) {
    const int none_after = nfa->AddState();
    const int some_after = nfa->AddState();
    if (!member.is_required) {
      nfa->AddEpsilon(none_yet, none_after);
      nfa->AddEpsilon(some, some_after);
    }
    const int key = nfa->AddState();
    nfa->AddEpsilon(none_yet, key);
    nfa->AddEpsilon(json_.AfterOptionalWhiteSpace(nfa, nfa->AddText(some, ",")), key);
    const int behind_key = nfa->AddState();
    json_.AddKeyText(nfa, key, member.name, behind_key);
    RETURN_IF_ERROR(add_value(behind_key, *member.schema, member.pointer, some_after));
    none_yet = none_after;
    some = some_after;
  }
  if (members.others != nullptr) {
    std::vector<std::string> names;
    for (const Member& member : members.known) names.push_back(member.name);
    const int key = nfa->AddState();
    nfa->AddEpsilon(none_yet, key);
    nfa->AddEpsilon(json_.AfterOptionalWhiteSpace(nfa, nfa->AddText(some, ",")), key);
    const int behind_key = nfa->AddState();
    json_.AddOtherKey(nfa, key, names, behind_key);
    RETURN_IF_ERROR(add_value(behind_key, *members.others, members.others_pointer, some));
  }
  nfa->AddEpsilon(nfa->AddText(none_yet, "}"), to);
  nfa->AddEpsilon(nfa->AddText(json_.AfterOptionalWhiteSpace(nfa, some), "}"), to);
  return absl::OkStatus();
}

absl::Status JsonSchema::AddArrayOf(Nfa* nfa, int from, const OrderedJson& schema, const std::string& pointer, int to) {
  ASSIGN_OR_RETURN(const std::optional<int64_t> min_items, CountOf(schema, pointer, "minItems"));
  ASSIGN_OR_RETURN(const std::optional<int64_t> max_items, CountOf(schema, pointer, "maxItems"));
  const OrderedJson* first_items = schema.Find("prefixItems");
  const OrderedJson* items = schema.Find("items");
  size_t num_first = 0;
  if (first_items != nullptr) {
    if (first_items->kind != Kind::kArray) {
      return Refuse(PointerInto(pointer, "prefixItems"), "prefixItems must be a list of schemas");
    }
    num_first = first_items->items.size();
  }
  if (items != nullptr && items->kind == Kind::kArray) {
    return Refuse(PointerInto(pointer, "items"), "items must be a schema; lists of schemas are prefixItems");
  }
  if (items == nullptr) items = &Anything();
  const int64_t min = min_items.value_or(0);
  if (max_items.has_value() && *max_items < min) return absl::OkStatus();
  // Those with a place of their own; behind them any number where there is no maximum.
  int64_t num_places = std::max<int64_t>(max_items.value_or(min), static_cast<int64_t>(num_first));
  if (max_items.has_value()) num_places = std::min(num_places, *max_items);
  if (num_places > kConstraintStatesMax) {
    const char* keyword = max_items.has_value() ? "maxItems" : "minItems";
    return Refuse(PointerInto(pointer, keyword), absl::StrCat(keyword, " is supported up to ", kConstraintStatesMax));
  }
  int before = json_.AfterOptionalWhiteSpace(nfa, nfa->AddText(from, "["));
  const auto add_item = [&](int begin, int64_t place, int behind) {
    const bool is_first = place < static_cast<int64_t>(num_first);
    const OrderedJson& item = is_first ? first_items->items[place] : *items;
    std::string at = PointerInto(pointer, is_first ? "prefixItems" : "items");
    if (is_first) at = PointerInto(at, absl::StrCat(place));
    return AddCall(nfa, begin, item, at, behind);
  };
  const auto add_close = [&](int64_t num_items) {
    if (num_items < min) return;
    const int close = num_items == 0 ? before : json_.AfterOptionalWhiteSpace(nfa, before);
    nfa->AddEpsilon(nfa->AddText(close, "]"), to);
  };
  const auto behind_comma = [&](int64_t num_items) {
    return num_items == 0 ? before : json_.AfterOptionalWhiteSpace(nfa, nfa->AddText(before, ","));
  };
  int64_t place = 0;
  for (; place < num_places; ++place) {
    add_close(place);
    const int behind = nfa->AddState();
    RETURN_IF_ERROR(add_item(behind_comma(place), place, behind));
    before = behind;
  }
  add_close(place);
  if (max_items.has_value()) return absl::OkStatus();
  const int behind = nfa->AddState();
  RETURN_IF_ERROR(add_item(behind_comma(place), place, behind));
  before = behind;
  add_close(place + 1);
  const int again = json_.AfterOptionalWhiteSpace(nfa, nfa->AddText(behind, ","));
  return add_item(again, place, behind);
}

}  // namespace tandem::router
