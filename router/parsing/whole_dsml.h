// For tests: the rules of dsml_parser.h over a text that is there as a whole.
//
// Written apart from the parser and in another way: regular expressions first cut the whole text into tags and what is
// between them, whatever the place; a loop over that list then looks as far ahead as it likes. Slow, and for texts
// whose names hold no `<`, no quote and no line feed.
#pragma once

#include <string>

#include "router/parsing/parser_cases.h"

namespace tandem::router {

ParsedAnswer ParseWholeDsml(const ParserSetup& setup, const std::string& text);

}  // namespace tandem::router
