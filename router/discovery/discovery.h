// Asks the places that know of workers, again and again, and tells the directory.
//
// Level-triggered: each look is a whole list, so that nothing is lost for longer than one interval, whatever was missed
// between two looks. One thread; a source that blocks delays the others, never the router's requests.
// Tested by discovery_test.cc and tests/e2e/discovery_test.py.
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "router/discovery/worker_directory.h"

namespace tandem::router {

class Discovery final {
 public:
  struct Source {
    std::string name;  // as logs call it
    std::function<absl::StatusOr<WorkerLists>()> look;
  };

  // Looks once before it returns, so that a router starts with what there is; then every interval, until destroyed.
  Discovery(std::vector<Source> sources, absl::Duration interval, WorkerDirectory* directory);
  ~Discovery();
  // No look begins from here on; one under way may go on for as long as its resolver takes.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);
  Discovery(const Discovery&) = delete;
  Discovery& operator=(const Discovery&) = delete;

 private:
  void Look();

  const std::vector<Source> sources_;
  const absl::Duration interval_;
  WorkerDirectory* const directory_;
  absl::Mutex mutex_;
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tandem::router
