// The walks of transfer_enumeration_test.cc with one fault more: some 900,000 states, about 15 s on an idle core.
#include "gtest/gtest.h"
#include "kvtransfer/enumeration_explorer.h"

namespace tandem::kvtransfer {
namespace {

TEST(TransferEnumerationLongTest, OneRequestSurvivesAnyFourFaults) {
  ExpectHolds({.num_requests = 1, .num_pages = 1, .num_faults = 4}, 50'000);
}

TEST(TransferEnumerationLongTest, TwoRequestsShareTwoPagesUnderAnyTwoFaults) {
  ExpectHolds({.num_requests = 2, .num_pages = 2, .num_faults = 2}, 200'000);
}

TEST(TransferEnumerationLongTest, ASecondRequestReusesThePageOfTheFirstUnderAnyThreeFaults) {
  ExpectHolds({.num_requests = 2, .num_pages = 1, .num_faults = 3}, 100'000);
}

}  // namespace
}  // namespace tandem::kvtransfer
