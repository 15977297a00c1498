#include "router/readiness.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace tandem::router {

int Readiness::Join() {
  absl::MutexLock lock(&mutex_);
  shards_.push_back(absl::UnavailableError("starts"));
  return static_cast<int>(shards_.size()) - 1;
}

void Readiness::Post(int shard, const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  shards_[shard] = status;
}

absl::Status Readiness::Check() const {
  absl::MutexLock lock(&mutex_);
  std::string why;
  for (size_t shard = 0; shard < shards_.size(); ++shard) {
    if (shards_[shard].ok()) continue;
    if (!why.empty()) why += "\n";
    if (shards_.size() > 1) absl::StrAppend(&why, "shard ", shard, " of ", shards_.size(), ": ");
    absl::StrAppend(&why, shards_[shard].message());
  }
  return why.empty() ? absl::OkStatus() : absl::UnavailableError(why);
}

}  // namespace tandem::router
