// Input: text. What parses must print as JSON that parses and prints the same again.
#include <cstdint>
#include <cstdlib>

#include "router/chat/ordered_json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using tandem::router::OrderedJson;
  const absl::string_view text(reinterpret_cast<const char*>(bytes), size);
  const absl::StatusOr<OrderedJson> value = tandem::router::ParseOrderedJson(text);
  if (!value.ok()) return 0;
  std::string once;
  tandem::router::AppendPythonJson(*value, &once);
  // Python prints numbers beyond its range as a word that is no JSON.
  if (once.find("Infinity") != std::string::npos) return 0;
  const absl::StatusOr<OrderedJson> again = tandem::router::ParseOrderedJson(once);
  if (!again.ok()) std::abort();
  std::string twice;
  tandem::router::AppendPythonJson(*again, &twice);
  if (once != twice) std::abort();
  return 0;
}
