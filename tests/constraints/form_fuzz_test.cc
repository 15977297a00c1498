// Any text as a regular expression or as a grammar: it compiles or is refused as the client's error, the workers take
// what compiles, and what the masks let through is read back by the same form. No dead end, no unbounded work.
//   r TEXT   a regular expression     g TEXT   a grammar
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "absl/strings/string_view.h"
#include "router/constraints/answer_constraint.h"
#include "router/tokenizer/utf8.h"
#include "tests/constraints/constraint_probe.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace tandem;  // NOLINT: short in a fuzz target
  constexpr size_t kTextBytesMax = 2048;
  const absl::string_view text(reinterpret_cast<const char*>(bytes), std::min(size, kTextBytesMax));
  // Bodies of requests are UTF-8, and no form is empty.
  if (text.size() < 2 || router::FindInvalidUtf8(text) != text.size()) return 0;
  router::AnswerForm form;
  form.kind = text[0] == 'g' ? router::AnswerForm::Kind::kEbnf : router::AnswerForm::Kind::kRegex;
  form.text = std::string(text.substr(1));
  form.field = "form";
  const auto constraint = testing::CompileAnswer({.form = form});
  if (!constraint.ok()) {
    if (constraint.status().code() != absl::StatusCode::kInvalidArgument) std::abort();
    return 0;
  }
  testing::ConstraintProbe probe(**constraint);
  const auto written = probe.Write(static_cast<uint32_t>(size), /*num_tokens_soft=*/20, /*num_tokens_max=*/200);
  if (written.has_value() && !probe.AcceptsBytes(written->text)) std::abort();
  return 0;
}
