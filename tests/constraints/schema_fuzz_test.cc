// Any text as a schema: it compiles or is refused as the client's error, the workers take what compiles, and what the
// masks let through is JSON that the constraint reads back. No dead end, no unbounded work.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "absl/strings/string_view.h"
#include "router/chat/ordered_json.h"
#include "router/constraints/answer_constraint.h"
#include "tests/constraints/constraint_probe.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace tandem;  // NOLINT: short in a fuzz target
  constexpr size_t kSchemaBytesMax = 4096;
  const auto schema = router::ParseOrderedJson(
      absl::string_view(reinterpret_cast<const char*>(bytes), std::min(size, kSchemaBytesMax)));
  if (!schema.ok()) return 0;
  const auto constraint = testing::CompileAnswer({.form = router::AnswerForm{.schema = *schema, .field = "schema"}});
  if (!constraint.ok()) {
    if (constraint.status().code() != absl::StatusCode::kInvalidArgument) std::abort();
    return 0;
  }
  testing::ConstraintProbe probe(**constraint);
  const auto written = probe.Write(static_cast<uint32_t>(size), /*num_tokens_soft=*/20, /*num_tokens_max=*/400);
  if (!written.has_value()) return 0;
  if (!router::ParseOrderedJson(written->text).ok() || !probe.AcceptsBytes(written->text)) std::abort();
  return 0;
}
