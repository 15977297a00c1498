// Reads typed, range-checked fields of one JSON object and keeps the first fault: the caller reads everything, then
// asks once. Include only from .cc files. Tested by model_config_test.cc.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "boost/json/value.hpp"

namespace tandem::model {

class JsonFields final {
 public:
  // `object` outlives the reader; `what` names file and path in errors.
  JsonFields(const boost::json::object& object, absl::string_view what) : object_(object), what_(what) {}

  // The value of a key; nullptr where it is absent or null.
  const boost::json::value* Find(absl::string_view key) const {
    const boost::json::value* value = object_.if_contains(boost::json::string_view(key.data(), key.size()));
    return value == nullptr || value->is_null() ? nullptr : value;
  }
  bool Has(absl::string_view key) const { return Find(key) != nullptr; }

  // *out keeps what it held where the key is absent and not required.
  template <typename Int>
  void Integer(absl::string_view key, Int* out, int64_t min, int64_t max, bool is_required = true) {
    const boost::json::value* value = Require(key, is_required);
    if (value == nullptr) return;
    const int64_t* number = value->if_int64();
    if (number == nullptr) return Fault(key, "is not an integer of 64 bits");
    if (*number < min || *number > max) return OutOfRange(key, *number, min, max);
    *out = static_cast<Int>(*number);
  }
  template <typename Float>
  void Number(absl::string_view key, Float* out, double min, double max, bool is_required = true) {
    const boost::json::value* value = Require(key, is_required);
    if (value == nullptr) return;
    if (!value->is_number()) return Fault(key, "is not a number");
    const double number = value->to_number<double>();
    if (!(number >= min && number <= max)) return OutOfRange(key, number, min, max);
    *out = static_cast<Float>(number);
  }
  void Bool(absl::string_view key, bool* out, bool is_required = true) {
    const boost::json::value* value = Require(key, is_required);
    if (value == nullptr) return;
    if (!value->is_bool()) return Fault(key, "is not true or false");
    *out = value->get_bool();
  }
  void String(absl::string_view key, std::string* out, bool is_required = true) {
    const boost::json::value* value = Require(key, is_required);
    if (value == nullptr) return;
    if (!value->is_string()) return Fault(key, "is not a string");
    *out = std::string(value->get_string());
  }
  // The one value that we can serve; absent is fine.
  void Expect(absl::string_view key, absl::string_view expected) {
    std::string text(expected);
    String(key, &text, false);
    if (text != expected) Fault(key, absl::StrCat("is '", text, "', only '", expected, "' is served"));
  }
  void ExpectFlag(absl::string_view key, bool expected) {
    bool flag = expected;
    Bool(key, &flag, false);
    if (flag != expected) {
      Fault(key, absl::StrCat("is ", flag ? "true" : "false", ", only ", expected ? "true" : "false", " is served"));
    }
  }
  void Fault(absl::string_view key, absl::string_view why) {
    if (status_.ok()) status_ = absl::InvalidArgumentError(absl::StrCat(what_, ": ", key, " ", why));
  }
  const absl::Status& status() const { return status_; }

 private:
  const boost::json::value* Require(absl::string_view key, bool is_required) {
    const boost::json::value* value = Find(key);
    if (value == nullptr && is_required) Fault(key, "is missing");
    return value;
  }
  template <typename T>
  void OutOfRange(absl::string_view key, T value, T min, T max) {
    Fault(key, absl::StrCat("is ", value, ", allowed ", min, " to ", max));
  }

  const boost::json::object& object_;
  const std::string what_;
  absl::Status status_;
};

}  // namespace tandem::model
