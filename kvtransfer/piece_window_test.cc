// Proves, for random fetches, answers, cancels and errors: every byte of a fetch that ends with OK was asked for
// exactly once, every fetch ends exactly once, and the window holds. Not proved here: any connection
// (lane_conformance_test.cc).
#include "kvtransfer/piece_window.h"

#include <map>
#include <random>
#include <string>

#include "gtest/gtest.h"

namespace tandem::kvtransfer {
namespace {

constexpr uint64_t kPoolBytes = 1000;
constexpr PieceLimits kLimits = {.num_bytes_max = 30, .num_runs_max = 3, .num_unanswered_max = 4};

// Ends of fetches, by a number that the test gives them.
struct Ends {
  std::function<void(absl::Status)> Of(int fetch) {
    return [this, fetch](absl::Status status) { statuses[fetch].push_back(std::move(status)); };
  }
  absl::StatusCode CodeOf(int fetch) {
    EXPECT_EQ(statuses[fetch].size(), 1u) << fetch;
    return statuses[fetch].empty() ? absl::StatusCode::kUnknown : statuses[fetch][0].code();
  }
  std::map<int, std::vector<absl::Status>> statuses;
};

TEST(PieceWindowTest, AsksForPiecesInOrderAndEndsWithTheLastAnswer) {
  PieceWindow window(kLimits, kPoolBytes, kPoolBytes);
  Ends ends;
  window.Add(7, {{0, 100, 50}}, ends.Of(0));
  const Piece* const first = window.AskNext();
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->epoch, 7u);
  EXPECT_EQ(first->runs, (std::vector<ByteRun>{{0, 100, 30}}));
  const Piece* const second = window.AskNext();
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(second->runs, (std::vector<ByteRun>{{30, 130, 20}}));
  EXPECT_EQ(window.AskNext(), nullptr);
  EXPECT_EQ(window.Oldest(), first);
  window.Answer(second->request, absl::OkStatus());  // in any order
  EXPECT_FALSE(window.CallDone());
  window.Answer(first->request, absl::OkStatus());
  EXPECT_FALSE(window.HasUnanswered());
  EXPECT_TRUE(window.CallDone());
  EXPECT_EQ(ends.CodeOf(0), absl::StatusCode::kOk);
}

TEST(PieceWindowTest, RefusesRunsOutsideOfThePools) {
  PieceWindow window(kLimits, kPoolBytes, kPoolBytes);
  Ends ends;
  window.Add(1, {{kPoolBytes - 1, 0, 2}}, ends.Of(0));
  window.Add(1, {}, ends.Of(1));
  EXPECT_EQ(window.AskNext(), nullptr);
  EXPECT_TRUE(window.CallDone());
  EXPECT_EQ(ends.CodeOf(0), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(ends.CodeOf(1), absl::StatusCode::kOk);
}

TEST(PieceWindowTest, ACancelledFetchIsDrainedAndNotWanted) {
  PieceWindow window(kLimits, kPoolBytes, kPoolBytes);
  Ends ends;
  window.Add(1, {{0, 0, 90}}, ends.Of(0));
  window.Add(2, {{0, 0, 10}}, ends.Of(1));
  const uint64_t asked = window.AskNext()->request;
  window.Cancel(1);
  EXPECT_TRUE(window.CallDone());
  EXPECT_EQ(ends.CodeOf(0), absl::StatusCode::kCancelled);
  EXPECT_FALSE(window.IsWanted(asked));
  EXPECT_NE(window.Find(asked), nullptr);
  const Piece* const next = window.AskNext();  // the rest of the cancelled one is not asked for
  ASSERT_NE(next, nullptr);
  EXPECT_EQ(next->epoch, 2u);
  window.Answer(asked, absl::OkStatus());
  window.Answer(next->request, absl::AbortedError("gone"));
  EXPECT_TRUE(window.CallDone());
  EXPECT_EQ(ends.CodeOf(1), absl::StatusCode::kAborted);
}

TEST(PieceWindowTest, ABrokenConnectionEndsEverythingNowAndLaterWithTheFirstCause) {
  PieceWindow window(kLimits, kPoolBytes, kPoolBytes);
  Ends ends;
  window.Add(1, {{0, 0, 900}}, ends.Of(0));
  window.AskNext();
  window.Break(absl::UnavailableError("first"));
  window.Break(absl::UnavailableError("second"));
  window.Add(1, {{0, 0, 1}}, ends.Of(1));
  EXPECT_FALSE(window.HasUnanswered());
  EXPECT_EQ(window.AskNext(), nullptr);
  EXPECT_TRUE(window.CallDone());
  EXPECT_EQ(ends.statuses[0], std::vector{absl::UnavailableError("first")});
  EXPECT_EQ(ends.statuses[1], std::vector{absl::UnavailableError("first")});
}

TEST(PieceWindowTest, UnderAnyOrderEveryByteIsAskedForOnceAndEveryFetchEndsOnce) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    std::mt19937_64 random(seed);
    PieceWindow window(kLimits, kPoolBytes, kPoolBytes);
    Ends ends;
    int num_fetches = 0;
    std::map<int, uint64_t> bytes_of;  // by fetch; each has an epoch of its own
    std::map<uint64_t, uint64_t> answered_bytes;
    std::vector<Piece> asked;
    for (int step = 0; step < 400; ++step) {
      switch (random() % 8) {
        case 0: {
          std::vector<ByteRun> runs;
          for (uint64_t i = 0; i < 1 + random() % 5; ++i)
            runs.push_back({random() % 900, random() % 900, 1 + random() % 90});
          bytes_of[num_fetches] = TotalBytes(runs);
          window.Add(num_fetches, std::move(runs), ends.Of(num_fetches));
          ++num_fetches;
          break;
        }
        case 1:
          if (num_fetches > 0 && random() % 8 == 0) window.Cancel(random() % num_fetches);
          break;
        case 2:
          if (window.CallDone()) break;
          break;
        case 3:
        case 4:
        case 5:
          if (const Piece* const piece = window.AskNext()) {
            EXPECT_LE(TotalBytes(piece->runs), kLimits.num_bytes_max);
            EXPECT_LE(piece->runs.size(), kLimits.num_runs_max);
            asked.push_back(*piece);
          }
          EXPECT_LE(asked.size(), kLimits.num_unanswered_max);
          break;
        default:
          if (asked.empty()) break;
          const size_t index = random() % asked.size();
          const Piece piece = asked[index];
          asked.erase(asked.begin() + index);
          ASSERT_NE(window.Find(piece.request), nullptr);
          const bool is_good = random() % 16 != 0;
          if (is_good) answered_bytes[piece.epoch] += TotalBytes(piece.runs);
          window.Answer(piece.request, is_good ? absl::OkStatus() : absl::AbortedError("bad"));
      }
    }
    window.FailAll(absl::CancelledError("the end"));
    window.CallDone();
    for (int fetch = 0; fetch < num_fetches; ++fetch) {
      if (ends.CodeOf(fetch) == absl::StatusCode::kOk) {
        EXPECT_EQ(answered_bytes[fetch], bytes_of[fetch]) << "fetch " << fetch << " of seed " << seed;
      }
    }
  }
}

}  // namespace
}  // namespace tandem::kvtransfer
