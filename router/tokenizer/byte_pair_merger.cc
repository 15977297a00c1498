#include "router/tokenizer/byte_pair_merger.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace tandem::router {
namespace {

uint64_t PairKey(TokenId left, TokenId right) { return uint64_t{left} << 32 | right; }

// Fibonacci hashing: the high bits of the product mix all bits of the key.
uint64_t HashPair(uint64_t pair) { return (pair ^ pair >> 29) * 0x9E3779B97F4A7C15u; }

uint64_t HashBytes(absl::string_view bytes) {
  uint64_t hash = bytes.size() * 0x9E3779B97F4A7C15u;
  const char* at = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; at += 8, left -= 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    hash = (hash ^ word) * 0xD6E8FEB86659FD93u;
    hash ^= hash >> 32;
  }
  uint64_t tail = 0;
  std::memcpy(&tail, at, left);
  hash = (hash ^ tail) * 0xD6E8FEB86659FD93u;
  return hash ^ hash >> 32;
}

}  // namespace

absl::StatusOr<BytePairMerger> BytePairMerger::Build(const std::array<TokenId, 256>& byte_tokens,
                                                     absl::Span<const MergeRule> rules) {
  BytePairMerger merger;
  merger.byte_tokens_ = byte_tokens;
  const size_t num_slots = std::bit_ceil(rules.size() * 2 + 2);
  merger.pairs_.assign(num_slots, PairEntry{kNoPair, kNoRank, 0});
  merger.pairs_shift_ = 64 - std::countr_zero(num_slots);
  TokenId id_max = *std::max_element(byte_tokens.begin(), byte_tokens.end());
  for (const MergeRule& rule : rules) id_max = std::max(id_max, rule.result);
  merger.can_yield_.assign(size_t{id_max} + 1, false);
  for (const TokenId id : byte_tokens) merger.can_yield_[id] = true;
  for (size_t rank = 0; rank < rules.size(); ++rank) {
    const MergeRule& rule = rules[rank];
    const uint64_t key = PairKey(rule.left, rule.right);
    size_t slot = HashPair(key) >> merger.pairs_shift_;
    while (merger.pairs_[slot].rank != kNoRank) {
      if (merger.pairs_[slot].pair == key) {
        return absl::InvalidArgumentError(
            absl::StrCat("merges ", merger.pairs_[slot].rank, " and ", rank, " are the same pair"));
      }
      slot = (slot + 1) & (num_slots - 1);
    }
    merger.pairs_[slot] = {key, static_cast<uint32_t>(rank), rule.result};
    merger.can_yield_[rule.result] = true;
  }
  return merger;
}

void BytePairMerger::IndexWholeTokens(const std::vector<absl::string_view>& token_bytes) {
  const size_t num_slots = std::bit_ceil(token_bytes.size() * 2 + 2);
  std::vector<WholeEntry> wholes(num_slots, WholeEntry{nullptr, 0, 0});
  size_t bytes_max = 0;
  std::vector<TokenId> merged;
  for (TokenId id = 0; id < token_bytes.size(); ++id) {
    const absl::string_view bytes = token_bytes[id];
    if (bytes.empty() || !CanYield(id)) continue;
    merged.clear();
    Merge(bytes, &merged);
    if (merged.size() != 1 || merged[0] != id) continue;
    size_t slot = HashBytes(bytes) & (num_slots - 1);
    while (wholes[slot].bytes != nullptr) slot = (slot + 1) & (num_slots - 1);
    wholes[slot] = {bytes.data(), static_cast<uint32_t>(bytes.size()), id};
    bytes_max = std::max(bytes_max, bytes.size());
  }
  wholes_ = std::move(wholes);
  whole_bytes_max_ = bytes_max;
}

bool BytePairMerger::CanYield(TokenId id) const { return id < can_yield_.size() && can_yield_[id]; }

const BytePairMerger::PairEntry& BytePairMerger::FindPair(TokenId left, TokenId right) const {
  const uint64_t key = PairKey(left, right);
  size_t slot = HashPair(key) >> pairs_shift_;
  while (pairs_[slot].pair != key && pairs_[slot].rank != kNoRank) slot = (slot + 1) & (pairs_.size() - 1);
  return pairs_[slot];
}

const TokenId* BytePairMerger::FindWhole(absl::string_view piece) const {
  if (piece.size() > whole_bytes_max_) return nullptr;
  size_t slot = HashBytes(piece) & (wholes_.size() - 1);
  for (; wholes_[slot].bytes != nullptr; slot = (slot + 1) & (wholes_.size() - 1)) {
    const WholeEntry& entry = wholes_[slot];
    if (entry.length == piece.size() && std::memcmp(entry.bytes, piece.data(), piece.size()) == 0) return &entry.id;
  }
  return nullptr;
}

