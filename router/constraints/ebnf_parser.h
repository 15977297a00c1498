// Reads a grammar in the EBNF that SGLang's xgrammar and llama.cpp's GBNF share:
//
//   root ::= "[" ws (item (", " item)*)? "]"   # a comment
//   item ::= [a-z]+ | "\"" [^"\\]{1,20} "\""
//   ws   ::= [ \t]*
//
// Rules, each beginning its line; literals and classes with escapes; ( ) | * + ? {n} {n,} {n,m}; "" for nothing.
// Refused by name and place: look-ahead (=..), functions such as TagDispatch(..), attributes of rules.
// Tested by ebnf_test.cc.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "router/constraints/expression.h"

namespace tandem::router {

struct EbnfRule {
  std::string name;
  Expression body;  // calls by index of the rule
};

// At least one rule, all that are called are there, "root" stands first. text: valid UTF-8. INVALID_ARGUMENT with line
// and column.
absl::StatusOr<std::vector<EbnfRule>> ParseEbnf(absl::string_view text);

}  // namespace tandem::router
