// References, allOf, and alternatives with neighbours: schemas that become one schema. See json_schema.h.
#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "router/constraints/json_pointer.h"
#include "router/constraints/json_schema.h"
#include "router/constraints/schema_keywords.h"
#include "router/openai/api_error.h"

namespace tandem::router {
namespace {

using Kind = OrderedJson::Kind;

constexpr int kReferencesMax = 32;  // that lead from one to the next
constexpr int kMergeDepthMax = 64;
constexpr int kValuesKeptMax = 1 << 16;
constexpr int kDisjointDepthMax = 4;

std::string Print(const OrderedJson& value) {
  std::string text;
  AppendPythonJson(value, &text);
  return text;
}

int NumValues(const OrderedJson& value) {
  int num_values = 1;
  for (const OrderedJson& item : value.items) num_values += NumValues(item);
  return num_values;
}

OrderedJson Nothing() {
  OrderedJson nothing;
  nothing.kind = Kind::kFalse;
  return nothing;
}

OrderedJson Without(const OrderedJson& schema, absl::string_view keyword) {
  OrderedJson rest;
  rest.kind = Kind::kObject;
  for (size_t i = 0; i < schema.keys.size(); ++i) {
    if (schema.keys[i] == keyword) continue;
    rest.keys.push_back(schema.keys[i]);
    rest.items.push_back(schema.items[i]);
  }
  return rest;
}

void Set(const std::string& keyword, OrderedJson value, OrderedJson* schema) {
  schema->keys.push_back(keyword);
  schema->items.push_back(std::move(value));
}

std::vector<std::string> NamesOf(const OrderedJson& value) {
  if (value.kind == Kind::kString) return {value.text};
  std::vector<std::string> names;
  for (const OrderedJson& item : value.items) names.push_back(item.text);
  return names;
}

OrderedJson ListOf(const std::vector<std::string>& names) {
  OrderedJson list;
  list.kind = Kind::kArray;
  for (const std::string& name : names) {
    OrderedJson& item = list.items.emplace_back();
    item.kind = Kind::kString;
    item.text = name;
  }
  return list;
}

bool Has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Of both; an integer is a number.
std::vector<std::string> CommonTypes(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  std::vector<std::string> common;
  for (const std::string& type : a) {
    if (Has(b, type) || (type == "integer" && Has(b, "number"))) common.push_back(type);
    if (type == "number" && !Has(b, type) && Has(b, "integer")) common.push_back("integer");
  }
  return common;
}

// What enum and const leave; nullptr where neither stands.
std::vector<std::string> ConstantsOf(const OrderedJson& schema) {
  std::vector<std::string> constants;
  if (const OrderedJson* constant = schema.Find("const"); constant != nullptr) return {Print(*constant)};
  if (const OrderedJson* list = schema.Find("enum"); list != nullptr) {
    for (const OrderedJson& value : list->items) constants.push_back(Print(value));
  }
  return constants;
}

}  // namespace

absl::StatusOr<const OrderedJson*> JsonSchema::Resolve(const OrderedJson& reference, const std::string& pointer,
                                                       std::string* target_pointer) const {
  const OrderedJson& value = *reference.Find("$ref");
  const std::string at = PointerInto(pointer, "$ref");
  if (value.kind != Kind::kString || value.text.empty() || value.text[0] != '#') {
    return Refuse(at, "$ref is supported within the schema alone, as \"#\" or \"#/...\"");
  }
  const absl::string_view target = absl::string_view(value.text).substr(1);
  const OrderedJson* found = FollowPointer(root_, target);
  if (found == nullptr) return Refuse(at, absl::StrCat("$ref leads nowhere: ", Quoted(value.text)));
  *target_pointer = std::string(target);
  return found;
}

absl::StatusOr<const OrderedJson*> JsonSchema::Keep(OrderedJson schema, const std::string& pointer) {
  num_values_kept_ += NumValues(schema);
  if (num_values_kept_ > kValuesKeptMax) {
    return Refuse(pointer, absl::StrCat("putting allOf, anyOf and $ref together with what stands beside them copies "
                                        "more than ",
                                        kValuesKeptMax, " values"));
  }
  kept_.push_back(std::move(schema));
  return &kept_.back();
}

absl::StatusOr<const OrderedJson*> JsonSchema::Flatten(const OrderedJson& schema, std::string* pointer, int depth) {
  if (depth > kReferencesMax) {
    return Refuse(*pointer, absl::StrCat("refers to itself with nothing in between, or to others more than ",
                                         kReferencesMax, " deep"));
  }
  if (schema.kind != Kind::kObject) return &schema;
  RETURN_IF_ERROR(CheckKeywords(schema, *pointer));
  if (schema.Find("$ref") != nullptr) {
    std::string target_pointer;
    ASSIGN_OR_RETURN(const OrderedJson* target, Resolve(schema, *pointer, &target_pointer));
    if (!HasAssertions(schema)) {
      *pointer = target_pointer;
      return Flatten(*target, pointer, depth + 1);
    }
    ASSIGN_OR_RETURN(const OrderedJson* flat, Flatten(*target, &target_pointer, depth + 1));
    ASSIGN_OR_RETURN(const OrderedJson* rest, Keep(Without(schema, "$ref"), *pointer));
    ASSIGN_OR_RETURN(const OrderedJson* merged, Merge(*rest, *flat, *pointer));
    return Flatten(*merged, pointer, depth + 1);
  }
  const OrderedJson* all_of = schema.Find("allOf");
  if (all_of == nullptr) return &schema;
  const std::string at = PointerInto(*pointer, "allOf");
  if (all_of->kind != Kind::kArray) return Refuse(at, "allOf must be a list of schemas");
  ASSIGN_OR_RETURN(const OrderedJson* merged, Keep(Without(schema, "allOf"), *pointer));
  for (size_t i = 0; i < all_of->items.size(); ++i) {
    std::string part_pointer = PointerInto(at, absl::StrCat(i));
    ASSIGN_OR_RETURN(const OrderedJson* part, Flatten(all_of->items[i], &part_pointer, depth + 1));
    ASSIGN_OR_RETURN(merged, Merge(*merged, *part, part_pointer));
  }
  return merged;
}

absl::StatusOr<const OrderedJson*> JsonSchema::Merge(const OrderedJson& a, const OrderedJson& b,
                                                     const std::string& pointer) {
  ASSIGN_OR_RETURN(OrderedJson merged, Merged(a, b, pointer, 0));
  return Keep(std::move(merged), pointer);
}

// The values that both allow.
absl::StatusOr<OrderedJson> JsonSchema::Merged(const OrderedJson& a, const OrderedJson& b, const std::string& pointer,
                                               int depth) const {
  if (depth > kMergeDepthMax) return Refuse(pointer, absl::StrCat("schemas nested deeper than ", kMergeDepthMax));
  if (a.kind == Kind::kFalse || b.kind == Kind::kTrue) return a;
  if (b.kind == Kind::kFalse || a.kind == Kind::kTrue) return b;
  OrderedJson merged;
  merged.kind = Kind::kObject;
  for (size_t i = 0; i < a.keys.size(); ++i) {
    const std::string& keyword = a.keys[i];
    const OrderedJson* other = b.Find(keyword);
    if (keyword == "properties") continue;
    if (other == nullptr) {
      Set(keyword, a.items[i], &merged);
      continue;
    }
    ASSIGN_OR_RETURN(OrderedJson both, MergedKeyword(keyword, a.items[i], *other, pointer, depth));
    const bool is_impossible =
        both.kind == Kind::kFalse && (keyword == "type" || keyword == "enum" || keyword == "const");
    if (is_impossible) return Nothing();
    Set(keyword, std::move(both), &merged);
  }
  for (size_t i = 0; i < b.keys.size(); ++i) {
    if (b.keys[i] != "properties" && a.Find(b.keys[i]) == nullptr) Set(b.keys[i], b.items[i], &merged);
  }
  if (a.Find("properties") != nullptr || b.Find("properties") != nullptr) {
    ASSIGN_OR_RETURN(OrderedJson properties, MergedProperties(a, b, pointer, depth));
    Set("properties", std::move(properties), &merged);
  }
  return merged;
}

// A member that one side names is an additional one of the other's.
absl::StatusOr<OrderedJson> JsonSchema::MergedProperties(const OrderedJson& a, const OrderedJson& b,
                                                         const std::string& pointer, int depth) const {
  const auto member_of = [](const OrderedJson& schema, const std::string& name) -> const OrderedJson* {
    const OrderedJson* properties = schema.Find("properties");
    const OrderedJson* own = properties == nullptr ? nullptr : properties->Find(name);
    return own != nullptr ? own : schema.Find("additionalProperties");
  };
  OrderedJson merged;
  merged.kind = Kind::kObject;
  for (const OrderedJson* side : {&a, &b}) {
    const OrderedJson* properties = side->Find("properties");
    if (properties == nullptr) continue;
    for (const std::string& name : properties->keys) {
      if (merged.Find(name) != nullptr) continue;
      const OrderedJson* of_a = member_of(a, name);
      const OrderedJson* of_b = member_of(b, name);
      if (of_a == nullptr || of_b == nullptr) {
        Set(name, of_a == nullptr ? *of_b : *of_a, &merged);
        continue;
      }
      const bool has_reference = of_a->Find("$ref") != nullptr || of_b->Find("$ref") != nullptr;
      if (has_reference && Print(*of_a) != Print(*of_b) && of_a->kind != Kind::kFalse && of_b->kind != Kind::kFalse) {
        return Refuse(pointer,
                      absl::StrCat("two schemas of ", Quoted(name), ", one with a $ref, cannot be put together"));
      }
      if (Print(*of_a) == Print(*of_b)) {
        Set(name, *of_a, &merged);
        continue;
      }
      ASSIGN_OR_RETURN(OrderedJson both, Merged(*of_a, *of_b, PointerInto(pointer, name), depth + 1));
      Set(name, std::move(both), &merged);
    }
  }
  return merged;
}

absl::StatusOr<OrderedJson> JsonSchema::MergedKeyword(const std::string& keyword, const OrderedJson& a,
                                                      const OrderedJson& b, const std::string& pointer,
                                                      int depth) const {
  if (Print(a) == Print(b)) return a;
  if (keyword == "type") {
    const std::vector<std::string> common = CommonTypes(NamesOf(a), NamesOf(b));
    return common.empty() ? Nothing() : ListOf(common);
  }
  if (keyword == "required") {
    std::vector<std::string> names = NamesOf(a);
    for (const std::string& name : NamesOf(b)) {
      if (!Has(names, name)) names.push_back(name);
    }
    return ListOf(names);
  }
  if (keyword == "enum") {
    OrderedJson common;
    common.kind = Kind::kArray;
    for (const OrderedJson& value : a.items) {
      const bool is_common =
          std::any_of(b.items.begin(), b.items.end(), [&](const auto& other) { return Print(other) == Print(value); });
      if (is_common) common.items.push_back(value);
    }
    return common.items.empty() ? Nothing() : common;
  }
  if (keyword == "const") return Nothing();
  if (keyword == "nullable") return Nothing();  // of true and false
  if (keyword == "items" || keyword == "additionalProperties") {
    return Merged(a, b, PointerInto(pointer, keyword), depth + 1);
  }
  const bool is_min =
      keyword == "minLength" || keyword == "minItems" || keyword == "minimum" || keyword == "exclusiveMinimum";
  const bool is_max =
      keyword == "maxLength" || keyword == "maxItems" || keyword == "maximum" || keyword == "exclusiveMaximum";
  double of_a = 0, of_b = 0;
  if ((is_min || is_max) && absl::SimpleAtod(a.text, &of_a) && absl::SimpleAtod(b.text, &of_b)) {
    return (of_a > of_b) == is_min ? a : b;
  }
  const bool is_enforced = std::any_of(std::begin(kEnforcedKeywords), std::end(kEnforcedKeywords),
                                       [&](const char* enforced) { return keyword == enforced; });
  if (!is_enforced) return a;
  return Refuse(PointerInto(pointer, keyword),
                absl::StrCat(keyword, " of two schemas that must both hold cannot be put together"));
}

// ---- Alternatives ----

absl::Status JsonSchema::AddAlternatives(Nfa* nfa, int from, const OrderedJson& schema, const std::string& pointer,
                                         const std::string& keyword, Form form, int to) {
  const OrderedJson& alternatives = *schema.Find(keyword);
  const std::string at = PointerInto(pointer, keyword);
  if (alternatives.kind != Kind::kArray || alternatives.items.empty()) {
    return Refuse(at, absl::StrCat(keyword, " must be a list of at least one schema"));
  }
  if (keyword == "oneOf") RETURN_IF_ERROR(CheckDisjoint(alternatives, at));
  ASSIGN_OR_RETURN(const OrderedJson* beside, Keep(Without(schema, keyword), pointer));
  for (size_t i = 0; i < alternatives.items.size(); ++i) {
    std::string part_pointer = PointerInto(at, absl::StrCat(i));
    const OrderedJson* part = &alternatives.items[i];
    if (HasAssertions(*beside)) {
      ASSIGN_OR_RETURN(const OrderedJson* flat, Flatten(*part, &part_pointer, 0));
      ASSIGN_OR_RETURN(part, Merge(*beside, *flat, part_pointer));
      RETURN_IF_ERROR(AddValue(nfa, from, *part, part_pointer, form, to));
    } else if (form == Form::kJson) {
      RETURN_IF_ERROR(AddInline(nfa, from, *part, part_pointer, to));
    } else {
      RETURN_IF_ERROR(AddValue(nfa, from, *part, part_pointer, form, to));
    }
  }
  return absl::OkStatus();
}

// One of several is any of them where no value fits two.
absl::Status JsonSchema::CheckDisjoint(const OrderedJson& one_of, const std::string& pointer) {
  for (size_t i = 0; i < one_of.items.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      ASSIGN_OR_RETURN(const bool are_disjoint, AreDisjoint(one_of.items[i], one_of.items[j], pointer, 0));
      if (!are_disjoint) {
        return Refuse(pointer, absl::StrCat("oneOf is supported where no value can fit two of its schemas; ", j,
                                            " and ", i, " may overlap; anyOf says what is generated"));
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> JsonSchema::AreDisjoint(const OrderedJson& a, const OrderedJson& b, const std::string& pointer,
                                             int depth) {
  std::string pointer_a = pointer, pointer_b = pointer;
  ASSIGN_OR_RETURN(const OrderedJson* flat_a, Flatten(a, &pointer_a, 0));
  ASSIGN_OR_RETURN(const OrderedJson* flat_b, Flatten(b, &pointer_b, 0));
  if (flat_a->kind == Kind::kFalse || flat_b->kind == Kind::kFalse) return true;
  if (flat_a->kind != Kind::kObject || flat_b->kind != Kind::kObject || depth > kDisjointDepthMax) return false;
  const std::vector<std::string> constants_a = ConstantsOf(*flat_a);
  const std::vector<std::string> constants_b = ConstantsOf(*flat_b);
  if (!constants_a.empty() && !constants_b.empty()) {
    return std::none_of(constants_a.begin(), constants_a.end(),
                        [&](const std::string& constant) { return Has(constants_b, constant); });
  }
  const OrderedJson* type_a = flat_a->Find("type");
  const OrderedJson* type_b = flat_b->Find("type");
  if (type_a == nullptr || type_b == nullptr) return false;
  const std::vector<std::string> common = CommonTypes(NamesOf(*type_a), NamesOf(*type_b));
  if (common.empty()) return true;
  if (common != std::vector<std::string>{"object"}) return false;
  // Objects that both need a member, of different values.
  const OrderedJson* required_a = flat_a->Find("required");
  const OrderedJson* required_b = flat_b->Find("required");
  const OrderedJson* properties_a = flat_a->Find("properties");
  const OrderedJson* properties_b = flat_b->Find("properties");
  if (required_a == nullptr || required_b == nullptr || properties_a == nullptr || properties_b == nullptr)
    return false;
  for (const std::string& name : NamesOf(*required_a)) {
    const OrderedJson* of_a = properties_a->Find(name);
    const OrderedJson* of_b = properties_b->Find(name);
    if (!Has(NamesOf(*required_b), name) || of_a == nullptr || of_b == nullptr) continue;
    ASSIGN_OR_RETURN(const bool are_disjoint, AreDisjoint(*of_a, *of_b, pointer, depth + 1));
    if (are_disjoint) return true;
  }
  return false;
}

}  // namespace tandem::router
