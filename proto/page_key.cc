#include "proto/page_key.h"

#include "base/check.h"

namespace tandem::proto {
namespace {

// A bijection of 64 bits in which every input bit moves every output bit.
constexpr uint64_t Scramble(uint64_t x) {
  x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93;
  x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93;
  return x ^ (x >> 32);
}

constexpr uint64_t Chain(uint64_t hash, uint64_t word) { return Scramble(hash * 0x9e3779b97f4a7c15 ^ word); }

}  // namespace

uint64_t HashText(absl::string_view text) {
  uint64_t hash = Chain(1, text.size());
  for (const char c : text) hash = Chain(hash, static_cast<uint8_t>(c));
  return hash;
}

uint64_t RootPageKey(uint64_t domain, absl::string_view cache_salt) { return Chain(domain, HashText(cache_salt)); }

uint64_t PageKey(uint64_t parent, absl::Span<const uint32_t> tokens, uint64_t generated_mask, uint32_t next_token) {
  TANDEM_CHECK(tokens.size() == kPageKeyTokens, "a page key is that of a whole page");
  uint64_t key = Chain(parent, generated_mask);
  for (size_t i = 0; i < tokens.size(); i += 2) key = Chain(key, uint64_t{tokens[i]} << 32 | tokens[i + 1]);
  return Chain(key, next_token);
}

}  // namespace tandem::proto
