// Proves where a sequence ends: at a stop token, at max_new_tokens, at the end of the context, and nowhere else.
#include "decode_worker/stopping.h"

#include "gtest/gtest.h"

namespace tandem::decode {
namespace {

proto::Stopping StopAt(uint32_t max_new_tokens) {
  proto::Stopping stopping;
  stopping.set_max_new_tokens(max_new_tokens);
  stopping.add_stop_token_ids(1);
  stopping.add_stop_token_ids(9);
  return stopping;
}

TEST(StoppingTest, GoesOnWhereNothingStops) {
  EXPECT_EQ(FinishAfter(5, 4, 10, StopAt(5), 100), proto::FINISH_REASON_UNSPECIFIED);
}

TEST(StoppingTest, AnyStopTokenEndsTheSequenceEvenAsItsLastAllowedToken) {
  EXPECT_EQ(FinishAfter(9, 1, 10, StopAt(5), 100), proto::FINISH_REASON_STOP);
  EXPECT_EQ(FinishAfter(1, 5, 10, StopAt(5), 100), proto::FINISH_REASON_STOP);
}

TEST(StoppingTest, EndsAtMaxNewTokensAndAtTheContextsEnd) {
  EXPECT_EQ(FinishAfter(5, 5, 10, StopAt(5), 100), proto::FINISH_REASON_LENGTH);
  EXPECT_EQ(FinishAfter(5, 3, 97, StopAt(5), 100), proto::FINISH_REASON_LENGTH);
  EXPECT_EQ(FinishAfter(5, 2, 97, StopAt(5), 100), proto::FINISH_REASON_UNSPECIFIED);
}

}  // namespace
}  // namespace tandem::decode
