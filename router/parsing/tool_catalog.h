// What the parsers of an answer know of the tools that its request offered: enough to read calls whose markup is not
// quite right.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace tandem::router {

struct ToolParameter {
  std::string name;
  bool is_string = false;  // its schema says "type": "string"
};

struct Tool {
  // nullptr where the schema names no such parameter.
  const ToolParameter* Find(absl::string_view parameter) const {
    for (const ToolParameter& known : parameters) {
      if (known.name == parameter) return &known;
    }
    return nullptr;
  }

  std::string name;
  std::vector<ToolParameter> parameters;  // under "properties"; empty also where the schema says nothing of them
};

struct ToolCatalog {
  const Tool* Find(absl::string_view name) const {
    for (const Tool& tool : tools) {
      if (tool.name == name) return &tool;
    }
    return nullptr;
  }

  std::vector<Tool> tools;
};

}  // namespace tandem::router
