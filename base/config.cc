#include "base/config.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/config_field.h"
#include "base/status_macros.h"

namespace tandem::base {
namespace {

absl::Status Wrong(absl::string_view what, absl::string_view type, absl::string_view allowed) {
  std::string text = absl::StrCat(what, "; ", type, " expected");
  if (!allowed.empty()) absl::StrAppend(&text, " (", allowed, ")");
  return absl::InvalidArgumentError(text);
}

std::string Shown(const YAML::Node& node) {
  return node.IsScalar() ? absl::StrCat("\"", node.Scalar(), "\"") : node.IsSequence() ? "a list" : "a section";
}

// A string as a YAML scalar that reads back as the same string.
std::string Quoted(absl::string_view text) {
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"\"", "\\\""}, {"\n", "\\n"}, {"\t", "\\t"}}),
                      "\"");
}

std::string DoubleText(double value) {
  std::string text = absl::StrCat(value);
  double back = 0;
  return absl::SimpleAtod(text, &back) && back == value ? text : absl::StrFormat("%.17g", value);
}

// The bounds a range states, for messages and docs; empty where it states none.
template <typename T>
std::string RangeText(T min, T max, T lowest, T highest) {
  if (min != lowest && max != highest) return absl::StrCat(min, " to ", max);
  if (min != lowest) return absl::StrCat("at least ", min);
  if (max != highest) return absl::StrCat("at most ", max);
  return "";
}

// Sets *target from an integer scalar within the range. T is int or int64_t.
template <typename T>
absl::Status SetInteger(const YAML::Node& node, T* target, IntRange range, absl::string_view allowed) {
  int64_t value = 0;
  if (!node.IsScalar() || !absl::SimpleAtoi(node.Scalar(), &value)) return Wrong(Shown(node), "integer", allowed);
  if (value < range.min || value > range.max || value != static_cast<T>(value)) {
    return Wrong(Shown(node), "integer", allowed);
  }
  *target = static_cast<T>(value);
  return absl::OkStatus();
}

// Far beyond what any service has. An alias may stand within what it names, and a few lines of aliases for millions.
constexpr int kSectionDepthMax = 8;
constexpr size_t kLeavesMax = 10'000;

// Every leaf of a YAML map as "a.b.c" with its node; sequences are leaves. What is wrong, without the file's name,
// where there are more than that.
absl::Status Flatten(const YAML::Node& node, const std::string& prefix, int depth,
                     std::vector<std::pair<std::string, YAML::Node>>& out) {
  for (const auto& entry : node) {
    const std::string path = prefix.empty() ? entry.first.Scalar() : absl::StrCat(prefix, ".", entry.first.Scalar());
    if (entry.second.IsMap()) {
      if (depth == kSectionDepthMax) {
        return absl::InvalidArgumentError(absl::StrCat(entry.second.Mark().line + 1, ": ", path, ": sections nested ",
                                                       "more than ", kSectionDepthMax,
                                                       " deep; does an alias stand within what it names?"));
      }
      RETURN_IF_ERROR(Flatten(entry.second, path, depth + 1, out));
    } else if (out.size() == kLeavesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat(entry.second.Mark().line + 1, ": ", path, ": more than ", kLeavesMax, " settings"));
    } else {
      out.emplace_back(path, entry.second);
    }
  }
  return absl::OkStatus();
}

}  // namespace

ConfigSchema::ConfigSchema(std::string service) : service_(std::move(service)) {}
ConfigSchema::~ConfigSchema() = default;

void ConfigSchema::Add(Field field) {
  field.default_text = field.get();
  fields_.push_back(std::make_unique<Field>(std::move(field)));
}

void ConfigSchema::Int(std::string path, int* target, IntRange range, std::string sentence) {
  range.min = std::max<int64_t>(range.min, std::numeric_limits<int>::min());
  range.max = std::min<int64_t>(range.max, std::numeric_limits<int>::max());
  const std::string allowed =
      RangeText<int64_t>(range.min, range.max, std::numeric_limits<int>::min(), std::numeric_limits<int>::max());
  Add({.path = std::move(path),
       .type = "integer",
       .unit = range.unit,
       .allowed = allowed,
       .sentence = std::move(sentence),
       .set = [=](const YAML::Node& node) { return SetInteger(node, target, range, allowed); },
       .get = [=] { return absl::StrCat(*target); }});
}

