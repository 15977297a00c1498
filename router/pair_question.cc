#include "router/pair_question.h"

#include <algorithm>

#include "base/random.h"
#include "proto/page_key.h"
#include "router/prefix_mirror.h"

namespace tandem::router {
namespace {

// Prompts that begin alike, by their first pages, meet; where the client names a salt, by that alone.
uint64_t RoutingKeyOf(const GenerateOrder& order) {
  constexpr size_t kNumPages = 4;
  if (!order.cache_salt.empty()) return proto::HashText(order.cache_salt);
  const size_t num_tokens = std::min(order.prompt.size(), kNumPages * proto::kPageKeyTokens + 1);
  const std::vector<uint64_t> keys =
      PageKeysOf(absl::MakeConstSpan(order.prompt).first(num_tokens), "", PageKeyRules{.domain = 1});
  if (!keys.empty()) return keys.back();
  uint64_t key = 0;
  for (const TokenId token : order.prompt) key = proto::RootPageKey(key ^ token, "");
  return key;
}

}  // namespace

PairQuestion::PairQuestion(const GenerateOrder& order, const Cluster& cluster, PairPolicy policy, uint64_t turn)
    : request_{.num_tokens = order.prompt.size() + 1, .policy = policy, .turn = turn} {
  switch (policy) {
    case PairPolicy::kPrefix:
      cached_tokens_ = cluster.CachedTokens(order.prompt, order.cache_salt);
      request_.cached_tokens = cached_tokens_;
      break;
    case PairPolicy::kConsistentHash:
      request_.routing_key = RoutingKeyOf(order);
      break;
    case PairPolicy::kRandom:
    case PairPolicy::kPowerOfTwo:
      request_.random = base::RandomId();
      break;
    case PairPolicy::kLeastLoad:
    case PairPolicy::kRoundRobin:
      break;
  }
}

}  // namespace tandem::router
