#include "router/openai/json_fields.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "router/openai/api_error.h"

namespace tandem::router {
namespace {

namespace json = boost::json;

absl::Status WrongKind(const std::string& param, const char* expected, const json::value& found) {
  return FieldError(param, absl::StrCat("must be ", expected, ", got ", KindName(found)));
}

}  // namespace

const json::value* FindMember(const json::object& object, const char* name) {
  const json::value* value = object.if_contains(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

const char* KindName(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return "null";
    case json::kind::bool_:
      return "a boolean";
    case json::kind::int64:
    case json::kind::uint64:
      return "an integer";
    case json::kind::double_:
      return "a number";
    case json::kind::string:
      return "a string";
    case json::kind::array:
      return "an array";
    case json::kind::object:
      return "an object";
  }
  return "unknown";
}

absl::StatusOr<std::optional<std::string>> OptionalString(const json::object& object, const char* name,
                                                          const std::string& param) {
  const json::value* value = FindMember(object, name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) return WrongKind(param, "a string", *value);
  const json::string& text = value->get_string();
  return std::string(text.data(), text.size());
}

absl::StatusOr<std::optional<bool>> OptionalBool(const json::object& object, const char* name,
                                                 const std::string& param) {
  const json::value* value = FindMember(object, name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_bool()) return WrongKind(param, "a boolean", *value);
  return value->get_bool();
}

absl::StatusOr<std::optional<int64_t>> OptionalInteger(const json::object& object, const char* name,
                                                       const std::string& param, int64_t min, int64_t max) {
  const json::value* value = FindMember(object, name);
  if (value == nullptr) return std::nullopt;
  if (value->is_uint64()) {  // Boost.JSON uses this kind only above the range of int64
    return FieldError(param, absl::StrCat("must be at most ", max, ", got ", value->get_uint64()));
  }
  if (!value->is_int64()) return WrongKind(param, "an integer", *value);
  const int64_t number = value->get_int64();
  if (number < min) return FieldError(param, absl::StrCat("must be at least ", min, ", got ", number));
  if (number > max) return FieldError(param, absl::StrCat("must be at most ", max, ", got ", number));
  return number;
}

absl::StatusOr<std::optional<double>> OptionalNumber(const json::object& object, const char* name,
                                                     const std::string& param, double min, double max) {
  const json::value* value = FindMember(object, name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) return WrongKind(param, "a number", *value);
  const double number = value->to_number<double>();
  if (!std::isfinite(number)) return FieldError(param, "must be a finite number");
  if (number < min) return FieldError(param, absl::StrCat("must be at least ", min, ", got ", number));
  if (number > max) return FieldError(param, absl::StrCat("must be at most ", max, ", got ", number));
  return number;
}

absl::StatusOr<const json::object*> OptionalObject(const json::object& object, const char* name,
                                                   const std::string& param) {
  const json::value* value = FindMember(object, name);
  if (value == nullptr) return nullptr;
  if (!value->is_object()) return WrongKind(param, "an object", *value);
  return &value->get_object();
}

}  // namespace tandem::router