void ConfigSchema::Int64(std::string path, int64_t* target, IntRange range, std::string sentence) {
  const std::string allowed =
      RangeText(range.min, range.max, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max());
  Add({.path = std::move(path),
       .type = "integer",
       .unit = range.unit,
       .allowed = allowed,
       .sentence = std::move(sentence),
       .set = [=](const YAML::Node& node) { return SetInteger(node, target, range, allowed); },
       .get = [=] { return absl::StrCat(*target); }});
}

void ConfigSchema::Double(std::string path, double* target, DoubleRange range, std::string sentence) {
  const std::string allowed =
      RangeText(range.min, range.max, std::numeric_limits<double>::lowest(), std::numeric_limits<double>::max());
  Add({.path = std::move(path),
       .type = "number",
       .unit = range.unit,
       .allowed = allowed,
       .sentence = std::move(sentence),
       .set =
           [=](const YAML::Node& node) {
             double value = 0;
             // The comparison is written so that NaN is refused too.
             if (!node.IsScalar() || !absl::SimpleAtod(node.Scalar(), &value) ||
                 !(value >= range.min && value <= range.max)) {
               return Wrong(Shown(node), "number", allowed);
             }
             *target = value;
             return absl::OkStatus();
           },
       .get = [=] { return DoubleText(*target); }});
}

void ConfigSchema::Bool(std::string path, bool* target, std::string sentence) {
  Add({.path = std::move(path),
       .type = "boolean",
       .allowed = "true or false",
       .sentence = std::move(sentence),
       .set =
           [=](const YAML::Node& node) {
             if (!node.IsScalar() || (node.Scalar() != "true" && node.Scalar() != "false")) {
               return Wrong(Shown(node), "boolean", "true or false");
             }
             *target = node.Scalar() == "true";
             return absl::OkStatus();
           },
       .get = [=] { return std::string(*target ? "true" : "false"); }});
}

void ConfigSchema::String(std::string path, std::string* target, std::string sentence) {
  Add({.path = std::move(path),
       .type = "text",
       .sentence = std::move(sentence),
       .set =
           [=](const YAML::Node& node) {
             if (!node.IsScalar()) return Wrong(Shown(node), "text", "");
             *target = node.Scalar();
             return absl::OkStatus();
           },
       .get = [=] { return Quoted(*target); }});
}

void ConfigSchema::Choice(std::string path, std::string* target, std::vector<std::string> allowed,
                          std::string sentence) {
  const std::string allowed_text = absl::StrJoin(allowed, ", ");
  Add({.path = std::move(path),
       .type = "one of",
       .allowed = allowed_text,
       .sentence = std::move(sentence),
       .set =
           [=](const YAML::Node& node) {
             if (!node.IsScalar() || std::find(allowed.begin(), allowed.end(), node.Scalar()) == allowed.end()) {
               return Wrong(Shown(node), "one of", allowed_text);
             }
             *target = node.Scalar();
             return absl::OkStatus();
           },
       .get = [=] { return Quoted(*target); }});
}

void ConfigSchema::StringList(std::string path, std::vector<std::string>* target, std::string sentence) {
  Add({.path = std::move(path),
       .type = "list of texts",
       .sentence = std::move(sentence),
       .set =
           [=](const YAML::Node& node) {
             if (!node.IsSequence()) return Wrong(Shown(node), "list of texts", "[a, b]");
             std::vector<std::string> values;
             for (const auto& entry : node) {
               if (!entry.IsScalar()) return Wrong(absl::StrCat(Shown(entry), " in the list"), "text", "");
               values.push_back(entry.Scalar());
             }
             *target = std::move(values);
             return absl::OkStatus();
           },
       .get =
           [=] {
             return absl::StrCat(
                 "[",
                 absl::StrJoin(*target, ", ",
                               [](std::string* out, const std::string& value) { out->append(Quoted(value)); }),
                 "]");
           }});
}

void ConfigSchema::Duration(std::string path, absl::Duration* target, absl::Duration min, absl::Duration max,
                            std::string sentence) {
  const std::string allowed = absl::StrCat(absl::FormatDuration(min), " to ", absl::FormatDuration(max));
  Add({.path = std::move(path),
       .type = "duration",
       .allowed = allowed,
       .sentence = std::move(sentence),
       .set =
           [=](const YAML::Node& node) {
             absl::Duration value;
             if (!node.IsScalar() || !absl::ParseDuration(node.Scalar(), &value) || value < min || value > max) {
               return Wrong(Shown(node), "duration such as 250ms or 30s", allowed);
             }
             *target = value;
             return absl::OkStatus();
           },
       .get = [=] { return absl::FormatDuration(*target); }});
}

