// Prints schemas and answers drawn at random from what the constraint of each allows, for a validator that knows
// nothing of us: tests/e2e/structured_output_test.py.
//   write_answers [--schema JSON] --schemas N --answers M
// One line of JSON for each answer: {"schema": ..., "answer": "..."}.
#include <cstdint>
#include <cstdio>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "router/chat/ordered_json.h"
#include "tests/constraints/constraint_probe.h"
#include "tests/constraints/random_schema.h"

int main(int argc, char** argv) {
  std::string schema_given;
  uint32_t num_schemas = 1, num_answers = 1;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const bool is_known = name == "--schema" || (name == "--schemas" && absl::SimpleAtoi(argv[i + 1], &num_schemas)) ||
                          (name == "--answers" && absl::SimpleAtoi(argv[i + 1], &num_answers));
    if (name == "--schema") schema_given = argv[i + 1];
    if (!is_known) {
      std::fprintf(stderr, "write_answers: unknown or bad argument %s %s\n", argv[i], argv[i + 1]);
      return 2;
    }
  }
  for (uint32_t seed = 0; seed < num_schemas; ++seed) {
    const std::string schema =
        schema_given.empty() ? tandem::testing::RandomSchema(seed).Write(/*depth=*/3) : schema_given;
    const auto constraint = tandem::testing::CompileSchema(schema);
    if (!constraint.ok()) {
      std::fprintf(stderr, "%s: %s\n", schema.c_str(), std::string(constraint.status().message()).c_str());
      return 1;
    }
    tandem::testing::ConstraintProbe probe(**constraint);
    for (uint32_t i = 0; i < num_answers; ++i) {
      const auto written = probe.Write(seed * 1000 + i, /*num_tokens_soft=*/60, /*num_tokens_max=*/5000);
      if (!written.has_value()) continue;
      std::string line = absl::StrCat("{\"schema\": ", schema, ", \"answer\": ");
      tandem::router::AppendPythonJsonString(written->text, &line);
      std::printf("%s}\n", line.c_str());
    }
  }
  return 0;
}
