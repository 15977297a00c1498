#include "router/chat/ordered_json.h"

#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "router/tokenizer/utf8.h"

namespace tandem::router {
namespace {

class Parser {
 public:
  explicit Parser(absl::string_view json) : json_(json) {}

  absl::StatusOr<OrderedJson> ParseDocument() {
    OrderedJson value;
    RETURN_IF_ERROR(ParseValue(0, &value));
    SkipSpace();
    if (at_ != json_.size()) return Wrong("text after the value");
    return value;
  }

 private:
  absl::Status Wrong(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat("not valid JSON at byte ", at_, ": ", what));
  }

  void SkipSpace() {
    while (at_ < json_.size() && absl::string_view(" \t\n\r").find(json_[at_]) != absl::string_view::npos) ++at_;
  }

  // Goes past `c` where it comes next.
  bool Take(char c) {
    if (at_ == json_.size() || json_[at_] != c) return false;
    ++at_;
    return true;
  }

  absl::Status ParseValue(int depth, OrderedJson* value) {
    if (++num_values_ > kOrderedJsonValuesMax)
      return Wrong(absl::StrCat("more than ", kOrderedJsonValuesMax, " values"));
    SkipSpace();
    if (at_ == json_.size()) return Wrong("a value is missing");
    switch (json_[at_]) {
      case '{':
        return ParseObject(depth, value);
      case '[':
        return ParseArray(depth, value);
      case '"':
        value->kind = OrderedJson::Kind::kString;
        return ParseString(&value->text);
      case 'n':
        return ParseWord("null", OrderedJson::Kind::kNull, value);
      case 't':
        return ParseWord("true", OrderedJson::Kind::kTrue, value);
      case 'f':
        return ParseWord("false", OrderedJson::Kind::kFalse, value);
      default:
        value->kind = OrderedJson::Kind::kNumber;
        return ParseNumber(&value->text);
    }
  }

  absl::Status ParseWord(absl::string_view word, OrderedJson::Kind kind, OrderedJson* value) {
    if (json_.substr(at_, word.size()) != word) return Wrong(absl::StrCat("expected ", word));
    at_ += word.size();
    value->kind = kind;
    return absl::OkStatus();
  }

  absl::Status ParseObject(int depth, OrderedJson* value) {
    if (depth == kOrderedJsonDepthMax) return Wrong(absl::StrCat("more than ", kOrderedJsonDepthMax, " levels"));
    value->kind = OrderedJson::Kind::kObject;
    ++at_;
    SkipSpace();
    if (Take('}')) return absl::OkStatus();
    absl::flat_hash_map<std::string, size_t> places;
    do {
      SkipSpace();
      if (at_ == json_.size() || json_[at_] != '"') return Wrong("expected a key");
      std::string key;
      RETURN_IF_ERROR(ParseString(&key));
      SkipSpace();
      if (!Take(':')) return Wrong("expected :");
      OrderedJson item;
      RETURN_IF_ERROR(ParseValue(depth + 1, &item));
      const auto [place, is_new] = places.emplace(key, value->items.size());
      if (is_new) {
        value->keys.push_back(std::move(key));
        value->items.push_back(std::move(item));
      } else {
        value->items[place->second] = std::move(item);
      }
      SkipSpace();
    } while (Take(','));
    return Take('}') ? absl::OkStatus() : Wrong("expected , or }");
  }

  absl::Status ParseArray(int depth, OrderedJson* value) {
    if (depth == kOrderedJsonDepthMax) return Wrong(absl::StrCat("more than ", kOrderedJsonDepthMax, " levels"));
    value->kind = OrderedJson::Kind::kArray;
    ++at_;
    SkipSpace();
    if (Take(']')) return absl::OkStatus();
    do {
      OrderedJson item;
      RETURN_IF_ERROR(ParseValue(depth + 1, &item));
      value->items.push_back(std::move(item));
      SkipSpace();
    } while (Take(','));
    return Take(']') ? absl::OkStatus() : Wrong("expected , or ]");
  }

  absl::Status ParseString(std::string* text) {
    ++at_;
    while (at_ < json_.size()) {
      const unsigned char c = static_cast<unsigned char>(json_[at_]);
      if (c == '"') {
        ++at_;
        return absl::OkStatus();
      }
      if (c < 0x20) return Wrong("a control character in a string");
      if (c == '\\') {
        RETURN_IF_ERROR(ParseEscape(text));
        continue;
      }
      const Utf8Char next = DecodeUtf8(json_.substr(at_));
      if (next.kind != Utf8Char::Kind::kValid) return Wrong("not UTF-8");
      absl::StrAppend(text, json_.substr(at_, next.length));
      at_ += next.length;
    }
    return Wrong("a string has no end");
  }

  absl::Status ParseEscape(std::string* text) {
    ++at_;
    if (at_ == json_.size()) return Wrong("a string has no end");
    static constexpr absl::string_view kNames = "\"\\/bfnrt";
    static constexpr absl::string_view kMeanings = "\"\\/\b\f\n\r\t";
    const size_t name = kNames.find(json_[at_]);
    if (name != absl::string_view::npos) {
      text->push_back(kMeanings[name]);
      ++at_;
      return absl::OkStatus();
    }
    uint32_t unit = 0;
    RETURN_IF_ERROR(ParseHexUnit(&unit));
    if (unit >= 0xDC00 && unit < 0xE000) return Wrong("the second half of a surrogate pair stands alone");
    if (unit >= 0xD800 && unit < 0xDC00) {
      uint32_t low = 0;
      if (!Take('\\')) return Wrong("the first half of a surrogate pair stands alone");
      RETURN_IF_ERROR(ParseHexUnit(&low));
      if (low < 0xDC00 || low >= 0xE000) return Wrong("the first half of a surrogate pair stands alone");
      unit = 0x10000 + ((unit - 0xD800) << 10 | (low - 0xDC00));
    }
    AppendUtf8(unit, text);
    return absl::OkStatus();
  }

