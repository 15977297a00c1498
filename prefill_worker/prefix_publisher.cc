#include "prefill_worker/prefix_publisher.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace tandem::prefill {

void PrefixPublisher::Take(absl::Span<const kvcache::PrefixChange> changes) {
  for (const kvcache::PrefixChange& change : changes) {
    num_keys_ += change.is_added ? 1 : -1;
    key_sum_ += change.is_added ? change.page_key : -change.page_key;
  }
}

void PrefixPublisher::Seal(proto::PrefixUpdate& update) const {
  update.set_is_complete(true);
  update.set_num_keys(num_keys_);
  update.set_key_sum(key_sum_);
}

std::vector<PrefixPublisher::Told> PrefixPublisher::Publish(absl::Span<const kvcache::PrefixChange> changes) {
  Take(changes);
  std::vector<Told> told;
  if (next_numbers_.empty()) return told;
  absl::flat_hash_map<uint64_t, int> balance;  // more than one where keys collide
  for (const kvcache::PrefixChange& change : changes) balance[change.page_key] += change.is_added ? 1 : -1;
  std::vector<std::pair<uint64_t, int>> net;
  for (const auto& entry : balance) {
    if (entry.second != 0) net.push_back(entry);
  }
  if (net.empty()) return told;
  std::sort(net.begin(), net.end());  // the same words for the same changes
  std::vector<proto::PrefixUpdate> updates(1);
  size_t num_keys = 0;
  for (const auto& [key, count] : net) {
    if (num_keys++ == kKeysPerMessage) {
      updates.emplace_back();
      num_keys = 1;
    }
    for (int i = 0; i < count; ++i) updates.back().add_added(key);
    for (int i = 0; i > count; --i) updates.back().add_removed(key);
  }
  Seal(updates.back());
  for (auto& [stream_id, next_number] : next_numbers_) {
    for (const proto::PrefixUpdate& update : updates) {
      told.push_back({.stream_id = stream_id, .update = update});
      told.back().update.set_number(next_number++);
    }
  }
  return told;
}

std::vector<PrefixPublisher::Told> PrefixPublisher::Subscribe(uint64_t stream_id, const kvcache::PrefixIndex& index) {
  std::vector<uint64_t> keys = index.Keys();
  std::sort(keys.begin(), keys.end());
  uint64_t& next_number = next_numbers_.try_emplace(stream_id, 1).first->second;
  std::vector<Told> told;
  size_t begin = 0;
  do {
    const size_t end = std::min(begin + kKeysPerMessage, keys.size());
    Told& part = told.emplace_back(Told{.stream_id = stream_id, .update = {}});
    part.update.set_number(next_number++);
    part.update.set_is_snapshot_begin(begin == 0);
    part.update.mutable_added()->Add(keys.begin() + static_cast<ptrdiff_t>(begin),
                                     keys.begin() + static_cast<ptrdiff_t>(end));
    begin = end;
  } while (begin < keys.size());
  Seal(told.back().update);
  return told;
}

}  // namespace tandem::prefill
