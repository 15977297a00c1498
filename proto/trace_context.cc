#include "proto/trace_context.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace tandem::proto {
namespace {

constexpr absl::string_view kForm = "hh-hhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhh-hhhhhhhhhhhhhhhh-hh";
constexpr size_t kTraceIdAt = 3, kTraceIdDigits = 32;
constexpr size_t kParentAt = 36, kParentDigits = 16;
constexpr size_t kFlagsAt = 53;

bool IsHexDigit(char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)) || (c >= 'a' && c <= 'f'); }
bool IsZero(absl::string_view digits) { return digits.find_first_not_of('0') == digits.npos; }
int ValueOf(char digit) { return digit <= '9' ? digit - '0' : digit - 'a' + 10; }

}  // namespace

bool IsTraceParent(absl::string_view text) {
  if (text.size() < kForm.size()) return false;
  for (size_t i = 0; i < kForm.size(); ++i) {
    if (kForm[i] == 'h' ? !IsHexDigit(text[i]) : text[i] != kForm[i]) return false;
  }
  const absl::string_view version = text.substr(0, 2);
  if (version == "ff") return false;
  if (text.size() > kForm.size() && (version == "00" || text[kForm.size()] != '-')) return false;
  return !IsZero(text.substr(kTraceIdAt, kTraceIdDigits)) && !IsZero(text.substr(kParentAt, kParentDigits));
}

std::string TraceParentAsVersion0(absl::string_view trace_parent) {
  return absl::StrCat("00", trace_parent.substr(2, kForm.size() - 2));
}

std::string NewTraceParent(uint64_t high, uint64_t low, uint64_t parent) {
  return absl::StrFormat("00-%016x%016x-%016x-00", high, low, parent);
}

absl::string_view TraceId(absl::string_view trace_parent) {
  return IsTraceParent(trace_parent) ? trace_parent.substr(kTraceIdAt, kTraceIdDigits) : "";
}

bool IsSampled(absl::string_view trace_parent) {
  return IsTraceParent(trace_parent) && (ValueOf(trace_parent[kFlagsAt + 1]) & 1) != 0;
}

}  // namespace tandem::proto
