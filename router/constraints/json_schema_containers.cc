// Objects and lists of a schema: members in their order, items in their places.
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "router/constraints/json_pointer.h"
#include "router/constraints/json_schema.h"
#include "router/openai/api_error.h"

namespace tandem::router {
namespace {

using Kind = OrderedJson::Kind;

constexpr int64_t kCountMax = 100'000;  // of characters and items; states bound it long before

// The schema that allows every value.
const OrderedJson& Anything() {
  static const OrderedJson* const kAnything = [] {
    auto* anything = new OrderedJson;
    anything->kind = Kind::kTrue;
    return anything;
  }();
  return *kAnything;
}

}  // namespace

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
