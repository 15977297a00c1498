#include "router/openai/prompt_list.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "router/openai/api_error.h"
#include "router/openai/generation_fields.h"
#include "router/openai/json_fields.h"

namespace tandem::router {
namespace {

namespace json = boost::json;

absl::Status WrongKind(const std::string& path, const char* expected, const json::value& found) {
  return FieldError(path, absl::StrCat("must be ", expected, ", got ", KindName(found)));
}

absl::StatusOr<PromptInput> ParseText(const json::value& value, const std::string& path) {
  if (!value.is_string()) return WrongKind(path, "a string as the first one", value);
  return PromptInput(std::string(value.get_string().data(), value.get_string().size()));
}

absl::StatusOr<PromptInput> ParseIds(const json::value& value, const std::string& path) {
  if (!value.is_array()) return WrongKind(path, "an array of token ids as the first one", value);
  const json::array& array = value.get_array();
  if (array.empty()) return FieldError(path, "must have at least one token id");
  std::vector<uint32_t> ids;
  ids.reserve(array.size());
  for (size_t i = 0; i < array.size(); ++i) {
    const std::string element = absl::StrCat(path, "[", i, "]");
    if (!array[i].is_int64()) return WrongKind(element, "a token id", array[i]);
    const int64_t id = array[i].get_int64();
    if (id < 0 || id > std::numeric_limits<uint32_t>::max()) {
      return FieldError(element, absl::StrCat("must be a token id, got ", id));
    }
    ids.push_back(static_cast<uint32_t>(id));
  }
  return PromptInput(std::move(ids));
}

struct FormNames {
  const char* whole;    // what the field may be
  const char* element;  // what the first element of a list may be
};

FormNames NamesOf(PromptForms forms) {
  switch (forms) {
    case PromptForms::kTexts:
      return {"a string or a list of strings", "a string"};
    case PromptForms::kIds:
      return {"token ids or a list of them", "a token id, or an array of token ids"};
    case PromptForms::kAny:
      break;
  }
  return {"a string, token ids, or a list of either", "a string, a token id, or an array of token ids"};
}

}  // namespace

std::string PromptList::PathOf(size_t index) const { return is_list ? absl::StrCat(field, "[", index, "]") : field; }

absl::StatusOr<PromptList> ParsePromptList(const json::value& value, const char* field, PromptForms forms) {
  const FormNames names = NamesOf(forms);
  const bool allows_texts = forms != PromptForms::kIds;
  const bool allows_ids = forms != PromptForms::kTexts;
  PromptList parsed;
  parsed.field = field;
  if (value.is_string() && allows_texts) {
    ASSIGN_OR_RETURN(PromptInput prompt, ParseText(value, field));
    parsed.inputs.push_back(std::move(prompt));
    return parsed;
  }
  if (!value.is_array()) return WrongKind(field, names.whole, value);
  const json::array& array = value.get_array();
  if (array.empty()) return FieldError(field, "must have at least one prompt");
  const json::value& first = array[0];
  if (first.is_number() && allows_ids) {
    ASSIGN_OR_RETURN(PromptInput prompt, ParseIds(value, field));
    parsed.inputs.push_back(std::move(prompt));
    return parsed;
  }
  if (!(first.is_string() && allows_texts) && !(first.is_array() && allows_ids)) {
    return WrongKind(absl::StrCat(field, "[0]"), names.element, first);
  }
  if (array.size() > static_cast<size_t>(kChoicesMax)) {
    return FieldError(field, absl::StrCat("must have at most ", kChoicesMax, " prompts, got ", array.size()));
  }
  parsed.is_list = true;
  for (size_t i = 0; i < array.size(); ++i) {
    ASSIGN_OR_RETURN(PromptInput prompt,
                     first.is_string() ? ParseText(array[i], parsed.PathOf(i)) : ParseIds(array[i], parsed.PathOf(i)));
    parsed.inputs.push_back(std::move(prompt));
  }
  return parsed;
}

}  // namespace tandem::router
