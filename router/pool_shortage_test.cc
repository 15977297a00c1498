// Scenes of idle, prefill-heavy and decode-heavy load, and properties of any load, drawn at random: no two changes of a
// pool within the hold time, and suggestions of one worker at least that exceed the pool only where it is short.
#include "router/pool_shortage.h"

#include <algorithm>
#include <array>
#include <functional>
#include <random>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace tandem::router {
namespace {

constexpr absl::Duration kStep = absl::Milliseconds(50);
constexpr PoolShortageJudge::Limits kLimits = {};

class PoolShortageTest : public testing::Test {
 protected:
  PoolShortageTest() {
    now_.prefills = {{.incarnation = 1, .computed_tokens = 100}, {.incarnation = 2, .computed_tokens = 100}};
    now_.decodes = {{.kv_pages_free = 1000, .kv_pages_total = 1000}, {.kv_pages_free = 1000, .kv_pages_total = 1000}};
  }

  // Looks again and again for that long, each look after a change of the load.
  const PoolShortage& Pass(absl::Duration time, const std::function<void(PoolSnapshot&)>& change) {
    for (absl::Duration passed; passed < time; passed += kStep) {
      change(now_);
      time_ += kStep;
      found_ = judge_.Observe(now_, time_);
    }
    return found_;
  }
  // Each prefill worker computes 1000 tokens a second and has that many in line.
  static void Prefill(PoolSnapshot& load, uint64_t waiting_each) {
    for (auto& worker : load.prefills) {
      worker.waiting_tokens = waiting_each;
      worker.computed_tokens += 50;
    }
  }

