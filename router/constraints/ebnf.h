// A grammar in EBNF (ebnf_parser.h) as rules of a Grammar.
//
// Small rules that never call themselves are written where they are called. Others are rules there, but for two things.
// What is called must read something: a rule that may be empty is defined without the empty text, and its callers may
// go around it. And a rule that ends in a call to itself, or to one that ends in a call to it, goes on in place
// instead: lists that are written as `list ::= item list | item` are as long as they like, where calls within calls are
// bounded. Left recursion, direct or through rules that may be empty, is refused, naming the rules. Work is bounded by
// the grammar's budget, and what a worker must look at for one token by the number of rules that may begin at one
// place. Tested by ebnf_test.cc against a recogniser that tries everything, and by tests/e2e/constraint_fields_test.py
// against Lark.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "router/constraints/grammar.h"

namespace tandem::router {

// Adds the texts of the rule "root" between two states. text: valid UTF-8. INVALID_ARGUMENT: no grammar, or one that is
// not supported; RESOURCE_EXHAUSTED: takes more states or work than one request may.
absl::Status AddEbnf(absl::string_view text, Grammar* grammar, Nfa* nfa, int from, int to);

}  // namespace tandem::router