absl::Status ConfigSchema::Apply(absl::string_view yaml, absl::string_view file_name,
                                 const std::vector<std::string>& overrides) {
  std::vector<std::string> faults;
  const auto find = [this](absl::string_view path) -> Field* {
    for (const auto& field : fields_) {
      if (field->path == path) return field.get();
    }
    return nullptr;
  };
  const auto set = [&](const std::string& where, const std::string& path, const YAML::Node& node) {
    Field* field = find(path);
    if (field == nullptr) {
      faults.push_back(absl::StrCat(where, path, ": no such setting; ", service_, " --print_config lists all"));
    } else if (absl::Status status = field->set(node); !status.ok()) {
      faults.push_back(absl::StrCat(where, path, ": ", status.message()));
    }
  };

  // yaml-cpp reports bad text by exception; nothing of it leaves this function.
  try {
    const YAML::Node root = YAML::Load(std::string(yaml));
    if (!root.IsNull() && !root.IsMap()) {
      return absl::InvalidArgumentError(absl::StrCat(file_name, ":1: a map of sections is expected"));
    }
    std::vector<std::pair<std::string, YAML::Node>> leaves;
    if (root.IsMap()) {
      if (const absl::Status status = Flatten(root, "", /*depth=*/1, leaves); !status.ok()) {
        return absl::InvalidArgumentError(absl::StrCat(file_name, ":", status.message()));
      }
    }
    for (size_t i = 0; i < leaves.size(); ++i) {
      const auto& [path, node] = leaves[i];
      const std::string where = absl::StrCat(file_name, ":", node.Mark().line + 1, ": ");
      const bool is_repeated = std::any_of(leaves.begin(), leaves.begin() + i,
                                           [&path = path](const auto& leaf) { return leaf.first == path; });
      if (is_repeated) {
        faults.push_back(absl::StrCat(where, path, ": set twice"));
      } else if (find(path) != nullptr && node.IsNull()) {
        faults.push_back(absl::StrCat(where, path, ": no value"));
      } else {
        set(where, path, node);
      }
    }
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(file_name, ":", error.mark.line + 1, ": not YAML: ", error.msg));
  }
  for (const std::string& override_text : overrides) {
    const std::pair<std::string, std::string> pair = absl::StrSplit(override_text, absl::MaxSplits('=', 1));
    if (!absl::StrContains(override_text, '=')) {
      faults.push_back(absl::StrCat("--set ", override_text, ": written as --set section.name=value"));
      continue;
    }
    try {
      const Field* field = find(pair.first);
      const bool is_list = field != nullptr && field->type == "list of texts";
      // Only a list is YAML syntax on the command line; any other value is taken as it stands.
      set("--set ", pair.first, is_list ? YAML::Load(pair.second) : YAML::Node(pair.second));
    } catch (const YAML::Exception& error) {
      faults.push_back(absl::StrCat("--set ", override_text, ": not YAML: ", error.msg));
    }
  }
  if (faults.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrJoin(faults, "\n"));
}

std::string ConfigSchema::Print() const {
  std::string text;
  std::vector<std::string> open;  // the sections the last line stood in
  for (const auto& field : fields_) {
    std::vector<std::string> parts = absl::StrSplit(field->path, '.');
    const std::string name = parts.back();
    parts.pop_back();
    size_t common = 0;
    while (common < open.size() && common < parts.size() && open[common] == parts[common]) ++common;
    for (size_t i = common; i < parts.size(); ++i) absl::StrAppend(&text, std::string(2 * i, ' '), parts[i], ":\n");
    open = parts;
    absl::StrAppend(&text, std::string(2 * parts.size(), ' '), name, ": ", field->get(), "\n");
  }
  return text;
}

std::string ConfigSchema::Markdown() const {
  std::string text = absl::StrCat("## ", service_, "\n\n| setting | type | unit | default | allowed | what it does |\n",
                                  "|---|---|---|---|---|---|\n");
  for (const auto& field : fields_) {
    absl::StrAppend(&text, "| `", field->path, "` | ", field->type, " | ", field->unit, " | `", field->default_text,
                    "` | ", field->allowed, " | ", field->sentence, " |\n");
  }
  return text;
}

std::vector<std::pair<std::string, std::string>> ConfigSchema::ClusterFields() const {
  std::vector<std::pair<std::string, std::string>> result;
  for (const auto& field : fields_) {
    if (absl::StartsWith(field->path, "cluster.")) result.emplace_back(field->path, field->get());
  }
  return result;
}

}  // namespace tandem::base
