// The name of a KV page by what it holds: equal keys, equal bytes. Workers index their pages by it and tell routers
// which ones they hold; a router computes the keys of a prompt and so knows what a worker would not have to compute.
//
//   root key   of a domain (the model and everything that its numbers depend on) and the request's cache salt
//   page key   of the key before it, the page's tokens, the form each was computed in, and the token behind the page
// The form: prompt tokens and generated tokens may be computed by different kernels (docs/architecture.md, Numerics 2).
// The token behind it: record i of the MTP layer is made of token i + 1, too (kNoToken where there is no such layer).
// A key is 64 bits wide: whoever serves bytes by it compares the tokens as well.
// Part of the protocol between workers and routers. Tested by page_key_test.cc.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tandem::proto {

inline constexpr int kPageKeyTokens = 64;         // of one page
inline constexpr uint32_t kNoToken = 0xFFFFFFFF;  // no vocabulary is as large
inline constexpr uint64_t kAllPromptTokens = 0;   // generated_mask of a page of a prompt

uint64_t RootPageKey(uint64_t domain, absl::string_view cache_salt);

// tokens: kPageKeyTokens of them. generated_mask: bit i where token i was generated.
uint64_t PageKey(uint64_t parent, absl::Span<const uint32_t> tokens, uint64_t generated_mask, uint32_t next_token);

// A 64-bit hash of a text, the same in every process: what domains are made of.
uint64_t HashText(absl::string_view text);

}  // namespace tandem::proto
