#include "router/constraints/json_grammar.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"

namespace tandem::router {
namespace {

// Short escapes of JSON; the solidus needs none.
constexpr std::pair<char, char> kShortEscapes[] = {{'"', '"'},  {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'},
                                                   {'\n', 'n'}, {'\r', 'r'},  {'\t', 't'}};

CharClass MustEscape() { return CharClass({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}}); }
CharClass HexDigits() { return CharClass({{'0', '9'}, {'A', 'F'}, {'a', 'f'}}); }

int AddHexDigits(Nfa* nfa, int from, int num_digits) {
  for (int i = 0; i < num_digits; ++i) {
    const int next = nfa->AddState();
    nfa->AddChars(from, HexDigits(), next);
    from = next;
  }
  return from;
}

int AddOneOf(Nfa* nfa, int from, absl::string_view chars) {
  const int next = nfa->AddState();
  nfa->AddChars(from, CharClass::AnyOf(chars), next);
  return next;
}

// How a string writes a character that may not stand bare.
std::string EscapeOf(uint32_t c) {
  for (const auto& [plain, letter] : kShortEscapes) {
    if (c == static_cast<uint32_t>(plain)) return absl::StrCat("\\", std::string(1, letter));
  }
  return absl::StrFormat("\\u%04x", c);
}

}  // namespace

CharClass JsonGrammar::BareChars() const { return MustEscape().Union(never_bare_).Complement(); }

absl::Status JsonGrammar::Init() {
  white_space_ = grammar_.Reserve();
  Nfa white_space;
  int at = Nfa::kStart;
  for (int i = 0; i < kWhiteSpaceMax; ++i) {
    at = AddOneOf(&white_space, at, " \t\n\r");
    white_space.SetAccepting(at);
  }
  RETURN_IF_ERROR(grammar_.Define(white_space_, white_space));
  RETURN_IF_ERROR(DefineStrings());
  return DefineContainers();
}

absl::Status JsonGrammar::DefineStrings() {
  escape_ = grammar_.Reserve();
  Nfa escape;
  const int end = escape.AddState();
  escape.SetAccepting(end);
  const int backslash = escape.AddText(Nfa::kStart, "\\");
  escape.AddChars(backslash, CharClass::AnyOf("\"\\/bfnrt"), end);
  const int unicode = escape.AddText(backslash, "u");
  escape.AddEpsilon(AddHexDigits(&escape, AddOneOf(&escape, unicode, "0123456789abcefABCEF"), 3), end);
  const int surrogate = AddOneOf(&escape, unicode, "dD");
  escape.AddEpsilon(AddHexDigits(&escape, AddOneOf(&escape, surrogate, "01234567"), 2), end);
  const int high = AddHexDigits(&escape, AddOneOf(&escape, surrogate, "89abAB"), 2);
  const int low = AddOneOf(&escape, AddOneOf(&escape, escape.AddText(high, "\\u"), "dD"), "cdefCDEF");
  escape.AddEpsilon(AddHexDigits(&escape, low, 2), end);
  RETURN_IF_ERROR(grammar_.Define(escape_, escape));

  string_ = grammar_.Reserve();
  Nfa string;
  const int closed = string.AddState();
  string.SetAccepting(closed);
  AddString(&string, Nfa::kStart, CharsBetween(CharClass::All(), 0, -1), closed);
  return grammar_.Define(string_, string);
}

absl::Status JsonGrammar::DefineContainers() {
  object_ = grammar_.Reserve();
  array_ = grammar_.Reserve();
  for (const bool is_object : {true, false}) {
    Nfa nfa;
    const int end = nfa.AddState();
    nfa.SetAccepting(end);
    const int item = nfa.AddState();
    const int behind_item = nfa.AddState();
    const int open = AfterOptionalWhiteSpace(&nfa, nfa.AddText(Nfa::kStart, is_object ? "{" : "["));
    const char* close = is_object ? "}" : "]";
    nfa.AddEpsilon(nfa.AddText(open, close), end);
    nfa.AddEpsilon(open, item);
    int value = item;
    if (is_object) {
      const int key = nfa.AddState();
      AddString(&nfa, item, key);
      value = AfterOptionalWhiteSpace(&nfa, nfa.AddText(key, ":"));
    }
    AddAny(&nfa, value, behind_item, /*with_strings=*/true);
    nfa.AddEpsilon(AfterOptionalWhiteSpace(&nfa, nfa.AddText(behind_item, ",")), item);
    nfa.AddEpsilon(nfa.AddText(AfterOptionalWhiteSpace(&nfa, behind_item), close), end);
    RETURN_IF_ERROR(grammar_.Define(is_object ? object_ : array_, nfa));
  }
  return absl::OkStatus();
}

int JsonGrammar::AfterOptionalWhiteSpace(Nfa* nfa, int from) const {
  const int to = nfa->AddState();
  nfa->AddEpsilon(from, to);
  nfa->AddCall(from, white_space_, to);
  return to;
}

void JsonGrammar::AddAny(Nfa* nfa, int from, int to, bool with_strings) const {
  for (const char* word : {"null", "true", "false"}) nfa->AddEpsilon(nfa->AddText(from, word), to);
  AddNumber(nfa, from, to);
  if (with_strings) AddString(nfa, from, to);
  AddObject(nfa, from, to);
  AddArray(nfa, from, to);
}

void JsonGrammar::AddString(Nfa* nfa, int from, const Dfa& content, int to) const {
  if (content.empty()) return;
  const int base = nfa->num_states();
  for (size_t i = 0; i < content.states.size(); ++i) nfa->AddState();
  nfa->AddEpsilon(nfa->AddText(from, "\""), base);
  const int close = nfa->AddState();
  nfa->AddEpsilon(nfa->AddText(close, "\""), to);
  for (size_t i = 0; i < content.states.size(); ++i) {
    const Dfa::State& state = content.states[i];
    const int at = base + static_cast<int>(i);
    if (state.is_accepting) nfa->AddEpsilon(at, close);
    for (const auto& [chars, target] : state.chars) {
      nfa->AddChars(at, chars.Intersect(BareChars()), base + target);
      if (chars == CharClass::All()) {
        nfa->AddCall(at, escape_, base + target);
        continue;
      }
      const CharClass to_escape = chars.Minus(BareChars());
      for (const CharClass::Range& range : to_escape.ranges()) {
        for (uint32_t c = range.first; c <= range.last; ++c) {
          nfa->AddEpsilon(nfa->AddText(at, EscapeOf(c)), base + target);
        }
      }
    }
  }
}

void JsonGrammar::AddDigits(Nfa* nfa, int from, int min, int max, int to) const {
  for (int i = 0; i <= max; ++i) {
    if (i >= min) nfa->AddEpsilon(from, to);
    if (i < max) from = AddOneOf(nfa, from, "0123456789");
  }
}

void JsonGrammar::AddInteger(Nfa* nfa, int from, int to) const {
  nfa->AddEpsilon(nfa->AddText(from, "0"), to);
  const int sign = nfa->AddState();
  nfa->AddEpsilon(from, sign);
  nfa->AddEpsilon(nfa->AddText(from, "-"), sign);
  AddDigits(nfa, AddOneOf(nfa, sign, "123456789"), 0, kDigitsMax - 1, to);
}

void JsonGrammar::AddNumber(Nfa* nfa, int from, int to) const {
  const int whole = nfa->AddState();
  AddInteger(nfa, from, whole);
  nfa->AddEpsilon(nfa->AddText(from, "-0"), whole);
  const int behind_fraction = nfa->AddState();
  nfa->AddEpsilon(whole, behind_fraction);
  AddDigits(nfa, nfa->AddText(whole, "."), 1, kDigitsMax, behind_fraction);
  nfa->AddEpsilon(behind_fraction, to);
  const int exponent = AddOneOf(nfa, behind_fraction, "eE");
  const int digits = nfa->AddState();
  nfa->AddEpsilon(exponent, digits);
  nfa->AddEpsilon(AddOneOf(nfa, exponent, "+-"), digits);
  AddDigits(nfa, digits, 1, 2, to);
}

namespace {

// Numbers from `low` to `high`, texts of as many digits.
void AddDigitRange(Nfa* nfa, int from, absl::string_view low, absl::string_view high, int to) {
  if (low.empty()) return nfa->AddEpsilon(from, to);
  const auto step = [&](char first, char last) {
    const int next = nfa->AddState();
    nfa->AddChars(from, CharClass({{static_cast<uint32_t>(first), static_cast<uint32_t>(last)}}), next);
    return next;
  };
  const std::string nines(low.size() - 1, '9');
  const std::string zeros(low.size() - 1, '0');
  if (low == absl::StrCat("0", zeros) && high == absl::StrCat("9", nines)) {
    for (size_t i = 0; i < low.size(); ++i) from = AddOneOf(nfa, from, "0123456789");
    return nfa->AddEpsilon(from, to);
  }
  if (low[0] == high[0]) return AddDigitRange(nfa, step(low[0], low[0]), low.substr(1), high.substr(1), to);
  AddDigitRange(nfa, step(low[0], low[0]), low.substr(1), nines, to);
  if (high[0] - low[0] > 1) AddDigitRange(nfa, step(low[0] + 1, high[0] - 1), zeros, nines, to);
  AddDigitRange(nfa, step(high[0], high[0]), zeros, high.substr(1), to);
}

// 0 <= low <= high, without leading zeros.
void AddNaturalRange(Nfa* nfa, int from, int64_t low, int64_t high, int to) {
  int64_t first = 0, last = 9;  // of as many digits
  while (true) {
    if (last >= low) {
      AddDigitRange(nfa, from, absl::StrCat(std::max(first, low)), absl::StrCat(std::min(last, high)), to);
    }
    if (last >= high) return;
    first = last + 1;
    last = last * 10 + 9;
  }
}

}  // namespace

void JsonGrammar::AddIntegerBetween(Nfa* nfa, int from, int64_t min, int64_t max, int to) const {
  if (max >= 0) AddNaturalRange(nfa, from, std::max<int64_t>(min, 0), max, to);
  if (min < 0) AddNaturalRange(nfa, nfa->AddText(from, "-"), std::max<int64_t>(-max, 1), -min, to);
}

void JsonGrammar::AddNumberBetween(Nfa* nfa, int from, int64_t min, int64_t max, int to) const {
  AddIntegerBetween(nfa, from, min, max, to);
  // A fraction leads away from zero, towards the bound beyond: the whole part stays one short of it.
  const auto add_fractions = [&](int sign, int64_t low, int64_t high) {
    if (low > high) return;
    const int whole = nfa->AddState();
    AddNaturalRange(nfa, sign, low, high, whole);
    AddDigits(nfa, nfa->AddText(whole, "."), 1, kDigitsMax, to);
  };
  add_fractions(from, std::max<int64_t>(min, 0), max - 1);
  if (min < 0) add_fractions(nfa->AddText(from, "-"), std::max<int64_t>(-max, 0), -min - 1);
}

void JsonGrammar::AddLiteral(Nfa* nfa, int from, const OrderedJson& value, int to) const {
  std::string text;
  AppendPythonJson(value, &text);
  AddPrinted(nfa, from, text, to);
}

void JsonGrammar::AddKeyText(Nfa* nfa, int from, absl::string_view key, int to) const {
  std::string text;
  AppendPythonJsonString(key, &text);
  AddPrinted(nfa, from, text, to);
}

// What may not stand bare stands inside of strings.
void JsonGrammar::AddPrinted(Nfa* nfa, int from, absl::string_view json, int to) const {
  for (const uint32_t c : CharsOf(json)) {
    if (never_bare_.Contains(c)) {
      from = nfa->AddText(from, EscapeOf(c));
      continue;
    }
    const int next = nfa->AddState();
    nfa->AddChars(from, CharClass::Of(c), next);
    from = next;
  }
  nfa->AddEpsilon(from, to);
}

void JsonGrammar::AddOtherKey(Nfa* nfa, int from, const std::vector<std::string>& known_keys, int to) const {
  const int content = nfa->AddText(from, "\"");
  const int close = nfa->AddState();
  nfa->AddDfa(content, TextOtherThan(known_keys, BareChars()), close);
  nfa->AddEpsilon(nfa->AddText(close, "\""), to);
}

}  // namespace tandem::router
