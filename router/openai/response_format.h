// The fields that say which form an answer must have: `response_format`, whose words chat tells the model, too, and
// SGLang's `json_schema`, `regex`, `ebnf` and `structural_tag`. A request has one of them at most. Tested by
// response_format_test.cc.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "boost/json.hpp"
#include "router/openai/answer_form.h"

namespace tandem::router {

inline constexpr size_t kFormTextBytesMax = 64 * 1024;

struct ResponseFormat {
  std::string text;  // JSON of the value, keys and numbers as the client wrote them; "": nothing to tell the model
  AnswerForm form;
};

// Nothing where it is absent or says "text"; body: the text of `request`. INVALID_ARGUMENT naming the field.
absl::StatusOr<std::optional<ResponseFormat>> ParseResponseFormat(const boost::json::object& request,
                                                                  absl::string_view body);

// One of `json_schema` (a text that holds a schema), `regex`, `ebnf` and `structural_tag` (a text that holds what
// response_format would) of the object; nothing where it has none. path:
// where the object stands, for messages: "" or "sampling_params.". INVALID_ARGUMENT naming the field.
absl::StatusOr<std::optional<AnswerForm>> ParseFormFields(const boost::json::object& object, const std::string& path);

// INVALID_ARGUMENT where both are there.
absl::Status CheckOneForm(const std::optional<ResponseFormat>& response_format, const std::optional<AnswerForm>& form);

}  // namespace tandem::router
