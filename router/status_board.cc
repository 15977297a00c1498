#include "router/status_board.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace tandem::router {

void StatusBoard::Post(int shard, Word word) {
  absl::MutexLock lock(&mutex_);
  if (shards_.size() <= static_cast<size_t>(shard)) shards_.resize(shard + 1);
  shards_[shard] = std::move(word);
}

std::vector<StatusBoard::Word> StatusBoard::Words() const {
  std::vector<Word> words;
  absl::MutexLock lock(&mutex_);
  for (const Word& word : shards_) {
    words.push_back({"", word.num_in_flight, word.num_waiting, word.requests, word.posted_at});
  }
  return words;
}

std::string StatusBoard::Text(absl::Duration now) const {
  absl::MutexLock lock(&mutex_);
  if (shards_.size() == 1) return shards_.front().text;
  std::string all;
  for (size_t shard = 0; shard < shards_.size(); ++shard) {
    const absl::Duration age = absl::Trunc(now - shards_[shard].posted_at, absl::Milliseconds(1));
    absl::StrAppend(&all, shard == 0 ? "" : "\n", "shard ", shard, " of ", shards_.size(), ", ",
                    absl::FormatDuration(age), " ago\n", shards_[shard].text);
  }
  return all;
}

}  // namespace tandem::router
