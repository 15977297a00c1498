// Clearing pages by tokens: the one place that knows which bytes of a page belong to which token.
// Tested by page_bytes_test.cc.
#pragma once

#include <cstddef>
#include <span>

#include "kvcache/kv_layout.h"

namespace tandem::kvcache {

// Zeroes the records of tokens [first_token, kPageTokens) of one page, of PageBytes(kind, dtype) bytes, and nothing
// else. first_token 0 clears the page, kPageTokens nothing. A partial page is cleared this way before its sum is made
// and before decode appends to it, so that bytes of the page's last tenant never count and never travel.
void ZeroTokensFrom(std::span<std::byte> page, RecordKind kind, KvCacheDtype dtype, int first_token);

}  // namespace tandem::kvcache
