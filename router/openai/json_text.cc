#include "router/openai/json_text.h"

#include <charconv>

namespace tandem::router {
namespace {

constexpr char kHexDigits[] = "0123456789abcdef";

bool NeedsEscape(unsigned char c) { return c < 0x20 || c == '"' || c == '\\'; }

void AppendEscape(std::string& out, unsigned char c) {
  switch (c) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\b':
      out += "\\b";
      return;
    case '\f':
      out += "\\f";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default:
      out += "\\u00";
      out += kHexDigits[c >> 4];
      out += kHexDigits[c & 15];
  }
}

}  // namespace

void AppendJsonEscaped(std::string& out, absl::string_view text) {
  size_t run_begin = 0;  // runs without escapes are appended whole
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (!NeedsEscape(c)) continue;
    out.append(text.data() + run_begin, i - run_begin);
    AppendEscape(out, c);
    run_begin = i + 1;
  }
  out.append(text.data() + run_begin, text.size() - run_begin);
}

void AppendJsonString(std::string& out, absl::string_view text) {
  out += '"';
  AppendJsonEscaped(out, text);
  out += '"';
}

std::string JsonString(absl::string_view text) {
  std::string out;
  AppendJsonString(out, text);
  return out;
}

void AppendJsonNumber(std::string& out, float number) {
  char digits[32];
  const std::to_chars_result end = std::to_chars(digits, digits + sizeof(digits), number);
  out.append(digits, static_cast<size_t>(end.ptr - digits));
}

}  // namespace tandem::router
