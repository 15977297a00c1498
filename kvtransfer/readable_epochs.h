// Which epochs' source pages may still be read: what a source's lane threads ask at every piece they serve.
//
// An epoch is readable from its admission by P's engine until its pages are about to be released. Thread-safe: the
// engine's thread writes, lane threads read. Tested by readable_epochs_test.cc.
#pragma once

#include <cstdint>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/synchronization/mutex.h"
#include "kvtransfer/epoch_check.h"

namespace tandem::kvtransfer {

class ReadableEpochs final {
 public:
  void Open(uint64_t target_incarnation, uint64_t epoch) ABSL_LOCKS_EXCLUDED(mutex_);
  void Close(uint64_t target_incarnation, uint64_t epoch) ABSL_LOCKS_EXCLUDED(mutex_);
  bool IsReadable(const FetchOrigin& origin) const ABSL_LOCKS_EXCLUDED(mutex_);
  size_t size() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  mutable absl::Mutex mutex_;
  absl::flat_hash_set<std::pair<uint64_t, uint64_t>> epochs_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem::kvtransfer
