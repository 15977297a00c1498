// What every shard of the process says of itself, so that /statusz and /debug/state, asked of one, show all.
//
// Each shard posts its word now and then, and whenever it is asked itself; a shard that hangs is seen by the age of its
// last word. Not on the path of a request. Thread-safe. Tested by status_board_test.cc.
#pragma once

#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "router/request_view.h"

namespace tandem::router {

class StatusBoard final {
 public:
  // How often a shard posts; text of many workers and requests costs more than a tick may.
  static constexpr absl::Duration kPostInterval = absl::Seconds(1);

  struct Word {
    std::string text;  // /statusz
    int num_in_flight = 0;
    int num_waiting = 0;
    std::vector<RequestView> requests;  // the oldest
    absl::Duration posted_at = absl::ZeroDuration();
  };

  // shard: its number from 0; word.posted_at: a point of the clock.
  void Post(int shard, Word word) ABSL_LOCKS_EXCLUDED(mutex_);
  // All of them in order, each under its number and age where there are several.
  std::string Text(absl::Duration now) const ABSL_LOCKS_EXCLUDED(mutex_);
  // The same in order, without their texts.
  std::vector<Word> Words() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  mutable absl::Mutex mutex_;
  std::vector<Word> shards_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem::router
