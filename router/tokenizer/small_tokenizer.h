// For tests: a tokenizer.json of DeepSeek's structure with a vocabulary of a few lines.
#pragma once

#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "router/tokenizer/added_token_finder.h"
#include "router/tokenizer/deepseek_splitter.h"
#include "router/tokenizer/tokenizer.h"

namespace tandem::router {

struct SmallVocabulary {
  // Pairs of byte strings by rank; both halves are single bytes or made by an earlier pair. Bytes have the ids 3 to
  // 258, merged tokens the ids from 259 on.
  std::vector<std::pair<std::string, std::string>> merges = {
      {"h", "e"},           {"l", "l"},       {"he", "ll"},     {"hell", "o"}, {" ", "hello"}, {"\xF0", "\x9F"},
      {"\xF0\x9F", "\x99"}, {"\xE4", "\xBD"}, {"\xBD", "\xA0"}, {"i", "n"},    {"a", "a"},     {"aa", "aa"},
      {"aaaa", "aaaa"},     {" ", " "},       {"  ", "  "},     {"\n", "\n"},  {".", "\n\n"},  {".", "\n"},
      {"\xEF", "\xBD"},     {"1", "2"},       {"12", "3"},      {"<", "t"},    {"t", "h"},     {"th", "in"},
  };
  // Content alone counts; ids follow the merged tokens, but the first three are 0, 1 and 2.
  std::vector<AddedToken> added_tokens = {
      {0, "<｜begin▁of▁sentence｜>", true, false},
      {1, "<｜end▁of▁sentence｜>", true, false},
      {2, "<｜▁pad▁｜>", true, false},
      {0, "<｜User｜>", false, true},
      {0, "<｜Assistant｜>", false, true},
      {0, "<think>", false, false},
      {0, "</think>", false, false},
  };
  std::vector<std::string> patterns{std::begin(kDeepseekPatterns), std::end(kDeepseekPatterns)};
  bool has_merges_as_arrays = false;
};

std::string SmallTokenizerJson(const SmallVocabulary& vocabulary = {});

// The same, parsed; aborts the test where that fails.
std::unique_ptr<const Tokenizer> MakeSmallTokenizer(const SmallVocabulary& vocabulary = {});

}  // namespace tandem::router
