// The picker against a brute-force search over random views, and its words where it cannot choose.
#include "router/pair_picker.h"

#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "router/testing/healthy_view.h"

namespace tandem::router {
namespace {

// A view in which everything that can differ does.
ClusterView RandomView(std::mt19937& random) {
  const auto draw = [&](int bound) { return static_cast<int>(random() % bound); };
  ClusterView view = HealthyView(draw(4), draw(4));
  const auto spoil = [&](WorkerView& worker) {
    worker.is_up = draw(4) != 0;
    worker.is_draining = draw(6) == 0;
    worker.is_ejected = draw(3) == 0;
    worker.load.running_sequences = draw(3);
    worker.load.waiting_requests = draw(3);
    worker.requests_in_flight = draw(5);
    worker.context_length_max = draw(3) == 0 ? 0 : 100 + draw(100);
    worker.kv_tokens_capacity = draw(3) == 0 ? 0 : 100 + draw(100);
  };
  for (PrefillView& prefill : view.prefills) spoil(prefill);
  for (DecodeView& decode : view.decodes) {
    spoil(decode);
    for (auto& [address, peer] : decode.peers) peer.is_usable = draw(4) != 0;
    if (draw(3) == 0) decode.peers.erase("boot0");
  }
  return view;
}

// Every pair that could serve with its cost, written down from the rules rather than from the code.
std::map<std::pair<int, int>, int64_t> Usable(const ClusterView& view, uint64_t num_tokens) {
  const auto fits = [&](const WorkerView& w) {
    return w.is_up && !w.is_draining && (w.context_length_max == 0 || num_tokens <= w.context_length_max) &&
           (w.kv_tokens_capacity == 0 || num_tokens <= w.kv_tokens_capacity);
  };
  const auto load = [](const WorkerView& w) {
    const int64_t reported = w.load.running_sequences + w.load.waiting_requests;
    return reported > w.requests_in_flight ? reported : w.requests_in_flight;
  };
  std::map<std::pair<int, int>, int64_t> candidates;
  for (size_t d = 0; d < view.decodes.size(); ++d) {
    for (size_t p = 0; p < view.prefills.size(); ++p) {
      const auto& peers = view.decodes[d].peers;
      const auto peer = peers.find(view.prefills[p].bootstrap_address);
      if (peer == peers.end() || !peer->second.is_usable) continue;
      if (!fits(view.decodes[d]) || !fits(view.prefills[p])) continue;
      candidates[{static_cast<int>(d), static_cast<int>(p)}] = load(view.decodes[d]) + load(view.prefills[p]);
    }
  }
  return candidates;
}

// Of these the ones without an ejected worker; ejections of a pool count where at least half of it is in service, and
// where that leaves something.
std::map<std::pair<int, int>, int64_t> Candidates(const ClusterView& view, uint64_t num_tokens) {
  const auto counts = [](const auto& workers) {
    int num_ejected = 0, num_serving = 0;
    for (const WorkerView& w : workers) {
      num_serving += w.is_up && !w.is_draining;
      num_ejected += w.is_up && !w.is_draining && w.is_ejected;
    }
    return 2 * num_ejected <= num_serving;
  };
  const bool prefills_count = counts(view.prefills), decodes_count = counts(view.decodes);
  const auto all = Usable(view, num_tokens);
  std::map<std::pair<int, int>, int64_t> candidates;
  for (const auto& [pair, cost] : all) {
    if (decodes_count && view.decodes[pair.first].is_ejected) continue;
    if (prefills_count && view.prefills[pair.second].is_ejected) continue;
    candidates[pair] = cost;
  }
  return candidates.empty() ? all : candidates;
}

TEST(PairPickerTest, PicksACheapestUsablePairOfAnyView) {
  std::mt19937 random(7);
  int num_picked = 0;
  for (int round = 0; round < 5000; ++round) {
    const ClusterView view = RandomView(random);
    const uint64_t num_tokens = random() % 200;
    const auto candidates = Candidates(view, num_tokens);
    const absl::StatusOr<PairChoice> choice = PickPair(view, num_tokens, random());
    ASSERT_EQ(choice.ok(), !candidates.empty()) << choice.status();
    if (!choice.ok()) continue;
    ++num_picked;
    int64_t cheapest = candidates.begin()->second;
    for (const auto& [pair, cost] : candidates) cheapest = std::min(cheapest, cost);
    const auto picked = candidates.find({choice->decode, choice->prefill});
    ASSERT_NE(picked, candidates.end());
    EXPECT_EQ(picked->second, cheapest);
    EXPECT_EQ(choice->cost, cheapest);
    EXPECT_EQ(choice->num_candidates, static_cast<int>(candidates.size()));
  }
  EXPECT_GT(num_picked, 500);
}

// Of any view and policy: the pick itself, every candidate once at its cost, and a reason for every other pair.
TEST(PairPickerTest, ASurveyIsThePickAndAllThatItWasMadeFrom) {
  std::mt19937 random(11);
  int num_excluded = 0;
  for (int round = 0; round < 3000; ++round) {
    const ClusterView view = RandomView(random);
    const std::vector<int64_t> cached = {static_cast<int64_t>(random() % 64), 0, 64};
    PairRequest request{.num_tokens = random() % 200, .turn = random(), .random = random(), .routing_key = random()};
    request.policy = static_cast<PairPolicy>(round % 6);
    request.cached_tokens = cached;
    const PairSurvey survey = SurveyPairs(view, request, 64);
    const absl::StatusOr<PairChoice> choice = PickPair(view, request);
    ASSERT_EQ(survey.choice.status(), choice.status());
    if (choice.ok()) {
      ASSERT_EQ(survey.choice->prefill, choice->prefill);
      ASSERT_EQ(survey.choice->decode, choice->decode);
    }
    const auto candidates = Candidates(view, request.num_tokens);
    ASSERT_EQ(survey.pairs.size(), candidates.size());
    ASSERT_EQ(survey.num_pairs, static_cast<int>(candidates.size()));
    std::map<std::pair<int, int>, std::string> told;
    for (const WeighedPair& pair : survey.pairs) {
      ASSERT_TRUE(candidates.contains({pair.decode, pair.prefill}));
      if (request.policy == PairPolicy::kLeastLoad) {
        ASSERT_EQ(pair.cost, candidates.at({pair.decode, pair.prefill}));
      }
      if (request.policy == PairPolicy::kPrefix) {
        ASSERT_EQ(pair.cost, pair.parts.total());
        ASSERT_EQ(pair.cached_tokens, cached[static_cast<size_t>(pair.prefill)]);
      }
      ASSERT_TRUE(told.emplace(std::pair(pair.decode, pair.prefill), "").second);
    }
    for (size_t i = 1; i < survey.pairs.size(); ++i) ASSERT_LE(survey.pairs[i - 1].cost, survey.pairs[i].cost);
    if (request.policy == PairPolicy::kPrefix && choice.ok()) {
      ASSERT_EQ(survey.pairs.front().cost, choice->cost);
    }
    std::set<int> prefills_out, decodes_out;
    for (const ExcludedPair& excluded : survey.excluded) {
      ASSERT_FALSE(excluded.why.empty());
      if (excluded.decode < 0) {
        ASSERT_TRUE(prefills_out.insert(excluded.prefill).second);
      } else if (excluded.prefill < 0) {
        ASSERT_TRUE(decodes_out.insert(excluded.decode).second);
      } else {
        ASSERT_TRUE(told.emplace(std::pair(excluded.decode, excluded.prefill), excluded.why).second);
      }
    }
    for (int d = 0; d < static_cast<int>(view.decodes.size()); ++d) {
      for (int p = 0; p < static_cast<int>(view.prefills.size()); ++p) {
        const bool is_worker_out = decodes_out.contains(d) || prefills_out.contains(p);
        ASSERT_NE(told.contains({d, p}), is_worker_out) << d << " " << p;
      }
    }
    ASSERT_EQ(survey.num_excluded, static_cast<int>(survey.excluded.size()));
    num_excluded += survey.num_excluded;
  }
  EXPECT_GT(num_excluded, 1000);
}

TEST(PairPickerTest, ASurveyListsTheCheapestOfMany) {
  ClusterView view = HealthyView(10, 10);
  for (int p = 0; p < 10; ++p) view.prefills[p].load.waiting_requests = static_cast<uint32_t>(10 - p);
  for (DecodeView& decode : view.decodes) decode.peers["boot9"].is_usable = false;
  const PairSurvey survey = SurveyPairs(view, {.num_tokens = 1}, 7);
  EXPECT_EQ(survey.num_pairs, 90);
  EXPECT_EQ(survey.num_excluded, 10);
  EXPECT_EQ(survey.excluded.size(), 7u);
  ASSERT_EQ(survey.pairs.size(), 7u);
  for (int d = 0; d < 7; ++d) {
    EXPECT_EQ(survey.pairs[d].prefill, 8) << "the one with the least in line of those that are linked";
    EXPECT_EQ(survey.pairs[d].decode, d);
    EXPECT_EQ(survey.pairs[d].cost, 2);
  }
}

TEST(PairPickerTest, EqualPairsAreUsedInRotation) {
  const ClusterView view = HealthyView(2, 3);
  std::set<std::pair<int, int>> used;
  for (uint64_t turn = 0; turn < 6; ++turn) {
    const PairChoice choice = PickPair(view, 1, turn).value();
    used.insert({choice.prefill, choice.decode});
  }
  EXPECT_EQ(used.size(), 6u);
}

TEST(PairPickerTest, AnEjectedWorkerGetsNothingWhileOthersServe) {
  ClusterView view = HealthyView(1, 3);
  view.decodes[1].is_ejected = true;
  for (WorkerView* busy : {static_cast<WorkerView*>(&view.decodes[0]), static_cast<WorkerView*>(&view.decodes[2])}) {
    busy->requests_in_flight = 100;
  }
  for (uint64_t turn = 0; turn < 4; ++turn) EXPECT_NE(PickPair(view, 1, turn)->decode, 1);
  view.decodes[0].is_ejected = true;
  EXPECT_EQ(PickPair(view, 1, 0)->decode, 1) << "most are ejected: it is not they who are at fault";
  EXPECT_EQ(CountUsablePairs(view), 3);
}

TEST(PairPickerTest, SameViewAndTurnGiveTheSamePair) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    const ClusterView view = RandomView(random);
    const absl::StatusOr<PairChoice> once = PickPair(view, 10, round);
    const absl::StatusOr<PairChoice> again = PickPair(view, 10, round);
    ASSERT_EQ(once.ok(), again.ok());
    if (once.ok()) {
      EXPECT_EQ(once->prefill, again->prefill);
      EXPECT_EQ(once->decode, again->decode);
    }
  }
}

