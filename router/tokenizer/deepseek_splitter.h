// The pre-tokenizer of DeepSeek's models as one pass over the text, written by hand.
//
// Does what the three patterns do one after the other, at a multiple of the speed of a regular expression engine and
// with a Unicode version of our choice (unicode_class.h). PreTokenizer takes it where the file has exactly these
// patterns.
//
// The first two patterns cut text into segments: groups of up to three numbers, runs of Chinese and Japanese
// characters, and what is between. The third works inside each segment, whose end its look-ahead takes for the end of
// the text. At each place one alternative decides by the class of the next two characters:
//   ASCII punctuation + ASCII letters | one character that is no CR, LF, letter, punctuation, symbol + letters and
//   marks | a space + punctuation and symbols + CRs and LFs | white space up to its last CR or LF | white space without
//   its last character if text follows | a single white space.
// Characters where none begins (controls, say) gather in a piece of their own.
// Tested by deepseek_splitter_test.cc against the patterns on PCRE2: all short texts of one character of each kind.
#pragma once

#include <vector>

#include "absl/strings/string_view.h"

namespace tandem::router {

// The patterns, in order, as tokenizer.json writes them.
extern const absl::string_view kDeepseekPatterns[3];

// Appends the pieces of `text`, which must be valid UTF-8.
void SplitAsDeepseek(absl::string_view text, std::vector<absl::string_view>* pieces);

}  // namespace tandem::router
