#include "model/token_counts.h"

#include <algorithm>

#include "base/check.h"

namespace tandem::model {
namespace {

bool ComesBefore(const TokenCounts::Entry& entry, int32_t token) { return entry.token < token; }

}  // namespace

TokenCounts::TokenCounts(absl::Span<const uint32_t> prompt, size_t num_generated_max) {
  std::vector<uint32_t> tokens(prompt.begin(), prompt.end());
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  entries_.reserve(tokens.size() + num_generated_max);
  for (const uint32_t token : tokens) entries_.push_back({.token = static_cast<int32_t>(token), .is_in_prompt = true});
}

void TokenCounts::Add(int32_t token) {
  auto entry = std::lower_bound(entries_.begin(), entries_.end(), token, ComesBefore);
  if (entry == entries_.end() || entry->token != token) entry = entries_.insert(entry, {.token = token});
  ++entry->num_generated;
}

void TokenCounts::Remove(int32_t token) {
  const auto entry = std::lower_bound(entries_.begin(), entries_.end(), token, ComesBefore);
  TANDEM_CHECK(entry != entries_.end() && entry->token == token && entry->num_generated > 0,
               "a token is taken back that was not added");
  --entry->num_generated;
}

}  // namespace tandem::model