TEST(PairPickerTest, OwnRequestsCountBeforeTheWorkerReportsThem) {
  ClusterView view = HealthyView(1, 2);
  view.decodes[0].requests_in_flight = 3;
  for (uint64_t turn = 0; turn < 4; ++turn) EXPECT_EQ(PickPair(view, 1, turn)->decode, 1);
}

TEST(PairPickerTest, ReasonNamesWhatIsMissing) {
  ClusterView view = HealthyView(1, 1);
  view.prefills[0].is_up = false;
  view.prefills[0].detail = "connection refused";
  EXPECT_EQ(PickPair(view, 1, 0).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(PickPair(view, 1, 0).status().message(),
            "no usable pair: 0 of 1 prefill and 1 of 1 decode workers are up; prefill p0 is down: connection refused");

  view = HealthyView(1, 1);
  view.decodes[0].peers.clear();
  EXPECT_EQ(CheckReady(view).message(),
            "no usable pair: 1 of 1 prefill and 1 of 1 decode workers are up; decode d0 cannot use prefill p0: not "
            "reported yet");

  view.decodes[0].peers["boot0"].detail = "page_size is 64 here and 32 there";
  EXPECT_NE(CheckReady(view).message().find("page_size is 64 here and 32 there"), std::string::npos);

  EXPECT_EQ(CheckReady(ClusterView()).message(), "no usable pair: 0 of 0 prefill and 0 of 0 decode workers are up");
}

TEST(PairPickerTest, RequestTooLargeForEveryPairIsTheClientsError) {
  ClusterView view = HealthyView(1, 2);
  view.decodes[0].kv_tokens_capacity = 100;
  view.decodes[1].kv_tokens_capacity = 200;
  EXPECT_EQ(PickPair(view, 200, 0)->decode, 1);
  const absl::Status status = PickPair(view, 201, 0).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "request needs room for 201 tokens, the largest usable pair of workers holds 200");
}

TEST(PairPickerTest, ExplainsItsChoice) {
  ClusterView view = HealthyView(1, 2);
  view.decodes[0].load.running_sequences = 5;
  const PairChoice choice = PickPair(view, 1, 0).value();
  EXPECT_EQ(choice.Explain(view),
            "prefill p0 (load 0) with decode d1 (load 0): cost 0, one of 1 cheapest among 2 usable pairs");
}

}  // namespace
}  // namespace tandem::router
