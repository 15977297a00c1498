// What an answer must be, from the request's tools and response format to the grammar that the workers enforce.
//
//   reasoning </think>  then one of   calls | JSON of a schema | text of a regex or grammar
//                                     | text with structures in it | text, perhaps followed by calls
//
// Reasoning is free, but may not write marks of calls: a call is where it is looked for and nowhere else. Calls are
// written as the checkpoint's format has them (router/parsing/dsml_parser.h, tool_mark_parser.h), and no text inside of
// one can be taken for markup: what the parser reads is what the grammar meant.
// Tested by answer_constraint_test.cc, and end to end by tests/e2e/structured_output_test.py.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/common.pb.h"
#include "router/chat/ordered_json.h"
#include "router/openai/answer_form.h"
#include "router/parsing/answer_parser.h"
#include "router/tokenizer/tokenizer.h"

namespace tandem::router {

struct ConstrainedTool {
  std::string name;
  OrderedJson parameters;  // a schema; null: the tool takes none
  bool has_parameters = false;
  bool is_enforced = true;  // false: any arguments
  std::string field;        // where errors are laid: "tools[0].function.parameters"
};

struct AnswerConstraint {
  enum class Calls { kNone, kAllowed, kRequired };

  CallMarkup markup = CallMarkup::kNone;
  bool starts_with_reasoning = false;
  Calls calls = Calls::kNone;
  bool is_single_call = false;
  std::vector<ConstrainedTool> tools;  // that may be called
  bool allows_text = false;            // free text before calls, or instead of them
  std::optional<AnswerForm> form;      // of an answer that is no call; beside calls a schema's alone
};

// INVALID_ARGUMENT as an error of the field at fault: what is not supported, with its JSON pointer or its place in the
// text, a form that no answer has, one that takes more than a worker holds.
absl::StatusOr<std::shared_ptr<const proto::Constraint>> CompileConstraint(const AnswerConstraint& answer,
                                                                           const Tokenizer& tokenizer,
                                                                           absl::Span<const uint32_t> end_tokens);

}  // namespace tandem::router
