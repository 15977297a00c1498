// Words of JSON Schema by what is made of them. Every other word is an annotation here.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <iterator>

#include "router/chat/ordered_json.h"

namespace tandem::router {

inline constexpr const char* kEnforcedKeywords[] = {
    "type",    "enum",        "const",    "properties", "required",         "additionalProperties",
    "items",   "prefixItems", "minItems", "maxItems",   "minLength",        "maxLength",
    "pattern", "format",      "minimum",  "maximum",    "exclusiveMinimum", "exclusiveMaximum",
    "anyOf",   "oneOf",       "allOf",    "nullable",
};

// They would forbid what is generated, and nothing here enforces them.
inline constexpr const char* kRefusedKeywords[] = {
    "not",
    "if",
    "then",
    "else",
    "patternProperties",
    "propertyNames",
    "contains",
    "minContains",
    "maxContains",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "uniqueItems",
    "multipleOf",
    "minProperties",
    "maxProperties",
    "unevaluatedItems",
    "unevaluatedProperties",
    "additionalItems",
    "$dynamicRef",
    "$recursiveRef",
};

inline bool HasAny(const OrderedJson& schema, std::initializer_list<const char*> keywords) {
  return std::any_of(keywords.begin(), keywords.end(),
                     [&](const char* keyword) { return schema.Find(keyword) != nullptr; });
}

// Whether the schema says anything beside a reference and annotations.
inline bool HasAssertions(const OrderedJson& schema) {
  const auto has = [&](const char* keyword) { return schema.Find(keyword) != nullptr; };
  return std::any_of(std::begin(kEnforcedKeywords), std::end(kEnforcedKeywords), has) ||
         std::any_of(std::begin(kRefusedKeywords), std::end(kRefusedKeywords), has);
}

}  // namespace tandem::router
