// Whether every shard of the process can serve: /readyz is asked of one shard, the next request may meet another.
//
// Each shard posts its own word at every tick and whenever it is asked; the only state that shards share beside the
// metrics, and not on the path of a request. Thread-safe. Tested by readiness_test.cc.
#pragma once

#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace tandem::router {

class Readiness final {
 public:
  // A further shard, not ready before it has said so. Returns its number.
  int Join() ABSL_LOCKS_EXCLUDED(mutex_);
  void Post(int shard, const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  // OK where every shard is ready, else UNAVAILABLE with the reason of each that is not, by number where there are more
  // than one.
  absl::Status Check() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  mutable absl::Mutex mutex_;
  std::vector<absl::Status> shards_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem::router
