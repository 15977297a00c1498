// The policies of the pair picker: each against its rule written down again, and what they make of generated traffic.
#include <algorithm>
#include <cstdio>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "gtest/gtest.h"
#include "router/pair_picker.h"
#include "router/testing/healthy_view.h"

namespace tandem::router {
namespace {

TEST(PairPolicyTest, PrefixGoesWhereThePagesAreUntilTheLineThereCostsMore) {
  ClusterView view = HealthyView(3, 1);
  const std::vector<int64_t> cached = {0, 640, 128};
  const PairRequest request{.num_tokens = 1000, .policy = PairPolicy::kPrefix, .cached_tokens = cached};
  EXPECT_EQ(PickPair(view, request)->prefill, 1);
  view.prefills[1].load.waiting_tokens = 511;
  EXPECT_EQ(PickPair(view, request)->prefill, 1) << "512 tokens less to compute than at the second best";
  view.prefills[1].load.waiting_tokens = 513;
  EXPECT_EQ(PickPair(view, request)->prefill, 2);
  view.prefills[2].prompt_tokens_in_flight = 200;  // of this router, not reported yet
  EXPECT_EQ(PickPair(view, request)->prefill, 1);
  view.prefills[1].prompt_tokens_in_flight = 5000;
  const PairChoice choice = PickPair(view, request).value();
  EXPECT_EQ(choice.prefill, 0);
  EXPECT_EQ(choice.cached_tokens, 0);
  EXPECT_EQ(choice.best_cached_tokens, 640) << "what the choice has forgone";
  EXPECT_EQ(
      choice.Explain(view),
      "prefill p0 (load 0) with decode d0 (load 0): cost 1000 = 0 waiting + 1000 uncached (0 cached, at best 640) "
      "+ 0 decode load + 0 short room + 0 slow lane, one of 1 cheapest among 3 usable pairs");
}

TEST(PairPolicyTest, PrefixWeighsDecodeLoadRoomAndLanes) {
  ClusterView view = HealthyView(1, 2);
  PairRequest request{.num_tokens = 1000, .policy = PairPolicy::kPrefix};
  view.decodes[0].load.running_sequences = 3;
  EXPECT_EQ(PickPair(view, request)->decode, 1);
  EXPECT_EQ(PickPair(view, request)->parts.uncached, 1000);
  for (DecodeView& decode : view.decodes) {
    decode.load.kv_pages_total = 100;
    decode.load.kv_pages_free = 100;
  }
  view.decodes[1].load.kv_pages_free = 10;
  EXPECT_EQ(PickPair(view, request)->decode, 0) << "the other one has room for 640 tokens";
  view.decodes[1].load.kv_pages_free = 100;
  view.decodes[0].load.running_sequences = 0;
  view.decodes[0].peers["boot0"].lane_bytes_per_second = 1e9;
  view.decodes[1].peers["boot0"].lane_bytes_per_second = 4e9;
  EXPECT_EQ(PickPair(view, request)->decode, 1);
  view.decodes[1].peers["boot0"].lane_bytes_per_second = 0;  // not measured: no reason against it
  for (uint64_t turn = 0; turn < 2; ++turn) {
    request.turn = turn;
    EXPECT_EQ(PickPair(view, request)->decode, static_cast<int>(turn));
  }
}

TEST(PairPolicyTest, RoundRobinAndRandomTakeEveryPair) {
  const ClusterView view = HealthyView(2, 3);
  std::map<std::pair<int, int>, int> in_turn, at_random;
  std::mt19937_64 random(1);
  for (uint64_t turn = 0; turn < 600; ++turn) {
    const auto next = PickPair(view, {.num_tokens = 1, .policy = PairPolicy::kRoundRobin, .turn = turn}).value();
    ++in_turn[{next.prefill, next.decode}];
    const auto any = PickPair(view, {.num_tokens = 1, .policy = PairPolicy::kRandom, .random = random()}).value();
    ++at_random[{any.prefill, any.decode}];
  }
  for (int p = 0; p < 2; ++p) {
    for (int d = 0; d < 3; ++d) {
      EXPECT_EQ((in_turn[{p, d}]), 100);
      EXPECT_GT((at_random[{p, d}]), 50);
    }
  }
}

TEST(PairPolicyTest, PowerOfTwoNeverTakesTheMostLoadedOfThree) {
  ClusterView view = HealthyView(1, 3);
  for (int d = 0; d < 3; ++d) view.decodes[d].requests_in_flight = d;
  std::mt19937_64 random(2);
  std::map<int, int> taken;
  for (int i = 0; i < 600; ++i) {
    ++taken[PickPair(view, {.num_tokens = 1, .policy = PairPolicy::kPowerOfTwo, .random = random()})->decode];
  }
  EXPECT_EQ(taken[2], 0);
  EXPECT_GT(taken[0], taken[1]);
  EXPECT_GT(taken[1], 100);
  const ClusterView single = HealthyView(1, 1);
  EXPECT_TRUE(PickPair(single, {.num_tokens = 1, .policy = PairPolicy::kPowerOfTwo, .random = random()}).ok());
}

TEST(PairPolicyTest, EqualKeysMeetAndAWorkerThatGoesTakesOnlyItsOwnWithIt) {
  ClusterView view = HealthyView(4, 2);
  const auto prefill_of = [&](uint64_t key) {
    return PickPair(view, {.num_tokens = 1, .policy = PairPolicy::kConsistentHash, .routing_key = key})->prefill;
  };
  std::map<uint64_t, int> before;
  std::map<int, int> count;
  for (uint64_t key = 0; key < 400; ++key) ++count[before[key] = prefill_of(key)];
  for (int p = 0; p < 4; ++p) EXPECT_GT(count[p], 50);
  // Another router, with another load in sight, decides alike.
  view.prefills[2].load.waiting_tokens = 100'000;
  for (const auto& [key, prefill] : before) EXPECT_EQ(prefill_of(key), prefill);
  view.prefills[1].is_up = false;
  for (const auto& [key, prefill] : before) {
    if (prefill != 1) {
      EXPECT_EQ(prefill_of(key), prefill);
    }
  }
}

TEST(PairPolicyTest, NamesAreThoseOfTheConfiguration) {
  EXPECT_EQ(PairPolicyOf("prefix"), PairPolicy::kPrefix);
  EXPECT_EQ(PairPolicyOf("least_load"), PairPolicy::kLeastLoad);
  EXPECT_EQ(PairPolicyOf("round_robin"), PairPolicy::kRoundRobin);
  EXPECT_EQ(PairPolicyOf("random"), PairPolicy::kRandom);
  EXPECT_EQ(PairPolicyOf("power_of_two"), PairPolicy::kPowerOfTwo);
  EXPECT_EQ(PairPolicyOf("consistent_hash"), PairPolicy::kConsistentHash);
}

// ---- Generated traffic over prefill workers that cache what they have computed, least recently used first out ----

struct ReplayResult {
  double hit_rate = 0;           // of prompt tokens
  double longest_over_mean = 0;  // computed tokens of the busiest worker over the mean
};

constexpr int kNumPrefills = 4;
constexpr int kPageTokens = 64;

// Prompts by their pages' names: conversations of several turns over a few common instructions, turns interleaved.
std::vector<std::vector<int>> MultiTurnTraffic(unsigned seed) {
  std::mt19937 random(seed);
  struct Conversation {
    std::vector<int> pages;
    int turns_left = 0;
  };
  std::vector<Conversation> open;
  std::vector<std::vector<int>> prompts;
  int next_page = 1000;
  while (prompts.size() < 4000) {
    if (open.size() < 60) {
      Conversation conversation{.turns_left = 2 + static_cast<int>(random() % 6)};
      const int instructions = static_cast<int>(random() % 5);
      for (int i = 0; i < 8; ++i) conversation.pages.push_back(instructions * 10 + i);
      open.push_back(conversation);
    }
    const size_t index = random() % open.size();
    Conversation& conversation = open[index];
    for (unsigned more = 1 + random() % 6; more > 0; --more) conversation.pages.push_back(next_page++);
    prompts.push_back(conversation.pages);
    if (--conversation.turns_left == 0) {
      open[index] = open.back();
      open.pop_back();
    }
  }
  return prompts;
}

using Pages = absl::flat_hash_map<int, int64_t>;  // when each was used last

void EvictOldest(Pages& pages) {
  std::vector<int64_t> uses;
  for (const auto& [page, used] : pages) uses.push_back(used);
  const auto tenth = uses.begin() + static_cast<ptrdiff_t>(uses.size() / 10);
  std::nth_element(uses.begin(), tenth, uses.end());
  const int64_t bound = *tenth;
  absl::erase_if(pages, [bound](const auto& entry) { return entry.second <= bound; });
}

// Workers are served at a steady pace; routers know what workers had cached and had in line when they last told, a few
// requests ago, and what they sent themselves since.
ReplayResult Replay(const std::vector<std::vector<int>>& prompts, PairPolicy policy, int num_routers) {
  constexpr size_t kPagesPerWorker = 1500;
  constexpr int64_t kTokensServedBetweenRequests = 150;  // of each worker
  struct Worker {
    Pages last_used;
    int64_t waiting_tokens = 0, computed = 0;
  };
  struct Router {
    ClusterView view = HealthyView(kNumPrefills, 1);
    uint64_t turn = 0;
  };
  std::vector<Pages> told_pages(kNumPrefills);
  std::vector<Worker> workers(kNumPrefills);
  std::vector<Router> routers(num_routers);
  std::mt19937_64 random(7);
  int64_t num_tokens = 0, num_cached = 0, now = 0;
  for (const std::vector<int>& prompt : prompts) {
    Router& router = routers[random() % routers.size()];
    std::vector<int64_t> cached(kNumPrefills, 0);
    for (int p = 0; p < kNumPrefills; ++p) {
      for (const int page : prompt) {
        if (!told_pages[p].contains(page)) break;
        cached[p] += kPageTokens;
      }
    }
    const auto prompt_tokens = static_cast<int64_t>(prompt.size()) * kPageTokens;
    const PairChoice choice = PickPair(router.view, {.num_tokens = static_cast<uint64_t>(prompt_tokens) + 1,
                                                     .policy = policy,
                                                     .turn = router.turn++,
                                                     .random = random(),
                                                     .routing_key = static_cast<uint64_t>(prompt[0]),
                                                     .cached_tokens = cached})
                                  .value();
    Worker& worker = workers[choice.prefill];
    int64_t hit = 0;
    for (const int page : prompt) {
      if (!worker.last_used.contains(page)) break;
      hit += kPageTokens;
    }
    ++now;
    for (const int page : prompt) worker.last_used[page] = now;
    if (worker.last_used.size() > kPagesPerWorker) EvictOldest(worker.last_used);
    worker.waiting_tokens += prompt_tokens - hit;
    worker.computed += prompt_tokens - hit;
    router.view.prefills[choice.prefill].prompt_tokens_in_flight += prompt_tokens - hit;
    router.view.prefills[choice.prefill].requests_in_flight += 1;
    num_tokens += prompt_tokens;
    num_cached += hit;
    for (Worker& served : workers) {
      served.waiting_tokens = std::max<int64_t>(0, served.waiting_tokens - kTokensServedBetweenRequests);
    }
    if (now % 4 != 0) continue;  // everybody tells
    for (Router& told : routers) {
      for (int p = 0; p < kNumPrefills; ++p) {
        told.view.prefills[p].load.waiting_tokens = static_cast<uint64_t>(workers[p].waiting_tokens);
        told.view.prefills[p].load.waiting_requests = static_cast<uint32_t>(workers[p].waiting_tokens / 512);
        told.view.prefills[p].prompt_tokens_in_flight = 0;
        told.view.prefills[p].requests_in_flight = 0;
      }
    }
    for (int p = 0; p < kNumPrefills; ++p) told_pages[p] = workers[p].last_used;
  }
  ReplayResult result{.hit_rate = static_cast<double>(num_cached) / static_cast<double>(num_tokens)};
  int64_t computed = 0, most = 0;
  for (const Worker& worker : workers) {
    computed += worker.computed;
    most = std::max(most, worker.computed);
  }
  result.longest_over_mean = static_cast<double>(most) * kNumPrefills / static_cast<double>(computed);
  return result;
}

TEST(PairPolicyTest, OnMultiTurnTrafficPrefixReusesMoreThanEveryOtherPolicyAndStaysBalanced) {
  const std::vector<std::vector<int>> prompts = MultiTurnTraffic(5);
  std::map<std::pair<std::string, int>, ReplayResult> results;
  for (int policy = 0; policy < 6; ++policy) {
    for (const int num_routers : {1, 2, 4}) {
      const std::string name = kPairPolicyNames[policy];
      const ReplayResult result = Replay(prompts, static_cast<PairPolicy>(policy), num_routers);
      results[{name, num_routers}] = result;
      RecordProperty(name + "_" + std::to_string(num_routers) + "_routers_hit_rate", std::to_string(result.hit_rate));
      std::printf("%-16s %d routers: hit rate %.3f, busiest over mean %.2f\n", name.c_str(), num_routers,
                  result.hit_rate, result.longest_over_mean);
    }
  }
  for (const auto& [key, result] : results) {
    const auto& [name, num_routers] = key;
    const ReplayResult& prefix = results[{"prefix", num_routers}];
    if (name != "prefix" && name != "consistent_hash") {
      EXPECT_GT(prefix.hit_rate, result.hit_rate + 0.1) << name << " " << num_routers;
    }
    EXPECT_LT(prefix.longest_over_mean, 1.5) << num_routers;
  }
  // Routers that share nothing lose nothing: all of them know what the workers tell.
  EXPECT_GT((results[{"prefix", 4}].hit_rate), (results[{"prefix", 1}].hit_rate - 0.03));
  // Hashing keeps conversations together and pays with balance.
  EXPECT_GT((results[{"consistent_hash", 1}].longest_over_mean), (results[{"prefix", 1}].longest_over_mean));
}

}  // namespace
}  // namespace tandem::router
