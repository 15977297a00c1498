#include "router/prefix_mirror.h"

#include "proto/page_key.h"

namespace tandem::router {

std::vector<uint64_t> PageKeysOf(absl::Span<const TokenId> prompt, absl::string_view cache_salt,
                                 const PageKeyRules& rules) {
  std::vector<uint64_t> keys;
  uint64_t key = proto::RootPageKey(rules.domain, cache_salt);
  // The last token is always computed.
  for (size_t end = proto::kPageKeyTokens; end < prompt.size(); end += proto::kPageKeyTokens) {
    key = proto::PageKey(key, prompt.subspan(end - proto::kPageKeyTokens, proto::kPageKeyTokens),
                         proto::kAllPromptTokens, rules.covers_next_token ? prompt[end] : proto::kNoToken);
    keys.push_back(key);
  }
  return keys;
}

bool PrefixMirror::Take(const proto::PrefixUpdate& update) {
  const bool is_next = update.number() == last_number_ + 1;
  last_number_ = update.number();
  if (update.is_snapshot_begin()) {
    keys_.clear();
    num_keys_ = key_sum_ = 0;
    is_sound_ = true;
  } else if (!is_sound_) {
    return true;  // it was said
  } else if (!is_next) {
    return Distrust();
  }
  for (const uint64_t key : update.removed()) {
    const auto it = keys_.find(key);
    if (it == keys_.end()) return Distrust();
    if (--it->second == 0) keys_.erase(it);
    --num_keys_;
    key_sum_ -= key;
  }
  for (const uint64_t key : update.added()) {
    ++keys_[key];
    ++num_keys_;
    key_sum_ += key;
  }
  is_complete_ = update.is_complete();
  if (is_complete_ && (update.num_keys() != num_keys_ || update.key_sum() != key_sum_)) return Distrust();
  return true;
}

bool PrefixMirror::Distrust() {
  Reset();
  return false;
}

void PrefixMirror::Reset() {
  keys_.clear();
  num_keys_ = key_sum_ = 0;
  is_sound_ = is_complete_ = false;
}

int PrefixMirror::NumCached(absl::Span<const uint64_t> page_keys) const {
  if (!is_sound()) return 0;
  int num_cached = 0;
  while (num_cached < static_cast<int>(page_keys.size()) && keys_.contains(page_keys[num_cached])) ++num_cached;
  return num_cached;
}

}  // namespace tandem::router
