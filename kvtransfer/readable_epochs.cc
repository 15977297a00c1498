#include "kvtransfer/readable_epochs.h"

namespace tandem::kvtransfer {

void ReadableEpochs::Open(uint64_t target_incarnation, uint64_t epoch) {
  absl::MutexLock lock(&mutex_);
  epochs_.emplace(target_incarnation, epoch);
}

void ReadableEpochs::Close(uint64_t target_incarnation, uint64_t epoch) {
  absl::MutexLock lock(&mutex_);
  epochs_.erase({target_incarnation, epoch});
}

bool ReadableEpochs::IsReadable(const FetchOrigin& origin) const {
  absl::MutexLock lock(&mutex_);
  return epochs_.contains({origin.target_incarnation, origin.epoch});
}

size_t ReadableEpochs::size() const {
  absl::MutexLock lock(&mutex_);
  return epochs_.size();
}

}  // namespace tandem::kvtransfer
