#include "router/parsing/parser_cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace tandem::router {
namespace {

constexpr absl::string_view kTokens[] = {
    "<think>",
    "</think>",
    "｜DSML｜",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁sep｜>",
};

size_t TokenLength(absl::string_view text) {
  for (const absl::string_view token : kTokens) {
    if (absl::StartsWith(text, token)) return token.size();
  }
  size_t length = 0;
  while (length < std::min<size_t>(text.size(), 5) && absl::ascii_isalpha(static_cast<unsigned char>(text[length]))) {
    ++length;
  }
  return std::max<size_t>(length, 1);
}

// Pieces of `size` items, the first of them `first` items long.
std::vector<std::string> Join(const std::vector<std::string>& items, size_t first, size_t size) {
  std::vector<std::string> pieces;
  size_t left = first;
  pieces.emplace_back();
  for (const std::string& item : items) {
    if (left == 0) {
      pieces.emplace_back();
      left = size;
    }
    pieces.back() += item;
    --left;
  }
  return pieces;
}

}  // namespace

std::ostream& operator<<(std::ostream& os, const ParsedAnswer& answer) {
  os << "reasoning \"" << answer.reasoning << "\" content \"" << answer.content << "\"";
  for (const ParsedCall& call : answer.calls) os << "\n  " << call.name << " " << call.arguments;
  return os << (answer.has_incomplete_call ? " (incomplete)" : "");
}

ParsedAnswer ParsePieces(const ParserSetup& setup, const std::vector<std::string>& pieces) {
  const std::unique_ptr<AnswerParser> parser = MakeAnswerParser(setup.start, setup.rules);
  ParsedAnswer answer;
  for (size_t i = 0; i <= pieces.size(); ++i) {
    AnswerDelta delta;
    if (i < pieces.size()) {
      parser->Append(pieces[i], &delta);
    } else {
      parser->Finish(setup.is_cut, &delta);
    }
    answer.reasoning += delta.reasoning;
    answer.content += delta.content;
    for (const ToolCallDelta& call : delta.tool_calls) {
      if (!call.name.empty()) answer.calls.push_back({call.name, ""});
      EXPECT_EQ(call.index + 1, static_cast<int>(answer.calls.size()));
      EXPECT_FALSE(call.name.empty() && call.arguments.empty()) << "no news";
      if (!answer.calls.empty()) answer.calls.back().arguments += call.arguments;
    }
  }
  EXPECT_EQ(parser->num_calls(), static_cast<int>(answer.calls.size()));
  answer.has_incomplete_call = parser->has_incomplete_call();
  return answer;
}

std::vector<std::string> TokensOf(absl::string_view text) {
  std::vector<std::string> tokens;
  while (!text.empty()) {
    const size_t length = TokenLength(text);
    tokens.emplace_back(text.substr(0, length));
    text.remove_prefix(length);
  }
  return tokens;
}

std::vector<std::vector<std::string>> AllCuts(absl::string_view text) {
  std::vector<std::vector<std::string>> cuts;
  for (size_t at = 1; at < text.size(); ++at) {
    cuts.push_back({std::string(text.substr(0, at)), std::string(text.substr(at))});
  }
  std::vector<std::string> bytes;
  for (const char c : text) bytes.emplace_back(1, c);
  for (size_t size = 1; size <= 9; ++size) cuts.push_back(Join(bytes, size, size));
  const std::vector<std::string> tokens = TokensOf(text);
  for (size_t size = 1; size <= 8; ++size) {
    for (size_t first = 1; first <= size; ++first) cuts.push_back(Join(tokens, first, size));
  }
  std::mt19937 generator(static_cast<uint32_t>(text.size()));
  for (int round = 0; round < 20; ++round) {
    std::vector<std::string> pieces(1);
    for (const char c : text) {
      pieces.back().push_back(c);
      if (generator() % 7 == 0) pieces.emplace_back();
    }
    cuts.push_back(std::move(pieces));
  }
  cuts.push_back({std::string(text)});
  return cuts;
}

}  // namespace tandem::router
