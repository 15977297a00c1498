// Strings, numbers and constants of a schema: what json_schema.cc calls for values without parts.
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "router/constraints/json_pointer.h"
#include "router/constraints/json_schema.h"
#include "router/constraints/pattern.h"
#include "router/constraints/schema_keywords.h"
#include "router/constraints/string_format.h"

namespace tandem::router {
namespace {

using Kind = OrderedJson::Kind;

constexpr int kStringStatesMax = 8192;                    // of what one schema says of a string
constexpr int64_t kIntegerMax = 999'999'999'999'999'999;  // JsonGrammar::kDigitsMax digits

std::string Print(const OrderedJson& value) {
  std::string text;
  AppendPythonJson(value, &text);
  return text;
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

}  // namespace

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

}  // namespace tandem::router
