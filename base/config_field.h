// One field of a configuration schema: internal to base/config*.cc.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/config.h"
#include "yaml-cpp/yaml.h"

namespace tandem::base {

struct ConfigSchema::Field {
  std::string path;      // "process.http.port"
  std::string type;      // "integer", "duration", ...: for docs and messages
  std::string unit;      // may be empty
  std::string allowed;   // "1 to 65536", "a, b or c"; may be empty
  std::string sentence;  // what it does
  std::string default_text;
  // Sets the target; the status says only what is wrong and what is allowed: the caller adds where.
  std::function<absl::Status(const YAML::Node&)> set;
  std::function<std::string()> get;  // the value in force, as YAML
};

}  // namespace tandem::base
