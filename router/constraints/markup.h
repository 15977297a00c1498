// Markup of a chat format as a grammar reads it: characters, and tokens where the checkpoint's tokenizer has them.
//
// A mark that is a token of its own is read as that token alone, as the model was trained to write it; its letters
// would show the same text, and are not asked of it.
#pragma once

#include "absl/strings/string_view.h"
#include "router/constraints/automaton.h"
#include "router/tokenizer/tokenizer.h"

namespace tandem::router {

// From `from` to a new state. markup: valid UTF-8.
int AddMarkup(Nfa* nfa, int from, absl::string_view markup, const Tokenizer& tokenizer);

}  // namespace tandem::router
