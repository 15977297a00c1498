// Prints answers drawn at random from what a constraint allows, for judges that know nothing of us:
// tests/e2e/structured_output_test.py and constraint_fields_test.py.
//   write_answers [--schema JSON] --schemas N --answers M     random schemas, or the one that is given
//   write_answers --regex TEXT --answers M
//   write_answers --ebnf TEXT --answers M
// One line of JSON for each answer: {"schema": ..., "answer": "..."}; of the other two {"answer": "..."}.
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "router/chat/ordered_json.h"
#include "tests/constraints/constraint_probe.h"
#include "tests/constraints/random_schema.h"

namespace tandem::testing {
namespace {

using Kind = router::AnswerForm::Kind;

struct Arguments {
  std::string schema;
  std::optional<router::AnswerForm> form;  // --regex, --ebnf
  uint32_t num_schemas = 1;
  uint32_t num_answers = 1;
};

std::optional<Arguments> Parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const bool is_form = name == "--regex" || name == "--ebnf";
    const bool is_known = name == "--schema" || is_form ||
                          (name == "--schemas" && absl::SimpleAtoi(argv[i + 1], &arguments.num_schemas)) ||
                          (name == "--answers" && absl::SimpleAtoi(argv[i + 1], &arguments.num_answers));
    if (name == "--schema") arguments.schema = argv[i + 1];
    if (is_form) {
      arguments.form = {.kind = name == "--regex" ? Kind::kRegex : Kind::kEbnf, .text = argv[i + 1], .field = "form"};
    }
    if (is_known) continue;
    std::fprintf(stderr, "write_answers: unknown or bad argument %s %s\n", argv[i], argv[i + 1]);
    return std::nullopt;
  }
  return arguments;
}

bool Print(const absl::StatusOr<std::shared_ptr<const proto::Constraint>>& constraint, const std::string& head,
           uint32_t seed, uint32_t num_answers) {
  if (!constraint.ok()) {
    std::fprintf(stderr, "%s\n", std::string(constraint.status().message()).c_str());
    return false;
  }
  ConstraintProbe probe(**constraint);
  for (uint32_t i = 0; i < num_answers; ++i) {
    const auto written = probe.Write(seed * 1000 + i, /*num_tokens_soft=*/60, /*num_tokens_max=*/5000);
    if (!written.has_value()) continue;
    std::string line = head + "\"answer\": ";
    router::AppendPythonJsonString(written->text, &line);
    std::printf("%s}\n", line.c_str());
  }
  return true;
}

int Main(int argc, char** argv) {
  const std::optional<Arguments> arguments = Parse(argc, argv);
  if (!arguments.has_value()) return 2;
  if (arguments->form.has_value()) {
    return Print(CompileAnswer({.form = arguments->form}), "{", 0, arguments->num_answers) ? 0 : 1;
  }
  for (uint32_t seed = 0; seed < arguments->num_schemas; ++seed) {
    const std::string schema = arguments->schema.empty() ? RandomSchema(seed).Write(/*depth=*/3) : arguments->schema;
    const std::string head = absl::StrCat("{\"schema\": ", schema, ", ");
    if (!Print(CompileSchema(schema), head, seed, arguments->num_answers)) return 1;
  }
  return 0;
}

}  // namespace
}  // namespace tandem::testing

int main(int argc, char** argv) { return tandem::testing::Main(argc, argv); }
