// Proves that a token's cost is never below its bytes on the wire, however it is asked for.
#include "proto/credit.h"

#include <cstdint>

#include "gtest/gtest.h"
#include "proto/worker.pb.h"

namespace tandem::proto {
namespace {

TEST(CreditTest, CoversTheBytesOnTheWire) {
  for (const bool wants_logprobs : {false, true}) {
    for (const uint32_t num_top : {0u, 1u, 5u, 20u}) {
      Sampling sampling;
      sampling.set_wants_logprobs(wants_logprobs);
      sampling.set_num_top_logprobs(num_top);
      SequenceTokens one;
      const auto add_token = [&] {
        one.add_tokens(0xffffffff);  // the longest id
        if (!wants_logprobs) return;
        one.add_logprobs(-1.5f);
        if (num_top == 0) return;
        TopLogprobs* top = one.add_top_logprobs();
        for (uint32_t i = 0; i < num_top; ++i) {
          top->add_tokens(0xffffffff);
          top->add_logprobs(-2.5f);
        }
      };
      constexpr int kTokens = 1000;
      for (int i = 0; i < kTokens; ++i) add_token();
      const size_t framing = 64;
      EXPECT_LE(one.ByteSizeLong(), kTokens * CreditBytesOfToken(sampling) + framing)
          << "wants_logprobs=" << wants_logprobs << " num_top=" << num_top;
    }
  }
}

}  // namespace
}  // namespace tandem::proto
