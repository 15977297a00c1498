#include "router/openai/logprobs_text.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "router/openai/json_text.h"
#include "router/tokenizer/utf8.h"

namespace tandem::router {
namespace {

constexpr float kLogprobMin = -9999;

void AppendLogprob(std::string& out, float logprob) {
  AppendJsonNumber(out, std::isnan(logprob) ? kLogprobMin : std::max(logprob, kLogprobMin));
}

void AppendHexEscapes(std::string& text, absl::string_view bytes) {
  for (const char byte : bytes) {
    absl::StrAppend(&text, "\\x", absl::Hex(static_cast<unsigned char>(byte), absl::kZeroPad2));
  }
}

std::string ChatTokenText(absl::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const size_t num_valid = FindInvalidUtf8(bytes);
    absl::StrAppend(&text, bytes.substr(0, num_valid));
    bytes.remove_prefix(num_valid);
    if (bytes.empty()) break;
    AppendHexEscapes(text, bytes.substr(0, 1));
    bytes.remove_prefix(1);
  }
  return text;
}

std::string CompletionTokenText(absl::string_view bytes) {
  if (FindInvalidUtf8(bytes) == bytes.size()) return std::string(bytes);
  std::string text = "bytes:";
  AppendHexEscapes(text, bytes);
  return text;
}

// "token":...,"logprob":...,"bytes":[...]
void AppendChatToken(std::string& out, TokenId token, float logprob, const Tokenizer& tokenizer) {
  const absl::string_view bytes = tokenizer.TokenBytes(token);
  out += "\"token\":";
  AppendJsonString(out, ChatTokenText(bytes));
  out += ",\"logprob\":";
  AppendLogprob(out, logprob);
  out += ",\"bytes\":[";
  for (size_t i = 0; i < bytes.size(); ++i) {
    absl::StrAppend(&out, i == 0 ? "" : ",", static_cast<unsigned>(static_cast<unsigned char>(bytes[i])));
  }
  out += ']';
}

// ,token,text]
void AppendTripleEnd(std::string& out, TokenId token, const Tokenizer& tokenizer, bool has_text) {
  absl::StrAppend(&out, ",", token, ",");
  if (has_text) {
    AppendJsonString(out, ChatTokenText(tokenizer.TokenBytes(token)));
  } else {
    out += "null";
  }
  out += ']';
}

// As an object: of tokens with the same text, the likeliest.
void AppendTopOfCompletion(std::string& out, const TokenLogprob& entry, const Tokenizer& tokenizer) {
  std::vector<std::string> seen;
  const auto append = [&](TokenId token, float logprob) {
    std::string text = CompletionTokenText(tokenizer.TokenBytes(token));
    if (std::find(seen.begin(), seen.end(), text) != seen.end()) return;
    out += seen.empty() ? "{" : ",";
    AppendJsonString(out, text);
    out += ':';
    AppendLogprob(out, logprob);
    seen.push_back(std::move(text));
  };
  for (const LikelyToken& likely : entry.top) append(likely.token, likely.logprob);
  append(entry.token, entry.logprob);
  out += '}';
}

}  // namespace

void AppendChatLogprobs(std::string& out, absl::Span<const TokenLogprob> entries, const Tokenizer& tokenizer) {
  out += "{\"content\":[";
  for (size_t i = 0; i < entries.size(); ++i) {
    const TokenLogprob& entry = entries[i];
    out += i == 0 ? "{" : ",{";
    AppendChatToken(out, entry.token, entry.logprob, tokenizer);
    out += ",\"top_logprobs\":[";
    for (size_t j = 0; j < entry.top.size(); ++j) {
      out += j == 0 ? "{" : ",{";
      AppendChatToken(out, entry.top[j].token, entry.top[j].logprob, tokenizer);
      out += '}';
    }
    out += "]}";
  }
  out += "],\"refusal\":null}";
}

void AppendCompletionLogprobs(std::string& out, absl::Span<const TokenLogprob> prompt,
                              absl::Span<const TokenLogprob> entries, int64_t entries_offset,
                              const Tokenizer& tokenizer) {
  const size_t num_entries = prompt.size() + entries.size();
  const auto append_array = [&](const char* name, auto append_element) {
    absl::StrAppend(&out, "\"", name, "\":[");
    for (size_t i = 0; i < num_entries; ++i) {
      if (i > 0) out += ',';
      const bool is_of_prompt = i < prompt.size();
      append_element(is_of_prompt ? prompt[i] : entries[i - prompt.size()], is_of_prompt, i == 0 && is_of_prompt);
    }
    out += ']';
  };
  out += '{';
  append_array("tokens", [&](const TokenLogprob& entry, bool, bool) {
    AppendJsonString(out, CompletionTokenText(tokenizer.TokenBytes(entry.token)));
  });
  out += ',';
  append_array("token_logprobs", [&](const TokenLogprob& entry, bool, bool is_first) {
    if (is_first) {
      out += "null";
    } else {
      AppendLogprob(out, entry.logprob);
    }
  });
  out += ',';
  append_array("top_logprobs", [&](const TokenLogprob& entry, bool, bool is_first) {
    if (is_first) {
      out += "null";
    } else {
      AppendTopOfCompletion(out, entry, tokenizer);
    }
  });
  out += ',';
  append_array("text_offset", [&](const TokenLogprob& entry, bool is_of_prompt, bool) {
    absl::StrAppend(&out, entry.text_offset + (is_of_prompt ? 0 : entries_offset));
  });
  out += '}';
}

void AppendLogprobTriple(std::string& out, const LikelyToken& entry, const Tokenizer& tokenizer, bool has_text) {
  out += '[';
  AppendLogprob(out, entry.logprob);
  AppendTripleEnd(out, entry.token, tokenizer, has_text);
}

void AppendUnknownLogprobTriple(std::string& out, TokenId token, const Tokenizer& tokenizer, bool has_text) {
  out += "[null";
  AppendTripleEnd(out, token, tokenizer, has_text);
}

}  // namespace tandem::router
