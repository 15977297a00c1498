// A service's configuration: one YAML file, one schema in code.
//
//   struct PrefillConfig { int chunked_prefill_size = 512; ... };
//   base::ConfigSchema schema("prefill_worker");
//   schema.Int("process.chunked_prefill_size", &config.chunked_prefill_size, {.unit = "tokens", .min = 1, .max =
//   65536},
//              "Prompt tokens computed in one engine step.");
//   ASSIGN_OR_RETURN(const base::ConfigArgs args, base::LoadConfig(schema, argc, argv));
//
// Every field has a unit, a default (the struct's own initialiser), a range and one sentence. Unknown keys, wrong
// types and bad ranges stop the start with file:line and what is allowed. Two sections: `cluster:` must agree on all
// sides and is hashed into every handshake, `process:` may differ. docs/configuration.md is generated from the schemas.
// Tested by config_test.cc.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace tandem::base {

struct IntRange {
  const char* unit = "";
  int64_t min = std::numeric_limits<int64_t>::min();
  int64_t max = std::numeric_limits<int64_t>::max();
};
struct DoubleRange {
  const char* unit = "";
  double min = std::numeric_limits<double>::lowest();
  double max = std::numeric_limits<double>::max();
};

class ConfigSchema final {
 public:
  explicit ConfigSchema(std::string service);
  ~ConfigSchema();

  // path: "process.name" or "cluster.name" (sections may nest: "process.http.port"). Targets outlive the schema.
  void Int(std::string path, int* target, IntRange range, std::string sentence);
  void Int64(std::string path, int64_t* target, IntRange range, std::string sentence);
  void Double(std::string path, double* target, DoubleRange range, std::string sentence);
  void Bool(std::string path, bool* target, std::string sentence);
  void String(std::string path, std::string* target, std::string sentence);  // any text
  void Choice(std::string path, std::string* target, std::vector<std::string> allowed, std::string sentence);
  void StringList(std::string path, std::vector<std::string>* target, std::string sentence);
  // In the file: a number with unit, "250ms", "30s".
  void Duration(std::string path, absl::Duration* target, absl::Duration min, absl::Duration max, std::string sentence);

  // Reads text as YAML, then applies overrides ("a.b=c") in order. INVALID_ARGUMENT, all faults listed, each as
  // "file:line: key: what is wrong, what is allowed".
  absl::Status Apply(absl::string_view yaml, absl::string_view file_name, const std::vector<std::string>& overrides);

  std::string Print() const;     // YAML of the values in force; Apply of it changes nothing
  std::string Markdown() const;  // this service's section of docs/configuration.md
  // name=value of every field of `cluster:`, in schema order: part of the handshake's fingerprint.
  std::vector<std::pair<std::string, std::string>> ClusterFields() const;

 private:
  struct Field;
  void Add(Field field);

  std::string service_;
  std::vector<std::unique_ptr<Field>> fields_;
};

struct ConfigArgs {
  bool should_exit = false;    // --print_config, --validate_only, --help were answered on stdout: exit 0
  bool is_validation = false;  // --validate_only: with should_exit, and what a schema cannot say is to be checked first
};
// The command line of every service: --config FILE, --set a.b=c (repeatable), --print_config, --validate_only,
// --print_config_docs, --help. INVALID_ARGUMENT for anything else.
absl::StatusOr<ConfigArgs> LoadConfig(ConfigSchema& schema, int argc, char** argv);

}  // namespace tandem::base
