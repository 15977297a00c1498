// An abort by id, asked of one shard, meant for whichever has the request.
//
// The only call that one shard makes on another: each looks on its own thread, and the one that was asked hears how
// many had it. Not on the path of a request. Thread-safe. Tested by abort_relay_test.cc.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace tandem::router {

class AbortRelay final {
 public:
  // Runs the work on the shard's thread, or drops it where the shard has ended. From any thread.
  using Post = std::function<void(std::function<void()> work)>;
  // Aborts on the shard's thread; returns the number of requests that it was.
  using Abort = std::function<int(const std::string& id)>;

  void Join(Post post, Abort abort) ABSL_LOCKS_EXCLUDED(mutex_);
  // done: called through `reply` when every shard that still runs has looked.
  void AbortEverywhere(const std::string& id, Post reply, std::function<void(int num_aborted)> done)
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Shard {
    Post post;
    Abort abort;
  };
  mutable absl::Mutex mutex_;
  std::vector<Shard> shards_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem::router