  // `uXXXX`, after the backslash.
  absl::Status ParseHexUnit(uint32_t* unit) {
    if (!Take('u')) return Wrong("no such escape");
    const absl::string_view digits = json_.substr(at_, 4);
    if (digits.size() < 4) return Wrong("\\u without four hexadecimal digits");
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + 4, *unit, 16);
    if (error != std::errc() || end != digits.data() + 4) return Wrong("\\u without four hexadecimal digits");
    at_ += 4;
    return absl::OkStatus();
  }

  bool TakeDigits() {
    const size_t begin = at_;
    while (at_ < json_.size() && absl::ascii_isdigit(static_cast<unsigned char>(json_[at_]))) ++at_;
    return at_ > begin;
  }

  absl::Status ParseNumber(std::string* text) {
    const size_t begin = at_;
    Take('-');
    if (!Take('0') && !TakeDigits()) return Wrong("expected a value");
    if (Take('.') && !TakeDigits()) return Wrong("a number has no digits after the point");
    if (Take('e') || Take('E')) {
      if (!Take('+')) Take('-');
      if (!TakeDigits()) return Wrong("a number has no digits in its exponent");
    }
    *text = std::string(json_.substr(begin, at_ - begin));
    return absl::OkStatus();
  }

  absl::string_view json_;
  size_t at_ = 0;
  int num_values_ = 0;
};

// Python's repr(float): the shortest digits that read back the same, positional from 1e-4 up to 1e16.
void AppendPythonFloat(double value, std::string* out) {
  if (std::isinf(value)) {
    absl::StrAppend(out, value < 0 ? "-Infinity" : "Infinity");
    return;
  }
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific).ptr;
  const absl::string_view shortest(buffer, end - buffer);
  const size_t e = shortest.find('e');
  int exponent = std::atoi(std::string(shortest.substr(e + 1)).c_str());
  std::string digits;
  for (const char c : shortest.substr(0, e)) {
    if (absl::ascii_isdigit(static_cast<unsigned char>(c))) digits.push_back(c);
  }
  if (std::signbit(value)) out->push_back('-');
  if (exponent >= 16 || exponent < -4) {
    out->push_back(digits[0]);
    if (digits.size() > 1) absl::StrAppend(out, ".", digits.substr(1));
    absl::StrAppendFormat(out, "e%c%02d", exponent < 0 ? '-' : '+', std::abs(exponent));
  } else if (exponent < 0) {
    absl::StrAppend(out, "0.", std::string(-exponent - 1, '0'), digits);
  } else {
    const size_t num_whole = static_cast<size_t>(exponent) + 1;
    if (digits.size() < num_whole + 1) digits.append(num_whole + 1 - digits.size(), '0');
    absl::StrAppend(out, digits.substr(0, num_whole), ".", digits.substr(num_whole));
  }
}

void AppendPythonNumber(const std::string& text, std::string* out) {
  if (text.find_first_of(".eE") != std::string::npos) {
    AppendPythonFloat(std::strtod(text.c_str(), nullptr), out);
  } else {
    out->append(text == "-0" ? "0" : text);
  }
}

}  // namespace

const OrderedJson* OrderedJson::Find(absl::string_view key) const {
  for (size_t i = 0; i < keys.size(); ++i) {
    if (keys[i] == key) return &items[i];
  }
  return nullptr;
}

absl::StatusOr<OrderedJson> ParseOrderedJson(absl::string_view json) { return Parser(json).ParseDocument(); }

void AppendPythonJsonString(absl::string_view text, std::string* out) {
  out->push_back('"');
  AppendPythonJsonEscaped(text, out);
  out->push_back('"');
}

void AppendPythonJsonEscaped(absl::string_view text, std::string* out) {
  static constexpr absl::string_view kCharacters = "\"\\\b\f\n\r\t";
  static constexpr absl::string_view kNames = "\"\\bfnrt";
  for (const char c : text) {
    const size_t special = kCharacters.find(c);
    if (special != absl::string_view::npos) {
      out->push_back('\\');
      out->push_back(kNames[special]);
    } else if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppendFormat(out, "\\u%04x", c);
    } else {
      out->push_back(c);
    }
  }
}

void AppendPythonJson(const OrderedJson& value, std::string* out) {
  switch (value.kind) {
    case OrderedJson::Kind::kNull:
      out->append("null");
      return;
    case OrderedJson::Kind::kFalse:
      out->append("false");
      return;
    case OrderedJson::Kind::kTrue:
      out->append("true");
      return;
    case OrderedJson::Kind::kNumber:
      AppendPythonNumber(value.text, out);
      return;
    case OrderedJson::Kind::kString:
      AppendPythonJsonString(value.text, out);
      return;
    case OrderedJson::Kind::kArray:
    case OrderedJson::Kind::kObject:
      break;
  }
  const bool is_object = value.kind == OrderedJson::Kind::kObject;
  out->push_back(is_object ? '{' : '[');
  for (size_t i = 0; i < value.items.size(); ++i) {
    if (i > 0) out->append(", ");
    if (is_object) {
      AppendPythonJsonString(value.keys[i], out);
      out->append(": ");
    }
    AppendPythonJson(value.items[i], out);
  }
  out->push_back(is_object ? '}' : ']');
}

}  // namespace tandem::router
