// Rules for JSON values, as generated answers write them.
//
// Narrower than JSON where JSON lets an answer run on for ever or become unreadable: up to kWhiteSpaceMax white space
// between tokens, after `{`, `[`, `,` and `:` and before `}` and `]`; up to kDigitsMax digits in each part of a number,
// an exponent of two. Every value of JSON that a double holds well can be written. Strings may hold any character, with
// or without escapes where JSON leaves the choice; halves of surrogate pairs never stand alone.
// Tested by json_grammar_test.cc and //tests/constraints.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "router/chat/ordered_json.h"
#include "router/constraints/grammar.h"

namespace tandem::router {

class JsonGrammar final {
 public:
  static constexpr int kWhiteSpaceMax = 40;
  static constexpr int kDigitsMax = 18;

  // never_bare: characters that strings write as escapes alone. Outlived by `grammar`.
  JsonGrammar(Grammar* grammar, CharClass never_bare) : grammar_(*grammar), never_bare_(std::move(never_bare)) {}

  // Defines the rules that all others use.
  absl::Status Init();

  // Each adds the texts of a value between two states.
  void AddAny(Nfa* nfa, int from, int to, bool with_strings) const;
  void AddObject(Nfa* nfa, int from, int to) const { nfa->AddCall(from, object_, to); }
  void AddArray(Nfa* nfa, int from, int to) const { nfa->AddCall(from, array_, to); }
  void AddString(Nfa* nfa, int from, int to) const { nfa->AddCall(from, string_, to); }
  // Strings whose characters are a text of `content`.
  void AddString(Nfa* nfa, int from, const Dfa& content, int to) const;
  void AddNumber(Nfa* nfa, int from, int to) const;
  void AddInteger(Nfa* nfa, int from, int to) const;
  // min <= max, both of at most kDigitsMax digits.
  void AddIntegerBetween(Nfa* nfa, int from, int64_t min, int64_t max, int to) const;
  // Numbers, with and without a fraction.
  void AddNumberBetween(Nfa* nfa, int from, int64_t min, int64_t max, int to) const;
  // One value, written as Python writes it.
  void AddLiteral(Nfa* nfa, int from, const OrderedJson& value, int to) const;
  // Keys without escapes, so that each can be written in one way.
  void AddKeyText(Nfa* nfa, int from, absl::string_view key, int to) const;
  void AddOtherKey(Nfa* nfa, int from, const std::vector<std::string>& known_keys, int to) const;

  // From `from` to the state that is returned.
  int AfterOptionalWhiteSpace(Nfa* nfa, int from) const;
  int AfterText(Nfa* nfa, int from, absl::string_view text) const { return nfa->AddText(from, text); }

 private:
  CharClass BareChars() const;
  void AddPrinted(Nfa* nfa, int from, absl::string_view json, int to) const;
  void AddDigits(Nfa* nfa, int from, int min, int max, int to) const;
  absl::Status DefineStrings();
  absl::Status DefineContainers();

  Grammar& grammar_;
  const CharClass never_bare_;
  uint32_t white_space_ = 0;
  uint32_t escape_ = 0;
  uint32_t string_ = 0;
  uint32_t object_ = 0;
  uint32_t array_ = 0;
};

}  // namespace tandem::router
