// JSON values that keep what prompts depend on: the order of keys and the text of numbers.
//
// The model was trained on prompts written by Python's json module, so tools and arguments must come out as Python
// would print them: `1.50` as 1.5, `1e5` as 100000.0, integers of any size exact, ", " and ": " between, nothing
// escaped that need not be. Parsing is strict JSON (RFC 8259); of equal keys the last value counts, at the place of
// the first.
// Tested by ordered_json_test.cc against lines printed by Python.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem::router {

struct OrderedJson {
  enum class Kind { kNull, kFalse, kTrue, kNumber, kString, kArray, kObject };

  // The value under `key` of an object; nullptr where there is none or this is no object.
  const OrderedJson* Find(absl::string_view key) const;

  Kind kind = Kind::kNull;
  std::string text;                // of a number: as it was written; of a string: its characters in UTF-8
  std::vector<std::string> keys;   // of an object, in order
  std::vector<OrderedJson> items;  // of an array; of an object, items[i] belongs to keys[i]
};

inline constexpr int kOrderedJsonDepthMax = 128;
// A value takes some 90 bytes, be it only a digit in the text.
inline constexpr int kOrderedJsonValuesMax = 1 << 18;

// INVALID_ARGUMENT with the byte offset where the text is not JSON, not UTF-8, escapes half a surrogate pair, nests
// deeper than kOrderedJsonDepthMax, or has more than kOrderedJsonValuesMax values.
absl::StatusOr<OrderedJson> ParseOrderedJson(absl::string_view json);

// Appends what Python's json.dumps(value, ensure_ascii=False) returns.
void AppendPythonJson(const OrderedJson& value, std::string* out);

// The same for a string value.
void AppendPythonJsonString(absl::string_view text, std::string* out);

// What stands between the quotes of a string value: the text may come in pieces.
void AppendPythonJsonEscaped(absl::string_view text, std::string* out);

}  // namespace tandem::router
