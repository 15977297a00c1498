#include "router/chat/python_text.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "router/tokenizer/utf8.h"

namespace tandem::router {
namespace {

class LiteralReader {
 public:
  LiteralReader(absl::string_view source, size_t at) : source_(source), at_(at) {}

  // The literals that stand in a row from here on, joined.
  absl::StatusOr<std::string> ReadValue() {
    SkipBlanks(false);
    const bool has_parenthesis = Peek() == '(';
    if (has_parenthesis) ++at_;
    std::string text;
    bool has_literal = false;
    while (true) {
      SkipBlanks(has_parenthesis);
      if (!AtLiteral()) break;
      RETURN_IF_ERROR(ReadLiteral(&text));
      has_literal = true;
    }
    if (!has_literal) return Wrong("its value is no string");
    const char next = Peek();
    if (has_parenthesis ? next != ')' : next != '\0' && next != '\n' && next != '\r' && next != '#' && next != ';') {
      return Wrong("its value is more than string literals");
    }
    return text;
  }

 private:
  absl::Status Wrong(absl::string_view what) const {
    const std::ptrdiff_t line =
        1 + std::count(source_.begin(), source_.begin() + static_cast<std::ptrdiff_t>(at_), '\n');
    return absl::InvalidArgumentError(absl::StrCat("line ", line, ": ", what));
  }

  char Peek(size_t ahead = 0) const { return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0'; }

  // Within parentheses line ends and comments too; outside, a backslash joins lines.
  void SkipBlanks(bool in_parenthesis) {
    while (at_ < source_.size()) {
      const char c = source_[at_];
      if (c == ' ' || c == '\t' || (in_parenthesis && (c == '\n' || c == '\r'))) {
        ++at_;
      } else if (c == '\\' && Peek(1) == '\n') {
        at_ += 2;
      } else if (in_parenthesis && c == '#') {
        at_ = std::min(source_.find('\n', at_), source_.size());
      } else {
        return;
      }
    }
  }

  bool AtLiteral() const {
    size_t ahead = 0;
    while (ahead < 2 && absl::ascii_isalpha(static_cast<unsigned char>(Peek(ahead)))) ++ahead;
    return Peek(ahead) == '"' || Peek(ahead) == '\'';
  }

  absl::Status ReadLiteral(std::string* text) {
    bool is_raw = false;
    for (; absl::ascii_isalpha(static_cast<unsigned char>(Peek())); ++at_) {
      const char prefix = absl::ascii_tolower(static_cast<unsigned char>(Peek()));
      if (prefix != 'r' && prefix != 'u') return Wrong("a string of a kind that is not read here");
      is_raw = is_raw || prefix == 'r';
    }
    const char quote = Peek();
    const std::string triple(3, quote);
    const bool is_triple = absl::StartsWith(source_.substr(at_), triple);
    const std::string end = is_triple ? triple : std::string(1, quote);
    at_ += end.size();
    while (true) {
      if (at_ >= source_.size()) return Wrong("a string has no end");
      if (absl::StartsWith(source_.substr(at_), end)) break;
      const char c = source_[at_];
      if (c == '\n' && !is_triple) return Wrong("a string has no end on its line");
      if (c == '\\' && is_raw) {
        text->append(source_.substr(at_, 2).data(), source_.substr(at_, 2).size());
        at_ += 2;
      } else if (c == '\\') {
        RETURN_IF_ERROR(ReadEscape(text));
      } else {
        text->push_back(c);
        ++at_;
      }
    }
    at_ += end.size();
    return absl::OkStatus();
  }

  absl::Status ReadEscape(std::string* text) {
    static constexpr absl::string_view kNames = "\\'\"abfnrtv";
    static constexpr absl::string_view kMeanings = "\\'\"\a\b\f\n\r\t\v";
    const char name = Peek(1);
    at_ += 2;
    if (const size_t found = kNames.find(name); name != '\0' && found != absl::string_view::npos) {
      text->push_back(kMeanings[found]);
      return absl::OkStatus();
    }
    switch (name) {
      case '\n':
        return absl::OkStatus();
      case 'x':
        return ReadCode(2, text);
      case 'u':
        return ReadCode(4, text);
      case 'U':
        return ReadCode(8, text);
      case 'N':
        return Wrong("\\N is not read here");
      default:
        if (name >= '0' && name <= '7') return Wrong("an octal escape is not read here");
        text->push_back('\\');  // as Python keeps what is no escape
        --at_;
        return absl::OkStatus();
    }
  }

  absl::Status ReadCode(size_t num_digits, std::string* text) {
    const absl::string_view digits = source_.substr(at_, num_digits);
    uint32_t code = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    if (digits.size() < num_digits || error != std::errc() || end != digits.data() + num_digits) {
      return Wrong("an escape without its hexadecimal digits");
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return Wrong("an escape that is no character");
    AppendUtf8(code, text);
    at_ += num_digits;
    return absl::OkStatus();
  }

  absl::string_view source_;
  size_t at_;
};

// Behind the `=` of the assignment to `name` that starts at `line`; npos where there is none.
size_t FindValue(absl::string_view source, size_t line, absl::string_view name) {
  if (!absl::StartsWith(source.substr(line), name)) return absl::string_view::npos;
  size_t at = line + name.size();
  const size_t end = std::min(source.find('\n', at), source.size());
  const auto skip = [&] {
    while (at < end && (source[at] == ' ' || source[at] == '\t')) ++at;
  };
  skip();
  if (at < end && source[at] == ':') {
    at = std::min(source.find('=', at), end);
  }
  if (at == end || source[at] != '=' || (at + 1 < end && source[at + 1] == '=')) return absl::string_view::npos;
  return at + 1;
}

}  // namespace

absl::StatusOr<std::string> ReadPythonText(absl::string_view source, absl::string_view name) {
  for (size_t line = 0; line < source.size();) {
    const size_t value = FindValue(source, line, name);
    if (value != absl::string_view::npos) {
      absl::StatusOr<std::string> text = LiteralReader(source, value).ReadValue();
      if (!text.ok()) return absl::InvalidArgumentError(absl::StrCat(name, ": ", text.status().message()));
      return text;
    }
    line = std::min(source.find('\n', line), source.size() - 1) + 1;
  }
  return absl::NotFoundError(absl::StrCat("no assignment to ", name));
}

absl::StatusOr<std::string> FormatPythonText(absl::string_view text,
                                             const std::vector<std::pair<std::string, std::string>>& values) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const absl::string_view rest = text.substr(at);
    if (absl::StartsWith(rest, "{{") || absl::StartsWith(rest, "}}")) {
      out.push_back(rest[0]);
      at += 2;
    } else if (rest[0] == '{') {
      const absl::string_view field = rest.substr(1, rest.find('}') - 1);
      const auto found =
          std::find_if(values.begin(), values.end(), [&](const auto& value) { return value.first == field; });
      if (found == values.end() || rest.find('}') == absl::string_view::npos) {
        return absl::InvalidArgumentError(absl::StrCat("there is no value for {", field.substr(0, 40), "}"));
      }
      out += found->second;
      at += field.size() + 2;
    } else if (rest[0] == '}') {
      return absl::InvalidArgumentError("a single } in a text with fields");
    } else {
      out.push_back(rest[0]);
      ++at;
    }
  }
  return out;
}

}  // namespace tandem::router
