// Walks every interleaving of one P-D pair with two requests and few pages, under a bounded number of faults, and
// checks in every state:
//   promise 1  a transfer is ready only with exactly the bytes that prefill computed for it;
//   promise 2  a fetch stores only into pages that its own epoch still holds; pages are handed on once;
//   promise 5  where nothing is left to do, both ledgers are zero, every request has ended on both sides, all pages are
//              free;
// and progress: every path comes to rest. Faults: abort from either side at any point (also before Start arrives),
// duplicate, reordered, dropped and stale messages, corrupt and failed fetches, death and restart of either side with a
// new incarnation, death for good, a cut control stream while the data network lives.
// transfer_enumeration_long_test.cc allows one fault more of each kind of walk, too slow for every day.
// Not here: several source ranks (transfer_protocol_test.cc), real clocks and networks (peer_link_test.cc).
#include "gtest/gtest.h"
#include "kvtransfer/enumeration_explorer.h"

namespace tandem::kvtransfer {
namespace {

TEST(TransferEnumerationTest, OneRequestSurvivesAnyThreeFaults) {
  ExpectHolds({.num_requests = 1, .num_pages = 1, .num_faults = 3}, 10'000);
}

TEST(TransferEnumerationTest, TwoRequestsShareTwoPagesUnderAnyFault) {
  ExpectHolds({.num_requests = 2, .num_pages = 2, .num_faults = 1}, 20'000);
}

TEST(TransferEnumerationTest, ASecondRequestReusesThePageOfTheFirstUnderAnyTwoFaults) {
  ExpectHolds({.num_requests = 2, .num_pages = 1, .num_faults = 2}, 10'000);
}

}  // namespace
}  // namespace tandem::kvtransfer
