#include "router/constraints/json_pointer.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace tandem::router {

namespace {

// Digits without a leading zero: RFC 6901, section 4.
bool ParseIndex(absl::string_view text, size_t* index) {
  if (!std::all_of(text.begin(), text.end(), absl::ascii_isdigit)) return false;
  return (text == "0" || !absl::StartsWith(text, "0")) && absl::SimpleAtoi(text, index);
}

}  // namespace

std::string PointerInto(absl::string_view pointer, absl::string_view name) {
  return absl::StrCat(pointer, "/", absl::StrReplaceAll(name, {{"~", "~0"}, {"/", "~1"}}));
}

const OrderedJson* FollowPointer(const OrderedJson& root, absl::string_view pointer) {
  const OrderedJson* at = &root;
  if (pointer.empty()) return at;
  if (pointer[0] != '/') return nullptr;
  for (const absl::string_view part : absl::StrSplit(pointer.substr(1), '/')) {
    const std::string name = absl::StrReplaceAll(part, {{"~1", "/"}, {"~0", "~"}});
    if (at->kind == OrderedJson::Kind::kObject) {
      at = at->Find(name);
    } else if (size_t index = 0; at->kind == OrderedJson::Kind::kArray && ParseIndex(part, &index)) {
      at = index < at->items.size() ? &at->items[index] : nullptr;
    } else {
      at = nullptr;
    }
    if (at == nullptr) return nullptr;
  }
  return at;
}

}  // namespace tandem::router
