// For the tests of answer parsers: whole answers, and every way to cut the text that they come from.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "router/parsing/answer_parser.h"

namespace tandem::router {

struct ParsedCall {
  std::string name;
  std::string arguments;

  bool operator==(const ParsedCall&) const = default;
};

struct ParsedAnswer {
  std::string reasoning;
  std::string content;
  std::vector<ParsedCall> calls;
  bool has_incomplete_call = false;

  bool operator==(const ParsedAnswer&) const = default;
};

std::ostream& operator<<(std::ostream& os, const ParsedAnswer& answer);

struct ParserSetup {
  AnswerRules rules;
  ReasoningSplitter::State start = ReasoningSplitter::State::kContent;
  bool is_cut = false;
};

// What a client sees that puts the deltas of these pieces together. Fails the test where a delta breaks the rules of
// answer_delta.h: calls begin in order, arguments belong to the call begun last.
ParsedAnswer ParsePieces(const ParserSetup& setup, const std::vector<std::string>& pieces);

// As the vocabulary would cut the text, roughly: the marks of both formats whole, words of up to five letters, any
// other character alone.
std::vector<std::string> TokensOf(absl::string_view text);

// The text cut in two at every byte; byte by byte; in pieces of 2 to 9 bytes; 1 to 8 tokens at a time, from each of the
// first tokens on; and at random places. The last is the whole.
std::vector<std::vector<std::string>> AllCuts(absl::string_view text);

}  // namespace tandem::router
