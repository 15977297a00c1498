#include "router/openai/json_text.h"

#include <charconv>

#include "absl/strings/match.h"

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

// Bytes of the line end at i that JSON allows in a string and that is none to a server-sent event, but is one to
// clients who cut streams with their language's own idea of lines (Python's str.splitlines, and with it httpx): U+0085,
// U+2028, U+2029. 0 where there is none.
size_t LineEndBytes(absl::string_view text, size_t i) {
  if (text[i] == '\xc2') return absl::StartsWith(text.substr(i), "\xc2\x85") ? 2 : 0;
  if (text[i] != '\xe2') return 0;
  const absl::string_view rest = text.substr(i);
  return absl::StartsWith(rest, "\xe2\x80\xa8") || absl::StartsWith(rest, "\xe2\x80\xa9") ? 3 : 0;
}

const char* LineEndEscape(absl::string_view line_end) {
  if (line_end.size() == 2) return "\\u0085";
  return line_end.back() == '\xa8' ? "\\u2028" : "\\u2029";
}

}  // namespace

void AppendJsonEscaped(std::string& out, absl::string_view text) {
  size_t run_begin = 0;  // runs without escapes are appended whole
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const size_t num_line_end_bytes = LineEndBytes(text, i);
    if (!NeedsEscape(c) && num_line_end_bytes == 0) continue;
    out.append(text.data() + run_begin, i - run_begin);
    if (num_line_end_bytes == 0) {
      AppendEscape(out, c);
      run_begin = i + 1;
    } else {
      out += LineEndEscape(text.substr(i, num_line_end_bytes));
      run_begin = i + num_line_end_bytes;
    }
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
