// One answer through a parser, whole or in pieces, for the fuzz targets of the parsers.
//
// Ends the process where what any consumer relies on is broken: calls begin in order, each with its name, and as many
// as the parser counts.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "router/parsing/answer_parser.h"

namespace tandem::router {

struct FuzzedAnswer {
  std::string reasoning, content, calls;
  bool operator==(const FuzzedAnswer&) const = default;
};

// switches: 1 thinking, 2 cut, 4 one call, 8 calls hidden. length: of the pieces.
inline FuzzedAnswer ParseInPieces(CallMarkup markup, uint8_t switches, const std::string& text, size_t length) {
  static const auto* const kCatalog =
      new std::shared_ptr<const ToolCatalog>(new ToolCatalog{{{"f", {{"x", false}, {"s", true}}}, {"g", {}}}});
  const AnswerRules rules = {.markup = markup,
                             .catalog = *kCatalog,
                             .shows_calls = (switches & 8) == 0,
                             .is_single_call = (switches & 4) != 0};
  const auto start = switches & 1 ? ReasoningSplitter::State::kReasoning : ReasoningSplitter::State::kContent;
  const std::unique_ptr<AnswerParser> parser = MakeAnswerParser(start, rules);
  AnswerDelta delta;
  for (size_t at = 0; at < text.size(); at += length) parser->Append(text.substr(at, length), &delta);
  parser->Finish((switches & 2) != 0, &delta);
  FuzzedAnswer answer = {delta.reasoning, delta.content, ""};
  int index = -1;
  for (const ToolCallDelta& call : delta.tool_calls) {
    if (!call.name.empty()) answer.calls += "\n" + call.name + " ";
    if (call.index < index || call.index > index + 1 || (call.index > index && call.name.empty())) std::abort();
    index = call.index;
    answer.calls += call.arguments;
  }
  if (index + 1 != parser->num_calls()) std::abort();
  return answer;
}

// Whether text around something that is taken out may come to stand together as `mark`, which then is in no answer that
// the model gave: what is taken out begins with '<', or with white space before it.
inline bool MayComeTogether(const std::string& text, const std::string& mark) {
  for (size_t open = text.find('<', 1); open != std::string::npos; open = text.find('<', open + 1)) {
    const size_t last = text.find_last_not_of(" \t\n\v\f\r", open - 1);
    for (size_t length = 1; length < mark.size() && last != std::string::npos && length <= last + 1; ++length) {
      if (text.compare(last + 1 - length, length, mark, 0, length) == 0) return true;
    }
  }
  return false;
}

}  // namespace tandem::router