  PoolSnapshot now_;
  PoolShortageJudge judge_{kLimits};
  absl::Duration time_ = absl::Hours(5);
  PoolShortage found_;
};

TEST_F(PoolShortageTest, IdleIsNotShortAndNeedsFewer) {
  const PoolShortage& found = Pass(absl::Minutes(5), [](PoolSnapshot&) {});
  EXPECT_FALSE(found.prefill.is_short || found.decode.is_short);
  EXPECT_EQ(found.prefill.num_suggested, 1);
  EXPECT_EQ(found.decode.num_suggested, 1);
  EXPECT_TRUE(absl::StartsWith(found.ToString(), "none; ")) << found.ToString();
}

TEST_F(PoolShortageTest, ALongLineAtTheMeasuredRateSaysPrefillAndItsEndSaysNone) {
  // 9000 tokens at 1000 a second and worker: 9 s of the 5 s that a first token may take.
  Pass(kLimits.hold / 2, [](PoolSnapshot& load) { Prefill(load, 9000); });
  EXPECT_FALSE(found_.prefill.is_short);
  Pass(kLimits.hold, [](PoolSnapshot& load) { Prefill(load, 9000); });
  EXPECT_NEAR(found_.tokens_per_second, 2000, 20);
  EXPECT_NEAR(found_.line_seconds, 9, 0.1);
  EXPECT_TRUE(found_.prefill.is_short);
  EXPECT_FALSE(found_.decode.is_short);
  EXPECT_EQ(found_.prefill.num_suggested, 4);  // 1.8 times two
  EXPECT_TRUE(absl::StartsWith(found_.ToString(), "prefill; ")) << found_.ToString();
  Pass(kLimits.hold * 2, [](PoolSnapshot& load) { Prefill(load, 1000); });
  EXPECT_FALSE(found_.prefill.is_short);
  EXPECT_EQ(found_.prefill.num_suggested, 2);  // both compute all the time: neither is spare
}

TEST_F(PoolShortageTest, AFastPoolIsNotShortOfTheSameLine) {
  Pass(kLimits.hold * 3, [](PoolSnapshot& load) {
    Prefill(load, 9000);
    for (auto& worker : load.prefills) worker.computed_tokens += 450;  // 10000 a second
  });
  EXPECT_FALSE(found_.prefill.is_short);
}

TEST_F(PoolShortageTest, AWorkerThatIsBackTellsNoRate) {
  Pass(kLimits.hold, [](PoolSnapshot& load) { Prefill(load, 1000); });
  const uint64_t told = now_.prefills[0].computed_tokens;
  Pass(kStep, [](PoolSnapshot& load) { load.prefills[0].computed_tokens = 0; });
  Pass(kStep, [&](PoolSnapshot& load) { load.prefills[0].computed_tokens = told; });
  EXPECT_LE(found_.tokens_per_second, 2020);
}

TEST_F(PoolShortageTest, FullPagesSayDecode) {
  Pass(kLimits.hold * 2, [](PoolSnapshot& load) {
    for (auto& worker : load.decodes) worker = {.kv_pages_free = 50, .kv_pages_total = 1000, .running_sequences = 20};
  });
  EXPECT_TRUE(found_.decode.is_short);
  EXPECT_FALSE(found_.prefill.is_short);
  EXPECT_EQ(found_.decode.num_suggested, 3);
}

TEST_F(PoolShortageTest, SequencesAtTheirLimitSayDecodeEvenWhereAnswersBeginLate) {
  Pass(kLimits.hold * 2, [](PoolSnapshot& load) {
    Prefill(load, 10);
    load.decodes[0] = {.kv_pages_free = 900, .kv_pages_total = 1000, .running_sequences = 20, .waiting_requests = 9};
    load.finished_answers += 1;
    load.late_first_tokens += 1;
  });
  EXPECT_TRUE(found_.decode.is_short);
  EXPECT_FALSE(found_.prefill.is_short);
}

TEST_F(PoolShortageTest, LateAndSlowAnswersSayWhichPoolWhileItWorks) {
  const auto work = [](PoolSnapshot& load) {
    Prefill(load, 10);
    load.decodes[0].running_sequences = 5;
    load.finished_answers += 1;
  };
  Pass(kLimits.hold * 2, [&](PoolSnapshot& load) {
    work(load);
    load.late_first_tokens += 0.2;
  });
  EXPECT_TRUE(found_.prefill.is_short);
  EXPECT_FALSE(found_.decode.is_short);
  Pass(absl::Minutes(10), [&](PoolSnapshot& load) {
    work(load);
    load.slow_answers += 0.2;
  });
  EXPECT_FALSE(found_.prefill.is_short);
  EXPECT_TRUE(found_.decode.is_short);
  Pass(kLimits.hold * 2, [&](PoolSnapshot& load) {
    load.decodes[0].running_sequences = 0;
    for (auto& worker : load.prefills) worker.waiting_tokens = 0;
  });
  EXPECT_FALSE(found_.decode.is_short);  // nobody runs: what was slow is over
}

TEST_F(PoolShortageTest, ALoadThatWaversAroundTheThresholdChangesNothing) {
  int num_looks = 0;
  for (const bool is_short : {false, true}) {
    // Away from what it is for all of the hold time but one look.
    for (int round = 0; round < 20; ++round) {
      Pass(kLimits.hold - kStep, [&](PoolSnapshot& load) { Prefill(load, is_short ? 1000 : 9000); });
      Pass(kStep, [&](PoolSnapshot& load) { Prefill(load, is_short ? 9000 : 1000); });
      ++num_looks;
      ASSERT_EQ(found_.prefill.is_short, is_short) << num_looks;
    }
    // Between the two thresholds it stays what it is.
    Pass(absl::Minutes(10), [&](PoolSnapshot& load) { Prefill(load, 4250); });
    EXPECT_EQ(found_.prefill.is_short, is_short);
    Pass(kLimits.hold * 2, [&](PoolSnapshot& load) { Prefill(load, 9000); });
  }
}

TEST_F(PoolShortageTest, AnyLoadKeepsTheHoldTimeAndSaneSuggestions) {
  std::mt19937 random(1);
  const auto draw = [&](int below) { return static_cast<int>(random() % below); };
  std::array<bool, 2> was_short = {false, false};
  std::array<absl::Duration, 2> changed_at = {-absl::InfiniteDuration(), -absl::InfiniteDuration()};
  int num_changes = 0;
  for (int scene = 0; scene < 400; ++scene) {
    now_.prefills.resize(draw(4));
    for (auto& worker : now_.prefills) worker.incarnation = 1 + draw(5);
    now_.decodes.resize(draw(4));
    const int heat = draw(20000), use = draw(1001), waiting = draw(3);
    Pass(absl::Seconds(1 + draw(90)), [&](PoolSnapshot& load) {
      Prefill(load, draw(heat + 1) / 2 + heat / 2);
      for (auto& worker : load.decodes) {
        worker = {.kv_pages_free = static_cast<uint64_t>(1000 - draw(use + 1) / 4 - use * 3 / 4),
                  .kv_pages_total = 1000,
                  .running_sequences = static_cast<uint32_t>(draw(30)),
                  .waiting_requests = static_cast<uint32_t>(waiting)};
      }
      const std::array<PoolState, 2> pools = {found_.prefill, found_.decode};
      for (size_t i = 0; i < pools.size(); ++i) {
        EXPECT_GE(pools[i].num_suggested, 1);
        EXPECT_LE(pools[i].num_suggested, std::max(1, 2 * pools[i].num_workers));
        EXPECT_GE(pools[i].num_suggested, pools[i].num_workers - 1);
        EXPECT_LE(pools[i].num_workers, 3);
        if (!pools[i].is_short) {
          EXPECT_LE(pools[i].num_suggested, std::max(1, pools[i].num_workers));
        }
        if (pools[i].is_short == was_short[i]) continue;
        EXPECT_GE(time_ - changed_at[i], kLimits.hold);
        was_short[i] = pools[i].is_short;
        changed_at[i] = time_;
        ++num_changes;
      }
    });
  }
  EXPECT_GT(num_changes, 10);
}

}  // namespace
}  // namespace tandem::router
