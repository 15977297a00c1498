// What every shard of the process says of itself, so that /statusz, asked of one, shows all.
//
// Each shard posts its text now and then, and whenever it is asked itself; a shard that hangs is seen by the age of its
// last word. Not on the path of a request. Thread-safe. Tested by status_board_test.cc.
#pragma once

#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tandem::router {

class StatusBoard final {
 public:
  // How often a shard posts; text of many requests costs more than a tick may.
  static constexpr absl::Duration kPostInterval = absl::Milliseconds(200);

  // shard: its number from 0; now: point of the clock.
  void Post(int shard, std::string text, absl::Duration now) ABSL_LOCKS_EXCLUDED(mutex_);
  // All of them in order, each under its number and age where there are several.
  std::string Text(absl::Duration now) const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Entry {
    std::string text;
    absl::Duration posted_at = absl::ZeroDuration();
  };
  mutable absl::Mutex mutex_;
  std::vector<Entry> shards_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem::router
