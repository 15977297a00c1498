// Proves what is kept of ended requests and for how long.
#include "decode_worker/ended_log.h"

#include <cstdint>

#include "gtest/gtest.h"

namespace tandem::decode {
namespace {

RequestKey Key(uint64_t router, uint64_t request) {
  return {.router_incarnation = router, .request_id = request, .attempt = 1};
}

TEST(EndedLogTest, NumbersTheEndsOfEachRouterFromOne) {
  EndedLog log;
  EXPECT_EQ(log.Add({.key = Key(1, 10)}).number(), 1u);
  EXPECT_EQ(log.Add({.key = Key(1, 11)}).number(), 2u);
  EXPECT_EQ(log.Add({.key = Key(2, 10)}).number(), 1u);
}

TEST(EndedLogTest, KeepsAnEndUntilItOrALaterOneIsConfirmed) {
  EndedLog log;
  for (uint64_t request = 1; request <= 4; ++request) log.Add({.key = Key(1, request)});
  log.Add({.key = Key(2, 1)});
  log.Confirm(1, 2);
  log.Confirm(3, 100);
  EXPECT_EQ(log.Find(Key(1, 1)), nullptr);
  EXPECT_EQ(log.Find(Key(1, 2)), nullptr);
  ASSERT_NE(log.Find(Key(1, 3)), nullptr);
  EXPECT_EQ(log.Find(Key(1, 3))->ended.number(), 3u);
  EXPECT_NE(log.Find(Key(2, 1)), nullptr) << "another router's";
  EXPECT_EQ(log.size(), 3u);
  log.Forget(1);
  EXPECT_EQ(log.size(), 1u);
}

TEST(EndedLogTest, NamesTheEndsOfWhatCameSince) {
  EndedLog log;
  log.Add({.key = Key(1, 10), .arrival = 7});
  log.Add({.key = Key(1, 11), .arrival = 5});  // came first, ended last
  log.Add({.key = Key(1, 12), .arrival = 6});
  log.Add({.key = Key(2, 13), .arrival = 9});
  const auto since = log.Since(1, 6);
  ASSERT_EQ(since.size(), 2u);
  EXPECT_EQ(since[0]->key, Key(1, 10));
  EXPECT_EQ(since[1]->key, Key(1, 12));
  EXPECT_TRUE(log.Since(3, 0).empty());
}

TEST(EndedLogTest, ARouterThatComesBackKeepsWhatItNamesAndWhatIsNewer) {
  EndedLog log;
  for (uint64_t request = 1; request <= 4; ++request) log.Add({.key = Key(1, request), .arrival = 10 + request});
  log.Add({.key = Key(2, 1), .arrival = 1});
  log.KeepNamed(1, {Key(1, 2)}, 14);
  EXPECT_EQ(log.Find(Key(1, 1)), nullptr) << "its confirmation was lost with the stream";
  EXPECT_NE(log.Find(Key(1, 2)), nullptr);
  EXPECT_EQ(log.Find(Key(1, 3)), nullptr);
  EXPECT_NE(log.Find(Key(1, 4)), nullptr) << "it came on the new stream";
  EXPECT_NE(log.Find(Key(2, 1)), nullptr) << "another router's";
  log.KeepNamed(3, {}, 100);
  EXPECT_EQ(log.size(), 3u);
}

TEST(EndedLogTest, IsBoundedAndDropsTheOldest) {
  EndedLog log;
  for (uint64_t request = 0; request <= EndedLog::kEndsMax; ++request) log.Add({.key = Key(1, request)});
  EXPECT_EQ(log.size(), EndedLog::kEndsMax);
  EXPECT_EQ(log.Find(Key(1, 0)), nullptr);
  EXPECT_NE(log.Find(Key(1, EndedLog::kEndsMax)), nullptr);
}

}  // namespace
}  // namespace tandem::decode
