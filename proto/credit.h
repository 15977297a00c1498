// What a token costs of a choice's flow-control credit (worker.proto, Credit): the same sum on both sides.
//
// At least the bytes that the token takes in a TokenBatch, so that a bound on credit bounds memory: ids of up to five
// bytes, logprobs of four, and for each of the likeliest tokens one of both. Tested by credit_test.cc.
#pragma once

#include <cstdint>

#include "proto/common.pb.h"

namespace tandem::proto {

inline constexpr int64_t kTokenCreditBytes = 8;
inline constexpr int64_t kLogprobCreditBytes = 4;
inline constexpr int64_t kTopLogprobsCreditBytes = 8;  // the list itself
inline constexpr int64_t kTopLogprobCreditBytes = 9;   // each of its entries

// Bytes.
inline int64_t CreditBytesOfToken(const Sampling& sampling) {
  int64_t bytes = kTokenCreditBytes;
  if (!sampling.wants_logprobs()) return bytes;
  bytes += kLogprobCreditBytes;
  if (sampling.num_top_logprobs() > 0) {
    bytes += kTopLogprobsCreditBytes + kTopLogprobCreditBytes * static_cast<int64_t>(sampling.num_top_logprobs());
  }
  return bytes;
}

}  // namespace tandem::proto