size_t BytePairMerger::Merge(absl::string_view piece, std::vector<TokenId>* ids) const {
  if (piece.empty()) return 0;
  if (const TokenId* id = FindWhole(piece)) {
    ids->push_back(*id);
    return 0;
  }
  return piece.size() <= kShortPieceMax ? MergeShort(piece, ids) : MergeLong(piece, ids);
}

size_t BytePairMerger::MergeShort(absl::string_view piece, std::vector<TokenId>* ids) const {
  TokenId tokens[kShortPieceMax];
  uint32_t ranks[kShortPieceMax];  // ranks[i] of the pair (tokens[i], tokens[i + 1]); the last is kNoRank
  TokenId results[kShortPieceMax];
  size_t num_tokens = piece.size();
  size_t num_looked_at = 0;
  const auto look_at = [&](size_t i) {
    if (i + 1 == num_tokens) {
      ranks[i] = kNoRank;
      results[i] = 0;
      return;
    }
    const PairEntry& entry = FindPair(tokens[i], tokens[i + 1]);
    ranks[i] = entry.rank;
    results[i] = entry.result;
    ++num_looked_at;
  };
  for (size_t i = 0; i < num_tokens; ++i) tokens[i] = byte_tokens_[static_cast<uint8_t>(piece[i])];
  for (size_t i = 0; i < num_tokens; ++i) look_at(i);
  for (;;) {
    const size_t best = std::min_element(ranks, ranks + num_tokens) - ranks;
    if (ranks[best] == kNoRank) break;
    tokens[best] = results[best];
    for (size_t i = best + 1; i + 1 < num_tokens; ++i) {
      tokens[i] = tokens[i + 1];
      ranks[i] = ranks[i + 1];
      results[i] = results[i + 1];
    }
    --num_tokens;
    look_at(best);
    if (best > 0) look_at(best - 1);
  }
  ids->insert(ids->end(), tokens, tokens + num_tokens);
  return num_looked_at;
}

size_t BytePairMerger::MergeLong(absl::string_view piece, std::vector<TokenId>* ids) const {
  constexpr uint32_t kEnd = ~uint32_t{0};
  struct Link {
    TokenId token;
    uint32_t previous;
    uint32_t next;
    uint32_t rank;  // of the pair of this token and the next; kNoRank also once merged into the left neighbour
    TokenId result;
  };
  const uint32_t num_bytes = static_cast<uint32_t>(piece.size());
  std::vector<Link> links(num_bytes);
  for (uint32_t i = 0; i < num_bytes; ++i) {
    const TokenId token = byte_tokens_[static_cast<uint8_t>(piece[i])];
    links[i] = {token, i == 0 ? kEnd : i - 1, i + 1 == num_bytes ? kEnd : i + 1, kNoRank, 0};
  }
  // Where pairs of a rank begin. An entry is stale if its link's rank has changed: a token only ever grows, so a pair
  // that is gone from a place never comes back there.
  absl::btree_map<uint32_t, std::vector<uint32_t>> places;
  size_t num_looked_at = 0;
  const auto look_at = [&](uint32_t i) {
    Link& link = links[i];
    link.rank = kNoRank;
    if (link.next == kEnd) return;
    const PairEntry& entry = FindPair(link.token, links[link.next].token);
    ++num_looked_at;
    link.rank = entry.rank;
    link.result = entry.result;
    if (entry.rank != kNoRank) places[entry.rank].push_back(i);
  };
  for (uint32_t i = 0; i < num_bytes; ++i) look_at(i);
  while (!places.empty()) {
    const uint32_t rank = places.begin()->first;
    std::vector<uint32_t> now = std::move(places.begin()->second);
    places.erase(places.begin());
    std::sort(now.begin(), now.end());
    for (size_t at = 0; at < now.size(); ++at) {
      Link& left = links[now[at]];
      if (left.rank != rank) continue;
      Link& right = links[left.next];
      left.token = left.result;
      left.next = right.next;
      right.rank = kNoRank;
      if (left.next != kEnd) links[left.next].previous = now[at];
      look_at(now[at]);
      if (left.previous != kEnd) look_at(left.previous);
      // Files made by training never do this: a token's own merges come after the merge that makes it.
      if (!places.empty() && places.begin()->first < rank) {
        places[rank].assign(now.begin() + static_cast<ptrdiff_t>(at) + 1, now.end());
        break;
      }
    }
  }
  for (uint32_t i = 0; i != kEnd; i = links[i].next) ids->push_back(links[i].token);
  return num_looked_at;
}

}  // namespace tandem::router
